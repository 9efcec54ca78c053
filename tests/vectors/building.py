"""A store with a vector table beside it, as the worker of a process fills it."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from omniroute_litellm.embedding.base import Matrix, unit_rows
from omniroute_litellm.sqlite import Database
from omniroute_litellm.sqlite_store import SqliteMemoryStore
from omniroute_litellm.store import Alive
from omniroute_litellm.types import Memory, OwnerId, Scope
from omniroute_litellm.variables import Quantization
from omniroute_litellm.vectors.base import Nearest, Vector
from omniroute_litellm.vectors.matrices import Matrices
from omniroute_litellm.vectors.sqlite_vec import MATRIX_UP_TO, SqliteVecIndex
from omniroute_litellm.vectors.tables import Spec, VectorTable, VectorTables
from omniroute_litellm.vectors.work import VectorWork
from tests.fakes import FakeClock
from tests.unit.fakes import ANN, alive_at, draft, put, scope_of

TOPICS: Final = ("tea", "jazz", "code", "dog")


def vectors_of(texts: Sequence[str]) -> Matrix:
    """Give each topic an axis, and a text what it says of each."""
    counted = [[float(text.count(topic)) for topic in TOPICS] for text in texts]
    return unit_rows(np.array(counted, dtype=np.float32).reshape(len(texts), len(TOPICS)))


class Bench:
    """One process's view of a database: the store, the tables, the queue, the index."""

    def __init__(
        self,
        database: Database,
        clock: FakeClock,
        *,
        worker: str = "one",
        quantization: Quantization = "none",
        matrix_up_to: int = MATRIX_UP_TO,
    ) -> None:
        self.clock = clock
        self.store = SqliteMemoryStore(database, clock=clock)
        self.tables = VectorTables(database, clock=clock)
        self.work = VectorWork(database, clock=clock, worker=worker)
        self.spec = Spec("fake", "topics", quantization)
        self.missed: list[int] = []
        self._matrices = Matrices()
        self._matrix_up_to = matrix_up_to

    def put(self, key: str, content: str, owner: OwnerId = ANN, **more: Any) -> Memory:
        """Store a memory."""
        return put(self.store, draft(key, content, owner=owner, **more))

    def begin(self) -> VectorTable:
        """Begin a table and queue everything for it."""
        table = self.tables.begin(self.spec, len(TOPICS))
        while self.tables.queue_some(table, limit=2):
            pass
        return table

    def fill(self, table: VectorTable) -> int:
        """Embed what waits; return how many vectors were stored."""
        stored = 0
        while claimed := self.work.claim(table, limit=3):
            stored += self.work.settle(table, claimed, vectors_of([c.text for c in claimed]))
        return stored

    def build(self) -> VectorTable:
        """Build a table from nothing and let it answer."""
        table = self.begin()
        self.fill(table)
        building = self.tables.read().building
        assert building is not None
        assert self.tables.activate(building)
        return self.active

    @property
    def active(self) -> VectorTable:
        """The table that answers."""
        found = self.tables.read().active
        assert found is not None
        return found

    def index(self) -> SqliteVecIndex:
        """Return the index over the table that answers."""
        return SqliteVecIndex(
            self.store,
            self.active,
            matrices=self._matrices,
            missed=self.missed.extend,
            matrix_up_to=self._matrix_up_to,
        )

    def search(
        self,
        text: str,
        *,
        scope: Scope | None = None,
        alive: Alive | None = None,
        limit: int = 10,
        also: Sequence[Memory] = (),
    ) -> Nearest:
        """Search for a text."""
        return self.index().search(
            query(text),
            scope=scope or scope_of(),
            alive=alive or alive_at(self.clock()),
            limit=limit,
            also=[memory.id for memory in also],
        )

    def found(self, text: str, *, scope: Scope | None = None, limit: int = 10) -> list[str]:
        """Return the keys of what is near a text at all, nearest first."""
        return near(self.search(text, scope=scope, limit=limit))


def near(nearest: Nearest) -> list[str]:
    """Return the keys of what is nearer than by chance, nearest first."""
    return [each.key for each in nearest.memories if nearest.cosines[each.id] > 0.01]


def query(text: str) -> Vector:
    """Return the vector of one text."""
    return vectors_of([text])[0]
