"""The request path: identify, retrieve within the deadline, place. It fails open."""

import asyncio
import uuid
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from omniroute_litellm.errors import BackendUnavailableError
from omniroute_litellm.health import Health
from omniroute_litellm.identity import Identity, MemoryMode, memory_mode, read_scope, resolve_owner
from omniroute_litellm.live_settings import LiveSettings
from omniroute_litellm.placement import Deployment, block_form
from omniroute_litellm.receipt import Outcome
from omniroute_litellm.request_state import RequestState
from omniroute_litellm.retrieval import RetrievalRequest, Retriever
from omniroute_litellm.settings import Origin
from omniroute_litellm.trace import RetrievalTrace
from omniroute_litellm.types import Clock, SessionId, TraceId
from omniroute_litellm.wire.base import Body, WireFormat, newest_human_text

READ: Final = "memory.retrieval"
CAPTURE: Final = "memory.capture"
SETTINGS: Final = "memory.settings"


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request as it came in: who sent it, its headers in lower case, its session if any."""

    call_id: str
    model: str
    identity: Identity
    headers: Mapping[str, str]
    session: SessionId | None


class Recall:
    """Decides for one request what it may use, finds it, and puts it where the model reads it.

    ``executor`` runs retrievals; ``deadline_s`` is how long a request waits for one.
    """

    def __init__(
        self,
        retriever: Retriever,
        settings: LiveSettings,
        health: Health,
        *,
        executor: Executor,
        deadline_s: float,
        clock: Clock,
    ) -> None:
        self._retriever = retriever
        self._settings = settings
        self._health = health
        self._executor = executor
        self._deadline_s = deadline_s
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
        elif state.mode.may_write and (fault := self._health.fault(CAPTURE)):
            state.fail(Outcome.ERROR, fault.reason)
        return state

    async def place(
        self, state: RequestState, wire: WireFormat, body: Body, deployment: Deployment
    ) -> dict[str, object] | None:
        """Return the prompt fields that carry the block, or None when nothing is to be added.

        The first attempt retrieves; later ones place the same block in the form that their own
        deployment takes. A block that stands there already is not placed again: bridges between
        formats come by twice.
        """
        async with state.recall_lock:
            if not state.is_recalled:
                state.is_recalled = True
                await self._recall(state, wire, body)
        if not state.block or (state.form is not None and wire.contains(body, state.block)):
            return None
        state.form = block_form(
            deployment,
            no_system=state.settings.no_system_models,
            strict_system=state.settings.strict_system_models,
        )
        return wire.place_leading(body, state.block, state.form)

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
        # Cancelling cannot stop a thread that runs, but it takes a waiting call off the queue.
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._deadline_s):
                trace = await loop.run_in_executor(self._executor, self._look, state, wire, body)
        except TimeoutError:
            self._health.count("memory.retrieval.deadline")
            state.fail(Outcome.DEGRADED, "deadline")
            if state.human_text is None:
                # No thread of ours was free in time; what was said is learned from all the same.
                loop.run_in_executor(None, _hear, state, wire, body)
        except BackendUnavailableError as error:
            self._health.failed(READ, error)
            state.fail(Outcome.ERROR, error.reason)
        else:
            if trace is not None:
                self._health.succeeded(READ)
                state.keep(trace)

    def _look(self, state: RequestState, wire: WireFormat, body: Body) -> RetrievalTrace | None:
        """Read what the person wrote and find what is known about it: one thread hop for both."""
        _hear(state, wire, body)
        settings = state.settings
        if state.owner is None or not state.human_text:
            return None
        if not (settings.injection_enabled and settings.max_tokens and state.mode.may_read):
            return None
        scope = read_scope(state.owner, state.session, settings.scope)
        if scope is None:
            state.reason = state.reason or "no_session"
            return None
        request = RetrievalRequest(
            scope=scope,
            query=state.human_text,
            strategy=settings.strategy,
            max_tokens=settings.max_tokens,
            profile_max_tokens=settings.profile_max_tokens,
            retention=timedelta(days=settings.retention_days),
        )
        return self._retriever.retrieve(request)


def _hear(state: RequestState, wire: WireFormat, body: Body) -> None:
    state.human_text = newest_human_text(wire, body)
