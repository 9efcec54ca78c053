"""The vector of a query: from the cache, else from the model."""

from omniroute_litellm.embedding.base import Embedder, EmbedderUnavailableError, Row
from omniroute_litellm.embedding.cache import EmbeddingCache, cache_key
from omniroute_litellm.types import OwnerId


class CachedQueries:
    """Embeds queries for an index of one dimension.

    A model that answers in another dimension than the index holds has changed behind its name:
    that is EmbedderUnavailableError (``dimension_changed``), and the index is to be built anew.
    """

    def __init__(self, embedder: Embedder, cache: EmbeddingCache, *, dimension: int) -> None:
        self._embedder = embedder
        self._cache = cache
        self._dimension = dimension

    @property
    def is_slow(self) -> bool:
        """Whether a query that is not in the cache takes long."""
        return self._embedder.is_slow

    def embed(self, text: str, *, owner: OwnerId | None = None) -> Row:
        """Return the vector of one text; raise EmbedderUnavailableError."""
        key = cache_key(self._embedder.source, self._embedder.model, self._dimension, text)
        known = self._cache.get(key)
        if known is not None:
            return known
        row = self._embedder.embed_query(text, owner=owner)
        if len(row) != self._dimension:
            message = f"the model answers in {len(row)} numbers, the index holds {self._dimension}"
            hint = "the index is built anew by itself; a reindex with force does it at once"
            raise EmbedderUnavailableError(message, reason="dimension_changed", hint=hint)
        self._cache.put(key, row)
        return row
