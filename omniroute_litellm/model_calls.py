"""What this package asks of the models behind the proxy: vectors and an order of relevance."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from omniroute_litellm.types import OwnerId


class ModelCalls(Protocol):
    """Calls models by name, in the process that serves them.

    Blocks; never called from an event loop. ``owner`` is who a call is charged to, None for work
    that is nobody's. Raises EmbedderUnavailableError with the class of the failure as its reason,
    and TextRefusedError when the model refuses what it was given.
    """

    def serve_from(self, loop: asyncio.AbstractEventLoop) -> None:
        """Take the event loop that the calls run on."""
        ...

    def reason_against(self, model: str) -> str | None:
        """Return why a model cannot be called (``key_missing``, ``proxy_missing``), None if so."""
        ...

    def embed(
        self, model: str, texts: Sequence[str], *, owner: OwnerId | None, timeout_s: float
    ) -> Sequence[Sequence[float]]:
        """Return one vector a text, in their order."""
        ...

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
        ...
