"""A LiteLLM callback that calls a model in the middle of a request, as our own features do.

LiteLLM loads this file from beside its configuration, as `internal.handler`. A request asks for
it by the header `x-internal-call`: `marked` calls as the package does, `plain` as a stranger.
"""

from contextlib import nullcontext
from typing import Any, Final

from litellm.integrations.custom_logger import CustomLogger
from litellm.proxy import proxy_server

from omniroute_litellm.gateway import internal_call

SENTENCE: Final = "I prefer internal calls."


class Internal(CustomLogger):
    """Calls a chat model and an embedding model before the request goes out."""

    async def async_pre_call_deployment_hook(
        self, kwargs: dict[str, Any], call_type: Any
    ) -> dict[str, Any] | None:
        """Make the calls once, for the request that asked for it."""
        request: dict[str, dict[str, str]] = kwargs.get("proxy_server_request") or {}
        headers = request.get("headers", {})
        how = headers.get("x-internal-call")
        router: Any = proxy_server.llm_router
        if how is None or router is None:
            return None
        with internal_call() if how == "marked" else nullcontext():
            messages = [{"role": "user", "content": SENTENCE}]
            await router.acompletion(model="gpt", messages=messages)
            await router.aembedding(model="embed", input=[SENTENCE])
        return None


handler = Internal()
