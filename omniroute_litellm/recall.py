"""The request path: identify, retrieve within the deadline, place. It fails open."""

import asyncio
import contextvars
import functools
import uuid
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Final

from omniroute_litellm.conversation import place_behind_turns
from omniroute_litellm.errors import BackendUnavailableError
from omniroute_litellm.health import Health
from omniroute_litellm.identity import Identity, MemoryMode, memory_mode, resolve_owner
from omniroute_litellm.ledger import Placed
from omniroute_litellm.live_settings import LiveSettings
from omniroute_litellm.lookup import Found, Lookup, hear, is_allowed
from omniroute_litellm.placement import (
    BlockForm,
    Deployment,
    Placement,
    block_form,
    next_form,
)
from omniroute_litellm.receipt import Outcome
from omniroute_litellm.refusals import Refusals
from omniroute_litellm.request_state import RequestState
from omniroute_litellm.settings import Origin
from omniroute_litellm.telemetry import span
from omniroute_litellm.types import Clock, SessionId, TraceId
from omniroute_litellm.wire.base import Body, WireFormat

READ: Final = "memory.retrieval"
CAPTURE: Final = "memory.capture"
SETTINGS: Final = "memory.settings"
OUTBOX: Final = "memory.outbox"
TRACES: Final = "memory.traces"
LEDGER: Final = "memory.ledger"
HEARTBEAT: Final = "memory.heartbeat"
WRITES: Final = (CAPTURE, OUTBOX, TRACES, LEDGER, HEARTBEAT)
"""What one thread writes in turn: while one of them fails, the others wait and fail after it."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request as it came in: who sent it, its headers in lower case, its session if any."""

    call_id: str
    model: str
    identity: Identity
    headers: Mapping[str, str]
    session: SessionId | None


@dataclass(frozen=True, slots=True)
class Patience:
    """Where a look-up runs, and how long a request waits for it."""

    executor: Executor
    deadline_s: float


class Recall:
    """Decides for one request what it may use, finds it, and puts it where the model reads it.

    ``patience`` is asked for every look-up: it differs by what has to be waited for. ``remember``
    takes what was put behind a turn, without waiting for the disk.
    """

    def __init__(
        self,
        lookup: Lookup,
        settings: LiveSettings,
        health: Health,
        *,
        patience: Callable[[], Patience],
        remember: Callable[[Placed], None],
        refusals: Refusals,
        clock: Clock,
    ) -> None:
        self._lookup = lookup
        self._settings = settings
        self._health = health
        self._patience = patience
        self._remember = remember
        self._refusals = refusals
        self._clock = clock

    def identify(self, arrival: Arrival) -> RequestState:
        """Open the state of a request. Nothing is read or written here."""
        values = self._settings.current.values
        mode = memory_mode(arrival.headers)
        state = RequestState(
            id=TraceId(str(uuid.uuid4())),
            call_id=arrival.call_id,
            model=arrival.model,
            owner=resolve_owner(arrival.identity, values.owner_field),
            session=arrival.session,
            mode=mode,
            settings=values,
            started_at=self._clock(),
        )
        gate = self._gate(state)
        if gate is not None:
            state.fail(*gate)
            state.owner = None
        elif state.mode.may_write:
            faults = filter(None, map(self._health.fault, WRITES))
            if fault := next(faults, None):
                state.fail(Outcome.ERROR, fault.reason)
        return state

    async def place(
        self, state: RequestState, wire: WireFormat, body: Body, deployment: Deployment
    ) -> dict[str, object] | None:
        """Return the prompt fields that carry the memory, or None when nothing is to be added.

        The first attempt retrieves; later ones place the same blocks in the form that their own
        deployment takes. A block that stands there already is not placed again: bridges between
        formats come by twice.
        """
        async with state.recall_lock:
            if not state.is_recalled:
                state.is_recalled = True
                with span("memory.retrieve") as opened:
                    await self._recall(state, wire, body)
                    opened.set_attributes(_attributes(state))
        state.attempt, state.left_out = deployment.name, ""
        # A bridge may not name the group: then it is that of the call that it is part of.
        state.group = deployment.group or state.group
        refused = self._refusals.of(deployment.name)
        if deployment.name in state.refused or state.group in state.refused_in:
            return _without(state, "refused")
        is_first = state.form is None
        blocks = {
            block.ordinal: block.text
            for block in state.blocks
            if is_first or not wire.contains(body, block.text)
        }
        if not blocks:
            return None
        with span("memory.inject") as opened:
            fields = self._placed(state, wire, body, deployment, blocks, refused)
            opened.set_attributes(
                {"memory.placement": state.placed or "none", "memory.blocks": len(blocks)}
            )
        return fields

    def _placed(
        self,
        state: RequestState,
        wire: WireFormat,
        body: Body,
        deployment: Deployment,
        blocks: Mapping[int, str],
        refused: Collection[str],
    ) -> dict[str, object] | None:
        if state.placement is Placement.TAIL and Placement.TAIL not in refused:
            fields = place_behind_turns(wire, body, blocks)
            if fields is not None:
                state.form, state.placed = BlockForm.USER, Placement.TAIL
            return fields
        preferred = block_form(
            deployment,
            no_system=state.settings.no_system_models,
            strict_system=state.settings.strict_system_models,
        )
        form = next_form(preferred, refused)
        if form is None:
            return _without(state, "deployment_refuses")
        state.form, state.placed = form, Placement.LEADING
        return wire.place_leading(body, "\n".join(blocks.values()), form)

    def refused(self, state: RequestState, *, is_for_form: bool) -> bool:
        """Note that the deployment of this attempt refused the request; tell if it is news.

        It is only where memory was in it and it may go out once more without: LiteLLM repeats it
        on any deployment of the same group, so that none of them gets memory. ``is_for_form`` says
        whether the form of the memory can have been the reason.
        """
        if state.form is None or state.attempt in state.refused:
            return False
        form = _refusable(state)
        state.refused[state.attempt] = form if is_for_form else ""
        if state.group:
            state.refused_in[state.group] = state.attempt
        self._health.count("memory.injection.refused")
        return True

    def lesson(self, state: RequestState) -> tuple[str, str] | None:
        """Return deployment and form to be remembered as refused, of a request that succeeded.

        The evidence is that the very same request passed without memory. It counts once. On the
        deployment that refused it is enough. On another of its group, where LiteLLM repeats when
        there is one, it is not: servers differ in more than that. Then several requests must have
        gone that way, with none in between that the deployment took with memory in that form.
        What passed in another group, after its own refused it without memory too, says nothing.
        """
        if state.form is not None:
            self._refusals.clear(state.attempt, _refusable(state))
        if state.left_out != "refused":
            return None
        is_same = state.attempt in state.refused
        deployment = state.attempt if is_same else state.refused_in.get(state.group, "")
        form = state.refused.get(deployment)
        if not form:
            return None
        state.refused[deployment] = ""
        if is_same or self._refusals.suspect(deployment, form):
            return deployment, form
        return None

    def _gate(self, state: RequestState) -> tuple[Outcome, str] | None:
        """Return why memory stays away from this request altogether, or None."""
        current = self._settings.current
        if state.mode is MemoryMode.OFF:
            return Outcome.OFF, "opted_out"
        if current.problems:
            return Outcome.ERROR, "settings_invalid"
        is_pinned = current.origins["enabled"] is Origin.ENVIRONMENT
        if not self._settings.is_known and not (is_pinned and not current.values.enabled):
            fault = self._health.fault(SETTINGS)
            return Outcome.ERROR, fault.reason if fault else "settings_loading"
        if not current.values.enabled:
            return Outcome.OFF, "disabled"
        return (Outcome.OFF, "no_owner") if state.owner is None else None

    async def _recall(self, state: RequestState, wire: WireFormat, body: Body) -> None:
        found, patience = Found(), self._patience()
        loop = asyncio.get_running_loop()
        context = contextvars.copy_context()  # the open span is the parent of the thread's own
        try:
            async with asyncio.timeout(patience.deadline_s):
                # Cancelling cannot stop a thread that runs, but it takes a waiting call off the
                # queue. What a late thread has found by then is used.
                look = functools.partial(self._lookup.look, state, wire, body, found)
                await loop.run_in_executor(patience.executor, context.run, look)
        except TimeoutError:
            self._health.count("memory.retrieval.deadline")
            state.fail(Outcome.DEGRADED, "deadline")
            if state.human_text is None:
                # No thread of ours was free in time; what was said is learned from all the same.
                loop.run_in_executor(None, hear, state, wire, body)
        except BackendUnavailableError as error:
            self._health.failed(READ, error)
            state.fail(Outcome.ERROR, error.reason)
            return
        else:
            if is_allowed(state):
                self._health.succeeded(READ)
        state.reason = state.reason or found.reason
        placed = found.give(state)
        if placed is not None:
            self._remember(placed)


def _refusable(state: RequestState) -> str:
    """Return the form of an attempt with memory as a deployment may refuse it."""
    return (state.placed if state.placed is Placement.TAIL else state.form) or ""


def _without(state: RequestState, reason: str) -> None:
    """Let an attempt go out as the client sent it."""
    state.form, state.placed, state.left_out = None, None, reason


def _attributes(state: RequestState) -> dict[str, str | int | float]:
    receipt, trace = state.receipt(), state.trace
    return {
        "memory.outcome": receipt.outcome,
        "memory.reason": receipt.reason,
        "memory.tier": trace.tier if trace else "none",
        "memory.found": len(trace.lines) if trace else 0,
        "memory.ms": receipt.ms,
    }
