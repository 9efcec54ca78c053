"""The bodies of the engine's routes: status, reindex, preview."""

from typing import Literal

from pydantic import Field, JsonValue

from omniroute_litellm.api.schemas import Body, CacheStats, Coverage, Identifier
from omniroute_litellm.settings import MAX_BUDGET_TOKENS
from omniroute_litellm.types import MemoryType


class KeywordStatus(Body):
    """The index of words."""

    available: bool
    backend: str
    reason: str | None


class EmbeddingStatus(Body):
    """The model in force: ``reason`` says why there is none, or what was passed over for it."""

    source: str | None
    model: str | None
    dimensions: int | None
    available: bool
    reason: str | None
    hint: str
    cache_stats: CacheStats


class ReindexProgress(Body):
    """A table that is filled; ``rate`` is memories a second since the start."""

    id: str
    signature: str
    total: int
    done: int
    failed: int
    begun_at: str
    rate: float | None


class FailedMemory(Body):
    """A memory that no try could embed."""

    id: str
    attempts: int
    error: str


class VectorStoreStatus(Body):
    """The store that answers by meaning. ``coverage`` counts what can be found in it."""

    backend: str
    available: bool
    row_count: int
    needs_reindex: int
    coverage: Coverage
    signature: str | None
    quantization: str | None
    reason: str | None
    building: ReindexProgress | None
    failed: list[FailedMemory]


class QdrantStatus(Body):
    """The external store."""

    enabled: bool
    healthy: bool
    latency_ms: float | None
    error: str | None
    points: int
    outbox: int


class RerankStatus(Body):
    """The model that orders what was found; ``failures`` counts those of this process."""

    enabled: bool
    provider: str | None
    model: str | None
    available: bool
    reason: str | None
    failures: int


class JobStatus(Body):
    """One scheduled job."""

    name: str


class WorkerStatus(Body):
    """One live process."""

    id: str
    pid: int
    version: str
    started_at: str
    seen_at: str


class EngineStatus(Body):
    """What works, as it was found at this moment. Reasons are machine codes."""

    keyword: KeywordStatus
    embedding: EmbeddingStatus
    vector_store: VectorStoreStatus
    qdrant: QdrantStatus
    rerank: RerankStatus
    jobs: list[JobStatus]
    workers: list[WorkerStatus]


class ReindexOrder(Body):
    """What to make anew. ``force`` makes every vector again, not the missing ones alone."""

    force: bool = False
    target: Literal["all", "sqlite-vec"] = "all"


class ReindexStarted(Body):
    """What was begun; nothing when there is no memory."""

    started: bool
    pending: int
    job_id: str


class PreviewOrder(Body):
    """A question to try. An admin has to name the owner."""

    query: str = Field(min_length=1, max_length=32_000)
    strategy: Literal["hybrid", "semantic", "recent", "exact"] = "hybrid"
    max_tokens: int = Field(default=2_000, ge=1, le=MAX_BUDGET_TOKENS)
    api_key_id: Identifier | None = None
    session_id: Identifier | None = None
    limit: int = Field(default=20, ge=1, le=100)


class PreviewedMemory(Body):
    """One memory that was considered, with what decided over it."""

    id: str
    type: MemoryType
    key: str
    content: str
    score: float
    tokens: int
    tier: str
    vec_score: float | None
    fts_score: float | None
    injected: bool
    dropped_reason: str | None


class Resolution(Body):
    """What answered, and why it was not something else."""

    embedding_source: str | None
    embedding_model: str | None
    vector_store: str | None
    strategy_used: str
    rerank_applied: bool
    fallback_reason: str | None


class Preview(Body):
    """What a request with this question would carry: kept memories first, then dropped ones."""

    memories: list[PreviewedMemory]
    resolution: Resolution
    total_tokens_used: int
    budget_max_tokens: int
    trace: dict[str, JsonValue]
