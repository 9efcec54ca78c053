"""The engine: what answers, making vectors anew, trying a question."""

from datetime import timedelta
from typing import Annotated, Final, cast

from fastapi import APIRouter, Body, Request

from omniroute_litellm.api.auth import Admin, Caller, owner_asked_for
from omniroute_litellm.api.engine_schemas import (
    EmbeddingStatus,
    EngineStatus,
    FailedMemory,
    KeywordStatus,
    Preview,
    PreviewedMemory,
    PreviewOrder,
    QdrantStatus,
    ReindexOrder,
    ReindexProgress,
    ReindexStarted,
    RerankStatus,
    Resolution,
    VectorStoreStatus,
    WorkerStatus,
)
from omniroute_litellm.api.errors import responses
from omniroute_litellm.api.schemas import CacheStats, Coverage, Success
from omniroute_litellm.errors import ValidationError
from omniroute_litellm.identity import read_scope
from omniroute_litellm.reindex import ReindexJob
from omniroute_litellm.retrieval import RetrievalRequest
from omniroute_litellm.runtime import Runtime
from omniroute_litellm.settings import Strategy, canonical_strategy
from omniroute_litellm.text import storable
from omniroute_litellm.trace import Candidate, RetrievalTrace
from omniroute_litellm.types import OwnerId, SessionId, to_iso
from omniroute_litellm.vectors.base import NoTier, VectorTier
from omniroute_litellm.vectors.sqlite_vec import BACKEND

router = APIRouter(tags=["engine"])

_SHOWN_FAILURES: Final = 20


def runtime_of(request: Request) -> Runtime:
    """Return the runtime that the app serves."""
    runtime: Runtime = request.app.state.runtime
    return runtime


def coverage_of(runtime: Runtime) -> Coverage:
    """Count what can be found by meaning."""
    found = runtime.engine.reindexer.coverage()
    return Coverage(total=found.total, indexed=found.indexed, failed=found.failed)


def cache_stats_of(runtime: Runtime) -> CacheStats:
    """Return the counters of this process's cache of query vectors."""
    counts = runtime.engine.cache.counts
    return CacheStats(hits=counts.hits, misses=counts.misses, size=counts.size)


@router.get("/memory/engine-status", responses=responses(401, 403, 503))
def engine_status(request: Request, caller: Admin) -> EngineStatus:
    """Say what works, what does not, and why; the words are proven by a round trip."""
    runtime = runtime_of(request)
    probe = runtime.probe.run()
    return EngineStatus(
        keyword=KeywordStatus(available=probe.working, backend="fts5", reason=probe.reason),
        embedding=_embedding(runtime),
        vector_store=_vector_store(runtime),
        qdrant=QdrantStatus(
            enabled=False, healthy=False, latency_ms=None, error=None, points=0, outbox=0
        ),
        rerank=_rerank(runtime),
        jobs=[],
        workers=[
            WorkerStatus(
                id=worker.id,
                pid=worker.pid,
                version=worker.version,
                started_at=to_iso(worker.started_at),
                seen_at=to_iso(worker.seen_at),
            )
            for worker in runtime.workers.live()
        ],
    )


@router.post(
    "/memory/reindex",
    status_code=202,
    responses=responses(400, 401, 403, 409, 413, 422, 503),
)
def start_reindex(
    request: Request, caller: Admin, order: Annotated[ReindexOrder | None, Body()] = None
) -> ReindexStarted:
    """Make the vectors that are missing, or with ``force`` all of them; 409 while that runs."""
    started = runtime_of(request).engine.reindexer.start(force=order is not None and order.force)
    return ReindexStarted(started=started.started, pending=started.pending, job_id=started.job_id)


@router.delete("/memory/reindex", responses=responses(401, 403, 404, 503))
def cancel_reindex(request: Request, caller: Admin) -> Success:
    """Give up the vectors that are being made; those that answer stay."""
    runtime_of(request).engine.reindexer.cancel()
    return Success(success=True)


@router.post("/memory/retrieve-preview", responses=responses(400, 401, 403, 413, 422, 503))
def retrieve_preview(request: Request, caller: Caller, order: PreviewOrder) -> Preview:
    """Return what a request with this question would carry. It counts as no use."""
    runtime = runtime_of(request)
    owner = owner_asked_for(caller, order.api_key_id)
    if owner is None:
        message = "an admin must name the owner"
        raise ValidationError(message, field="apiKeyId")
    runtime.engine.semantic.refresh()
    trace = runtime.retriever.retrieve(_asked(runtime, owner, order))
    kept = sum(entry.tokens for entry in trace.candidates if entry.is_injected)
    return Preview(
        memories=[_previewed(entry) for entry in trace.candidates[: order.limit]],
        resolution=_resolution(runtime, trace),
        total_tokens_used=kept,
        budget_max_tokens=order.max_tokens,
        trace=trace.to_json(limit=order.limit),
    )


def _asked(runtime: Runtime, owner: OwnerId, order: PreviewOrder) -> RetrievalRequest:
    settings = runtime.settings.refresh().values
    session = SessionId(order.session_id) if order.session_id else None
    scope = read_scope(owner, session, settings.scope)
    if scope is None:
        message = "the scope is the session: name one"
        raise ValidationError(message, field="sessionId")
    return RetrievalRequest(
        scope=scope,
        query=storable(order.query),
        strategy=cast("Strategy", canonical_strategy(order.strategy)),
        max_tokens=order.max_tokens,
        profile_max_tokens=settings.profile_max_tokens,
        retention=timedelta(days=settings.retention_days),
        fusion=settings.fusion,
    )


def _previewed(entry: Candidate) -> PreviewedMemory:
    scores = entry.scores
    names = ("rerank", "fused", "similarity", "bm25")
    return PreviewedMemory(
        id=entry.memory.id,
        type=entry.memory.type,
        key=entry.memory.key,
        content=entry.memory.content,
        score=round(next((scores[name] for name in names if name in scores), 0.0), 6),
        tokens=entry.tokens,
        tier="+".join(entry.ranks),
        vec_score=scores.get("similarity"),
        fts_score=scores.get("bm25"),
        injected=entry.is_injected,
        dropped_reason=entry.dropped,
    )


def _resolution(runtime: Runtime, trace: RetrievalTrace) -> Resolution:
    answered = {step.tier for step in trace.tiers if step.answered}
    tier = runtime.engine.semantic.current.tier
    embedder = runtime.engine.semantic.current.choice.embedder
    is_by_meaning = "vector" in answered and embedder is not None and isinstance(tier, VectorTier)
    return Resolution(
        embedding_source=embedder.source if is_by_meaning and embedder else None,
        embedding_model=embedder.model if is_by_meaning and embedder else None,
        vector_store=BACKEND if is_by_meaning else None,
        strategy_used=trace.strategy,
        rerank_applied="rerank" in answered,
        fallback_reason=trace.degraded,
    )


def _embedding(runtime: Runtime) -> EmbeddingStatus:
    current = runtime.engine.semantic.refresh()
    choice, active = current.choice, current.tables.active
    fault = runtime.health.fault("memory.index")
    embedder = choice.embedder
    reason = fault.reason if fault is not None else choice.reason
    return EmbeddingStatus(
        source=embedder.source if embedder else None,
        model=embedder.model if embedder else None,
        dimensions=active.dimension if embedder and active else None,
        available=embedder is not None and fault is None,
        reason=reason,
        hint=choice.hint,
        cache_stats=cache_stats_of(runtime),
    )


def _vector_store(runtime: Runtime) -> VectorStoreStatus:
    reindexer, current = runtime.engine.reindexer, runtime.engine.semantic.current
    active, coverage = current.tables.active, coverage_of(runtime)
    job = reindexer.job(current.tables)
    return VectorStoreStatus(
        backend=BACKEND,
        available=isinstance(current.tier, VectorTier),
        row_count=reindexer.row_count(active) if active else 0,
        needs_reindex=coverage.total - coverage.indexed,
        coverage=coverage,
        signature=active.signature if active else None,
        quantization=active.spec.quantization if active else None,
        reason=current.tier.reason if isinstance(current.tier, NoTier) else None,
        building=_progress(job) if job else None,
        failed=[
            FailedMemory(id=each.memory_id, attempts=each.attempts, error=each.error)
            for each in reindexer.set_aside(limit=_SHOWN_FAILURES)
        ],
    )


def _progress(job: ReindexJob) -> ReindexProgress:
    return ReindexProgress(
        id=job.id,
        signature=job.signature,
        total=job.total,
        done=job.done,
        failed=job.failed,
        begun_at=to_iso(job.begun_at),
        rate=job.rate,
    )


def _rerank(runtime: Runtime) -> RerankStatus:
    settings = runtime.settings.current.values
    model = settings.rerank_provider_model
    reason = runtime.engine.reason_against_rerank()
    return RerankStatus(
        enabled=settings.rerank_enabled,
        provider=model.partition("/")[0] if model and "/" in model else None,
        model=model,
        available=settings.rerank_enabled and reason is None,
        reason=reason if settings.rerank_enabled else None,
        failures=runtime.engine.rerank_failures,
    )
