"""The short form of what memory did for a request: response headers and stored record."""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from omniroute_litellm.types import TraceId

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_.:+-]+")
_MAX_CHARACTERS: Final = 80


class Outcome(StrEnum):
    """What memory did, in one word. ``error``: it should have done something and could not."""

    INJECTED = "injected"
    NONE = "none"
    OFF = "off"
    DEGRADED = "degraded"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a response says about memory. ``reason`` is a machine code, empty when all went well.

    ``tokens`` is the estimate of the whole block; ``ms`` is the wall time of the retrieval.
    """

    outcome: Outcome
    reason: str = ""
    injected: int = 0
    tokens: int = 0
    tier: str = "none"
    ms: float = 0.0
    trace: TraceId | None = None

    def headers(self) -> dict[str, str]:
        """Render as response headers: short ASCII values without line breaks or content."""
        headers = {
            "x-omniroute-memory": str(self.outcome),
            "x-omniroute-memory-injected": str(self.injected),
            "x-omniroute-memory-tokens": str(self.tokens),
            "x-omniroute-memory-tier": self.tier,
            "x-omniroute-memory-ms": f"{self.ms:.1f}",
        }
        if self.trace is not None:
            headers["x-omniroute-memory-trace"] = self.trace
        if self.reason:
            headers["x-omniroute-memory-reason"] = self.reason
        # A line break in a header value would drop the whole response.
        return {name: _UNSAFE.sub("_", value)[:_MAX_CHARACTERS] for name, value in headers.items()}
