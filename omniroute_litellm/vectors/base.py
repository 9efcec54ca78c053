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


Rows = NDArray[np.float32]
"""Vectors of unit length, one a row."""


@dataclass(frozen=True, slots=True)
class Nearest:
    """What one search found.

    ``memories`` are the nearest, nearest first. ``cosines`` holds theirs and those of memories
    that were asked about by name, as far as they have a vector, and ``rows`` the vectors of them
    all in the same order. Cosines and rows are taken from the centre of the owner's memories (see
    ``omniroute_litellm.vectors.centre``). ``mean`` is the mean cosine over the scope, nothing
    counted for less than nothing: what a memory has by chance. ``expected`` is how many memories
    the search should have compared: with none found among some, the index is broken.
    """

    memories: Sequence[Memory]
    cosines: Mapping[MemoryId, float]
    rows: Rows
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
        """Embed one query; raise BackendUnavailableError when no model can answer now."""
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
