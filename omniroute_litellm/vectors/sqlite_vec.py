"""Nearest memories by sqlite-vec: one owner is one partition of a vec0 table."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Final, cast

import numpy as np
from numpy.typing import NDArray

from omniroute_litellm.census import Census
from omniroute_litellm.errors import BackendUnavailableError
from omniroute_litellm.sqlite import Value
from omniroute_litellm.sqlite_reader import READABLE, OwnerView, SqliteMemoryReader, census_of
from omniroute_litellm.store import Alive
from omniroute_litellm.types import Memory, MemoryId, Scope
from omniroute_litellm.vectors.base import Nearest, Rows, Vector
from omniroute_litellm.vectors.centre import centre_of
from omniroute_litellm.vectors.matrices import Held, Matrices, Numbers, held_from
from omniroute_litellm.vectors.tables import VectorTable

BACKEND: Final = "sqlite-vec"
MATRIX_UP_TO: Final = 20_000
"""Owners with more memories are searched in the database: their matrix would be too large."""
SAMPLE: Final = 256
"""So many memories of a large owner are compared to know what is near by chance."""
_MOST: Final = 4_096
"""The most that vec0 returns of one search."""
_RESERVE: Final = 100
"""So many more are fetched: seen from the centre others of them may be the nearest."""
_SLACK: Final = 64

_IS_THERE: Final = "SELECT 1 FROM vector_tables WHERE number = :number"
_WAITING: Final = """
SELECT json_group_array(pk - :first) FROM vector_work
WHERE table_number = :number AND pk BETWEEN :first AND :last
"""
_ROWS: Final = """
SELECT v.pk - :first, v.embedding FROM json_each(:numbers) AS n
JOIN {name} AS v ON v.pk = n.value + :first
"""
_KNN: Final = """
SELECT json_group_array(pk - :first) FROM (
    SELECT pk FROM {name}
    WHERE embedding MATCH {query} AND k = :limit AND owner = :owner_number {only}
)
"""
_ONLY: Final = f"""AND pk IN (
    {READABLE}
    AND m.pk NOT IN (SELECT pk FROM vector_work WHERE table_number = :number)
)"""


@dataclass(frozen=True, slots=True)
class _Compared:
    """What one owner's vectors say: the best by sequence number, and behind them others.

    ``best`` is how many of the numbers are of the best; cosines and rows go with the numbers.
    """

    numbers: Sequence[int]
    best: int
    cosines: Vector
    rows: Rows
    total: float
    count: int
    expected: int


class SqliteVecIndex:
    """The index over one table.

    An owner of moderate size is read once and compared in memory, a larger one is searched by
    vec0. ``missed`` takes the keys of memories that ought to have a vector and have none.
    """

    backend = BACKEND

    def __init__(
        self,
        reader: SqliteMemoryReader,
        table: VectorTable,
        *,
        matrices: Matrices,
        missed: Callable[[Sequence[int]], None],
        matrix_up_to: int = MATRIX_UP_TO,
    ) -> None:
        self._reader = reader
        self._table = table
        self._matrices = matrices
        self._missed = missed
        self._matrix_up_to = matrix_up_to

    @property
    def dimension(self) -> int:
        """How many numbers a vector has."""
        return self._table.dimension

    def search(
        self,
        vector: Vector,
        *,
        scope: Scope,
        alive: Alive,
        limit: int,
        also: Sequence[MemoryId] = (),
    ) -> Nearest:
        """Return the nearest memories of the scope; among equals the newer goes first.

        A query that says nothing to the model is near to nothing.
        """
        if not vector.any():
            return _nothing(self._table.dimension, expected=0)
        hits: list[tuple[float, int, int, Memory]] = []
        others: dict[MemoryId, tuple[float, int]] = {}
        rows: list[Rows] = []
        total, count, expected, at = 0.0, 0, 0, 0
        with self._reader.owner_views(scope, alive) as owners:
            for owner in owners:
                self._require_table(owner)
                first = owner.number << 32
                keys = {pk - first: each for each, pk in self._reader.keys_of(owner, also).items()}
                compared = self._compare(owner, vector, scope, alive, limit, set(keys))
                total += compared.total
                count += compared.count
                expected += compared.expected
                rows.append(compared.rows)
                best = compared.numbers[: compared.best]
                memories = self._reader.memories_of(owner, [first + each for each in best])
                cosines = compared.cosines.tolist()
                for place, number in enumerate(compared.numbers):
                    memory = memories.get(first + number) if place < compared.best else None
                    if memory is not None and alive.has(memory, scope.session):
                        hits.append((-cosines[place], -first - number, at + place, memory))
                    if number in keys:
                        others[keys[number]] = (cosines[place], at + place)
                at += len(compared.numbers)
        if not hits:
            return _nothing(self._table.dimension, expected=expected)
        hits = sorted(hits, key=itemgetter(0, 1))[:limit]
        every = {memory.id: (-negative, place) for negative, _, place, memory in hits}
        every.update(others)
        chosen = [place for _, place in every.values()]
        return Nearest(
            memories=[memory for *_, memory in hits],
            cosines={memory_id: cosine for memory_id, (cosine, _) in every.items()},
            rows=np.concatenate(rows)[chosen],
            mean=total / count if count else 0.0,
            expected=expected,
        )

    def _compare(
        self,
        owner: OwnerView,
        vector: Vector,
        scope: Scope,
        alive: Alive,
        limit: int,
        also: set[int],
    ) -> _Compared:
        census = census_of(owner, scope, alive)
        waiting = self._waiting(owner)
        also = also - waiting  # a vector of what a memory said before says nothing of it now
        is_small = owner.documents <= self._matrix_up_to
        by = self._by_matrix if is_small else self._by_vec0
        return by(owner, census, waiting, vector, limit, also)

    def _by_matrix(
        self,
        owner: OwnerView,
        census: Census,
        waiting: frozenset[int],
        vector: Vector,
        limit: int,
        also: set[int],
    ) -> _Compared:
        owned = self._matrices.of(
            self._table.number,
            owner.number,
            revision=owner.vector_revision,
            dimension=self._table.dimension,
        )
        held, missing = owned.upto(
            owner.documents, waiting, lambda wanted: self._read(owner, wanted)
        )
        self._matrices.trim()
        lost = census.open_of(missing)
        if lost:
            first = owner.number << 32
            self._missed([first + number for number in lost])
        cosines = held.cosines(vector)
        is_open = _open(census, waiting, held.numbers, documents=owner.documents)
        places = np.arange(len(cosines)) if is_open.all() else np.flatnonzero(is_open)
        # Rows that another thread appended meanwhile are not part of this answer.
        others = {at for n in also if (at := owned.position.get(n, len(cosines))) < len(cosines)}
        expected = census.readable - len(census.open_of(sorted(waiting)))
        return _compared(
            held, cosines, places, others, limit=limit, sample=cosines[places], expected=expected
        )

    def _by_vec0(
        self,
        owner: OwnerView,
        census: Census,
        waiting: frozenset[int],
        vector: Vector,
        limit: int,
        also: set[int],
    ) -> _Compared:
        closed = waiting.union(
            number for number, is_closed in enumerate(census.closed) if is_closed
        )
        is_mostly_open = len(closed) <= _SLACK
        values: dict[str, Value] = {
            **owner.values,
            "owner_number": owner.number,
            "number": self._table.number,
            "query": vector.tobytes(),
            "limit": min(limit + _RESERVE + (len(closed) if is_mostly_open else 0), _MOST),
        }
        sql = _KNN.format(
            name=self._table.name, query=self._query, only="" if is_mostly_open else _ONLY
        )
        found = [n for n in cast("list[int]", _json(owner, sql, values)) if n not in closed]
        # The centre of so many is known well enough from some of them.
        step = max(owner.documents // SAMPLE, 1)
        sample = {n for n in range(1, owner.documents + 1, step) if n not in closed}
        wanted = {*found, *also, *sample}
        numbers, rows = self._read(owner, sorted(wanted))
        is_sample = np.array([n in sample for n in numbers], dtype=bool)
        centre = centre_of(rows[is_sample].sum(axis=0), int(is_sample.sum()))
        held = held_from(centre, np.array(numbers, dtype=np.int64), rows)
        cosines = held.cosines(vector)
        place = {n: at for at, n in enumerate(numbers)}
        places = np.array([place[n] for n in found if n in place], dtype=np.int64)
        others = {place[n] for n in also if n in place}
        expected = census.readable - len(census.open_of(sorted(waiting)))
        return _compared(
            held, cosines, places, others, limit=limit, sample=cosines[is_sample], expected=expected
        )

    def _require_table(self, owner: OwnerView) -> None:
        """Raise BackendUnavailableError when another process has swapped the table away."""
        values: dict[str, Value] = {"number": self._table.number}
        if not owner.connection.execute(_IS_THERE, values).fetchall():
            message = "the index was swapped for a new one a moment ago"
            raise BackendUnavailableError(message, reason="index_swapped")

    @property
    def _query(self) -> str:
        is_whole = self._table.spec.quantization == "none"
        return ":query" if is_whole else "vec_quantize_int8(:query, 'unit')"

    def _waiting(self, owner: OwnerView) -> frozenset[int]:
        """Return the memories whose vector is missing or of another text than they have now."""
        values: dict[str, Value] = {**owner.values, "number": self._table.number}
        return frozenset(cast("list[int]", _json(owner, _WAITING, values)))

    def _read(self, owner: OwnerView, wanted: Sequence[int]) -> tuple[list[int], Rows]:
        values: dict[str, Value] = {**owner.values, "numbers": json.dumps(list(wanted))}
        sql = _ROWS.format(name=self._table.name)
        found = cast("list[tuple[int, bytes]]", owner.connection.execute(sql, values).fetchall())
        kind = np.float32 if self._table.spec.quantization == "none" else np.int8
        data = np.frombuffer(b"".join(blob for _, blob in found), dtype=kind)
        rows = data.reshape(len(found), self._table.dimension).astype(np.float32)
        if kind is np.int8:
            lengths = np.linalg.norm(rows, axis=1, keepdims=True)
            rows /= np.maximum(lengths, 1.0)
        return [number for number, _ in found], rows


def _compared(
    held: Held,
    cosines: Vector,
    places: Numbers,
    others: set[int],
    *,
    limit: int,
    sample: Vector,
    expected: int,
) -> _Compared:
    """Return the best of some places, and behind them the others; ``sample`` gives the mean."""
    best = places[_best(held.numbers[places], cosines[places], limit)].tolist()
    chosen = np.array([*best, *sorted(others.difference(best))], dtype=np.int64)
    return _Compared(
        numbers=held.numbers[chosen].tolist(),
        best=len(best),
        cosines=cosines[chosen],
        rows=held.centre.seen(held.rows[chosen]),
        total=float(np.maximum(sample, 0.0).sum()),
        count=len(sample),
        expected=expected,
    )


def _nothing(dimension: int, *, expected: int) -> Nearest:
    rows = np.zeros((0, dimension), dtype=np.float32)
    return Nearest(memories=[], cosines={}, rows=rows, mean=0.0, expected=expected)


def _open(
    census: Census, waiting: frozenset[int], numbers: Numbers, *, documents: int
) -> NDArray[np.bool_]:
    """Return which of some sequence numbers may be read, and have a vector of what they say."""
    shut = np.zeros(max(documents, len(census.closed), int(numbers.max(initial=0))) + 1, dtype=bool)
    shut[: len(census.closed)] = np.frombuffer(census.closed, dtype=np.uint8) > 0
    shut[documents + 1 :] = True
    if waiting:
        shut[[number for number in waiting if number < len(shut)]] = True
    return ~shut[numbers]


def _best(numbers: Numbers, similarities: Vector, limit: int) -> Numbers:
    """Return the places of the highest similarities, in order; among equals the newer first."""
    places = np.arange(len(numbers))
    if len(numbers) > limit:
        least = np.partition(similarities, len(numbers) - limit)[len(numbers) - limit]
        places = np.flatnonzero(similarities >= least)
    return places[np.lexsort((-numbers[places], -similarities[places]))][:limit]


def _json(owner: OwnerView, sql: str, values: Mapping[str, Value]) -> object:
    return json.loads(str(owner.connection.execute(sql, values).fetchall()[0][0]))
