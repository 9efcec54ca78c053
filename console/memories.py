"""The memories: list, search, delete, undo, and the switch."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Final, cast, get_args
from urllib.parse import parse_qsl, urlsplit

from fastapi import APIRouter, Form, Query, Request
from starlette.responses import RedirectResponse, Response

from omniroute_litellm.console.links import Links
from omniroute_litellm.console.pages import (
    DeletePage,
    Filter,
    Frame,
    MemoriesPage,
    MemoryRow,
    MemorySwitch,
    OwnerChoice,
    fault_line,
    owner_label,
)
from omniroute_litellm.console.session import SignedIn
from omniroute_litellm.console.views import is_partial, render
from omniroute_litellm.errors import ValidationError
from omniroute_litellm.injection import render_line
from omniroute_litellm.runtime import Runtime
from omniroute_litellm.settings import Origin, variable_of
from omniroute_litellm.sign_in import Principal
from omniroute_litellm.store import MemoryPage, MemoryQuery, Sort
from omniroute_litellm.text import one_line, storable
from omniroute_litellm.tokens import estimate_tokens
from omniroute_litellm.types import Memory, MemoryId, MemoryStatus, MemoryType, OwnerId

router = APIRouter()

PAGE_SIZE: Final = 50
SHOWN_CHARACTERS: Final = 500
"""What extraction learns fits; longer memories, made by hand, are shown whole before a delete."""
_DEFAULT_PROXY: Final = "http://localhost:4000"
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


@router.get("/memories/{memory_id}/delete")
def ask(
    request: Request, caller: SignedIn, memory_id: str, back: Annotated[str, Query()] = ""
) -> Response:
    """Ask before a memory goes: as a dialog over the list, or as a page without script."""
    runtime = _runtime(request)
    memory = runtime.store.get(MemoryId(storable(memory_id)), owner=caller.owner)
    page = DeletePage(
        frame=Frame("Delete a memory", "memories", fault=fault_line(runtime)),
        state=_state_of(back),
        row=_row(memory, characters=len(memory.content)),
    )
    return render(
        request, "memories/_delete.html" if is_partial(request) else "memories/delete.html", page
    )


@router.post("/memories/{memory_id}/delete")
def delete(
    request: Request, caller: SignedIn, memory_id: str, back: Annotated[str, Form()] = ""
) -> Response:
    """Delete a memory, asked for by a plain form."""
    return _deleted(request, caller, memory_id, back)


@router.delete("/memories/{memory_id}")
def delete_by_script(
    request: Request, caller: SignedIn, memory_id: str, back: Annotated[str, Query()] = ""
) -> Response:
    """Delete a memory, asked for by script."""
    return _deleted(request, caller, memory_id, back)


@router.post("/memories/{memory_id}/undo")
def undo(
    request: Request, caller: SignedIn, memory_id: str, back: Annotated[str, Form()] = ""
) -> Response:
    """Bring a deleted memory back."""
    chosen = MemoryId(storable(memory_id))
    _runtime(request).store.undo(chosen, owner=caller.owner, actor=caller.name)
    state = _state_of(back)
    if is_partial(request):
        page = _page(request, state, notice="Memory restored.")
        return render(request, "memories/_results.html", page)
    return RedirectResponse(Links.of(request)("memories", **state, restored="1"), 303)


@router.post("/settings/enabled")
def switch(
    request: Request,
    caller: SignedIn,
    value: Annotated[str, Form()] = "",
    back: Annotated[str, Form()] = "",
) -> Response:
    """Turn memory on or off for everybody."""
    if value not in {"on", "off"}:
        message = "expected the value on or off"
        raise ValidationError(message, field="value")
    _runtime(request).settings.change({"enabled": value == "on"})
    return RedirectResponse(Links.of(request)("memories", **_state_of(back)), 303)


def _deleted(request: Request, caller: Principal, memory_id: str, back: str) -> Response:
    """Delete a memory and answer with the list that it left; the answer offers to undo it."""
    chosen = MemoryId(storable(memory_id))
    _runtime(request).store.delete(chosen, owner=caller.owner, actor=caller.name)
    state = _state_of(back)
    if is_partial(request):
        page = _page(request, state, notice="Memory deleted.", undo=chosen)
        return render(request, "memories/_results.html", page)
    return RedirectResponse(Links.of(request)("memories", **state, deleted=chosen), 303)


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
    asked, state = _query(parameters)
    query, found = _found(runtime, asked)
    totals = runtime.store.totals(query.owner)
    hits = runtime.traces.hit_rate(query.owner)
    number = query.offset // PAGE_SIZE + 1
    return MemoriesPage(
        frame=Frame("Memories", "memories", fault=fault_line(runtime), notice=notice, undo=undo),
        state=state,
        switch=_switch(runtime),
        owners=_owners(runtime, query.owner),
        types=_types(runtime, query),
        statuses=_statuses(runtime, query),
        rows=tuple(_row(memory, characters=SHOWN_CHARACTERS) for memory in found.memories),
        total=found.total,
        stored=totals.total,
        tokens=totals.tokens,
        hit_share=hits.share if hits.retrieved else None,
        first=query.offset + 1,
        previous_page=number - 1 if number > 1 else None,
        next_page=number + 1 if query.offset + PAGE_SIZE < found.total else None,
        proxy_url=_proxy_url(request),
        sorts=_SORTS,
    )


def _found(runtime: Runtime, query: MemoryQuery) -> tuple[MemoryQuery, MemoryPage]:
    """Return what a query finds; a page past the end stands for the last one."""
    found = runtime.store.page(query)
    if found.memories or not query.offset:
        return query, found
    last = replace(query, offset=max(0, found.total - 1) // PAGE_SIZE * PAGE_SIZE)
    return last, runtime.store.page(last)


def _proxy_url(request: Request) -> str:
    """Return where the proxy answers: above our mount, or its usual port when we run alone."""
    mount = str(request.scope.get("root_path", "")).rstrip("/")
    if not mount:
        return _DEFAULT_PROXY
    return f"{request.url.scheme}://{request.url.netloc}{mount.rpartition('/')[0]}"


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


def _one_of(value: str, choices: list[str]) -> str:
    return value if value in choices else ""


def _switch(runtime: Runtime) -> MemorySwitch:
    current = runtime.settings.refresh()
    is_pinned = current.origins["enabled"] is Origin.ENVIRONMENT
    return MemorySwitch(
        is_set=current.values.enabled,
        max_tokens=current.values.max_tokens,
        pinned_by=variable_of("enabled") if is_pinned else None,
        problems=current.problems,
    )


def _owners(runtime: Runtime, chosen: OwnerId | None) -> tuple[OwnerChoice, ...]:
    """Return the owners to choose from, with the chosen one even when it holds nothing."""
    counts = {entry.owner: entry.count for entry in runtime.store.owners()}
    if chosen is not None:
        counts.setdefault(chosen, 0)
    return tuple(
        OwnerChoice(owner, owner_label(owner), count, owner == chosen)
        for owner, count in counts.items()
    )


def _types(runtime: Runtime, query: MemoryQuery) -> tuple[Filter, ...]:
    """Return each type with what it would leave of this view."""
    return (
        Filter("", "all types", _count(runtime, replace(query, type=None)), query.type is None),
        *(
            Filter(kind, kind, _count(runtime, replace(query, type=kind)), kind is query.type)
            for kind in MemoryType
        ),
    )


def _statuses(runtime: Runtime, query: MemoryQuery) -> tuple[Filter, ...]:
    """Return each state with what it would leave of this view."""
    every = _count(runtime, replace(query, status=None))
    return (
        Filter("", "all states", every, query.status is None),
        *(
            Filter(
                status,
                status,
                _count(runtime, replace(query, status=status)),
                status is query.status,
            )
            for status in MemoryStatus
        ),
    )


def _count(runtime: Runtime, query: MemoryQuery) -> int:
    return runtime.store.page(replace(query, limit=1, offset=0)).total


def _row(memory: Memory, *, characters: int) -> MemoryRow:
    content = one_line(memory.content)
    return MemoryRow(
        id=memory.id,
        type=memory.type,
        status=memory.status,
        content=content[:characters],
        hidden=len(content[characters:]),
        key=one_line(memory.key),
        tokens=estimate_tokens(render_line(memory.content)),
        used=memory.access_count,
        updated_at=memory.updated_at,
        pinned=memory.pinned,
        source=memory.source.replace("_", " "),
        owner=memory.owner,
    )
