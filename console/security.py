"""What guards every answer and every unsafe request. Plain ASGI."""

from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from omniroute_litellm.api.auth import COOKIE
from omniroute_litellm.api.errors import envelope
from omniroute_litellm.console.errors import answer_error
from omniroute_litellm.console.headers import harden

MAX_BODY_BYTES: Final = 1_048_576
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_SAME: Final = frozenset({"same-origin", "none"})


class SecurityHeaders:
    """Adds the content policy and its companions to every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on and complete the head of its answer."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                harden(MutableHeaders(scope=message))
            await send(message)

        await self._app(scope, receive, guarded)


class SameOrigin:
    """Refuses unsafe requests that another site made the browser send.

    A request without our cookie acts for nobody, so a bearer key passes from anywhere.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer 403."""
        if scope["type"] == "http" and scope["method"] not in _SAFE:
            headers = Headers(scope=scope)
            if not _is_own(headers, https=scope.get("scheme") == "https"):
                answer = await _refusal(
                    scope, 403, "foreign_origin", "the request came from another site"
                )
                await answer(scope, receive, send)
                return
        await self._app(scope, receive, send)


class BodyLimit:
    """Refuses bodies over one mebibyte, whatever their head says about their length."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read the body up to the limit and pass the request on, or answer 413."""
        if scope["type"] != "http" or scope["method"] in _SAFE:
            await self._app(scope, receive, send)
            return
        chunks: list[bytes] = []
        size = 0
        is_open = True
        while is_open:
            message = await receive()
            if message["type"] != "http.request":
                return
            chunks.append(message.get("body", b""))
            size += len(chunks[-1])
            is_open = message.get("more_body", False)
            if size > MAX_BODY_BYTES:
                text = f"the body is larger than {MAX_BODY_BYTES} bytes"
                answer = await _refusal(scope, 413, "too_large", text)
                await answer(scope, receive, send)
                return
        is_given = False

        async def replay() -> Message:
            nonlocal is_given
            if is_given:
                return await receive()
            is_given = True
            return {"type": "http.request", "body": b"".join(chunks), "more_body": False}

        await self._app(scope, replay, send)


async def _refusal(scope: Scope, status: int, code: str, message: str) -> Response:
    """Return an error in the API's envelope below ``/api``, as a page elsewhere."""
    path = str(scope["path"]).removeprefix(str(scope.get("root_path", "")))
    if path.startswith("/api/"):
        return envelope(status, code, message)
    return await run_in_threadpool(answer_error, Request(scope), status, message)


def _is_own(headers: Headers, *, https: bool) -> bool:
    if f"{COOKIE}=" not in headers.get("cookie", "") and "authorization" in headers:
        return True
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site in _SAME
    origin = headers.get("origin")
    if origin is None:
        # No browser sends an unsafe cross-site request without either header.
        return True
    scheme = "https" if https else "http"
    return origin == f"{scheme}://{headers.get('host', '')}"
