"""Memories: list, add, read, edit, delete, undo."""

import math
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request, Response

from omniroute_litellm import __version__
from omniroute_litellm.api.auth import Admin, Caller, owner_asked_for
from omniroute_litellm.api.engine import cache_stats_of, coverage_of, runtime_of
from omniroute_litellm.api.errors import responses
from omniroute_litellm.api.schemas import (
    Coverage,
    EditedMemory,
    HealthFault,
    HealthReport,
    HistoryItem,
    HistoryList,
    MemoryBody,
    MemoryEdit,
    MemoryList,
    NewMemory,
    OneMemory,
    OutboxHealth,
    RefusedForms,
    SortName,
    Stats,
    StoredMemory,
    Success,
    TierHealth,
)
from omniroute_litellm.errors import BackendUnavailableError, ValidationError
from omniroute_litellm.extraction.keys import slug
from omniroute_litellm.health import Fault
from omniroute_litellm.runtime import Runtime
from omniroute_litellm.store import MemoryChange, MemoryQuery
from omniroute_litellm.text import storable
from omniroute_litellm.types import (
    MemoryDraft,
    MemoryId,
    MemorySource,
    MemoryStatus,
    MemoryType,
    OwnerId,
    SessionId,
    to_iso,
)
from omniroute_litellm.vectors.base import NoTier

router = APIRouter(tags=["memory"])


_MAX_PAGE: Final = 1_000_000
_MAX_OFFSET: Final = 1_000_000_000


@router.get("/memory", responses=responses(401, 403, 422, 503))
def list_memories(
    request: Request,
    caller: Caller,
    api_key_id: Annotated[str | None, Query(alias="apiKeyId", max_length=256)] = None,
    kind: Annotated[MemoryType | None, Query(alias="type")] = None,
    session_id: Annotated[str | None, Query(alias="sessionId", max_length=256)] = None,
    q: Annotated[str, Query(max_length=500)] = "",
    status: MemoryStatus | None = None,
    source: MemorySource | None = None,
    pinned: bool | None = None,
    sort: SortName = "updated",
    page: Annotated[int, Query(ge=1, le=_MAX_PAGE)] = 1,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    offset: Annotated[int | None, Query(ge=0, le=_MAX_OFFSET)] = None,
) -> MemoryList:
    """List memories, filtered and paged. ``offset`` wins over ``page``."""
    runtime = runtime_of(request)
    owner = owner_asked_for(caller, api_key_id)
    start = (page - 1) * limit if offset is None else offset
    query = MemoryQuery(
        owner=owner,
        type=kind,
        session_id=SessionId(session_id) if session_id else None,
        text=storable(q),
        status=status,
        source=source,
        pinned=pinned,
        sort=sort,
        limit=limit,
        offset=start,
    )
    found = runtime.store.page(query)
    return MemoryList(
        data=[MemoryBody.of(memory) for memory in found.memories],
        total=found.total,
        page=start // limit + 1,
        limit=limit,
        total_pages=math.ceil(found.total / limit),
        stats=_stats(runtime, owner),
    )


@router.post(
    "/memory",
    responses={201: {"model": StoredMemory}, **responses(400, 401, 403, 413, 422, 503)},
)
def add_memory(
    request: Request, response: Response, caller: Caller, body: NewMemory
) -> StoredMemory:
    """Store a memory into its slot: 201 when it is new, 200 when the slot held one already."""
    owner = owner_asked_for(caller, body.api_key_id)
    if owner is None:
        message = "an admin must name the owner"
        raise ValidationError(message, field="apiKeyId")
    draft = MemoryDraft(
        owner=owner,
        type=body.type,
        key=body.key or f"{body.type}:{slug(body.content)}",
        content=body.content,
        source=MemorySource.MANUAL,
        session_id=SessionId(body.session_id) if body.session_id else None,
        metadata=body.metadata,
        expires_at=body.expires_at,
        pinned=body.pinned,
    )
    stored = runtime_of(request).store.upsert(draft, actor=caller.name)
    response.status_code = 201 if stored.created else 200
    return StoredMemory(
        success=True,
        id=stored.memory.id,
        created=stored.created,
        memory=MemoryBody.of(stored.memory),
    )


@router.get("/memory/health", responses=responses(401, 403))
def health(request: Request, caller: Admin) -> HealthReport:
    """Prove that memory works by storing, finding and deleting one; say what fails."""
    runtime = runtime_of(request)
    probe = runtime.probe.run()
    coverage, outbox, workers = Coverage(total=0, indexed=0, failed=0), None, 0
    try:
        coverage = coverage_of(runtime)
        state = runtime.outbox.state()
        outbox = OutboxHealth(
            waiting=state.waiting, set_aside=state.set_aside, backlog=runtime.learning.backlog
        )
        workers = len(runtime.workers.live())
        runtime.health.succeeded("memory.health")
    except BackendUnavailableError as error:
        # The probe has met the same store: its reason stands in the report already.
        runtime.health.failed("memory.health", error)
    return HealthReport(
        working=probe.working,
        latency_ms=round(probe.latency_ms, 3),
        error=probe.error,
        coverage=coverage,
        tiers=[
            TierHealth(name="keyword", available=probe.working, reason=probe.reason),
            _vector_health(runtime),
        ],
        faults=[_fault(fault) for fault in runtime.health.faults],
        last_errors=[_fault(fault) for fault in runtime.health.recent],
        outbox=outbox,
        refusals=[
            RefusedForms(deployment=name, forms=dict(forms))
            for name, forms in runtime.refusals.all().items()
        ],
        workers=workers,
        counters=dict(runtime.health.counters),
        data_directory=str(runtime.data_directory),
        version=__version__,
    )


@router.get("/memory/{memory_id}", responses=responses(401, 403, 404, 503))
def get_memory(request: Request, caller: Caller, memory_id: str) -> OneMemory:
    """Return one memory."""
    found = runtime_of(request).store.get(_id(memory_id), owner=caller.owner)
    return OneMemory(memory=MemoryBody.of(found))


@router.put("/memory/{memory_id}", responses=responses(400, 401, 403, 404, 409, 413, 422, 503))
def edit_memory(request: Request, caller: Caller, memory_id: str, body: MemoryEdit) -> EditedMemory:
    """Change a memory; 409 when it changed since ``updatedAt`` or another holds the key."""
    change = MemoryChange(values=body.values(), expected_updated_at=body.updated_at)
    stored = runtime_of(request).store.update(
        _id(memory_id), change, owner=caller.owner, actor=caller.name
    )
    return EditedMemory(success=True, memory=MemoryBody.of(stored))


@router.delete("/memory/{memory_id}", responses=responses(401, 403, 404, 503))
def delete_memory(request: Request, caller: Caller, memory_id: str) -> Success:
    """Delete a memory; undo brings it back while the history keeps it."""
    runtime_of(request).store.delete(_id(memory_id), owner=caller.owner, actor=caller.name)
    return Success(success=True)


@router.post("/memory/{memory_id}/undo", responses=responses(401, 403, 404, 409, 503))
def undo(request: Request, caller: Caller, memory_id: str) -> OneMemory:
    """Take back the newest change of a memory, a delete included."""
    restored = runtime_of(request).store.undo(_id(memory_id), owner=caller.owner, actor=caller.name)
    return OneMemory(memory=MemoryBody.of(restored))


@router.get("/memory/{memory_id}/history", responses=responses(401, 403, 404, 503))
def history(request: Request, caller: Caller, memory_id: str) -> HistoryList:
    """Return what the changes of a memory replaced, newest first."""
    entries = runtime_of(request).store.history(_id(memory_id), owner=caller.owner)
    return HistoryList(data=[HistoryItem.of(entry) for entry in entries])


def _id(text: str) -> MemoryId:
    return MemoryId(storable(text))


def _stats(runtime: Runtime, owner: OwnerId | None) -> Stats:
    totals = runtime.store.totals(owner)
    return Stats(
        total=totals.total,
        by_type=dict(totals.by_type),
        tokens_used=totals.tokens,
        hit_rate=round(runtime.traces.hit_rate(owner).share, 4),
        cache_stats=cache_stats_of(runtime),
    )


def _vector_health(runtime: Runtime) -> TierHealth:
    tier = runtime.engine.semantic.tier()
    reason = tier.reason if isinstance(tier, NoTier) else None
    return TierHealth(name="vector", available=not isinstance(tier, NoTier), reason=reason)


def _fault(fault: Fault) -> HealthFault:
    return HealthFault(
        operation=fault.operation,
        reason=fault.reason,
        message=fault.message,
        since=to_iso(fault.since),
        last=to_iso(fault.last),
        count=fault.count,
    )
