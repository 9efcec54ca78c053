"""LiteLLM's callbacks: parse, call the runtime, write the result back. No logic of their own."""

import asyncio
import functools
import os
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Mapping
from types import CoroutineType
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from litellm.integrations.custom_logger import CustomLogger

from omniroute_litellm import gateway
from omniroute_litellm.litellm_calls import LiteLLMModels
from omniroute_litellm.request_state import RequestState
from omniroute_litellm.runtime import Runtime
from omniroute_litellm.wire.answers import answer_text
from omniroute_litellm.wire.formats import format_of

P = ParamSpec("P")
T = TypeVar("T")

GUARD: Final = "memory.hook"


def guarded(
    hook: "Callable[Concatenate[OmniRouteHandler, P], CoroutineType[Any, Any, T]]",
) -> "Callable[Concatenate[OmniRouteHandler, P], CoroutineType[Any, Any, T | None]]":
    """Keep every fault of a hook from the request: it is counted and logged, and the hook is void.

    LiteLLM turns an exception here into a failed request, or into a failed deployment.
    """

    @functools.wraps(hook)
    async def call(self: "OmniRouteHandler", /, *args: P.args, **kwargs: P.kwargs) -> T | None:
        try:
            result = await hook(self, *args, **kwargs)
        except Exception as error:
            # The hook boundary: memory must not break a chat.
            self.runtime.note_hook_fault(hook.__name__, error)
            return None
        self.runtime.note_hook_success(hook.__name__)
        return result

    return call


class OmniRouteHandler(CustomLogger):
    """The callback. Every hook stands in this class itself: LiteLLM looks some up there alone."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__()  # pyright: ignore[reportUnknownMemberType] - untyped keyword arguments
        self.runtime = runtime

    @guarded
    async def async_pre_call_hook(
        self, user_api_key_dict: Any, cache: Any, data: dict[str, Any], call_type: str
    ) -> None:
        """Identify the request; change nothing that a provider gets to see."""
        self.runtime.ensure_started()
        states = self.runtime.states
        if format_of(call_type) is None:
            states.begin(None)
            return
        state = self.runtime.recall.identify(gateway.arrival_of(user_api_key_dict, data))
        if state.is_live and state.mode.may_read:
            state.retry_policies = gateway.hold_retry_policies(data)
        states.begin(state)

    @guarded
    async def async_pre_call_deployment_hook(
        self, kwargs: dict[str, Any], call_type: Any
    ) -> dict[str, Any] | None:
        """Place the memory block for the deployment that this attempt calls, copy-on-write."""
        state = self._state()
        wire = format_of(call_type)
        if state is None or wire is None or not state.is_live:
            return None
        deployment = gateway.deployment_of(kwargs)
        placed = await self.runtime.recall.place(state, wire, kwargs, deployment)
        return None if placed is None else {**kwargs, **placed}

    @guarded
    async def async_post_call_failure_deployment_hook(
        self,
        request_data: Mapping[str, Any],
        exception: Exception,
        call_type: Any,
        fallback_depth: int | None = None,
    ) -> None:
        """Have a request that was refused with memory in it repeated once without."""
        state, refusal = self._state(), gateway.refusal_of(exception)
        if state is None or refusal is None or state.retry_policies is None:
            return
        if self.runtime.recall.refused(state, is_for_form=refusal.is_for_form):
            gateway.grant_repeat(state.retry_policies, request_data)

    @guarded
    async def async_post_call_response_headers_hook(
        self,
        data: dict[str, Any],
        user_api_key_dict: Any,
        response: Any,
        request_headers: dict[str, str] | None = None,
        litellm_call_info: dict[str, Any] | None = None,
    ) -> dict[str, str] | None:
        """Tell the client what memory did."""
        state = self.runtime.states.find()
        if state is None:
            return None
        return self.runtime.conclude(state).headers()

    async def async_post_call_streaming_iterator_hook(
        self,
        user_api_key_dict: Any,
        response: AsyncIterable[Any],
        request_data: dict[str, Any],
    ) -> AsyncGenerator[Any, None]:
        """Note whether a stream got to its end. Every chunk, and every error, passes as it is."""
        state = self.runtime.states.find()
        is_whole = False
        self.runtime.stream_began(state)
        try:
            async for chunk in response:
                yield chunk
            is_whole = True
        finally:
            self.runtime.stream_ended(state, is_whole=is_whole)

    @guarded
    async def async_log_success_event(
        self, kwargs: dict[str, Any], response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        """Capture the exchange durably; extraction follows in the background."""
        state = self._state()
        if state is None or gateway.is_cache_hit(kwargs):
            return
        await self.runtime.learn_refusal(state)
        answer = answer_text(response_obj)
        if gateway.is_redacted(kwargs, answer):
            return
        await self.runtime.capture(state, answer)

    def _state(self) -> RequestState | None:
        """Return the state of the request that a call belongs to; our own calls have none."""
        return None if gateway.is_internal() else self.runtime.states.find()


def start_in_proxy() -> OmniRouteHandler:
    """Build the runtime, mount the console, and arrange for a clean stop."""
    runtime = Runtime(
        environ=os.environ, authority=gateway.LiteLLMAuthority(), calls=LiteLLMModels()
    )
    runtime.open()
    gateway.mount(runtime.console())
    gateway.before_shutdown(runtime.close)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass  # imported outside of a proxy: the first request starts the runtime
    else:
        runtime.ensure_started()
    return OmniRouteHandler(runtime)


handler = start_in_proxy()
