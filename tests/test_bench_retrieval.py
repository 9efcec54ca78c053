"""The retrieval bench on labelled data that is made here."""

import json
from pathlib import Path

import pytest

from bench.retrieval import Figures, foreign_questions, measure, recall, reciprocal_rank
from bench.retrieval_arms import Arm, loaded
from bench.retrieval_data import Track, read_tracks

FACTS = [
    {"en": "I take green tea in the morning", "qen": ["green tea?"], "pl": "a", "qpl": ["b"]},
    {"en": "Ledger entries live in Postgres", "qen": ["where do entries live?"], "pl": "c"},
]


@pytest.fixture
def tracks(tmp_path: Path) -> list[Track]:
    """Two facts in English, the second of which is asked for in other words."""
    path = tmp_path / "facts.json"
    rows = [{**row, "qpl": []} for row in FACTS]
    path.write_text(json.dumps(rows), encoding="utf-8")
    return [track for track in read_tracks(path) if track.name.endswith("en")]


def test_measures() -> None:
    """Recall is the share of the answers, the reciprocal rank that of the first."""
    answers = frozenset({"a", "b"})
    assert recall(["x", "a"], answers) == 1 / 2
    assert reciprocal_rank(["x", "a", "b"], answers) == 1 / 2
    assert reciprocal_rank(["x"], answers) == 0


def test_one_collection_has_no_strangers(tracks: list[Track]) -> None:
    """A single collection is asked by nobody else: there is no rate, not a rate of zero."""
    assert foreign_questions(tracks[0], tracks) == []


@pytest.mark.parametrize("source", [None, "static"])
def test_a_track_is_measured(tmp_path: Path, tracks: list[Track], source: str | None) -> None:
    """Facts are stored, embedded and found through the product's own search."""
    with loaded(tmp_path, tracks, source) as store:
        found = measure(store, Arm("arm", source), tracks[0], tracks)
    assert isinstance(found, Figures)
    assert (found.questions, found.recall_10, found.intrusion) == (2, 100.0, None)
