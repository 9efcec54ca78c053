"""The one retrieval: production, preview and console call it, and it explains itself."""

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from omniroute_litellm.errors import BackendUnavailableError
from omniroute_litellm.injection import render_line
from omniroute_litellm.memory_cache import MAX_MEMORIES
from omniroute_litellm.ranking import fit_budget, fuse_ranks
from omniroute_litellm.settings import Strategy
from omniroute_litellm.store import Alive, MemoryReader
from omniroute_litellm.telemetry import span
from omniroute_litellm.tokens import estimate_tokens
from omniroute_litellm.trace import Candidate, Drop, RetrievalTrace, TierOutcome
from omniroute_litellm.types import Clock, Memory, MemoryId, Scope
from omniroute_litellm.vectors.base import NoTier, VectorTier

MAX_NEWEST: Final = 100
LIST_DEPTH: Final = 20
"""How deep each list goes into the fusion (OmniRoute's MEMORY_VEC_TOP_K)."""
KEYWORD_DEPTH: Final = 60
"""How many matches of words are considered: three times the depth of the fusion."""
MAX_PROFILE: Final = 200
_PROFILE_GLANCE: Final = 48
"""Most profiles are full before so many memories."""
KEYWORD_FLOOR: Final = 0.05
"""The least share of the query's terms that a match must hold: one in twenty.

Counted, not weighted: a term that every memory holds weighs nothing and is still the topic.
"""
MAX_QUERY_CHARACTERS: Final = 8_000
_BLANK: Final = render_line("")
_SMALLEST_LINE_TOKENS: Final = 2
_LATE: Final = TierOutcome("vector", answered=False, candidates=0, ms=0.0, reason="deadline")


@dataclass(frozen=True, slots=True)
class RetrievalRequest:
    """What one retrieval is asked for. ``max_tokens`` bounds the rendered lines.

    ``carried`` are memories that the conversation holds already: they are not given again.
    """

    scope: Scope
    query: str
    strategy: Strategy
    max_tokens: int
    profile_max_tokens: int
    retention: timedelta
    carried: frozenset[MemoryId] = frozenset()


class Retriever:
    """Finds what is worth injecting. Synchronous: one call is one thread hop."""

    def __init__(
        self,
        reader: MemoryReader,
        *,
        clock: Clock,
        vectors: Callable[[], VectorTier | NoTier] = NoTier,
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._reader = reader
        self._clock = clock
        self._vectors = vectors
        self._timer = timer

    def retrieve(
        self, request: RetrievalRequest, *, keep: Callable[[RetrievalTrace], None] | None = None
    ) -> RetrievalTrace:
        """Return what fits the budget, best first, with every step that led there.

        ``keep`` is called with what the words alone found before a vector tier is asked: a caller
        that cannot wait for the vectors uses that.

        Raises BackendUnavailableError when the store itself cannot be read; a vector tier that
        fails is left out and named in the trace.
        """
        started = self._timer()
        now = self._clock()
        alive = Alive(now, now - request.retention)
        steps: list[TierOutcome] = []

        def traced(found: list[Candidate], *later: TierOutcome) -> RetrievalTrace:
            candidates, lines, tokens = _within_budget(found, request)
            return RetrievalTrace(
                at=now,
                strategy=request.strategy,
                budget=request.max_tokens,
                tiers=(*steps, *later),
                candidates=tuple(candidates),
                lines=tuple(lines),
                tokens=tokens,
                ms=(self._timer() - started) * 1000,
            )

        # One moment of the store for all that is read here, and no longer than that: a vector
        # tier may be slow, and an open snapshot keeps the log from being folded in.
        with self._reader.snapshot():
            if request.strategy == "recent":
                return traced(self._newest(request, alive, steps))
            profile_steps: list[TierOutcome] = []
            profile: list[Candidate] = []
            if request.strategy == "hybrid":
                everything = self._everything(request, alive, steps)
                if everything is not None:
                    return traced(everything)
                profile = self._profile(request, alive, profile_steps)
            above, below = self._worded(request, alive, steps)
        tier = self._vectors()
        if isinstance(tier, VectorTier) and keep is not None:
            early = [*_fused(above, []), *below]
            keep(traced(_joined(early, profile), _LATE, *profile_steps))
        vector = self._vector(tier, request, alive, steps)
        found = _joined([*_fused(above, vector), *below], profile)
        return traced(found, *profile_steps)

    def _newest(
        self, request: RetrievalRequest, alive: Alive, steps: list[TierOutcome]
    ) -> list[Candidate]:
        started = self._timer()
        memories = self._reader.newest(request.scope, alive, limit=MAX_NEWEST)
        steps.append(self._answered("newest", len(memories), started))
        return _ranked("newest", memories)

    def _everything(
        self, request: RetrievalRequest, alive: Alive, steps: list[TierOutcome]
    ) -> list[Candidate] | None:
        """Return the whole store when it fits the profile budget: nothing can be missed then."""
        budget = min(request.profile_max_tokens, request.max_tokens)
        started = self._timer()
        memories = self._reader.all_if_few(
            request.scope, alive, at_most=budget // _SMALLEST_LINE_TOKENS
        )
        if memories is None:
            return None
        found = _ranked("all", memories)
        if _cost(found) > budget:
            return None
        steps.append(self._answered("all", len(memories), started))
        return found

    def _profile(
        self, request: RetrievalRequest, alive: Alive, steps: list[TierOutcome]
    ) -> list[Candidate]:
        """Return the profile set: the newest that fit are kept, in an order that stays."""
        started = self._timer()
        memories = self._reader.profile(request.scope, alive, limit=_PROFILE_GLANCE)
        found = _ranked("profile", memories)
        if len(found) == _PROFILE_GLANCE and _cost(found) <= request.profile_max_tokens:
            memories = self._reader.profile(request.scope, alive, limit=MAX_PROFILE)
            found = _ranked("profile", memories)
        steps.append(self._answered("profile", len(memories), started))
        room = request.profile_max_tokens
        kept: list[Candidate] = []
        dropped: list[Candidate] = []
        for candidate in found:
            room -= candidate.tokens
            if room >= 0:
                kept.append(candidate)
            else:
                dropped.append(replace(candidate, dropped=Drop.OVER_PROFILE_BUDGET))
        return sorted(kept, key=lambda entry: entry.memory.created_at) + dropped

    def _worded(
        self, request: RetrievalRequest, alive: Alive, steps: list[TierOutcome]
    ) -> tuple[list[Candidate], list[Candidate]]:
        """Return what shares enough words with the query, and what shares too few."""
        started = self._timer()
        hits = self._reader.keyword(
            request.scope, alive, query=_query_of(request), limit=KEYWORD_DEPTH
        )
        steps.append(self._answered("keyword", len(hits), started))
        keyword = [
            _candidate(
                hit.memory,
                ranks={"keyword": rank},
                scores={"bm25": hit.score, "coverage": hit.coverage},
                dropped=None if hit.coverage >= KEYWORD_FLOOR else Drop.BELOW_FLOOR,
            )
            for rank, hit in enumerate(hits, start=1)
        ]
        above = [entry for entry in keyword if entry.is_injected]
        return above, [entry for entry in keyword if not entry.is_injected]

    def _vector(
        self,
        tier: VectorTier | NoTier,
        request: RetrievalRequest,
        alive: Alive,
        steps: list[TierOutcome],
    ) -> list[Candidate]:
        if isinstance(tier, NoTier):
            if tier.reason is not None:
                steps.append(TierOutcome("vector", False, 0, 0.0, tier.reason))
            return []
        started = self._timer()
        try:
            found = self._nearest(tier, request.scope, alive, _query_of(request))
        except BackendUnavailableError as error:
            ms = (self._timer() - started) * 1000
            steps.append(
                TierOutcome("vector", answered=False, candidates=0, ms=ms, reason=error.reason)
            )
            return []
        steps.append(self._answered("vector", len(found), started))
        return found

    def _nearest(self, tier: VectorTier, scope: Scope, alive: Alive, query: str) -> list[Candidate]:
        with span("memory.embed"):
            vector = tier.embedder.embed(query)
        found = tier.index.search(vector, scope=scope, alive=alive, limit=LIST_DEPTH)
        if not found.hits and found.expected:
            message = "the index found nothing although the owner has vectors in it"
            raise BackendUnavailableError(message, reason="vector_empty")
        return [
            _candidate(hit.memory, ranks={"vector": rank}, scores={"similarity": hit.similarity})
            for rank, hit in enumerate(found.hits, start=1)
        ]

    def _answered(self, tier: str, candidates: int, started: float) -> TierOutcome:
        ms = (self._timer() - started) * 1000
        return TierOutcome(tier, answered=True, candidates=candidates, ms=ms)


def _query_of(request: RetrievalRequest) -> str:
    return request.query[-MAX_QUERY_CHARACTERS:]


def _candidate(
    memory: Memory,
    *,
    ranks: Mapping[str, int],
    scores: Mapping[str, float],
    dropped: Drop | None = None,
) -> Candidate:
    line, tokens = _rendered(memory.content)
    return Candidate(memory, ranks, scores, tokens, dropped, line)


@functools.lru_cache(maxsize=MAX_MEMORIES)
def _rendered(content: str) -> tuple[str, int]:
    """Return the line of a memory and what it costs."""
    line = render_line(content)
    return line, estimate_tokens(line)


def _cost(found: Sequence[Candidate]) -> int:
    return sum(entry.tokens for entry in found)


def _ranked(tier: str, memories: Sequence[Memory]) -> list[Candidate]:
    return [
        _candidate(memory, ranks={tier: rank}, scores={})
        for rank, memory in enumerate(memories, start=1)
    ]


def _fused(keyword: list[Candidate], vector: list[Candidate]) -> list[Candidate]:
    """Fuse the two lists by rank; with one of them empty the other stays as it is."""
    if not keyword or not vector:
        return keyword or vector
    by_id: dict[MemoryId, Candidate] = {}
    for entry in (*keyword, *vector):
        by_id[entry.memory.id] = _merged(by_id.get(entry.memory.id), entry)
    lists = [[entry.memory.id for entry in listed] for listed in (keyword, vector)]
    return [
        replace(by_id[memory_id], scores={**by_id[memory_id].scores, "fused": score})
        for memory_id, score in fuse_ranks(lists, depth=LIST_DEPTH)
    ]


def _joined(first: list[Candidate], second: list[Candidate]) -> list[Candidate]:
    """Append one list to another; what stands in both keeps its first place and gains a rank.

    A memory that the first list dropped and the second keeps is kept, at its second place.
    """
    kept = {entry.memory.id: entry for entry in first if entry.is_injected}
    others = {entry.memory.id for entry in second if entry.is_injected}
    for entry in second:
        if entry.memory.id in kept:
            kept[entry.memory.id] = _merged(kept[entry.memory.id], entry)
    tail = [entry for entry in second if entry.memory.id not in kept]
    dropped = [entry for entry in first if not entry.is_injected and entry.memory.id not in others]
    return [*kept.values(), *tail, *dropped]


def _merged(known: Candidate | None, entry: Candidate) -> Candidate:
    if known is None:
        return entry
    return replace(
        known, ranks={**known.ranks, **entry.ranks}, scores={**known.scores, **entry.scores}
    )


def _costing(entry: Candidate, tokens: int) -> Candidate:
    return entry if entry.tokens == tokens else replace(entry, tokens=tokens)


def _judged(entry: Candidate, request: RetrievalRequest) -> Candidate:
    if not entry.is_injected:
        return entry
    if entry.line == _BLANK:
        return replace(entry, dropped=Drop.BLANK)
    is_carried = entry.memory.id in request.carried
    return replace(entry, dropped=Drop.CARRIED) if is_carried else entry


def _within_budget(
    found: Sequence[Candidate], request: RetrievalRequest
) -> tuple[list[Candidate], list[str], int]:
    """Walk down the order while it fits; dropped candidates come last, each with its reason."""
    judged = [_judged(entry, request) for entry in found]
    wanted = [entry for entry in judged if entry.is_injected]
    dropped = [entry for entry in judged if not entry.is_injected]
    fitted = fit_budget([entry.line for entry in wanted], max_tokens=request.max_tokens)
    kept = [_costing(wanted[line.position], line.tokens) for line in fitted]
    over = [replace(entry, dropped=Drop.OVER_BUDGET) for entry in wanted[len(fitted) :]]
    return (
        [*kept, *over, *dropped],
        [line.text for line in fitted],
        sum(line.tokens for line in fitted),
    )
