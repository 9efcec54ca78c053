"""What one retrieval did, step by step; production, preview and console render the same one."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from omniroute_litellm.types import JsonObject, JsonValue, Memory, MemoryId, to_iso


class Drop(StrEnum):
    """Why a candidate was not injected."""

    BLANK = "blank"
    BELOW_FLOOR = "below_floor"
    CARRIED = "carried"
    OVER_BUDGET = "over_budget"
    OVER_PROFILE_BUDGET = "over_profile_budget"


@dataclass(frozen=True, slots=True)
class TierOutcome:
    """One tier that was asked. ``reason`` is a machine code when it did not answer."""

    tier: str
    answered: bool
    candidates: int
    ms: float
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """One memory that was considered.

    ``ranks`` maps each list that held it (``keyword``, ``vector``, ``profile``, ``newest``,
    ``all``) to its 1-based place there, ``scores`` to the score it had. ``tokens`` is the cost of
    ``line``, the memory as it is rendered. Exactly one of injected and dropped holds.
    """

    memory: Memory
    ranks: Mapping[str, int]
    scores: Mapping[str, float]
    tokens: int
    dropped: Drop | None = None
    line: str = ""

    def without(self, reason: Drop) -> "Candidate":
        """Return the candidate as one that is not injected."""
        return Candidate(self.memory, self.ranks, self.scores, self.tokens, reason, self.line)

    @property
    def is_injected(self) -> bool:
        """Whether the candidate is part of the result."""
        return self.dropped is None


@dataclass(frozen=True, slots=True)
class RetrievalTrace:
    """The result of a retrieval and how it came about.

    ``lines`` are the rendered lines of the injected candidates, in the order of ``candidates``;
    the first may be cut to the budget. ``ms`` is wall time.
    """

    at: datetime
    strategy: str
    budget: int
    tiers: tuple[TierOutcome, ...]
    candidates: tuple[Candidate, ...]
    lines: tuple[str, ...]
    tokens: int
    ms: float
    injected: tuple[Memory, ...] = field(init=False, repr=False)
    """The memories of the result, in rank order."""
    tier: str = field(init=False, repr=False)
    """The tiers that contributed to the result, joined by ``+``; ``none`` when none did."""

    def __post_init__(self) -> None:
        """Sum up here, on the thread that searched: the event loop asks several times."""
        kept = [entry for entry in self.candidates if entry.dropped is None]
        used = {name for entry in kept for name in entry.ranks}
        order = dict.fromkeys(outcome.tier for outcome in self.tiers if outcome.tier in used)
        object.__setattr__(self, "injected", tuple(entry.memory for entry in kept))
        object.__setattr__(self, "tier", "+".join(order) or "none")

    @property
    def degraded(self) -> str | None:
        """The reason of the first tier that failed, or None."""
        failed = (outcome.reason for outcome in self.tiers if not outcome.answered)
        return next((reason for reason in failed if reason), None)

    def to_json(self, *, limit: int | None = None) -> JsonObject:
        """Render without any content: ids, ranks, scores, counts, times and reasons.

        ``limit`` bounds the candidates; how many there were stands beside them.
        """
        tiers: list[JsonValue] = [
            {
                "tier": outcome.tier,
                "answered": outcome.answered,
                "candidates": outcome.candidates,
                "ms": round(outcome.ms, 3),
                "reason": outcome.reason,
            }
            for outcome in self.tiers
        ]
        candidates: list[JsonValue] = [_candidate_json(entry) for entry in self.candidates[:limit]]
        return {
            "at": to_iso(self.at),
            "strategy": self.strategy,
            "budget": self.budget,
            "tokens": self.tokens,
            "ms": round(self.ms, 3),
            "tiers": tiers,
            "considered": len(self.candidates),
            "injected": len(self.injected),
            "candidates": candidates,
        }


def memory_ids(trace: RetrievalTrace) -> list[MemoryId]:
    """Return the ids of the injected memories."""
    return [memory.id for memory in trace.injected]


def _candidate_json(entry: Candidate) -> JsonObject:
    return {
        "id": entry.memory.id,
        "ranks": dict(entry.ranks),
        "scores": {name: round(score, 4) for name, score in entry.scores.items()},
        "tokens": entry.tokens,
        "injected": entry.is_injected,
        "dropped": entry.dropped,
    }
