"""Making vectors anew on request: start, progress, cancel."""

from dataclasses import dataclass
from datetime import datetime

from omniroute_litellm.errors import ConflictError, NotFoundError
from omniroute_litellm.indexing import Indexer
from omniroute_litellm.sqlite import Database
from omniroute_litellm.types import Clock
from omniroute_litellm.vectors.tables import Tables, VectorTable, VectorTables
from omniroute_litellm.vectors.work import SetAside, VectorWork


@dataclass(frozen=True, slots=True)
class Coverage:
    """How many memories there are, how many can be found by their vector, how many failed."""

    total: int
    indexed: int
    failed: int


@dataclass(frozen=True, slots=True)
class ReindexJob:
    """A table that is filled: how far it is, and how many memories a second.

    ``rate`` is the mean since the start, None before there is anything to divide.
    """

    id: str
    signature: str
    total: int
    done: int
    failed: int
    begun_at: datetime
    rate: float | None


@dataclass(frozen=True, slots=True)
class Started:
    """What a request to reindex began."""

    started: bool
    pending: int
    job_id: str


class Reindexer:
    """Starts, shows and cancels; the workers of all processes do the work in the background."""

    def __init__(
        self,
        database: Database,
        tables: VectorTables,
        work: VectorWork,
        indexer: Indexer,
        *,
        clock: Clock,
    ) -> None:
        self._database = database
        self._tables = tables
        self._work = work
        self._indexer = indexer
        self._clock = clock

    def start(self, *, force: bool) -> Started:
        """Look for memories without a vector and try failed ones again; ``force`` makes all anew.

        Raises ConflictError while a table is built, EmbedderUnavailableError when there is no
        model to build one with.
        """
        tables = self._tables.read()
        if tables.building is not None:
            message = f"the reindex {_job_id(tables.building)} is running; cancel it first"
            raise ConflictError(message)
        if tables.active is not None and not force and self._indexer.is_current(tables.active):
            if not tables.active.is_queued:
                message = f"the reindex {_job_id(tables.active)} is running"
                raise ConflictError(message)
            self._tables.look_again()
            coverage = self.coverage()
            pending = coverage.total - coverage.indexed
            return Started(started=True, pending=pending, job_id=_job_id(tables.active))
        table = self._indexer.begin_anew()
        if table is None:
            return Started(started=False, pending=0, job_id="")
        return Started(started=True, pending=self._total(), job_id=_job_id(table))

    def cancel(self) -> None:
        """Give up the table that is built; raise NotFoundError when there is none."""
        if not self._tables.cancel():
            message = "no reindex is running"
            raise NotFoundError(message)

    def coverage(self, tables: Tables | None = None) -> Coverage:
        """Count what can be found by meaning at this moment."""
        active = (tables or self._tables.read()).active
        total = self._total()
        if active is None:
            return Coverage(total, 0, 0)
        counts = self._work.counts(active)
        indexed = max(0, total - counts.waiting - counts.failed)
        return Coverage(total, indexed, counts.failed)

    def job(self, tables: Tables | None = None) -> ReindexJob | None:
        """Return the progress of the table that is built, None when none is."""
        building = (tables or self._tables.read()).building
        if building is None:
            return None
        total, counts = self._total(), self._work.counts(building)
        done = max(0, total - counts.waiting - counts.failed) if building.is_queued else 0
        elapsed_s = (self._clock() - building.begun_at).total_seconds()
        return ReindexJob(
            id=_job_id(building),
            signature=building.signature,
            total=total,
            done=done,
            failed=counts.failed,
            begun_at=building.begun_at,
            rate=round(done / elapsed_s, 1) if done and elapsed_s > 0 else None,
        )

    def row_count(self, table: VectorTable) -> int:
        """Count the vectors of a table, as they are in the database."""
        with self._database.reading() as connection:
            # The table of vec0 itself is read vector by vector; this is its list of keys.
            rows = connection.execute(f"SELECT count(*) FROM {table.name}_rowids").fetchall()
        return int(str(rows[0][0]))

    def set_aside(self, *, limit: int) -> list[SetAside]:
        """Return memories that no model could embed, and why."""
        active = self._tables.read().active
        return [] if active is None else self._work.set_aside(active, limit=limit)

    def _total(self) -> int:
        with self._database.reading() as connection:
            rows = connection.execute("SELECT count(*) FROM memories").fetchall()
        return int(str(rows[0][0]))


def _job_id(table: VectorTable) -> str:
    return f"reindex-{table.number}"
