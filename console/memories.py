"""The memories: list, search, delete, undo, and the switch."""

from collections.abc import Mapping
from typing import Annotated, Final, cast, get_args
from urllib.parse import parse_qsl, urlsplit

from fastapi import APIRouter, Form, Request
from starlette.responses import RedirectResponse, Response

from omniroute_litellm.console.links import Links
from omniroute_litellm.console.pages import (
    Filter,
    Frame,
    MemoriesPage,
    MemoryRow,
    MemorySwitch,
    OwnerChoice,
    owner_label,
)
from omniroute_litellm.console.session import SignedIn
from omniroute_litellm.console.views import is_partial, render
from omniroute_litellm.injection import render_line
from omniroute_litellm.runtime import Runtime
from omniroute_litellm.settings import Origin, variable_of
from omniroute_litellm.store import MemoryQuery, MemoryTotals, Sort
from omniroute_litellm.text import one_line, storable
from omniroute_litellm.tokens import estimate_tokens
from omniroute_litellm.types import Memory, MemoryId, MemoryStatus, MemoryType, OwnerId

router = APIRouter()

PAGE_SIZE: Final = 50
MAX_PAGE: Final = 1_000_000
_STATE: Final = ("owner", "q", "type", "status", "sort", "page")
_SORTS: Final = (
    ("updated", "newest first"),
    ("used", "most used first"),
    ("key", "by key"),
    ("type", "by type"),
    ("created", "last learned first"),
)


@router.get("/")
def front(request: Request, caller: SignedIn) -> Response:
    """Lead to the first screen."""
    return RedirectResponse(Links.of(request)("memories"), 303)


@router.get("/memories")
def show(request: Request, caller: SignedIn) -> Response:
    """Show one page of memories; the address holds the whole state of the view."""
    parameters = request.query_params
    deleted = parameters.get("deleted")
    notice = {"deleted": "Memory deleted.", "restored": "Memory restored."}
    told = next((text for name, text in notice.items() if name in parameters), None)
    page = _page(request, parameters, notice=told, undo=deleted)
    return render(
        request, "memories/_results.html" if is_partial(request) else "memories/page.html", page
    )


@router.post("/memories/{memory_id}/delete")
def delete(
    request: Request, caller: SignedIn, memory_id: str, back: Annotated[str, Form()] = ""
) -> Response:
    """Delete a memory; the answer offers to undo it."""
    runtime = _runtime(request)
    runtime.store.delete(MemoryId(memory_id), owner=caller.owner, actor=caller.name)
    state = _state_of(back)
    if is_partial(request):
        page = _page(request, state, notice="Memory deleted.", undo=memory_id)
        return render(request, "memories/_results.html", page)
    return RedirectResponse(Links.of(request)("memories", **state, deleted=memory_id), 303)


@router.post("/memories/{memory_id}/undo")
def undo(
    request: Request, caller: SignedIn, memory_id: str, back: Annotated[str, Form()] = ""
) -> Response:
    """Bring a deleted memory back."""
    _runtime(request).store.undo(MemoryId(memory_id), owner=caller.owner, actor=caller.name)
    state = _state_of(back)
    if is_partial(request):
        return render(
            request, "memories/_results.html", _page(request, state, notice="Memory restored.")
        )
    return RedirectResponse(Links.of(request)("memories", **state, restored="1"), 303)


@router.post("/settings/enabled")
def switch(request: Request, caller: SignedIn, value: Annotated[str, Form()] = "") -> Response:
    """Turn memory on or off for everybody."""
    _runtime(request).settings.change({"enabled": value == "on"})
    return RedirectResponse(Links.of(request)("memories"), 303)


def _runtime(request: Request) -> Runtime:
    return cast("Runtime", request.app.state.runtime)


def _state_of(address: str) -> dict[str, str]:
    """Return the view that an address shows, with nothing in it that is no part of one."""
    return {name: value for name, value in parse_qsl(urlsplit(address).query) if name in _STATE}


def _page(
    request: Request,
    parameters: Mapping[str, str],
    *,
    notice: str | None = None,
    undo: str | None = None,
) -> MemoriesPage:
    runtime = _runtime(request)
    query, state = _query(parameters)
    found = runtime.store.page(query)
    totals = runtime.store.totals(query.owner)
    hits = runtime.traces.hit_rate(query.owner)
    number = query.offset // PAGE_SIZE + 1
    return MemoriesPage(
        frame=Frame("Memories", "memories", fault=_fault(runtime), notice=notice, undo=undo),
        state=state,
        switch=_switch(runtime),
        owners=_owners(runtime, query.owner),
        types=_types(query, totals),
        statuses=_statuses(query, totals),
        rows=tuple(_row(memory) for memory in found.memories),
        total=found.total,
        stored=totals.total,
        tokens=totals.tokens,
        hit_share=hits.share if hits.retrieved else None,
        first=query.offset + 1,
        previous_page=number - 1 if number > 1 else None,
        next_page=number + 1 if query.offset + PAGE_SIZE < found.total else None,
        proxy_url=f"{request.url.scheme}://{request.url.netloc}",
        sorts=_SORTS,
    )


def _query(parameters: Mapping[str, str]) -> tuple[MemoryQuery, dict[str, str]]:
    """Read a view from its address; what is no valid choice counts as not chosen."""
    owner = storable(parameters.get("owner", ""))
    text = storable(parameters.get("q", ""))[:500]
    kind = _one_of(parameters.get("type", ""), [str(value) for value in MemoryType])
    status = _one_of(parameters.get("status", ""), [str(value) for value in MemoryStatus])
    sort = _one_of(parameters.get("sort", ""), list(get_args(Sort)))
    page = parameters.get("page", "")
    number = int(page) if page.isascii() and page.isdecimal() and len(page) < 7 else 1
    query = MemoryQuery(
        owner=OwnerId(owner) if owner else None,
        type=MemoryType(kind) if kind else None,
        status=MemoryStatus(status) if status else None,
        text=text,
        sort=cast("Sort", sort or "updated"),
        limit=PAGE_SIZE,
        offset=(max(1, number) - 1) * PAGE_SIZE,
    )
    values = {"owner": owner, "q": text, "type": kind, "status": status, "sort": sort}
    return query, {**values, "page": str(number) if number > 1 else ""}


def _fault(runtime: Runtime) -> str | None:
    """Return the first thing that fails at present, in one line."""
    faults = runtime.health.faults
    return f"{faults[0].operation}: {faults[0].message}" if faults else None


def _one_of(value: str, choices: list[str]) -> str:
    return value if value in choices else ""


def _switch(runtime: Runtime) -> MemorySwitch:
    current = runtime.settings.refresh()
    is_pinned = current.origins["enabled"] is Origin.ENVIRONMENT
    return MemorySwitch(
        is_on=current.values.enabled,
        max_tokens=current.values.max_tokens,
        pinned_by=variable_of("enabled") if is_pinned else None,
    )


def _owners(runtime: Runtime, chosen: OwnerId | None) -> tuple[OwnerChoice, ...]:
    return tuple(
        OwnerChoice(entry.owner, owner_label(entry.owner), entry.count, entry.owner == chosen)
        for entry in runtime.store.owners()
    )


def _types(query: MemoryQuery, totals: MemoryTotals) -> tuple[Filter, ...]:
    every = Filter("", "all types", sum(totals.by_type.values()), query.type is None)
    return (
        every,
        *(Filter(kind, kind, count, kind is query.type) for kind, count in totals.by_type.items()),
    )


def _statuses(query: MemoryQuery, totals: MemoryTotals) -> tuple[Filter, ...]:
    every = Filter("", "all states", totals.total, query.status is None)
    return (
        every,
        *(
            Filter(status, status, count, status is query.status)
            for status, count in totals.by_status.items()
        ),
    )


def _row(memory: Memory) -> MemoryRow:
    return MemoryRow(
        id=memory.id,
        type=memory.type,
        status=memory.status,
        content=one_line(memory.content),
        key=one_line(memory.key),
        tokens=estimate_tokens(render_line(memory.content)),
        used=memory.access_count,
        updated_at=memory.updated_at,
        pinned=memory.pinned,
        source=memory.source.replace("_", " "),
        owner=owner_label(memory.owner),
    )
