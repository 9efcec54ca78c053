"""Memories that want a vector: each leased to one worker, settled in one transaction."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, cast

import numpy as np
from numpy.typing import NDArray

from omniroute_litellm.sqlite import Connection, Database, Value
from omniroute_litellm.types import Clock, OwnerId, to_iso
from omniroute_litellm.vectors.tables import MAX_ATTEMPTS, VectorTable

LEASE: Final = timedelta(seconds=90)
"""Longer than the longest call to a remote model, so that nobody pays for a memory twice."""
FIRST_PAUSE: Final = timedelta(seconds=5)
"""How long a memory that failed waits for its next try; twice as long after every other one."""

_IS_DUE: Final = """
SELECT 1 FROM vector_work
WHERE table_number = :number AND attempts < :max_attempts AND due_at <= :now LIMIT 1
"""
_CLAIM: Final = """
UPDATE vector_work SET worker = :worker, due_at = :until, attempts = attempts + 1
WHERE table_number = :number AND pk IN (
    SELECT pk FROM vector_work
    WHERE table_number = :number AND attempts < :max_attempts AND due_at <= :now
    ORDER BY pk LIMIT :limit
)
RETURNING pk, version, attempts
"""
_TEXTS: Final = """
SELECT w.value, m.content, m.api_key_id FROM json_each(:pks) AS w
LEFT JOIN memories AS m ON m.pk = w.value
"""
_DONE: Final = """
DELETE FROM vector_work
WHERE table_number = :number AND pk = :pk AND version = :version AND worker = :worker RETURNING pk
"""
_REMOVE: Final = "DELETE FROM {name} WHERE pk = :pk"
_INSERT: Final = """
INSERT INTO {name} (pk, owner, embedding) VALUES (:pk, :pk >> 32, {value})
"""
_SET_INDEXED: Final = """
UPDATE memories SET needs_reindex = 0 WHERE needs_reindex AND pk IN (
    SELECT value FROM json_each(:pks)
) AND :number = coalesce((SELECT number FROM vector_tables WHERE state = 'active'), :number)
"""
_FAIL: Final = """
UPDATE vector_work SET worker = NULL, due_at = :due_at, last_error = :error
WHERE table_number = :number AND pk = :pk AND version = :version AND worker = :worker
"""
_GIVE_BACK: Final = """
UPDATE vector_work SET worker = NULL, due_at = '', attempts = max(attempts - 1, 0)
WHERE worker = :worker
"""
_COUNTS: Final = """
SELECT count(*), coalesce(sum(w.attempts >= :max_attempts), 0)
FROM vector_work AS w JOIN memories AS m ON m.pk = w.pk WHERE w.table_number = :number
"""
_FAILED: Final = """
SELECT m.id, w.attempts, w.last_error FROM vector_work AS w JOIN memories AS m ON m.pk = w.pk
WHERE w.table_number = :number AND w.attempts >= :max_attempts ORDER BY w.pk LIMIT :limit
"""
_MISSED: Final = """
INSERT INTO vector_work (table_number, pk)
SELECT t.number, m.pk FROM json_each(:pks) AS j
JOIN memories AS m ON m.pk = j.value JOIN vector_tables AS t ON t.number = :number WHERE true
ON CONFLICT (table_number, pk) DO NOTHING
"""

_SET_MISSING: Final = """
UPDATE memories SET needs_reindex = 1 WHERE pk IN (SELECT value FROM json_each(:pks))
"""

_REVISE: Final = """
UPDATE owners SET vector_revision = vector_revision + 1
WHERE number IN (SELECT value >> 32 FROM json_each(:pks))
"""


@dataclass(frozen=True, slots=True)
class Claimed:
    """A memory that this worker may embed until its lease ends."""

    pk: int
    version: int
    attempts: int
    owner: OwnerId
    text: str


@dataclass(frozen=True, slots=True)
class WorkCounts:
    """How many memories wait for a vector, and how many were set aside after five failures."""

    waiting: int
    failed: int


@dataclass(frozen=True, slots=True)
class SetAside:
    """A memory that could not be embedded, and why."""

    memory_id: str
    attempts: int
    error: str


class VectorWork:
    """The queue of a table, shared by every process. ``worker`` names this one in leases."""

    def __init__(self, database: Database, *, clock: Clock, worker: str) -> None:
        self._database = database
        self._clock = clock
        self._worker = worker

    def claim(self, table: VectorTable, *, limit: int) -> list[Claimed]:
        """Lease memories that nobody works on; what was deleted leaves the index here."""
        now = self._clock()
        values: dict[str, Value] = {
            "number": table.number,
            "worker": self._worker,
            "now": to_iso(now),
            "until": to_iso(now + LEASE),
            "max_attempts": MAX_ATTEMPTS,
            "limit": limit,
        }
        with self._database.reading() as connection:
            # An idle worker must not stand in the way of those that write.
            if not connection.execute(_IS_DUE, values).fetchall():
                return []
        with self._database.writing() as connection:
            leased = cast(
                "list[tuple[int, int, int]]", connection.execute(_CLAIM, values).fetchall()
            )
            pks = json.dumps([pk for pk, _, _ in leased])
            rows = cast(
                "list[tuple[int, str | None, str]]",
                connection.execute(_TEXTS, {"pks": pks}).fetchall(),
            )
            texts = {pk: (text, owner) for pk, text, owner in rows if text is not None}
            found: list[Claimed] = []
            for pk, version, attempts in leased:
                known = texts.get(pk)
                if known is None:
                    self._settle_one(connection, table, pk, version)
                else:
                    found.append(Claimed(pk, version, attempts, OwnerId(known[1]), known[0]))
        return found

    def settle(
        self, table: VectorTable, claimed: Sequence[Claimed], rows: NDArray[np.float32]
    ) -> int:
        """Store the vectors of memories that did not change meanwhile; return how many those were.

        Raises BackendUnavailableError, and then all of them are embedded again.
        """
        insert = _INSERT.format(
            name=table.name,
            value=":vector"
            if table.spec.quantization == "none"
            else "vec_quantize_int8(:vector, 'unit')",
        )
        stored: list[int] = []
        with self._database.writing() as connection:
            for each, row in zip(claimed, _storable(rows), strict=True):
                if not self._settle_one(connection, table, each.pk, each.version):
                    continue
                connection.execute(insert, {"pk": each.pk, "vector": row.tobytes()})
                stored.append(each.pk)
            values: dict[str, Value] = {"pks": json.dumps(stored), "number": table.number}
            connection.execute(_SET_INDEXED, values)
        return len(stored)

    def fail(self, table: VectorTable, claimed: Claimed, *, error: str) -> None:
        """Note why a memory could not be embedded; its next try is later each time."""
        pause = FIRST_PAUSE * 2 ** (claimed.attempts - 1)
        values: dict[str, Value] = {
            "number": table.number,
            "pk": claimed.pk,
            "version": claimed.version,
            "worker": self._worker,
            "due_at": to_iso(self._clock() + pause),
            "error": error,
        }
        with self._database.writing() as connection:
            connection.execute(_FAIL, values)

    def give_back(self) -> None:
        """End this worker's leases as if they had not been taken: no memory was at fault."""
        with self._database.writing() as connection:
            connection.execute(_GIVE_BACK, {"worker": self._worker})

    def queue(self, table: VectorTable, pks: Sequence[int]) -> None:
        """Queue memories that were found to have no vector."""
        values: dict[str, Value] = {"number": table.number, "pks": json.dumps(list(pks))}
        with self._database.writing() as connection:
            connection.execute(_MISSED, values)
            connection.execute(_SET_MISSING, values)
            connection.execute(_REVISE, values)

    def counts(self, table: VectorTable) -> WorkCounts:
        """Count what is left to do."""
        values: dict[str, Value] = {"number": table.number, "max_attempts": MAX_ATTEMPTS}
        with self._database.reading() as connection:
            rows = connection.execute(_COUNTS, values).fetchall()
        every, failed = cast("tuple[int, int]", rows[0])
        return WorkCounts(every - failed, failed)

    def set_aside(self, table: VectorTable, *, limit: int) -> list[SetAside]:
        """Return memories that could not be embedded."""
        values: dict[str, Value] = {
            "number": table.number,
            "max_attempts": MAX_ATTEMPTS,
            "limit": limit,
        }
        with self._database.reading() as connection:
            rows = cast(
                "list[tuple[str, int, str | None]]", connection.execute(_FAILED, values).fetchall()
            )
        return [SetAside(memory_id, attempts, error or "") for memory_id, attempts, error in rows]

    def _settle_one(
        self, connection: Connection, table: VectorTable, pk: int, version: int
    ) -> bool:
        """End a lease and take the old vector out; tell whether the lease still held."""
        values: dict[str, Value] = {
            "number": table.number,
            "pk": pk,
            "version": version,
            "worker": self._worker,
        }
        if not connection.execute(_DONE, values).fetchall():
            return False
        connection.execute(_REMOVE.format(name=table.name), {"pk": pk})
        return True


def _storable(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Give texts that say nothing to the model a direction that is near to hardly any text.

    The cosine of a row of zeros is no number: vec0 would put it in front of all others.
    """
    nowhere = np.resize(np.array([1.0, -1.0]), rows.shape[1]) / np.sqrt(rows.shape[1])
    stored = rows.copy()
    stored[~rows.any(axis=1)] = nowhere
    return stored
