"""A LiteLLM callback which places a system prompt, and grants one repeat when that is refused.

LiteLLM loads this file from beside its configuration, as `repeat_probe.handler`. A request takes
part by its header `x-probe`: `place` places, `watch` holds an empty grant and places nothing.
"""

import os
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

from litellm.integrations.custom_logger import CustomLogger
from litellm.proxy import proxy_server

BLOCK: Final = os.environ["PROBE_BLOCK"]
REFUSALS: Final = (400, 422)
ONCE: Final = {"BadRequestErrorRetries": 1, "DefaultRetries": 1}

Policies = dict[str, Any]  # retry policies by model group, as LiteLLM reads them


@dataclass(slots=True)
class Attempting:
    """One request: what it may still place, and the policies that LiteLLM consults for it."""

    policies: Policies
    may_place: bool
    is_placed: bool = False


REQUEST: Final[ContextVar[Attempting | None]] = ContextVar("repeat_probe", default=None)


def _placement(call_type: str, kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
    if call_type == "acompletion":
        return {"messages": [{"role": "system", "content": BLOCK}, *kwargs["messages"]]}
    if call_type == "aresponses":
        return {"instructions": BLOCK}
    if call_type == "anthropic_messages":
        return {"system": BLOCK}
    return {"systemInstruction": {"parts": [{"text": BLOCK}]}}


def _model_group(kwargs: Mapping[str, Any]) -> str:
    buckets: list[Any] = [kwargs.get("litellm_metadata"), kwargs.get("metadata")]
    return next(str(bucket["model_group"]) for bucket in buckets if "model_group" in (bucket or ()))


class Probe(CustomLogger):
    """Holds a grant for each request, and fills it in when the placed prompt is refused."""

    async def async_pre_call_hook(
        self, user_api_key_dict: Any, cache: Any, data: dict[str, Any], call_type: str
    ) -> None:
        """Hand LiteLLM the operator's policies in a mapping of this request's own."""
        wish = data["proxy_server_request"]["headers"].get("x-probe")
        REQUEST.set(None)
        if wish is None or proxy_server.llm_router is None:
            return
        policies: Policies = {**(proxy_server.llm_router.model_group_retry_policy or {})}
        data["model_group_retry_policy"] = policies
        REQUEST.set(Attempting(policies, may_place=wish == "place"))

    async def async_pre_call_deployment_hook(
        self, kwargs: dict[str, Any], call_type: Any
    ) -> dict[str, Any] | None:
        """Place the prompt, once where one call leads to another."""
        request = REQUEST.get()
        if request is None or not request.may_place or request.is_placed:
            return None
        request.is_placed = True
        return {**kwargs, **_placement(call_type.value, kwargs)}

    async def async_post_call_failure_deployment_hook(
        self,
        request_data: Mapping[str, Any],
        exception: Exception,
        call_type: Any,
        fallback_depth: int | None = None,
    ) -> None:
        """Grant the repeat while LiteLLM has not decided yet."""
        request = REQUEST.get()
        if request is None or not request.is_placed or not request.may_place:
            return
        if getattr(exception, "status_code", None) in REFUSALS:
            request.may_place = False
            request.policies[_model_group(request_data)] = ONCE


handler = Probe()
