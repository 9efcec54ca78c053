"""Which vector tier answers at the moment: the model in force and the table that fits it."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from omniroute_litellm.embedding.cache import EmbeddingCache
from omniroute_litellm.embedding.queries import CachedQueries
from omniroute_litellm.embedding.resolve import Choice, EmbeddingSources
from omniroute_litellm.live_settings import LiveSettings
from omniroute_litellm.sqlite_reader import SqliteMemoryReader
from omniroute_litellm.vectors.base import NoTier, VectorTier
from omniroute_litellm.vectors.matrices import Matrices
from omniroute_litellm.vectors.sqlite_vec import SqliteVecIndex
from omniroute_litellm.vectors.tables import Tables, VectorTable, VectorTables


@dataclass(frozen=True, slots=True)
class Semantics:
    """The model that was chosen, the tables there are, and what answers by them."""

    choice: Choice
    tables: Tables
    tier: VectorTier | NoTier


class Semantic:
    """Keeps the vector tier of this process up with settings and tables.

    ``current`` costs nothing; ``refresh`` reads the database and is called every second, so that
    a table that another process swapped in is taken up. ``missed`` takes a table and the keys of
    memories that ought to have a vector in it.
    """

    def __init__(
        self,
        tables: VectorTables,
        reader: SqliteMemoryReader,
        settings: LiveSettings,
        sources: EmbeddingSources,
        cache: EmbeddingCache,
        *,
        missed: Callable[[VectorTable, Sequence[int]], None],
    ) -> None:
        self._tables = tables
        self._reader = reader
        self._settings = settings
        self._sources = sources
        self._cache = cache
        self._missed = missed
        self._matrices = Matrices()
        self._lock = threading.Lock()
        self._current = Semantics(Choice(None), Tables(None, None, {}), NoTier("index_unknown"))
        self._made: tuple[object, VectorTier] | None = None

    @property
    def current(self) -> Semantics:
        """The state as it was last read."""
        return self._current

    def tier(self) -> VectorTier | NoTier:
        """Return what answers now."""
        return self._current.tier

    @property
    def is_slow(self) -> bool:
        """Whether requests have to wait for a model longer than for words."""
        tier = self._current.tier
        return isinstance(tier, VectorTier) and tier.embedder.is_slow

    def refresh(self) -> Semantics:
        """Read the tables and choose the model; raise BackendUnavailableError."""
        with self._lock:
            tables = self._tables.read()
            choice = self._sources.choose(self._settings.current.values)
            self._current = Semantics(choice, tables, self._tier_of(choice, tables))
            kept = [each.number for each in (tables.active, tables.building) if each is not None]
            self._matrices.keep_only(kept)
            return self._current

    def _tier_of(self, choice: Choice, tables: Tables) -> VectorTier | NoTier:
        embedder, active = choice.embedder, tables.active
        if embedder is None:
            return NoTier(choice.reason)
        if active is None or (active.spec.source, active.spec.model) != (
            embedder.source,
            embedder.model,
        ):
            return NoTier("index_building")
        key = (embedder, active.number)
        if self._made is not None and self._made[0] == key:
            return self._made[1]
        index = SqliteVecIndex(
            self._reader,
            active,
            matrices=self._matrices,
            missed=lambda pks: self._missed(active, pks),
        )
        queries = CachedQueries(embedder, self._cache, dimension=active.dimension)
        tier = VectorTier(index, queries)
        self._made = (key, tier)
        return tier
