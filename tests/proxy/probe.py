"""A LiteLLM callback which writes down what each hook is given, one JSON line a call.

LiteLLM loads this file from beside its configuration, as `probe.handler`, and does not enter it
into `sys.modules`. A request takes part by its header `x-probe`: that token travels in a
ContextVar, is placed into the prompt on every attempt, and goes back in `x-probe-state`.
"""

import asyncio
import json
import os
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final

import litellm
from litellm.integrations.custom_logger import CustomLogger
from litellm.proxy import proxy_server

LOG: Final = Path(os.environ["PROBE_LOG"])
TOKEN: Final[ContextVar[str | None]] = ContextVar("probe_token", default=None)


def note(hook: str, **facts: Any) -> None:
    """Append one line, with the token and the event loop in which the hook runs."""
    line = {"hook": hook, "token": TOKEN.get(), "loop": id(asyncio.get_running_loop()), **facts}
    with LOG.open("a") as log:
        log.write(json.dumps(line) + "\n")


class Probe(CustomLogger):
    """The four hooks that the plugin rests on."""

    async def async_pre_call_hook(
        self, user_api_key_dict: Any, cache: Any, data: dict[str, Any], call_type: str
    ) -> None:
        """Take the token from the headers."""
        headers: dict[str, str] = data["proxy_server_request"]["headers"]
        TOKEN.set(headers.get("x-probe"))
        note(
            "pre_call",
            call_type=call_type,
            headers=headers,
            key=user_api_key_dict.token,
            user_id=user_api_key_dict.user_id,
            team_id=user_api_key_dict.team_id,
            user_role=user_api_key_dict.user_role,
        )

    async def async_pre_call_deployment_hook(
        self, kwargs: dict[str, Any], call_type: Any
    ) -> dict[str, Any] | None:
        """Place the token by copy-on-write, in the role that the provider accepts."""
        messages: list[Any] = kwargs["messages"]
        provider = litellm.get_llm_provider(kwargs["model"], api_base=kwargs.get("api_base"))[1]
        token = TOKEN.get()
        note(
            "deployment",
            call_type=call_type,
            provider=provider,
            messages_id=id(messages),
            tokens_seen=json.dumps(messages).count(token) if token else 0,
        )
        if token is None:
            return None
        role = "user" if provider == "zai" else "system"
        return {**kwargs, "messages": [{"role": role, "content": token}, *messages]}

    async def async_post_call_response_headers_hook(
        self,
        data: dict[str, Any],
        user_api_key_dict: Any,
        response: Any,
        request_headers: dict[str, str] | None = None,
        litellm_call_info: dict[str, Any] | None = None,
    ) -> dict[str, str]:
        """Send the token back."""
        note("headers")
        return {"x-probe-state": TOKEN.get() or "none"}

    async def async_log_success_event(
        self, kwargs: dict[str, Any], response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        """Write down the answer and whether the placed token shows in the logged prompt."""
        token = TOKEN.get()
        note(
            "success",
            call_type=kwargs.get("call_type"),
            response=type(response_obj).__name__,
            text=response_obj.choices[0].message.content,
            tokens_seen=json.dumps(kwargs["messages"]).count(token) if token else 0,
        )


def _announce_shutdown() -> None:
    shut_down = proxy_server.proxy_shutdown_event

    async def announced(worker_heartbeat: Any = None) -> None:
        note("shutdown")
        await shut_down(worker_heartbeat=worker_heartbeat)

    proxy_server.proxy_shutdown_event = announced


note("import")
_announce_shutdown()
handler = Probe()
