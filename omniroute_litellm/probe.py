"""A real round trip through the store: create, find by keyword, delete."""

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from omniroute_litellm.errors import BackendUnavailableError
from omniroute_litellm.sqlite_store import SqliteMemoryStore
from omniroute_litellm.types import (
    Clock,
    MemoryDraft,
    MemorySource,
    MemoryType,
    OwnerId,
)

PROBE_OWNER: Final = OwnerId("omniroute:health")
"""A reserved owner: no identity resolves to it, and lists leave it out."""


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """Whether a memory could be written and found again, how long that took, and why not."""

    working: bool
    latency_ms: float
    error: str | None = None
    reason: str | None = None


class StoreProbe:
    """Proves the store by using it."""

    def __init__(
        self,
        store: SqliteMemoryStore,
        *,
        clock: Clock,
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._store = store
        self._clock = clock
        self._timer = timer

    def run(self) -> ProbeResult:
        """Do one round trip; a store that cannot answer is a result, not an error."""
        started = self._timer()
        try:
            is_found = self._round_trip()
        except BackendUnavailableError as error:
            return ProbeResult(
                working=False,
                latency_ms=(self._timer() - started) * 1000,
                error=" ".join(str(error).split()),
                reason=error.reason,
            )
        latency_ms = (self._timer() - started) * 1000
        if is_found:
            return ProbeResult(working=True, latency_ms=latency_ms)
        message = "the keyword index did not find a memory that was just stored"
        return ProbeResult(False, latency_ms, error=message, reason="keyword_lost")

    def _round_trip(self) -> bool:
        word = "probe" + secrets.token_hex(8)
        draft = MemoryDraft(
            owner=PROBE_OWNER,
            type=MemoryType.FACTUAL,
            key=f"health:{word}",
            content=f"health check {word}",
            source=MemorySource.MANUAL,
        )
        return self._store.rehearse(draft, word)
