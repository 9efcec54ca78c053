"""The one retrieval: production, preview and console call it, and it explains itself."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final, Protocol

from omniroute_litellm.candidates import (
    candidate_of,
    cost_of,
    joined,
    ranked,
    within_budget,
)
from omniroute_litellm.embedding.base import TextRefusedError
from omniroute_litellm.errors import BackendUnavailableError, ContractError
from omniroute_litellm.fusion import Fuser
from omniroute_litellm.settings import Fusion, Strategy
from omniroute_litellm.store import Alive, MemoryReader
from omniroute_litellm.telemetry import span
from omniroute_litellm.trace import Candidate, Drop, RetrievalTrace, TierOutcome
from omniroute_litellm.types import Clock, MemoryId, OwnerId, Scope
from omniroute_litellm.vectors.base import Nearest, NoTier, VectorTier

MAX_NEWEST: Final = 100
DEPTH: Final = 100
"""How many matches of words, and how many of meaning, are considered."""
DEFAULT_FUSER: Final = Fuser()
RERANK_DEPTH: Final = 40
"""How many memories a rerank model is given."""
MAX_PROFILE: Final = 200
_PROFILE_GLANCE: Final = 48
"""Most profiles are full before so many memories."""
KEYWORD_FLOOR: Final = 0.05
"""The least share of the query's terms that a match must hold: one in twenty.

Counted, not weighted: a term that every memory holds weighs nothing and is still the topic.
"""
MAX_QUERY_CHARACTERS: Final = 8_000
_SMALLEST_LINE_TOKENS: Final = 2
_LATE: Final = TierOutcome("vector", answered=False, candidates=0, ms=0.0, reason="deadline")


class Rerank(Protocol):
    """Orders texts by how well each answers a query."""

    def __call__(
        self, query: str, documents: Sequence[str], *, owner: OwnerId
    ) -> list[tuple[int, float]]:
        """Return positions with their relevance, best first.

        Raises BackendUnavailableError, TextRefusedError and ContractError.
        """
        ...


@dataclass(frozen=True, slots=True)
class RetrievalRequest:
    """What one retrieval is asked for. ``max_tokens`` bounds the rendered lines.

    ``carried`` are memories that the conversation holds already: they are not given again. The
    first owner of the scope is who a paid call is charged to.
    """

    scope: Scope
    query: str
    strategy: Strategy
    max_tokens: int
    profile_max_tokens: int
    retention: timedelta
    carried: frozenset[MemoryId] = frozenset()
    fusion: Fusion = "score"


class Retriever:
    """Finds what is worth injecting. Synchronous: one call is one thread hop."""

    def __init__(
        self,
        reader: MemoryReader,
        *,
        clock: Clock,
        vectors: Callable[[], VectorTier | NoTier] = NoTier,
        rerank: Callable[[], Rerank | None] = lambda: None,
        fuser: Fuser = DEFAULT_FUSER,
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._reader = reader
        self._clock = clock
        self._vectors = vectors
        self._rerank = rerank
        self._fuser = fuser
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
            candidates, lines, tokens = within_budget(
                found, max_tokens=request.max_tokens, carried=request.carried
            )
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
        tier, rerank = self._vectors(), self._rerank()
        if keep is not None and (isinstance(tier, VectorTier) or rerank is not None):
            keep(traced(joined([*above, *below], profile), _LATE, *profile_steps))
        nearest = self._nearest(tier, request, alive, [*above, *below], steps)
        found = self._fused(request, above, nearest)
        if rerank is not None:
            found = self._reranked(rerank, request, found, steps)
        return traced(joined([*found, *below], profile), *profile_steps)

    def _newest(
        self, request: RetrievalRequest, alive: Alive, steps: list[TierOutcome]
    ) -> list[Candidate]:
        started = self._timer()
        memories = self._reader.newest(request.scope, alive, limit=MAX_NEWEST)
        steps.append(self._answered("newest", len(memories), started))
        return ranked("newest", memories)

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
        found = ranked("all", memories)
        if cost_of(found) > budget:
            return None
        steps.append(self._answered("all", len(memories), started))
        return found

    def _profile(
        self, request: RetrievalRequest, alive: Alive, steps: list[TierOutcome]
    ) -> list[Candidate]:
        """Return the profile set: the newest that fit are kept, in an order that stays."""
        started = self._timer()
        memories = self._reader.profile(request.scope, alive, limit=_PROFILE_GLANCE)
        found = ranked("profile", memories)
        if len(found) == _PROFILE_GLANCE and cost_of(found) <= request.profile_max_tokens:
            memories = self._reader.profile(request.scope, alive, limit=MAX_PROFILE)
            found = ranked("profile", memories)
        steps.append(self._answered("profile", len(memories), started))
        room = request.profile_max_tokens
        kept: list[Candidate] = []
        dropped: list[Candidate] = []
        for candidate in found:
            room -= candidate.tokens
            if room >= 0:
                kept.append(candidate)
            else:
                dropped.append(candidate.without(Drop.OVER_PROFILE_BUDGET))
        return sorted(kept, key=lambda entry: entry.memory.created_at) + dropped

    def _worded(
        self, request: RetrievalRequest, alive: Alive, steps: list[TierOutcome]
    ) -> tuple[list[Candidate], list[Candidate]]:
        """Return what shares enough words with the query, and what shares too few."""
        started = self._timer()
        hits = self._reader.keyword(request.scope, alive, query=_query_of(request), limit=DEPTH)
        steps.append(self._answered("keyword", len(hits), started))
        keyword = [
            candidate_of(
                hit.memory,
                ranks={"keyword": rank},
                scores={"bm25": hit.score, "coverage": hit.coverage},
                dropped=None if hit.coverage >= KEYWORD_FLOOR else Drop.BELOW_FLOOR,
            )
            for rank, hit in enumerate(hits, start=1)
        ]
        above = [entry for entry in keyword if entry.is_injected]
        return above, [entry for entry in keyword if not entry.is_injected]

    def _nearest(
        self,
        tier: VectorTier | NoTier,
        request: RetrievalRequest,
        alive: Alive,
        worded: Sequence[Candidate],
        steps: list[TierOutcome],
    ) -> Nearest | None:
        """Return what is near in meaning, and how near the memories are that the words found."""
        if isinstance(tier, NoTier):
            if tier.reason is not None:
                steps.append(TierOutcome("vector", False, 0, 0.0, tier.reason))
            return None
        started = self._timer()
        try:
            with span("memory.embed"):
                vector = tier.embedder.embed(_query_of(request), owner=request.scope.owners[0])
            nearest = tier.index.search(
                vector,
                scope=request.scope,
                alive=alive,
                limit=DEPTH,
                also=() if request.strategy == "semantic" else [e.memory.id for e in worded],
            )
        except BackendUnavailableError as error:
            steps.append(self._failed("vector", error.reason, started))
            return None
        except (TextRefusedError, ContractError):
            steps.append(self._failed("vector", "query_refused", started))
            return None
        if not nearest.memories and nearest.expected:
            # An empty answer although the owner has vectors is a fault of the index.
            steps.append(self._failed("vector", "vector_empty", started))
            return None
        steps.append(self._answered("vector", len(nearest.memories), started))
        return nearest

    def _fused(
        self, request: RetrievalRequest, worded: list[Candidate], nearest: Nearest | None
    ) -> list[Candidate]:
        """Combine what the words and what the meaning found.

        The semantic strategy takes words only where there is no meaning to go by.
        """
        if nearest is None:
            return worded
        if request.strategy == "semantic":
            return self._fuser.fuse([], nearest, request.fusion)
        return self._fuser.fuse(worded, nearest, request.fusion)

    def _reranked(
        self,
        rerank: Rerank,
        request: RetrievalRequest,
        found: list[Candidate],
        steps: list[TierOutcome],
    ) -> list[Candidate]:
        """Have a model order the head of a list; when it fails the order stays."""
        head, rest = found[:RERANK_DEPTH], found[RERANK_DEPTH:]
        if not head:
            return found
        started = self._timer()
        try:
            order = rerank(
                _query_of(request),
                [entry.memory.content for entry in head],
                owner=request.scope.owners[0],
            )
        except BackendUnavailableError as error:
            steps.append(self._failed("rerank", error.reason, started))
            return found
        except (TextRefusedError, ContractError):
            steps.append(self._failed("rerank", "rerank_refused", started))
            return found
        steps.append(self._answered("rerank", len(order), started))
        placed = {
            at: replace(
                head[at],
                ranks={**head[at].ranks, "rerank": rank},
                scores={**head[at].scores, "rerank": score},
            )
            for rank, (at, score) in enumerate(order, start=1)
        }
        left = [entry for at, entry in enumerate(head) if at not in placed]
        return [*placed.values(), *left, *rest]

    def _failed(self, tier: str, reason: str, started: float) -> TierOutcome:
        ms = (self._timer() - started) * 1000
        return TierOutcome(tier, answered=False, candidates=0, ms=ms, reason=reason)

    def _answered(self, tier: str, candidates: int, started: float) -> TierOutcome:
        ms = (self._timer() - started) * 1000
        return TierOutcome(tier, answered=True, candidates=candidates, ms=ms)


def _query_of(request: RetrievalRequest) -> str:
    return request.query[-MAX_QUERY_CHARACTERS:]
