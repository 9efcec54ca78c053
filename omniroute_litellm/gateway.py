"""Everything that this package asks of LiteLLM: who calls, which model, mount, shutdown.

LiteLLM's data is read here and in the hooks, parsed once into our types, and goes no further.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Generator, Mapping, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, cast
from urllib.parse import urlsplit

import litellm
from litellm.integrations.custom_logger import CustomLogger
from litellm.litellm_core_utils.logging_worker import (  # pyright: ignore[reportMissingTypeStubs]
    GLOBAL_LOGGING_WORKER,
)
from litellm.proxy import proxy_server
from litellm.proxy._types import LitellmUserRoles, UserAPIKeyAuth
from litellm.proxy.auth.user_api_key_auth import (  # pyright: ignore[reportMissingTypeStubs]
    user_api_key_auth,
)
from litellm.types.router import RetryPolicy  # pyright: ignore[reportMissingTypeStubs]
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.types import Message

from omniroute_litellm.errors import UnauthenticatedError
from omniroute_litellm.identity import Identity, session_of
from omniroute_litellm.placement import Deployment
from omniroute_litellm.recall import Arrival
from omniroute_litellm.text import storable

logger = logging.getLogger(__name__)

MOUNT_PATH: Final = "/omniroute"
REDACTED: Final = "redacted-by-litellm"
"""What LiteLLM puts in place of every text while ``turn_off_message_logging`` is on."""
_FLUSH_TIMEOUT_S: Final = 5.0
_REFUSED: Final = frozenset({400, 422})
_REPEAT: Final = ("BadRequestErrorRetries", "DefaultRetries")
_CAN_REPEAT: Final = (
    hasattr(CustomLogger, "async_post_call_failure_deployment_hook")
    and set(_REPEAT) <= RetryPolicy.model_fields.keys()
)
"""Whether this LiteLLM tells of a failure before it decides on a repeat (1.105 and newer)."""

Data = Mapping[str, Any]

_IS_INTERNAL: ContextVar[bool] = ContextVar("omniroute_internal_call", default=False)


def arrival_of(caller: object, data: Data) -> Arrival:
    """Read what the pre-call hook was given."""
    headers = _headers(data)
    metadata = (_mapping(data.get("metadata")), _mapping(data.get("litellm_metadata")))
    session = session_of(
        headers,
        data.get("litellm_session_id"),
        *(part.get("session_id") for part in metadata),
        *(_session_in(part.get("user_id")) for part in metadata),
    )
    return Arrival(
        call_id=storable(str(data.get("litellm_call_id") or "")),
        model=storable(str(data.get("model") or "")),
        identity=identity_of(caller),
        headers=headers,
        session=session,
    )


def identity_of(caller: object) -> Identity:
    """Read LiteLLM's authenticated caller; a field that it lacks is None."""
    role = getattr(caller, "user_role", None)
    return Identity(
        key=_text(caller, "token") or _text(caller, "api_key"),
        user=_text(caller, "user_id"),
        end_user=_text(caller, "end_user_id"),
        team=_text(caller, "team_id"),
        is_admin=role in {LitellmUserRoles.PROXY_ADMIN, LitellmUserRoles.PROXY_ADMIN.value},
    )


def deployment_of(kwargs: Data) -> Deployment:
    """Read which model an attempt really calls, and what LiteLLM knows of its system role."""
    name = str(kwargs.get("model") or "")
    info = _mapping(kwargs.get("model_info"))
    base_model = info.get("base_model")
    base_name = base_model if isinstance(base_model, str) else None
    provider = kwargs.get("custom_llm_provider")
    if isinstance(provider, str) and provider:
        model = name.removeprefix(f"{provider}/")  # some routes keep it, the bridges behind do not
    else:
        model, provider = _split(name, kwargs.get("api_base"))
    return Deployment(
        provider=provider,
        model=model,
        base_model=base_name,
        host=_host(kwargs.get("api_base") or kwargs.get("base_url")),
        takes_system=_takes_system(kwargs, (name, model, base_name)),
        group=_group(kwargs),
    )


@contextmanager
def internal_call() -> Generator[None]:
    """Mark the calls that this package makes through LiteLLM itself, for as long as it is open.

    They run LiteLLM's hooks like any other call, and in the context of the request that needs
    them: without a mark they would be given memories and learned from.
    """
    token = _IS_INTERNAL.set(True)
    try:
        yield
    finally:
        _IS_INTERNAL.reset(token)


def is_internal() -> bool:
    """Tell whether the current call is one of our own."""
    return _IS_INTERNAL.get()


@dataclass(frozen=True, slots=True)
class Refusal:
    """A provider said that it does not take a request as it is.

    ``is_for_form``: the form can have been the reason, and not its length or what it says.
    """

    is_for_form: bool


def refusal_of(error: object) -> Refusal | None:
    """Return what a provider's 400 or 422 says, None for every other error."""
    if getattr(error, "status_code", None) not in _REFUSED:
        return None
    others = (
        litellm.exceptions.ContextWindowExceededError,
        litellm.exceptions.ContentPolicyViolationError,
    )
    return Refusal(is_for_form=not isinstance(error, others))


def hold_retry_policies(data: MutableMapping[str, Any]) -> dict[str, object] | None:
    """Give a request retry policies of its own and return them; None where there is no way to.

    LiteLLM asks them after an attempt has failed, so that they can still be filled in then. They
    begin as the operator's. Without its router LiteLLM would hand the field to the provider.
    """
    router: Any = proxy_server.llm_router
    if not _CAN_REPEAT or router is None or "model_group_retry_policy" in data:
        return None
    if not router.get_model_list(model_name=data.get("model")):
        return None
    override = _mapping(data.get("router_settings_override")).get("model_group_retry_policy")
    policies = dict(_mapping(override or router.model_group_retry_policy))
    data["model_group_retry_policy"] = policies
    return policies


def grant_repeat(policies: MutableMapping[str, object], failed: Data) -> None:
    """Let LiteLLM repeat a refused call once; an operator who grants more keeps that."""
    group = _group(failed)
    if not group:
        return
    known = policies.get(group)
    fields = known.model_dump(exclude_none=True) if isinstance(known, RetryPolicy) else known
    policies[group] = {**dict.fromkeys(_REPEAT, 1), **_positive(_mapping(fields))}


def is_redacted(kwargs: Data, answer: str) -> bool:
    """Tell whether LiteLLM was told to keep texts out of its logs: then they stay out of ours."""
    return REDACTED in answer or kwargs.get("messages") == REDACTED


def is_cache_hit(kwargs: Data) -> bool:
    """Tell whether the answer came from LiteLLM's cache: it was learned from before."""
    return bool(kwargs.get("cache_hit"))


class LiteLLMAuthority:
    """Knows every key that the proxy knows."""

    async def identify(self, key: str) -> Identity:
        """Return who a LiteLLM key belongs to; raise UnauthenticatedError for any other text.

        LiteLLM's own check runs on a request made for it: called for one of our routes it would
        refuse every key but an admin's. Its refusals differ by set-up (400, 401, even 500), so
        each of them counts as "no".
        """

        async def receive() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        request = Request(
            {
                "type": "http",
                "method": "GET",
                "path": "/v1/models",
                "root_path": "",
                "query_string": b"",
                "headers": [(b"authorization", b"Bearer " + key.encode("utf-8", "replace"))],
                "server": ("127.0.0.1", 80),
                "scheme": "http",
                "client": ("127.0.0.1", 0),
                "app": proxy_server.app,
            },
            receive,
        )
        try:
            caller: UserAPIKeyAuth = await user_api_key_auth(
                request=request, api_key=f"Bearer {key}"
            )
        except Exception as error:
            message = "the key is not valid here"
            raise UnauthenticatedError(message) from error
        return identity_of(caller)

    def secret(self) -> str | None:
        """Return the proxy's master key."""
        return proxy_server.master_key or None


def mount(app: Starlette) -> None:
    """Mount the console into the proxy; a second call replaces nothing."""
    routes = proxy_server.app.router.routes
    if not any(getattr(route, "path", None) == MOUNT_PATH for route in routes):
        proxy_server.app.mount(MOUNT_PATH, app, name="omniroute-console")


def before_shutdown(close: Callable[[], Awaitable[None]]) -> None:
    """Run ``close`` when the proxy stops, after the success events that still wait.

    The proxy neither cancels foreign tasks nor runs ``atexit`` on SIGTERM, and its lifespan is
    fixed by the time callbacks load: wrapping the function that it awaits last is what works.
    """
    inner = getattr(proxy_server, "proxy_shutdown_event", None)
    if inner is None or getattr(inner, "is_omniroute", False):
        return

    async def proxy_shutdown_event(*args: Any, **kwargs: Any) -> object:
        try:
            async with asyncio.timeout(_FLUSH_TIMEOUT_S):
                await GLOBAL_LOGGING_WORKER.flush()
        except TimeoutError:
            logger.warning("litellm.logging.flush.timeout after %s s", _FLUSH_TIMEOUT_S)
        await close()
        return await inner(*args, **kwargs)

    proxy_shutdown_event.is_omniroute = True  # type: ignore[attr-defined]
    proxy_server.proxy_shutdown_event = proxy_shutdown_event


def is_registered(handler: object) -> bool:
    """Tell whether LiteLLM calls a handler of this class."""
    return any(type(callback) is type(handler) for callback in litellm.callbacks)


def _headers(data: Data) -> dict[str, str]:
    request = _mapping(data.get("proxy_server_request"))
    headers = _mapping(request.get("headers"))
    return {str(name).lower(): str(value) for name, value in headers.items()}


def _session_in(user_id: object) -> object:
    """Return the session that Claude Code names in a JSON text in the place of a user's id."""
    if not isinstance(user_id, str) or not user_id.startswith("{"):
        return None
    try:
        return _mapping(json.loads(user_id)).get("session_id")
    except ValueError:
        return None


def _positive(counts: Mapping[str, object]) -> dict[str, object]:
    return {name: count for name, count in counts.items() if name not in _REPEAT or count}


def _group(call: Data) -> str:
    buckets = (_mapping(call.get("litellm_metadata")), _mapping(call.get("metadata")))
    return next((str(found) for part in buckets if (found := part.get("model_group"))), "")


def _host(address: object) -> str:
    return urlsplit(address).netloc.rpartition("@")[2] if isinstance(address, str) else ""


def _split(name: str, api_base: object) -> tuple[str, str]:
    try:
        model, provider, _, _ = litellm.get_llm_provider(
            model=name, api_base=api_base if isinstance(api_base, str) else None
        )
    except litellm.exceptions.BadRequestError:
        # LiteLLM does not know the model; the name alone decides.
        provider, _, model = name.rpartition("/")
    return model, provider


def _takes_system(kwargs: Data, names: tuple[str | None, ...]) -> bool | None:
    declared = kwargs.get("supports_system_message")
    if isinstance(declared, bool):
        return declared
    costs = cast("Mapping[str, Mapping[str, object]]", getattr(litellm, "model_cost", {}))
    for name in names:
        known = costs.get(name, {}).get("supports_system_messages") if name else None
        if isinstance(known, bool):
            return known
    return None


def _mapping(value: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", value) if isinstance(value, Mapping) else {}


def _text(caller: object, name: str) -> str | None:
    value = getattr(caller, name, None)
    return value if isinstance(value, str) and value else None
