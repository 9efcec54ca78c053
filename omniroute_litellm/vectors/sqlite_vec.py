"""Nearest memories by sqlite-vec: one owner is one partition of a vec0 table."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast

import numpy as np
from numpy.typing import NDArray

from omniroute_litellm.census import Census
from omniroute_litellm.errors import BackendUnavailableError
from omniroute_litellm.sqlite import Value
from omniroute_litellm.sqlite_reader import READABLE, OwnerView, SqliteMemoryReader, census_of
from omniroute_litellm.store import Alive
from omniroute_litellm.types import Memory, MemoryId, Scope
from omniroute_litellm.vectors.base import Nearest, Vector, VectorHit
from omniroute_litellm.vectors.matrices import Matrices, Numbers, Rows
from omniroute_litellm.vectors.tables import VectorTable

BACKEND: Final = "sqlite-vec"
MATRIX_UP_TO: Final = 20_000
"""Owners with more memories are searched in the database: their matrix would be too large."""
SAMPLE: Final = 256
"""So many memories of a large owner are compared to know what is near by chance."""
_MOST: Final = 4_096
"""The most that vec0 returns of one search."""
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
SELECT json_group_array(json_array(pk - :first, 1 - distance)) FROM (
    SELECT pk, distance FROM {name}
    WHERE embedding MATCH {query} AND k = :limit AND owner = :owner_number {only}
)
"""
_ONLY: Final = f"""AND pk IN (
    {READABLE}
    AND m.pk NOT IN (SELECT pk FROM vector_work WHERE table_number = :number)
)"""
_SIMILARITY: Final = """
SELECT json_group_array(json_array(n.value, 1 - vec_distance_cosine(v.embedding, {query})))
FROM json_each(:numbers) AS n JOIN {name} AS v ON v.pk = n.value + :first
"""


@dataclass(frozen=True, slots=True)
class _Compared:
    """What one owner's vectors say: the best by sequence number, others asked for, a mean."""

    best: Sequence[tuple[int, float]]
    also: Mapping[int, float]
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
            return Nearest(hits=[], also={}, mean=0.0, expected=0)
        hits: list[tuple[float, int, Memory]] = []
        known: dict[MemoryId, float] = {}
        total, count, expected = 0.0, 0, 0
        with self._reader.owner_views(scope, alive) as owners:
            for owner in owners:
                self._require_table(owner)
                keys = self._reader.keys_of(owner, also)
                first = owner.number << 32
                compared = self._compare(
                    owner, vector, scope, alive, limit, {pk - first for pk in keys.values()}
                )
                total += compared.total
                count += compared.count
                expected += compared.expected
                memories = self._reader.memories_of(owner, [first + n for n, _ in compared.best])
                hits += [
                    (similarity, first + number, memories[first + number])
                    for number, similarity in compared.best
                    if first + number in memories
                    and alive.has(memories[first + number], scope.session)
                ]
                known |= {
                    memory_id: compared.also[pk - first]
                    for memory_id, pk in keys.items()
                    if pk - first in compared.also
                }
        hits.sort(key=lambda hit: (-hit[0], -hit[1]))
        return Nearest(
            hits=[VectorHit(memory, similarity) for similarity, _, memory in hits[:limit]],
            also=known,
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
        if owner.documents <= self._matrix_up_to:
            return self._by_matrix(owner, census, waiting, vector, limit, also)
        return self._by_vec0(owner, census, waiting, vector, limit, also)

    def _by_matrix(
        self,
        owner: OwnerView,
        census: Census,
        waiting: frozenset[int],
        vector: Vector,
        limit: int,
        also: set[int],
    ) -> _Compared:
        held = self._matrices.of(
            self._table.number,
            owner.number,
            revision=owner.vector_revision,
            dimension=self._table.dimension,
        )
        numbers, rows, missing = held.upto(
            owner.documents, waiting, lambda wanted: self._read(owner, wanted)
        )
        self._matrices.trim()
        lost = census.open_of(missing)
        if lost:
            first = owner.number << 32
            self._missed([first + number for number in lost])
        similarities = np.clip(rows @ vector, 0.0, 1.0)
        # Rows that another thread appended meanwhile are not part of this answer.
        places = {n: at for n in also if (at := held.position.get(n, len(rows))) < len(rows)}
        near = {n: float(similarities[at]) for n, at in places.items()}
        is_open = _open(census, waiting, numbers, documents=owner.documents)
        if not is_open.all():
            numbers, similarities = numbers[is_open], similarities[is_open]
        order = (
            np.lexsort((-numbers, -similarities))[:limit]
            if len(numbers) <= limit
            else _best(numbers, similarities, limit)
        )
        best = [(int(numbers[at]), float(similarities[at])) for at in order]
        return _Compared(
            best=best,
            also=near,
            total=float(similarities.sum()),
            count=len(numbers),
            expected=census.readable - len(census.open_of(sorted(waiting))),
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
            "limit": min(limit + len(closed) if is_mostly_open else limit, _MOST),
        }
        sql = _KNN.format(
            name=self._table.name, query=self._query, only="" if is_mostly_open else _ONLY
        )
        found = cast("list[tuple[int, float]]", _json(owner, sql, values))
        step = max(owner.documents // SAMPLE, 1)
        sample = {n for n in range(1, owner.documents + 1, step) if n not in closed}
        asked = {**values, "numbers": json.dumps(sorted(sample | also))}
        sql = _SIMILARITY.format(name=self._table.name, query=self._query)
        near = dict(cast("list[tuple[int, float]]", _json(owner, sql, asked)))
        chance = [max(0.0, near[number]) for number in sample if number in near]
        return _Compared(
            best=[(n, max(0.0, near_by)) for n, near_by in found if n not in closed][:limit],
            also={n: max(0.0, near[n]) for n in also if n in near},
            total=sum(chance),
            count=len(chance),
            expected=census.readable - len(census.open_of(sorted(waiting))),
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
