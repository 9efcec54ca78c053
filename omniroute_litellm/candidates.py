"""What one retrieval considers: rendered once, ranked, joined, and cut to the budget."""

import functools
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import Final

from omniroute_litellm.injection import render_line
from omniroute_litellm.memory_cache import MAX_MEMORIES
from omniroute_litellm.ranking import fit_budget
from omniroute_litellm.tokens import estimate_tokens
from omniroute_litellm.trace import Candidate, Drop
from omniroute_litellm.types import Memory, MemoryId

_BLANK: Final = render_line("")


def candidate_of(
    memory: Memory,
    *,
    ranks: Mapping[str, int],
    scores: Mapping[str, float],
    dropped: Drop | None = None,
) -> Candidate:
    """Return a memory as a candidate, with its line and what that costs."""
    line, tokens = _rendered(memory.content)
    return Candidate(memory, ranks, scores, tokens, dropped, line)


@functools.lru_cache(maxsize=MAX_MEMORIES)
def _rendered(content: str) -> tuple[str, int]:
    """Return the line of a memory and what it costs."""
    line = render_line(content)
    return line, estimate_tokens(line)


def cost_of(found: Sequence[Candidate]) -> int:
    """Return what some candidates cost together, in tokens."""
    return sum(entry.tokens for entry in found)


def ranked(tier: str, memories: Sequence[Memory]) -> list[Candidate]:
    """Return a list of one tier as candidates, each with its place there."""
    return [
        candidate_of(memory, ranks={tier: rank}, scores={})
        for rank, memory in enumerate(memories, start=1)
    ]


def joined(first: list[Candidate], second: list[Candidate]) -> list[Candidate]:
    """Append one list to another; what stands in both keeps its first place and gains a rank.

    A memory that the first list dropped and the second keeps is kept, at its second place.
    """
    kept = {entry.memory.id: entry for entry in first if entry.is_injected}
    others = {entry.memory.id for entry in second if entry.is_injected}
    for entry in second:
        if entry.memory.id in kept:
            kept[entry.memory.id] = merged(kept[entry.memory.id], entry)
    tail = [entry for entry in second if entry.memory.id not in kept]
    dropped = [entry for entry in first if not entry.is_injected and entry.memory.id not in others]
    return [*kept.values(), *tail, *dropped]


def merged(known: Candidate | None, entry: Candidate) -> Candidate:
    """Return one candidate with the ranks and scores of both."""
    if known is None:
        return entry
    return replace(
        known, ranks={**known.ranks, **entry.ranks}, scores={**known.scores, **entry.scores}
    )


def _costing(entry: Candidate, tokens: int) -> Candidate:
    return entry if entry.tokens == tokens else replace(entry, tokens=tokens)


def _judged(entry: Candidate, carried: Set[MemoryId]) -> Candidate:
    if not entry.is_injected:
        return entry
    if entry.line == _BLANK:
        return entry.without(Drop.BLANK)
    is_carried = entry.memory.id in carried
    return entry.without(Drop.CARRIED) if is_carried else entry


def within_budget(
    found: Sequence[Candidate], *, max_tokens: int, carried: Set[MemoryId]
) -> tuple[list[Candidate], list[str], int]:
    """Walk down the order while it fits; dropped candidates come last, each with its reason."""
    judged = [_judged(entry, carried) for entry in found]
    wanted = [entry for entry in judged if entry.is_injected]
    dropped = [entry for entry in judged if not entry.is_injected]
    fitted = fit_budget([entry.line for entry in wanted], max_tokens=max_tokens)
    kept = [_costing(wanted[line.position], line.tokens) for line in fitted]
    over = [entry.without(Drop.OVER_BUDGET) for entry in wanted[len(fitted) :]]
    return (
        [*kept, *over, *dropped],
        [line.text for line in fitted],
        sum(line.tokens for line in fitted),
    )
