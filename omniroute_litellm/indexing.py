"""The background worker that gives every memory its vector, one batch at a time."""

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, cast

import numpy as np

from omniroute_litellm.embedding.base import (
    Embedder,
    EmbedderUnavailableError,
    Matrix,
    TextRefusedError,
)
from omniroute_litellm.embedding.resolve import EmbeddingSources
from omniroute_litellm.errors import ContractError
from omniroute_litellm.live_settings import LiveSettings
from omniroute_litellm.sqlite import Database
from omniroute_litellm.telemetry import span
from omniroute_litellm.types import OwnerId
from omniroute_litellm.variables import Quantization
from omniroute_litellm.vectors.tables import Spec, VectorTable, VectorTables
from omniroute_litellm.vectors.work import Claimed, VectorWork

QUEUE_PART: Final = 5_000
"""Memories that one transaction looks at when a table is begun."""
SHORTEST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 60.0
"""A model that is away is tried again after a second, then twice as long each time, up to this."""

_ANY_MEMORY: Final = "SELECT api_key_id, content FROM memories LIMIT 1"


@dataclass(slots=True)
class _Pause:
    """While a model is away nothing is asked of it, until a moment or until it is another one."""

    embedder: Embedder | None = None
    until: float = 0.0
    length_s: float = SHORTEST_PAUSE_S


class Indexer:
    """Embeds what waits in the queues of the tables that the settings want. One per process.

    ``changed`` is called when another table began to answer.
    """

    def __init__(
        self,
        database: Database,
        tables: VectorTables,
        work: VectorWork,
        settings: LiveSettings,
        sources: EmbeddingSources,
        *,
        quantization: Quantization,
        changed: Callable[[], object],
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._tables = tables
        self._work = work
        self._settings = settings
        self._sources = sources
        self._quantization: Quantization = quantization
        self._changed = changed
        self._timer = timer
        self._pause = _Pause()
        self._lock = threading.Lock()
        self._missed: dict[int, tuple[VectorTable, set[int]]] = {}

    def notice(self, table: VectorTable, pks: Sequence[int]) -> None:
        """Take note of memories without a vector: they are queued at the next step."""
        with self._lock:
            self._missed.setdefault(table.number, (table, set()))[1].update(pks)

    def step(self) -> bool:
        """Do one batch; tell whether there may be more to do at once.

        Raises EmbedderUnavailableError when the model is away (it is left alone for a while) and
        BackendUnavailableError when the database is.
        """
        self._queue_missed()
        embedder = self._sources.choose(self._settings.current.values).embedder
        if embedder is None:
            return False
        if self._pause.embedder is embedder and self._timer() < self._pause.until:
            return False
        try:
            is_busy = self._work_with(embedder)
        except EmbedderUnavailableError as error:
            self._leave_alone(embedder, error)
            self._work.give_back()
            raise
        if is_busy:
            self._pause = _Pause()
        return is_busy

    def is_current(self, table: VectorTable) -> bool:
        """Tell whether a table is of the model that is in force, stored as it is to be."""
        embedder = self._sources.choose(self._settings.current.values).embedder
        return embedder is None or table.spec == self._spec(embedder)

    def begin_anew(self) -> VectorTable | None:
        """Begin a table of what is in force beside the one that answers; None without memories.

        Raises EmbedderUnavailableError when there is no model to fill it.
        """
        choice = self._sources.choose(self._settings.current.values)
        if choice.embedder is None:
            message = "no embedding model is in force"
            reason = choice.reason or "embedding_off"
            hint = choice.hint or "choose an embedding source in the settings"
            raise EmbedderUnavailableError(message, reason=reason, hint=hint)
        dimension = self._dimension(choice.embedder)
        if dimension is None:
            return None
        return self._tables.begin(self._spec(choice.embedder), dimension, is_forced=True)

    def _work_with(self, embedder: Embedder) -> bool:
        for table in self._wanted(embedder):
            if not table.is_queued and self._tables.queue_some(table, limit=QUEUE_PART):
                return True
            claimed = self._work.claim(table, limit=embedder.batch_size)
            if claimed:
                self._embed_all(embedder, table, claimed)
                return True
        building = self._tables.read().building
        if building is not None and self._tables.activate(building):
            self._changed()
            return True
        return False

    def _wanted(self, embedder: Embedder) -> list[VectorTable]:
        """Return the tables to work on, first the one that answers; begin one that is missing."""
        tables, spec = self._tables.read(), self._spec(embedder)
        active, building = tables.active, tables.building
        if building is not None and building.spec != spec:
            if active is not None and active.spec == spec:
                self._tables.give_up(building)
            building = None
        is_wanted = building is None and (active is None or active.spec != spec)
        if is_wanted and not self._tables.is_cancelled(tables, spec):
            dimension = self._dimension(embedder)
            if dimension is not None:
                building = self._tables.begin(spec, dimension)
        found: list[VectorTable] = []
        if active is not None and active.spec.is_comparable(spec):
            # A model that changed its dimension behind its name can add nothing to the old table.
            is_outgrown = building is not None and building.dimension != active.dimension
            found += [] if is_outgrown else [active]
        return [*found, building] if building is not None else found

    def _embed_all(
        self, embedder: Embedder, table: VectorTable, claimed: Sequence[Claimed]
    ) -> None:
        with span("memory.embed"):
            try:
                rows = np.concatenate(list(_rows(embedder, claimed)))
            except (TextRefusedError, ContractError) as error:
                self._embed_each(embedder, table, claimed, error)
                return
        self._settle(embedder, table, claimed, rows)

    def _embed_each(
        self,
        embedder: Embedder,
        table: VectorTable,
        claimed: Sequence[Claimed],
        error: TextRefusedError | ContractError,
    ) -> None:
        """Find the memories of a batch that the model refuses: the others must not wait."""
        if len(claimed) == 1:
            self._work.fail(table, claimed[0], error=f"{type(error).__name__}: {error}")
            return
        for each in claimed:
            try:
                rows = embedder.embed([each.text], owner=each.owner)
            except (TextRefusedError, ContractError) as refusal:
                self._work.fail(table, each, error=f"{type(refusal).__name__}: {refusal}")
            else:
                self._settle(embedder, table, [each], rows)

    def _settle(
        self, embedder: Embedder, table: VectorTable, claimed: Sequence[Claimed], rows: Matrix
    ) -> None:
        if rows.shape[1] == table.dimension:
            self._work.settle(table, claimed, rows)
            return
        self._work.give_back()
        self._tables.begin(self._spec(embedder), int(rows.shape[1]), is_forced=True)

    def _dimension(self, embedder: Embedder) -> int | None:
        """Measure how many numbers a vector has, on a memory; None while there is none."""
        with self._database.reading() as connection:
            rows = cast("list[tuple[str, str]]", connection.execute(_ANY_MEMORY).fetchall())
        if not rows:
            return None
        owner, text = rows[0]
        return int(embedder.embed([text], owner=OwnerId(owner)).shape[1])

    def _spec(self, embedder: Embedder) -> Spec:
        return Spec(embedder.source, embedder.model, self._quantization)

    def _leave_alone(self, embedder: Embedder, error: EmbedderUnavailableError) -> None:
        known = self._pause
        is_again = known.embedder is embedder
        if not error.is_passing:
            length_s = LONGEST_PAUSE_S
        elif is_again:
            length_s = min(2 * known.length_s, LONGEST_PAUSE_S)
        else:
            length_s = SHORTEST_PAUSE_S
        self._pause = _Pause(embedder, self._timer() + length_s, length_s)

    def _queue_missed(self) -> None:
        with self._lock:
            missed, self._missed = self._missed, {}
        for table, pks in missed.values():
            self._work.queue(table, sorted(pks))


def _rows(embedder: Embedder, claimed: Sequence[Claimed]) -> Iterator[Matrix]:
    """Embed memories owner by owner: a call is charged to one of them."""
    for owner, group in itertools.groupby(claimed, key=lambda each: each.owner):
        yield embedder.embed([each.text for each in group], owner=owner)
