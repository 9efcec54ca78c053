"""Embedding and rerank models of the proxy, called in process: nothing leaves by another door."""

import asyncio
import concurrent.futures
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeVar, cast

import litellm
from litellm.proxy import proxy_server

from omniroute_litellm.embedding.base import EmbedderUnavailableError, TextRefusedError
from omniroute_litellm.errors import ContractError
from omniroute_litellm.gateway import internal_call
from omniroute_litellm.types import OwnerId

T = TypeVar("T")

TAG: Final = "omniroute-memory"
"""LiteLLM's spend reports show the calls of this package under it."""
_PASSING: Final[Mapping[int, str]] = {
    408: "remote_timeout",
    429: "remote_rate_limited",
    500: "remote_unreachable",
    502: "remote_unreachable",
    503: "remote_unreachable",
    504: "remote_timeout",
}
_LASTING: Final[Mapping[int, tuple[str, str]]] = {
    401: ("key_refused", "check the key of the model's provider"),
    403: ("key_refused", "check what the key of the model's provider may do"),
    404: ("model_unknown", "check the name of the model, and the proxy's model list"),
}
_REFUSED: Final = frozenset({400, 413, 422})


class LiteLLMModels:
    """Calls models of the proxy's router, else any that LiteLLM has a key for.

    The calls run on the proxy's event loop, which ``serve_from`` names; other threads wait.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    def serve_from(self, loop: asyncio.AbstractEventLoop) -> None:
        """Take the loop that the proxy runs on."""
        self._loop = loop

    def reason_against(self, model: str) -> str | None:
        """Return why a model cannot be called, None when it can."""
        if self._loop is None:
            return "proxy_missing"
        if _is_in_router(model):
            return None
        try:
            library: Any = litellm
            known: dict[str, object] = library.validate_environment(model=model)
        except Exception:
            # LiteLLM raises whatever the provider's own check does; a model that it cannot place
            # has no key here.
            return "model_unknown"
        return None if known.get("keys_in_environment") else "key_missing"

    def embed(
        self, model: str, texts: Sequence[str], *, owner: OwnerId | None, timeout_s: float
    ) -> Sequence[Sequence[float]]:
        """Return one vector a text, in their order."""

        async def call() -> Any:
            ask: Any = proxy_server.llm_router if _is_in_router(model) else litellm
            return await ask.aembedding(
                model=model, input=list(texts), timeout=timeout_s, metadata=_metadata(owner)
            )

        answer = self._wait(call, model=model, timeout_s=timeout_s)
        rows = cast("list[Any]", _field(answer, "data") or [])
        try:
            placed = sorted(rows, key=lambda row: int(_field(row, "index")))
            return [_field(row, "embedding") for row in placed]
        except (TypeError, ValueError) as error:
            message = f"{model} answered without numbered vectors"
            raise ContractError(message) from error

    def rerank(
        self,
        model: str,
        query: str,
        documents: Sequence[str],
        *,
        owner: OwnerId | None,
        timeout_s: float,
    ) -> list[tuple[int, float]]:
        """Return positions of documents with their relevance, the most relevant first."""

        async def call() -> Any:
            ask: Any = proxy_server.llm_router if _is_in_router(model) else litellm
            return await ask.arerank(
                model=model,
                query=query,
                documents=list(documents),
                top_n=len(documents),
                timeout=timeout_s,
                metadata=_metadata(owner),
            )

        answer = self._wait(call, model=model, timeout_s=timeout_s)
        results = cast("list[Any]", _field(answer, "results") or [])
        try:
            found = [
                (int(_field(row, "index")), float(_field(row, "relevance_score")))
                for row in results
            ]
        except (TypeError, ValueError) as error:
            message = f"{model} answered without an order"
            raise ContractError(message) from error
        if not found or any(not 0 <= at < len(documents) for at, _ in found):
            message = f"{model} named documents that it was not given"
            raise ContractError(message)
        return sorted(found, key=lambda each: -each[1])

    def _wait(self, call: Callable[[], Awaitable[T]], *, model: str, timeout_s: float) -> T:
        """Run a call on the proxy's loop, marked as ours, and translate its error."""
        loop = self._loop
        if loop is None or loop.is_closed():
            message = "the proxy does not run"
            raise EmbedderUnavailableError(
                message, reason="proxy_missing", hint="start the proxy", is_passing=True
            )

        async def marked() -> T:
            with internal_call():
                return await call()

        waiting = asyncio.run_coroutine_threadsafe(marked(), loop)
        try:
            return waiting.result(timeout_s)
        except concurrent.futures.TimeoutError as error:
            waiting.cancel()
            message = f"{model} did not answer in {timeout_s:g} s"
            raise EmbedderUnavailableError(
                message, reason="remote_timeout", hint=_WAIT, is_passing=True
            ) from error
        except Exception as error:
            raise _translated(error, model) from error


_WAIT: Final = "it is asked again by itself; see whether the provider is up"


def _translated(error: Exception, model: str) -> Exception:
    """Return our error for one of LiteLLM's, by the class that its status names."""
    status = getattr(error, "status_code", None)
    kind = type(error).__name__
    if status in _REFUSED:
        return TextRefusedError(f"{model} refused what it was given: {kind}")
    if status in _LASTING:
        reason, hint = _LASTING[status]
        return EmbedderUnavailableError(f"{model}: {kind}", reason=reason, hint=hint)
    reason = _PASSING.get(status or 0, "remote_unreachable")
    return EmbedderUnavailableError(f"{model}: {kind}", reason=reason, hint=_WAIT, is_passing=True)


def _is_in_router(model: str) -> bool:
    router: Any = proxy_server.llm_router
    return router is not None and bool(router.get_model_list(model_name=model))


def _metadata(owner: OwnerId | None) -> dict[str, object]:
    """Return what charges a call to its owner; a key's hash is what LiteLLM knows a key by."""
    charged = {} if owner is None else {"user_api_key": owner, "user_api_key_hash": owner}
    return {**charged, "tags": [TAG]}


def _field(value: object, name: str) -> Any:
    if isinstance(value, Mapping):
        return cast("Mapping[str, Any]", value).get(name)
    return getattr(value, name, None)
