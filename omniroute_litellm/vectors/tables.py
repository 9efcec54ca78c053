"""The vec0 tables: one for every signature, built beside the one that answers, then swapped."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, cast

from omniroute_litellm.sqlite import Connection, Database, Row, Value
from omniroute_litellm.types import Clock, from_iso, to_iso
from omniroute_litellm.variables import Quantization

CHUNK_SIZE: Final = 64
"""Vectors a chunk of an owner's partition: vec0's own 1,024 makes a file ten times as large at a
hundred memories an owner."""

_TABLES: Final = """
SELECT number, source, model, dimension, quantization, state, queued_to, begun_at
FROM vector_tables ORDER BY number
"""
_ADD: Final = """
INSERT INTO vector_tables (source, model, dimension, quantization, state, queued_to, begun_at)
VALUES (:source, :model, :dimension, :quantization, 'building', 0, :now) RETURNING number
"""
_CREATE: Final = """
CREATE VIRTUAL TABLE {name} USING vec0(
    pk INTEGER PRIMARY KEY,
    owner INTEGER PARTITION KEY,
    embedding {kind}[{dimension}] distance_metric=cosine,
    chunk_size={chunk_size}
)
"""
_FORGET: Final = "DELETE FROM vector_tables WHERE number = :number"
_ACTIVATE: Final = "UPDATE vector_tables SET state = 'active' WHERE number = :number"
_QUEUE: Final = """
WITH part AS (SELECT pk FROM memories WHERE pk > :after ORDER BY pk LIMIT :limit)
INSERT INTO vector_work (table_number, pk)
SELECT :number, pk FROM part WHERE NOT EXISTS (SELECT 1 FROM {name} AS v WHERE v.pk = part.pk)
ON CONFLICT (table_number, pk) DO NOTHING
"""
_PART_END: Final = """
SELECT max(pk) FROM (SELECT pk FROM memories WHERE pk > :after ORDER BY pk LIMIT :limit)
"""
_QUEUED_TO: Final = "UPDATE vector_tables SET queued_to = :to WHERE number = :number"
_IS_LEFT: Final = """
SELECT 1 FROM vector_work WHERE table_number = :number AND attempts < :max_attempts LIMIT 1
"""
_SET_INDEXED: Final = """
UPDATE memories SET needs_reindex = 0 WHERE needs_reindex
AND pk NOT IN (SELECT pk FROM vector_work WHERE table_number = :number)
"""
_SET_MISSING: Final = """
UPDATE memories SET needs_reindex = 1
WHERE pk IN (SELECT pk FROM vector_work WHERE table_number = :number)
"""
_RETRY: Final = """
UPDATE vector_work SET attempts = 0, due_at = '' WHERE attempts >= :max_attempts
"""
_PUT_META: Final = """
INSERT INTO memory_vec_meta (name, value) VALUES (:name, :value)
ON CONFLICT (name) DO UPDATE SET value = excluded.value
"""
_DROP_META: Final = "DELETE FROM memory_vec_meta WHERE name = :name"
_META: Final = "SELECT name, value FROM memory_vec_meta"

MAX_ATTEMPTS: Final = 5
"""After so many failures of its own a memory is set aside until a reindex asks for it again."""


@dataclass(frozen=True, slots=True)
class Spec:
    """What decides whether two vectors can be compared, and how they are stored."""

    source: str
    model: str
    quantization: Quantization

    def is_comparable(self, other: "Spec") -> bool:
        """Tell whether queries for one find their way in the other."""
        return (self.source, self.model) == (other.source, other.model)


@dataclass(frozen=True, slots=True)
class VectorTable:
    """One vec0 table. ``is_queued`` says whether every memory was looked at for it."""

    number: int
    spec: Spec
    dimension: int
    is_active: bool
    is_queued: bool
    begun_at: datetime

    @property
    def name(self) -> str:
        """The name of the table in the database."""
        return f"memory_vec_{self.number:d}"

    @property
    def signature(self) -> str:
        """``source:model:dimension[:int8]``."""
        tail = "" if self.spec.quantization == "none" else f":{self.spec.quantization}"
        return f"{self.spec.source}:{self.spec.model}:{self.dimension}{tail}"


@dataclass(frozen=True, slots=True)
class Tables:
    """The table that answers, the one that is built beside it, and what was cancelled last."""

    active: VectorTable | None
    building: VectorTable | None
    meta: Mapping[str, str]

    @property
    def cancelled(self) -> str | None:
        """The signature whose build was cancelled: it does not begin again by itself."""
        return self.meta.get("cancelled")


class VectorTables:
    """The list of tables, shared by every process of the host. Each change is one transaction."""

    def __init__(self, database: Database, *, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    def read(self) -> Tables:
        """Return the tables there are; raise BackendUnavailableError."""
        with self._database.reading() as connection:
            return read_tables(connection)

    def begin(self, spec: Spec, dimension: int, *, is_forced: bool = False) -> VectorTable:
        """Begin a table and return it; one that another process has begun meanwhile is returned.

        A build of something else is given up for it. ``is_forced`` builds beside an active table
        of the same kind, too.
        """
        with self._database.writing() as connection:
            tables = read_tables(connection)
            for known in (tables.building, None if is_forced else tables.active):
                if known is not None and (known.spec, known.dimension) == (spec, dimension):
                    return known
            if tables.building is not None:
                _drop(connection, tables.building)
            connection.execute(_DROP_META, {"name": "cancelled"})
            values: dict[str, Value] = {
                "source": spec.source,
                "model": spec.model,
                "dimension": dimension,
                "quantization": spec.quantization,
                "now": to_iso(self._clock()),
            }
            number = cast("int", connection.execute(_ADD, values).fetchall()[0][0])
            made = next(each for each in _listed(connection) if each.number == number)
            kind = "float" if spec.quantization == "none" else "int8"
            connection.execute(
                _CREATE.format(
                    name=made.name, kind=kind, dimension=int(dimension), chunk_size=CHUNK_SIZE
                )
            )
            return made

    def queue_some(self, table: VectorTable, *, limit: int) -> bool:
        """Queue some of the memories without a vector; return whether there are more to look at.

        In parts, so that no other write waits for a million rows.
        """
        with self._database.writing() as connection:
            where: dict[str, Value] = {"number": table.number, "limit": limit}
            row = connection.execute(
                "SELECT queued_to FROM vector_tables WHERE number = :number", where
            ).fetchall()
            if not row or row[0][0] is None:
                return False
            where["after"] = row[0][0]
            end = connection.execute(_PART_END, where).fetchall()[0][0]
            if end is not None:
                connection.execute(_QUEUE.format(name=table.name), where)
            connection.execute(_QUEUED_TO, {"number": table.number, "to": end})
            return end is not None

    def activate(self, table: VectorTable) -> bool:
        """Let a table answer, and drop the one that did, once nothing is left to do for it."""
        with self._database.writing() as connection:
            tables = read_tables(connection)
            building = tables.building
            values: dict[str, Value] = {"number": table.number, "max_attempts": MAX_ATTEMPTS}
            if building is None or building.number != table.number or not building.is_queued:
                return False
            if connection.execute(_IS_LEFT, values).fetchall():
                return False
            if tables.active is not None:
                _drop(connection, tables.active)
            connection.execute(_ACTIVATE, values)
            connection.execute(_SET_INDEXED, values)
            connection.execute(_SET_MISSING, values)
            for name, value in (
                ("active_dim", str(table.dimension)),
                ("embedding_signature", table.signature),
                ("last_reset_at", to_iso(self._clock())),
                ("vec_loaded", "true"),
            ):
                connection.execute(_PUT_META, {"name": name, "value": value})
            return True

    def cancel(self) -> bool:
        """Give up the table that is built; return False when there is none."""
        with self._database.writing() as connection:
            building = read_tables(connection).building
            if building is None:
                return False
            _drop(connection, building)
            value = _cancelled(building.spec)
            connection.execute(_PUT_META, {"name": "cancelled", "value": value})
            return True

    def give_up(self, table: VectorTable) -> None:
        """Drop a table that nobody wants any more."""
        with self._database.writing() as connection:
            for known in _listed(connection):
                if known.number == table.number and not known.is_active:
                    _drop(connection, known)

    def look_again(self) -> None:
        """Have every memory looked at once more, and those tried again that were set aside."""
        with self._database.writing() as connection:
            connection.execute(_RETRY, {"max_attempts": MAX_ATTEMPTS})
            connection.execute("UPDATE vector_tables SET queued_to = 0 WHERE state = 'active'")
            connection.execute(_DROP_META, {"name": "cancelled"})

    def is_cancelled(self, tables: Tables, spec: Spec) -> bool:
        """Tell whether somebody cancelled the build of just this."""
        return tables.cancelled == _cancelled(spec)


def read_tables(connection: Connection) -> Tables:
    """Return the tables as one snapshot sees them."""
    listed = _listed(connection)
    meta = cast("list[tuple[str, str]]", connection.execute(_META).fetchall())
    return Tables(
        active=next((table for table in listed if table.is_active), None),
        building=next((table for table in listed if not table.is_active), None),
        meta=dict(meta),
    )


def _listed(connection: Connection) -> list[VectorTable]:
    return [_table(row) for row in connection.execute(_TABLES).fetchall()]


def _table(row: Row) -> VectorTable:
    number, source, model, dimension, quantization, state, queued_to, begun_at = cast(
        "tuple[int, str, str, int, Quantization, str, int | None, str]", row
    )
    return VectorTable(
        number=number,
        spec=Spec(source, model, quantization),
        dimension=dimension,
        is_active=state == "active",
        is_queued=queued_to is None,
        begun_at=from_iso(begun_at),
    )


def _drop(connection: Connection, table: VectorTable) -> None:
    connection.execute(_FORGET, {"number": table.number})
    connection.execute(f"DROP TABLE {table.name}")


def _cancelled(spec: Spec) -> str:
    return f"{spec.source}:{spec.model}:{spec.quantization}"
