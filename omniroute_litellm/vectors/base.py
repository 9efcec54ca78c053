"""The seam of every vector index."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from omniroute_litellm.store import Alive
from omniroute_litellm.types import Memory, MemoryId, OwnerId, Scope

Vector = NDArray[np.float32]
"""One vector of unit length."""


@dataclass(frozen=True, slots=True)
class VectorHit:
    """A memory that an index found; ``similarity`` is the cosine in [0, 1], higher is nearer."""

    memory: Memory
    similarity: float


@dataclass(frozen=True, slots=True)
class Nearest:
    """What one search found.

    ``hits`` are the nearest memories, nearest first. ``also`` holds the similarity of memories
    that were asked about by name, as far as they have a vector. ``mean`` is the mean similarity
    over the scope, what a memory has by chance. ``expected`` is how many memories the search
    should have compared: with no hit among some, the index is broken.
    """

    hits: Sequence[VectorHit]
    also: Mapping[MemoryId, float]
    mean: float
    expected: int


class VectorIndex(Protocol):
    """Nearest-neighbour search over memory vectors.

    Reads derived data only: losing it costs a reindex, never a memory. Does not embed and does
    not decide about fallback. Scope is applied inside the search: a filter after it would leave a
    small owner with nothing. Raises BackendUnavailableError.
    """

    @property
    def backend(self) -> str:
        """The store behind it, as settings name it."""
        ...

    def search(
        self,
        vector: Vector,
        *,
        scope: Scope,
        alive: Alive,
        limit: int,
        also: Sequence[MemoryId] = (),
    ) -> Nearest:
        """Return the nearest memories of the scope."""
        ...


class QueryEmbedder(Protocol):
    """Turns a query into the vector that an index searches with."""

    @property
    def is_slow(self) -> bool:
        """Whether an answer may take longer than looking words up."""
        ...

    def embed(self, text: str, *, owner: OwnerId | None = None) -> Vector:
        """Embed one text; raise BackendUnavailableError when no model can answer now."""
        ...


@dataclass(frozen=True, slots=True)
class VectorTier:
    """An index together with the model that embeds queries for it."""

    index: VectorIndex
    embedder: QueryEmbedder


@dataclass(frozen=True, slots=True)
class NoTier:
    """No index answers at the moment. Without a reason nobody wants one: that is no fault."""

    reason: str | None = None
