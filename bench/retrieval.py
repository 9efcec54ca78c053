"""How well memories are found, on labelled questions: ``retrieval.py FILE ...``.

Every file is one of the formats of ``bench.retrieval_data``. For each track and arm: any@k, R@k and
MRR of the ranking, the share of answers within token budgets, how often a question of another
conversation injects anything, and the time of a search. Figures in percent, means over questions.
"""

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.retrieval_arms import Arm, Loaded, loaded
from bench.retrieval_data import Collection, Question, Track, read_tracks
from omniroute_litellm.trace import RetrievalTrace

ARMS: Final = (
    Arm("keyword", None),
    Arm("static", "static", strategy="semantic"),
    Arm("rrf", "static", fusion="rrf"),
    Arm("score", "static"),
)
TRANSFORMERS: Final = Arm("transformers", "transformers", strategy="semantic")
BUDGETS: Final = (256, 512, 1_024, 2_000)


@dataclass(frozen=True, slots=True)
class Figures:
    """What one arm reaches on one track. Shares are in percent, times in milliseconds."""

    track: str
    arm: str
    questions: int
    any_5: float
    any_10: float
    recall_5: float
    recall_10: float
    mrr: float
    within: dict[int, float]
    intrusion: float | None
    p50_ms: float
    p95_ms: float


def reciprocal_rank(order: Sequence[str], answers: frozenset[str]) -> float:
    """Return one over the 1-based place of the first answer, 0 without any."""
    return next((1 / place for place, name in enumerate(order, start=1) if name in answers), 0.0)


def recall(found: Sequence[str], answers: frozenset[str]) -> float:
    """Return the share of the answers that were found, in [0, 1]."""
    return len(answers.intersection(found)) / len(answers)


def within_tokens(trace: RetrievalTrace, budget: int) -> int:
    """Return how many of the ranked memories fit a budget: the longest prefix."""
    left, count = budget, 0
    for entry in trace.candidates:
        left -= entry.tokens
        if not entry.is_injected or left < 0:
            break
        count += 1
    return count


def foreign_questions(track: Track, tracks: Sequence[Track]) -> list[tuple[Collection, Question]]:
    """Return for each collection the questions of the next one, which it cannot answer."""
    others = [each for other in tracks if other is not track for each in other.collections]
    ring = list(track.collections) if len(track.collections) > 1 else [*track.collections, *others]
    if len(ring) < 2:
        return []
    return [
        (collection, question)
        for at, collection in enumerate(track.collections)
        for question in ring[(at + 1) % len(ring)].questions
    ]


def measure(store: Loaded, arm: Arm, track: Track, tracks: Sequence[Track]) -> Figures:
    """Ask every question of a track, and those that it cannot answer."""
    rows: list[tuple[float, ...]] = []
    times: list[float] = []
    for collection in track.collections:
        labels = store.labels[collection.name]
        for question in collection.questions:
            trace = store.ask(collection, question.text, arm)
            order = [labels[memory.id] for memory in trace.injected]
            times.append(trace.ms)
            five, ten = (recall(order[:k], question.answers) for k in (5, 10))
            budgets = [
                recall(order[: within_tokens(trace, budget)], question.answers)
                for budget in BUDGETS
            ]
            rank = reciprocal_rank(order, question.answers)
            rows.append((five > 0, ten > 0, five, ten, rank, *budgets))
    foreign = [
        bool(store.ask(collection, question.text, arm).injected)
        for collection, question in foreign_questions(track, tracks)
    ]
    means = [100 * statistics.fmean(column) for column in zip(*rows, strict=True)]
    return Figures(
        track=track.name,
        arm=arm.name,
        questions=len(rows),
        any_5=means[0],
        any_10=means[1],
        recall_5=means[2],
        recall_10=means[3],
        mrr=means[4],
        within=dict(zip(BUDGETS, means[5:], strict=True)),
        intrusion=100 * statistics.fmean(foreign) if foreign else None,
        p50_ms=statistics.median(times),
        p95_ms=sorted(times)[int(0.95 * (len(times) - 1))],
    )


def main() -> None:
    """Print one line for each track and arm."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, help="labelled data")
    parser.add_argument("--transformers", action="store_true", help="measure a local model too")
    parser.add_argument("--arms", help="names of arms, by comma; all without")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    asked = parser.parse_args()
    tracks = [track for path in asked.files for track in read_tracks(path)]
    arms = [*ARMS, TRANSFORMERS] if asked.transformers else list(ARMS)
    if asked.arms:
        arms = [arm for arm in arms if arm.name in asked.arms.split(",")]
    figures: list[Figures] = []
    print(_HEAD)
    for source in dict.fromkeys(arm.source for arm in arms):
        with (
            tempfile.TemporaryDirectory() as folder,
            loaded(Path(folder), tracks, source) as store,
        ):
            for track in tracks:
                for arm in (arm for arm in arms if arm.source == source):
                    found = measure(store, arm, track, tracks)
                    figures.append(found)
                    print(_line(found))
    if asked.json:
        rows = [asdict(each) for each in figures]
        asked.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")


_HEAD: Final = (
    f"{'track':16} {'arm':12} {'n':>4} {'any@5':>6} {'any@10':>6} {'R@5':>6} {'R@10':>6} "
    f"{'MRR':>6} " + " ".join(f"{f'in {budget}':>7}" for budget in BUDGETS) + "  foreign  p50/95 ms"
)


def _line(found: Figures) -> str:
    shares = (found.any_5, found.any_10, found.recall_5, found.recall_10, found.mrr)
    foreign = "-" if found.intrusion is None else f"{found.intrusion:.1f}"
    return (
        f"{found.track:16} {found.arm:12} {found.questions:4} "
        + " ".join(f"{share:6.1f}" for share in shares)
        + " "
        + " ".join(f"{share:7.1f}" for share in found.within.values())
        + f"  {foreign:>7}  {found.p50_ms:.2f}  {found.p95_ms:.2f}"
    )


if __name__ == "__main__":
    main()
