"""What a retrieval tells of itself."""

import json
from datetime import UTC, datetime
from typing import Any

from omniroute_litellm.trace import (
    Candidate,
    Drop,
    RetrievalTrace,
    TierOutcome,
    memory_ids,
)
from omniroute_litellm.types import (
    Memory,
    MemoryId,
    MemorySource,
    MemoryStatus,
    MemoryType,
    OwnerId,
)

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def memory(name: str) -> Memory:
    """Return a memory of Ann's."""
    return Memory(
        id=MemoryId(name),
        owner=OwnerId("ann"),
        session_id=None,
        type=MemoryType.FACTUAL,
        key=f"preference:secret-{name}",
        content=f"I prefer secret {name}",
        metadata={"capture": "secret"},
        created_at=NOW,
        updated_at=NOW,
        last_seen_at=NOW,
        expires_at=None,
        status=MemoryStatus.ACTIVE,
        source=MemorySource.MANUAL,
        pinned=False,
        needs_reindex=False,
        access_count=0,
        last_accessed_at=None,
    )


def trace(*candidates: Candidate, tiers: tuple[TierOutcome, ...] = ()) -> RetrievalTrace:
    """Return the trace of a finished retrieval."""
    lines = tuple(f"- {entry.memory.content}" for entry in candidates if entry.is_injected)
    return RetrievalTrace(NOW, "hybrid", 100, tiers, candidates, lines, 10, 1.23456)


def answered(tier: str) -> TierOutcome:
    """Return the outcome of a tier that worked."""
    return TierOutcome(tier, answered=True, candidates=1, ms=0.1)


def failed(tier: str, reason: str) -> TierOutcome:
    """Return the outcome of a tier that did not."""
    return TierOutcome(tier, answered=False, candidates=0, ms=0.1, reason=reason)


KEPT = Candidate(memory("a"), {"keyword": 1, "profile": 2}, {"bm25": 1.23456}, 5)
DROPPED = Candidate(memory("b"), {"vector": 1}, {}, 5, Drop.OVER_BUDGET)


def test_ids_are_those_of_the_result() -> None:
    """A dropped candidate is not counted as used."""
    assert memory_ids(trace(KEPT, DROPPED)) == ["a"]


def test_the_tier_names_what_contributed() -> None:
    """A tier of which nothing is left in the result is not named; the order is that of asking."""
    tiers = tuple(answered(name) for name in ("keyword", "vector", "profile"))
    assert trace(KEPT, DROPPED, tiers=tiers).tier == "keyword+profile"
    assert trace(DROPPED, tiers=tiers).tier == "none"


def test_the_first_failure_is_the_reason() -> None:
    """Of several tiers that failed the first one's reason counts."""
    tiers = (answered("keyword"), failed("external", "away"), failed("vector", "vector_empty"))
    assert trace(KEPT, tiers=tiers).degraded == "away"
    assert trace(KEPT, tiers=(answered("keyword"),)).degraded is None


def test_the_record_holds_no_content() -> None:
    """Ids, ranks, scores and reasons are recorded; keys, contents and metadata are not."""
    recorded: Any = trace(KEPT, DROPPED, tiers=(failed("vector", "away"),)).to_json()
    assert "secret" not in json.dumps(recorded)
    assert recorded["candidates"][0] == {
        "id": "a",
        "ranks": {"keyword": 1, "profile": 2},
        "scores": {"bm25": 1.2346},
        "tokens": 5,
        "injected": True,
        "dropped": None,
    }
    assert recorded["candidates"][1]["dropped"] == "over_budget"
    assert recorded["tiers"][0]["reason"] == "away"
