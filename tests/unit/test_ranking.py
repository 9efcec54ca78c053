"""Laws of scoring, fusing and cutting candidates."""

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omniroute_litellm.ranking import fit_budget, fuse_ranks
from omniroute_litellm.tokens import estimate_tokens
from tests.fakes import bm25_of

RANKED: Final = st.lists(st.integers(0, 12), unique=True, max_size=8)
LISTS: Final = st.lists(RANKED, max_size=3)
DEPTHS: Final = st.integers(0, 10)
LINES: Final = st.lists(st.text(min_size=1, max_size=40).map(lambda text: f"- {text}"), max_size=8)
BUDGETS: Final = st.integers(0, 60)


class TestBm25:
    """Scores of words."""

    @given(st.dictionaries(st.text(max_size=3), st.sets(st.integers(0, 9)), max_size=5))
    def test_scores_what_holds_a_term(self, postings: dict[str, set[int]]) -> None:
        """Exactly the documents that hold a term get a score."""
        lists = {term: sorted(found) for term, found in postings.items()}
        scores = bm25_of(lists, dict.fromkeys(range(10), 5), documents=10)
        assert set(scores) == set[int]().union(*postings.values())

    @given(st.dictionaries(st.text(max_size=3), st.sets(st.integers(0, 9)), max_size=5))
    def test_scores_are_positive(self, postings: dict[str, set[int]]) -> None:
        """No word is so common that it counts against a document."""
        lists = {term: sorted(found) for term, found in postings.items()}
        scores = bm25_of(lists, dict.fromkeys(range(10), 5), documents=10)
        assert all(entry.score > 0 for entry in scores.values())

    @given(st.dictionaries(st.text(max_size=3), st.sets(st.integers(0, 9)), max_size=5))
    def test_coverage_is_a_share(self, postings: dict[str, set[int]]) -> None:
        """The coverage lies between nothing and the whole query."""
        lists = {term: sorted(found) for term, found in postings.items()}
        scores = bm25_of(lists, dict.fromkeys(range(10), 5), documents=10)
        assert all(0 < entry.coverage <= 1 + 1e-9 for entry in scores.values())

    def test_rare_word_weighs_more(self) -> None:
        """The document with the rarer word wins."""
        postings = {"rare": [1], "common": [2, 3, 4]}
        scores = bm25_of(postings, dict.fromkeys(range(10), 5), documents=10)
        assert scores[1].score > scores[2].score

    def test_shorter_document_wins(self) -> None:
        """Of two documents with the same word the shorter one wins."""
        scores = bm25_of({"word": [1, 2]}, {1: 10, 2: 100}, documents=2)
        assert scores[1].score > scores[2].score

    def test_length_leaves_coverage(self) -> None:
        """The coverage does not depend on the length."""
        scores = bm25_of({"word": [1, 2]}, {1: 10, 2: 100}, documents=2)
        assert scores[1].coverage == scores[2].coverage == 1

    def test_second_word_raises(self) -> None:
        """A document with one more word of the query scores higher."""
        scores = bm25_of({"a": [1, 2], "b": [1, 3]}, {1: 5, 2: 5, 3: 5}, documents=3)
        assert scores[1].score > max(scores[2].score, scores[3].score)

    def test_empty_documents_score(self) -> None:
        """Documents without any length divide by nothing."""
        assert bm25_of({"a": [1]}, {1: 0}, documents=1)[1].coverage == 1

    def test_no_terms_score_nothing(self) -> None:
        """A query without words scores no document."""
        assert bm25_of({}, {}, documents=3) == {}


class TestFusion:
    """Joining ranked lists."""

    @given(LISTS, DEPTHS)
    def test_is_a_union(self, lists: list[list[int]], depth: int) -> None:
        """What stands in any list stands in the result, once."""
        items = [item for item, _ in fuse_ranks(lists, depth=depth)]
        assert sorted(items) == sorted({item for ranked in lists for item in ranked})

    @given(LISTS, DEPTHS)
    def test_order_of_lists_changes_no_score(self, lists: list[list[int]], depth: int) -> None:
        """No list weighs more than another."""
        forward = dict(fuse_ranks(lists, depth=depth))
        backward = dict(fuse_ranks(lists[::-1], depth=depth))
        assert forward == pytest.approx(backward)

    @given(LISTS, DEPTHS)
    def test_scores_fall(self, lists: list[list[int]], depth: int) -> None:
        """The best stands first."""
        scores = [score for _, score in fuse_ranks(lists, depth=depth)]
        assert scores == sorted(scores, reverse=True)

    @given(RANKED, DEPTHS)
    def test_one_list_keeps_its_order(self, ranked: list[int], depth: int) -> None:
        """Fusing one list changes nothing in it."""
        assert [item for item, _ in fuse_ranks([ranked], depth=depth)] == ranked

    @given(RANKED, RANKED)
    def test_second_mention_never_hurts(self, first: list[int], second: list[int]) -> None:
        """An item scores at least what it scores in one list alone."""
        alone = dict(fuse_ranks([first], depth=20))
        both = dict(fuse_ranks([first, second], depth=20))
        assert all(both[item] >= score for item, score in alone.items())

    def test_formula(self) -> None:
        """The score is the sum of 1 / (60 + rank)."""
        found = dict(fuse_ranks([["a", "b"], ["b"]], depth=20))
        assert found == pytest.approx({"b": 1 / 62 + 1 / 61, "a": 1 / 61})

    def test_tail_follows_without_score(self) -> None:
        """What stands below the depth comes behind the rest."""
        found = fuse_ranks([["a", "b", "c"], ["d"]], depth=1)
        assert [item for item, _ in found] == ["a", "d", "b", "c"]
        assert [score for _, score in found[2:]] == [0.0, 0.0]

    def test_tie_keeps_first_seen(self) -> None:
        """Of equal scores the item of the first list comes first."""
        assert [item for item, _ in fuse_ranks([["a"], ["b"]], depth=5)] == ["a", "b"]


class TestBudget:
    """Cutting to the budget."""

    @given(LINES, BUDGETS)
    def test_keeps_a_prefix(self, lines: list[str], budget: int) -> None:
        """No line is left out before one that is kept."""
        kept = fit_budget(lines, max_tokens=budget)
        assert [fitted.position for fitted in kept] == list(range(len(kept)))

    @given(LINES, BUDGETS)
    def test_stays_within(self, lines: list[str], budget: int) -> None:
        """What is kept never costs more than the budget."""
        assert sum(fitted.tokens for fitted in fit_budget(lines, max_tokens=budget)) <= budget

    @given(LINES, BUDGETS)
    def test_counts_what_it_keeps(self, lines: list[str], budget: int) -> None:
        """The tokens are those of the text that is kept."""
        for fitted in fit_budget(lines, max_tokens=budget):
            assert fitted.tokens == estimate_tokens(fitted.text)

    @given(LINES, BUDGETS)
    def test_is_longest(self, lines: list[str], budget: int) -> None:
        """The next line would not have fitted."""
        kept = fit_budget(lines, max_tokens=budget)
        following = sum(estimate_tokens(line) for line in lines[: len(kept) + 1])
        assert len(kept) == len(lines) or following > budget

    @given(LINES.filter(bool), st.integers(1, 60))
    def test_keeps_something(self, lines: list[str], budget: int) -> None:
        """Where anything matched and a token is left, something is kept."""
        assert fit_budget(lines, max_tokens=budget)

    @given(LINES, BUDGETS)
    def test_cuts_the_first_alone(self, lines: list[str], budget: int) -> None:
        """Only a line that stands alone may be cut."""
        kept = fit_budget(lines, max_tokens=budget)
        cut = [fitted for fitted in kept if fitted.text != lines[fitted.position]]
        assert not cut or len(kept) == 1

    @given(LINES)
    def test_no_budget_keeps_nothing(self, lines: list[str]) -> None:
        """Without a budget nothing is kept."""
        assert fit_budget(lines, max_tokens=0) == []

    def test_cut_falls_between_words(self) -> None:
        """A line that is too long ends with a whole word."""
        kept = fit_budget(["- I prefer green tea"], max_tokens=3)
        assert kept[0].text == "- I prefer"
