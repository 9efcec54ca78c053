"""One list of what the words and what the meaning found."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from omniroute_litellm.candidates import candidate_of
from omniroute_litellm.ranking import RRF_K, fuse_ranks, fuse_scores
from omniroute_litellm.settings import Fusion
from omniroute_litellm.trace import Candidate
from omniroute_litellm.types import MemoryId
from omniroute_litellm.vectors.base import Nearest
from omniroute_litellm.vectors.feedback import with_feedback

RRF_DEPTH: Final = 20
"""How deep each list counts in a fusion by ranks (OmniRoute's MEMORY_VEC_TOP_K)."""


@dataclass(frozen=True, slots=True)
class Fuser:
    """Combines two lists by scores or by ranks, with what is found first heard a second time."""

    rrf_k: int = RRF_K
    rrf_depth: int = RRF_DEPTH

    def fuse(self, worded: Sequence[Candidate], nearest: Nearest, kind: Fusion) -> list[Candidate]:
        """Return all candidates, best first. With nothing in ``worded`` the meaning decides.

        Scores of a candidate: ``bm25`` and ``coverage`` of its words, ``similarity`` to the query
        in [0, 1], ``feedback``, its similarity to the query that was moved towards the best, and
        ``fused``.
        """
        words = {entry.memory.id: entry.scores["bm25"] for entry in worded}
        match = max((entry.scores["coverage"] for entry in worded), default=0.0)
        order = fuse_scores(words, nearest.cosines, mean=nearest.mean, match=match)
        moved = with_feedback(nearest, [memory_id for memory_id, _ in order])
        near = sorted(nearest.memories, key=lambda memory: -moved[memory.id])
        scores = {
            memory_id: {"similarity": max(cosine, 0.0), "feedback": max(moved[memory_id], 0.0)}
            for memory_id, cosine in nearest.cosines.items()
        }
        if not words:
            return [
                candidate_of(memory, ranks={"vector": rank}, scores=scores[memory.id])
                for rank, memory in enumerate(near, start=1)
            ]
        order = fuse_scores(words, moved, mean=nearest.mean, match=match)
        if kind == "rrf":
            order = fuse_ranks(
                [list(words), [memory.id for memory in near]],
                depth=self.rrf_depth,
                k=self.rrf_k,
                order=[memory_id for memory_id, _ in order],
            )
        memories = {memory.id: memory for memory in near}
        ranks: dict[MemoryId, dict[str, int]] = {}
        for entry in worded:
            memories[entry.memory.id] = entry.memory
            ranks[entry.memory.id] = dict(entry.ranks)
            scores[entry.memory.id] = {**entry.scores, **scores.get(entry.memory.id, {})}
        for rank, memory in enumerate(near, start=1):
            ranks.setdefault(memory.id, {})["vector"] = rank
        return [
            candidate_of(
                memories[memory_id],
                ranks=ranks[memory_id],
                scores={**scores[memory_id], "fused": score},
            )
            for memory_id, score in order
        ]
