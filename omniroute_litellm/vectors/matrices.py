"""The vectors of owners that were asked about last, as matrices in memory."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from omniroute_litellm.vectors.base import Rows, Vector
from omniroute_litellm.vectors.centre import Centre, centre_of, told

Number = TypeVar("Number", bound=np.generic)
Numbers = NDArray[np.int64]
Read = Callable[[Sequence[int]], tuple[Sequence[int], Rows]]
"""Reads the vectors of some sequence numbers: those that have one, and their rows."""

MAX_BYTES: Final = 64 * 1024 * 1024
"""Of all matrices of a process: 65,000 vectors of the bundled model."""
_FIRST_ROOM: Final = 64


@dataclass(frozen=True, slots=True)
class Held:
    """An owner's rows by sequence number, and how far each is from their centre."""

    numbers: Numbers
    rows: Rows
    centre: Centre
    distances: Vector

    def cosines(self, query: Vector) -> Vector:
        """Return how near each row is to a query, both seen from the centre."""
        seen = self.centre.seen(query[None, :])[0]
        return told((self.rows @ seen - float(self.centre.point @ seen)) / self.distances)


def held_from(centre: Centre, numbers: Numbers, rows: Rows) -> Held:
    """Return rows as they are compared from a centre."""
    return Held(numbers, rows, centre, centre.distances(rows))


class OwnerVectors:
    """The vectors of one owner in one table, by sequence number, growing as memories are added.

    Rows are only ever appended: what a reader was given stays as it is.
    """

    def __init__(self, revision: int, dimension: int) -> None:
        self.revision = revision
        self.position: dict[int, int] = {}
        """Where the row of a sequence number stands."""
        self._lock = threading.Lock()
        self._numbers = np.zeros(_FIRST_ROOM, dtype=np.int64)
        self._rows = np.zeros((_FIRST_ROOM, dimension), dtype=np.float32)
        self._sum = np.zeros(dimension, dtype=np.float64)
        self._seen: Held | None = None
        self._upto = 0
        self._late: frozenset[int] = frozenset()

    @property
    def size(self) -> int:
        """The bytes that the rows take."""
        return self._rows.nbytes

    def upto(self, documents: int, waiting: frozenset[int], read: Read) -> tuple[Held, list[int]]:
        """Return the rows of all that were ever stored, but for those that wait.

        Numbers that ``read`` knew nothing of, though they do not wait, come second: deleted
        memories, or vectors that were lost. They are not asked for again.
        """
        with self._lock:
            wanted = [n for n in range(self._upto + 1, documents + 1) if n not in waiting]
            wanted += [n for n in self._late if n not in waiting and n <= documents]
            missing: list[int] = []
            if wanted:
                found, rows = read(wanted)
                self._append(found, rows)
                missing = sorted(set(wanted).difference(found))
            late = {n for n in self._late | waiting if n not in self.position and n not in missing}
            self._late = frozenset(late.difference(wanted))
            self._upto = max(self._upto, documents)
            return self._held(), missing

    def _held(self) -> Held:
        count = len(self.position)
        if self._seen is None or len(self._seen.numbers) != count:
            rows = self._rows[:count]
            self._seen = held_from(centre_of(self._sum, count), self._numbers[:count], rows)
        return self._seen

    def _append(self, numbers: Sequence[int], rows: Rows) -> None:
        start = len(self.position)
        end = start + len(numbers)
        if end > len(self._numbers):
            room = max(end, 2 * len(self._numbers))
            self._numbers = _grown(self._numbers, room)
            self._rows = _grown(self._rows, room)
        self._numbers[start:end] = numbers
        self._rows[start:end] = rows
        self._sum += rows.sum(axis=0, dtype=np.float64)
        self.position.update(zip(numbers, range(start, end), strict=True))


class Matrices:
    """The matrices of the owners that were asked about last. Safe for several threads.

    None can be wrong for another process's change: the revision is read in the same snapshot of
    the database as the question it answers.
    """

    def __init__(self, *, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._held: OrderedDict[tuple[int, int], OwnerVectors] = OrderedDict()

    def of(self, table: int, owner: int, *, revision: int, dimension: int) -> OwnerVectors:
        """Return the matrix of an owner at a revision; an older one than held stays apart."""
        with self._lock:
            known = self._held.get((table, owner))
            if known is not None and known.revision == revision:
                self._held.move_to_end((table, owner))
                return known
            fresh = OwnerVectors(revision, dimension)
            if known is None or known.revision < revision:
                self._held[table, owner] = fresh
                self._held.move_to_end((table, owner))
            return fresh

    def trim(self) -> None:
        """Let go of what was asked about longest ago, down to what may be held."""
        with self._lock:
            size = sum(each.size for each in self._held.values())
            while size > self._max_bytes and len(self._held) > 1:
                _, gone = self._held.popitem(last=False)
                size -= gone.size

    def keep_only(self, tables: Iterable[int]) -> None:
        """Let go of the matrices of tables that are gone."""
        wanted = set(tables)
        with self._lock:
            for key in [key for key in self._held if key[0] not in wanted]:
                del self._held[key]


def _grown(old: NDArray[Number], room: int) -> NDArray[Number]:
    made = np.zeros((room, *old.shape[1:]), dtype=old.dtype)
    made[: len(old)] = old
    return made
