"""The seam of every vector index."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from omniroute_litellm.store import Alive
from omniroute_litellm.types import MemoryId, OwnerId, Scope

Vector = Sequence[float]


@dataclass(frozen=True, slots=True)
class VectorRecord:
    """A memory's unit-length vector with the owner whose partition it belongs to."""

    memory_id: MemoryId
    owner: OwnerId
    vector: Vector


@dataclass(frozen=True, slots=True)
class VectorHit:
    """A memory that an index found; ``similarity`` is the cosine in [0, 1], higher is nearer."""

    memory_id: MemoryId
    similarity: float


class VectorIndex(Protocol):
    """Nearest-neighbour storage for memory vectors.

    Holds derived data only: losing it costs a reindex, never a memory. Does not embed and does
    not decide about fallback. Scope is applied inside the search: a filter after it would leave a
    small owner with nothing. Methods raise BackendUnavailableError.
    """

    @property
    def signature(self) -> str:
        """``source:model:dimension[:int8]`` of the vectors it holds."""
        ...

    def upsert(self, records: Sequence[VectorRecord]) -> None:
        """Store vectors, replacing those of the same memories."""
        ...

    def delete(self, memory_ids: Sequence[MemoryId]) -> None:
        """Forget vectors; unknown ids are no error."""
        ...

    def search(self, vector: Vector, *, scope: Scope, alive: Alive, limit: int) -> list[VectorHit]:
        """Return the nearest memories of the scope, nearest first."""
        ...

    def count(self, scope: Scope) -> int:
        """Count the vectors of a scope."""
        ...


class QueryEmbedder(Protocol):
    """Turns a query into the vector that an index searches with."""

    def embed(self, text: str) -> Vector:
        """Embed one text; raise BackendUnavailableError when no model can answer now."""
        ...
