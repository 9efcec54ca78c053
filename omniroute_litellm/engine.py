"""All of one process that has to do with vectors, put together."""

import functools
from collections.abc import Sequence
from typing import Final

from omniroute_litellm.embedding.base import EmbedderUnavailableError
from omniroute_litellm.embedding.cache import EmbeddingCache
from omniroute_litellm.embedding.resolve import EmbeddingSources
from omniroute_litellm.errors import OmniRouteError
from omniroute_litellm.indexing import Indexer
from omniroute_litellm.live_settings import LiveSettings
from omniroute_litellm.model_calls import ModelCalls
from omniroute_litellm.reindex import Reindexer
from omniroute_litellm.retrieval import Rerank
from omniroute_litellm.semantic import Semantic
from omniroute_litellm.sqlite import Database
from omniroute_litellm.sqlite_reader import SqliteMemoryReader
from omniroute_litellm.types import Clock, OwnerId
from omniroute_litellm.variables import (
    DEADLINE_MS,
    RERANK_DEADLINE_MS,
    SLOW_DEADLINE_MS,
    Variables,
)
from omniroute_litellm.vectors.tables import VectorTables
from omniroute_litellm.vectors.work import VectorWork

RERANK_TIMEOUT_S: Final = 5.0


class Engine:
    """The models, the tables, the worker that fills them, and what answers by them.

    ``calls`` reaches the models of the proxy, None where there is none; ``worker`` names this
    process in leases. Nothing is opened or loaded here.
    """

    def __init__(
        self,
        database: Database,
        reader: SqliteMemoryReader,
        settings: LiveSettings,
        variables: Variables,
        calls: ModelCalls | None,
        *,
        clock: Clock,
        worker: str,
    ) -> None:
        self._settings = settings
        self._variables = variables
        self.calls = calls
        self.rerank_failures = 0
        self.cache = EmbeddingCache(
            capacity=variables.cache_max, ttl_s=variables.cache_ttl_ms / 1000
        )
        sources = EmbeddingSources(variables, calls)
        tables = VectorTables(database, clock=clock)
        self.work = VectorWork(database, clock=clock, worker=worker)
        self.semantic = Semantic(
            tables,
            reader,
            settings,
            sources,
            self.cache,
            missed=lambda table, pks: self.indexer.notice(table, pks),
        )
        self.indexer = Indexer(
            database,
            tables,
            self.work,
            settings,
            sources,
            quantization=variables.quantization,
            changed=self.semantic.refresh,
        )
        self.reindexer = Reindexer(database, tables, self.work, self.indexer, clock=clock)

    def rerank(self) -> Rerank | None:
        """Return the rerank model in force, None when there is none."""
        settings = self._settings.current.values
        if not settings.rerank_enabled:
            return None
        return functools.partial(self._order, settings.rerank_provider_model)

    def _order(
        self, model: str | None, query: str, documents: Sequence[str], *, owner: OwnerId
    ) -> list[tuple[int, float]]:
        reason = self.reason_against_rerank()
        try:
            if model is None or self.calls is None or reason is not None:
                message = "no rerank model can be called"
                hint = "name a model in rerankProviderModel, and set its provider's key"
                raise EmbedderUnavailableError(message, reason=reason or "proxy_missing", hint=hint)
            return self.calls.rerank(
                model, query, documents, owner=owner, timeout_s=RERANK_TIMEOUT_S
            )
        except OmniRouteError:
            self.rerank_failures += 1
            raise

    def reason_against_rerank(self) -> str | None:
        """Return why no rerank model can be called, None when one can."""
        model = self._settings.current.values.rerank_provider_model
        if model is None:
            return "rerank_unnamed"
        return "proxy_missing" if self.calls is None else self.calls.reason_against(model)

    @property
    def is_slow(self) -> bool:
        """Whether a request waits for a model longer than for words."""
        return self.semantic.is_slow or self._settings.current.values.rerank_enabled

    @property
    def deadline_ms(self) -> int:
        """How long a request waits for memory."""
        if self._variables.deadline_ms is not None:
            return self._variables.deadline_ms
        if self._settings.current.values.rerank_enabled:
            return RERANK_DEADLINE_MS
        return SLOW_DEADLINE_MS if self.semantic.is_slow else DEADLINE_MS
