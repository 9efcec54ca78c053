"""Laws of scores, fusion and the budget."""

from hypothesis import given
from hypothesis import strategies as st

from omniroute_litellm.injection import render_block, render_line
from omniroute_litellm.ranking import (
    COMMON_SHARE,
    ENOUGH_COVERED,
    MANY_DOCUMENTS,
    best_matches,
    fit_budget,
    fuse_ranks,
    fuse_scores,
    term_weights,
    words_share,
)
from omniroute_litellm.text import one_line
from tests.fakes import bm25_of

RANKED = st.lists(st.integers(0, 30), unique=True, max_size=25)
POSTINGS = st.dictionaries(
    st.sampled_from("abcdef"), st.lists(st.integers(0, 9), unique=True), max_size=6
)
LENGTHS = {document: 5 + 3 * document for document in range(10)}


@given(RANKED, RANKED, st.data())
def test_fusion_is_monotone(one: list[int], other: list[int], data: st.DataObject) -> None:
    """An item that rises in one list does not sink in the result."""
    if len(one) < 2:
        return
    at = data.draw(st.integers(1, len(one) - 1))
    item = one[at]
    risen = [*one[: at - 1], item, one[at - 1], *one[at + 1 :]]

    def place(ranked: list[int]) -> tuple[float, int]:
        fused = fuse_ranks([ranked, other], depth=20)
        position = next(n for n, (found, _) in enumerate(fused) if found == item)
        return fused[position][1], -position

    assert place(risen) >= place(one)


@given(RANKED)
def test_fusion_with_nothing_keeps_the_order(ranked: list[int]) -> None:
    """One list alone comes back in its own order, whatever its length."""
    assert [item for item, _ in fuse_ranks([ranked, []], depth=20)] == ranked
    assert [item for item, _ in fuse_ranks([[], ranked], depth=20)] == ranked


@given(POSTINGS)
def test_scores_are_bounded(postings: dict[str, list[int]]) -> None:
    """Scores are never negative, coverage is a share, and only matching documents are scored."""
    scores = bm25_of(postings, LENGTHS, documents=10)
    assert set(scores) == {document for found in postings.values() for document in found}
    for score in scores.values():
        assert score.score >= 0
        assert 0 <= score.coverage <= 1 + 1e-9


@given(POSTINGS, st.integers(0, 9))
def test_a_further_match_never_costs(postings: dict[str, list[int]], document: int) -> None:
    """A document that matches one more word of the query scores higher than it did."""
    known = {term: found for term, found in postings.items() if term != "f"}
    others = [other for other in LENGTHS if other != document][:3]
    without = bm25_of({**known, "f": others}, LENGTHS, documents=10)
    with_it = bm25_of({**known, "f": [*others, document]}, LENGTHS, documents=10)
    before = without[document].coverage if document in without else 0.0
    assert with_it[document].coverage > before


@given(st.lists(st.text(min_size=1), max_size=20), st.integers(0, 60), st.integers(0, 60))
def test_a_larger_budget_keeps_no_less(lines: list[str], budget: int, more: int) -> None:
    """What fits a budget fits every larger one."""
    small = fit_budget(lines, max_tokens=budget)
    assert len(fit_budget(lines, max_tokens=budget + more)) >= len(small)


@given(st.text(min_size=1), st.integers(1, 60))
def test_a_hit_is_never_empty(content: str, budget: int) -> None:
    """A memory that can be seen gives a block that holds something of it, at any budget."""
    if not one_line(content).strip("- "):
        return
    (line,) = fit_budget([render_line(content)], max_tokens=budget)
    assert render_block([line.text])


def test_a_common_term_is_left_out_where_rarer_ones_find_enough() -> None:
    """Among many documents alone, and never when it is all that there is."""
    many = MANY_DOCUMENTS + 1
    common = int(many * COMMON_SHARE) + 1
    assert set(term_weights([common, 60, 0], documents=many, enough=50)) == {1}
    assert set(term_weights([common, 60, 0], documents=many, enough=100)) == {0, 1}
    assert set(term_weights([common], documents=many, enough=1)) == {0}
    assert set(term_weights([many, 60], documents=MANY_DOCUMENTS, enough=50)) == {0, 1}
    weights = term_weights([common, 60], documents=many, enough=100)
    assert weights[1] > weights[0] > 0


@given(
    st.lists(st.tuples(st.sets(st.integers(1, 30)), st.floats(0.1, 9)), max_size=6),
    st.integers(1, 40),
)
def test_best_matches_are_those_with_the_most_weight(
    weighed: list[tuple[set[int], float]], depth: int
) -> None:
    """As many as asked for, each with its sum and its number of terms; equals by higher key."""
    best = best_matches([(sorted(keys), weight) for keys, weight in weighed], depth=depth)
    expected = {
        key: (
            sum(weight for keys, weight in weighed if key in keys),
            sum(key in k for k, _ in weighed),
        )
        for key in set[int]().union(*(keys for keys, _ in weighed))
    }
    ranked = sorted(expected, key=lambda key: (expected[key][0], key), reverse=True)[:depth]
    assert list(best) == ranked
    assert best == {key: expected[key] for key in ranked}


SCORES = st.dictionaries(st.integers(0, 20), st.floats(0, 10), max_size=12)
COSINES = st.dictionaries(st.integers(0, 20), st.floats(0, 1), max_size=12)


@given(SCORES, COSINES, st.floats(0, 1))
def test_scores_fuse_to_a_union_in_order(
    words: dict[int, float], near: dict[int, float], mean: float
) -> None:
    """Everything from both is there once, best first, each score in [0, 1]."""
    fused = fuse_scores(words, near, mean=mean)
    assert {item for item, _ in fused} == {*words, *near}
    assert len(fused) == len({item for item, _ in fused})
    scores = [score for _, score in fused]
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= score <= 1 + 1e-9 for score in scores)


@given(SCORES, COSINES, st.floats(0, 1), st.floats(0, 1))
def test_a_poor_match_of_words_leaves_more_to_the_meaning(
    words: dict[int, float], near: dict[int, float], mean: float, match: float
) -> None:
    """Up to two fifths of the query the words count for less, down to nothing, never for more."""
    assert words_share(0) == 0
    assert words_share(match) <= words_share(ENOUGH_COVERED) == words_share(1) == 0.5
    fused = dict(fuse_scores(words, near, mean=mean, match=match))
    for item in words.keys() - near.keys():
        assert fused[item] <= words_share(match) + 1e-9
    assert all(0 <= score <= 1 + 1e-9 for score in fused.values())


@given(SCORES, COSINES, st.floats(0, 1), st.data())
def test_scores_fuse_monotonically(
    words: dict[int, float], near: dict[int, float], mean: float, data: st.DataObject
) -> None:
    """A memory that matches better in words does not fall behind one that it was before."""
    if not words:
        return
    item = data.draw(st.sampled_from(sorted(words)))
    before = dict(fuse_scores(words, near, mean=mean))
    after = dict(fuse_scores({**words, item: words[item] + 1}, near, mean=mean))
    for other in before:
        if before[item] >= before[other]:
            assert after[item] >= after[other] - 1e-9


@given(RANKED, RANKED)
def test_the_tail_follows_a_given_order(one: list[int], other: list[int]) -> None:
    """What the ranks leave without a score comes in the order that is given."""
    order = sorted({*one, *other})
    tail = [item for item, score in fuse_ranks([one, other], depth=3, order=order) if score == 0]
    assert tail == sorted(tail)
