"""A fake model provider on loopback which records what it is sent.

Faults are chosen by a word in the model name: `fail500`, `fail429`, `ctxfail` (context window),
`nosys` (refuses a system prompt, with 422 if that is in the name, else 400), `fail400`, `fail422`,
`nomem` (refuses our block wherever it stands), `slow` (late first byte, late pieces).
"""

import asyncio
import base64
import json
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from threading import Thread
from types import TracebackType
from typing import Any, Final

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.polling import wait_for
from tests.upstream_answers import (
    CHAT,
    GEMINI,
    MESSAGES,
    RESPONSES,
    Answer,
    Dialect,
    Json,
    ToolCall,
    embeddings,
    rerank,
)

SLOW_START_S: Final = 0.3
SLOW_PIECE_S: Final = 0.15
START_TIMEOUT_S: Final = 10.0

Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Recorded:
    """One request as it arrived: header names in lower case, the body untouched."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    raw: bytes

    @property
    def body(self) -> Json:
        """Return the parsed body, empty when there was none."""
        return json.loads(self.raw) if self.raw else {}

    def as_json(self) -> Json:
        """Return the record for readers in another process, raw bytes in base64."""
        return {
            "method": self.method,
            "path": self.path,
            "query": self.query,
            "headers": self.headers,
            "raw": base64.b64encode(self.raw).decode(),
            "body": self.body,
        }


@dataclass(slots=True)
class Script:
    """What was received so far, what to answer next, and whether calculations hang."""

    records: list[Recorded] = field(default_factory=list[Recorded])
    answer: Answer = field(default_factory=Answer)
    is_held: bool = False

    async def receive(self, request: Request) -> Json:
        """Record the request and return its parsed body."""
        recorded = Recorded(
            method=request.method,
            path=request.url.path,
            query=request.url.query,
            headers=dict(request.headers),
            raw=await request.body(),
        )
        self.records.append(recorded)
        return recorded.body


def _error(status: int, kind: str, code: str, message: str) -> Response:
    error = {"message": message, "type": kind, "param": None, "code": code}
    return JSONResponse({"type": "error", "error": error}, status)


def _fault(model: str, body: Json) -> Response | None:
    if "fail500" in model:
        return _error(500, "server_error", "500", "The server had an error.")
    if "fail429" in model:
        return _error(429, "rate_limit_error", "rate_limit", "Rate limit reached.")
    if "ctxfail" in model:
        # LiteLLM knows a context window error by this wording.
        too_long = "This model's maximum context length is 10 tokens, you requested 4000."
        return _error(400, "invalid_request_error", "context_length_exceeded", too_long)
    if "nomem" in model and "Memory context:" in json.dumps(body):
        return _error(400, "invalid_request_error", "bad_text", "No memory, please.")
    if "fail4" in model or ("nosys" in model and _has_system(body)):
        status = 422 if "422" in model else 400
        return _error(status, "invalid_request_error", "bad_role", "Role system is not supported.")
    return None


def _has_system(body: Json) -> bool:
    turns: list[Json] = body.get("messages", [])
    prompts = ("system", "instructions", "systemInstruction")
    return any(turn.get("role") == "system" for turn in turns) or any(map(body.get, prompts))


async def _frames(dialect: Dialect, events: list[Json], pause_s: float) -> AsyncIterator[str]:
    for event in events:
        await asyncio.sleep(pause_s)
        yield dialect.frame(event)
    if dialect.end:
        yield dialect.end


async def _speak(
    script: Script, dialect: Dialect, body: Json, *, model: str, is_stream: bool
) -> Response:
    if fault := _fault(model, body):
        return fault
    is_slow = "slow" in model
    if is_slow:
        await asyncio.sleep(SLOW_START_S)
    if not is_stream:
        return JSONResponse(dialect.whole(body, script.answer))
    events = dialect.events(body, script.answer)
    frames = _frames(dialect, events, SLOW_PIECE_S if is_slow else 0)
    return StreamingResponse(frames, media_type="text/event-stream")


def _generation(script: Script, dialect: Dialect) -> Handler:
    async def handle(request: Request) -> Response:
        body = await script.receive(request)
        return await _speak(
            script,
            dialect,
            body,
            model=str(body.get("model")),
            is_stream=bool(body.get("stream")),
        )

    return handle


def _gemini(script: Script) -> Handler:
    async def handle(request: Request) -> Response:
        body = await script.receive(request)
        model, _, action = request.path_params["call"].partition(":")
        is_stream = action == "streamGenerateContent"
        return await _speak(script, GEMINI, body, model=model, is_stream=is_stream)

    return handle


def _calculation(script: Script, compute: Callable[[Json], Json]) -> Handler:
    async def handle(request: Request) -> Response:
        body = await script.receive(request)
        while script.is_held:  # noqa: ASYNC110 - another thread lets go
            await asyncio.sleep(SLOW_PIECE_S)
        return _fault(str(body.get("model")), body) or JSONResponse(compute(body))

    return handle


def _control(script: Script) -> list[Route]:
    async def show(_request: Request) -> Response:
        return JSONResponse([recorded.as_json() for recorded in script.records])

    async def forget(_request: Request) -> Response:
        script.records.clear()
        return Response(status_code=204)

    async def answer(request: Request) -> Response:
        wanted: Json = await request.json()
        tool: Any = wanted.get("tool")
        script.answer = Answer(wanted["text"], ToolCall(**tool) if tool else None)
        return Response(status_code=204)

    return [
        Route("/__records", show, methods=["GET"]),
        Route("/__records", forget, methods=["DELETE"]),
        Route("/__answer", answer, methods=["PUT"]),
    ]


def build_app(script: Script) -> Starlette:
    """Build the provider: the four generation formats, embeddings, rerank, and its controls."""
    handlers = {
        "/v1/chat/completions": _generation(script, CHAT),
        "/v1/responses": _generation(script, RESPONSES),
        "/v1/messages": _generation(script, MESSAGES),
        "/v1beta/models/{call:path}": _gemini(script),
        "/v1/embeddings": _calculation(script, embeddings),
        "/v2/rerank": _calculation(script, rerank),
    }
    routes = [Route(path, handler, methods=["POST"]) for path, handler in handlers.items()]
    return Starlette(routes=[*routes, *_control(script)])


def _server(script: Script) -> uvicorn.Server:
    config = uvicorn.Config(build_app(script), log_level="warning", ws="none", lifespan="off")
    return uvicorn.Server(config)


class Upstream:
    """The provider running in a thread of this process, on a port of its own."""

    def __init__(self) -> None:
        self._script = Script()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._server = _server(self._script)
        self._thread = Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, daemon=True
        )

    def __enter__(self) -> "Upstream":
        self._thread.start()
        wait_for(lambda: self._server.started, timeout_s=START_TIMEOUT_S, what="upstream start-up")
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._server.should_exit = True
        self._thread.join(START_TIMEOUT_S)
        self._socket.close()

    @property
    def url(self) -> str:
        """Return the base address, without a path."""
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def records(self, path: str = "") -> list[Recorded]:
        """Return what arrived so far, oldest first, on paths that start with `path`."""
        return [one for one in list(self._script.records) if one.path.startswith(path)]

    def clear(self) -> None:
        """Forget what arrived."""
        self._script.records.clear()

    def set_answer(self, text: str, *, tool: ToolCall | None = None) -> None:
        """Let every model say this, after calling the tool where it is offered."""
        self._script.answer = Answer(text, tool)

    def hold(self, *, is_held: bool) -> None:
        """Let every embedding and every rerank wait until it is let go."""
        self._script.is_held = is_held

    def reset(self) -> None:
        """Forget what arrived and answer as at the start."""
        self.clear()
        self.hold(is_held=False)
        self._script.answer = Answer()


def main(port: int) -> None:
    """Run the provider in the foreground."""
    _server(Script()).run(sockets=[socket.create_server(("127.0.0.1", port))])


if __name__ == "__main__":
    main(int(sys.argv[1]))
