"""Estimates and cuts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omniroute_litellm.tokens import cut_to_tokens, estimate_tokens


@pytest.mark.parametrize(("text", "tokens"), [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2)])
def test_an_estimate_is_a_quarter_rounded_up(text: str, tokens: int) -> None:
    """Four characters cost one token, and a begun token counts."""
    assert estimate_tokens(text) == tokens


@given(st.text(), st.text())
def test_more_text_never_costs_less(one: str, other: str) -> None:
    """The estimate is monotone, and joining saves at most a token."""
    whole = estimate_tokens(one + other)
    parts = estimate_tokens(one) + estimate_tokens(other)
    assert parts - 1 <= whole <= parts


@given(st.text(min_size=1), st.integers(-5, 0))
def test_no_budget_leaves_nothing(text: str, tokens: int) -> None:
    """A budget below one token cuts to an empty text."""
    assert cut_to_tokens(text, tokens) == ""


@given(st.text(st.characters(categories=["L", "N"]), min_size=1), st.integers(1, 30))
def test_a_bullet_is_never_all_that_is_left(word: str, tokens: int) -> None:
    """A word longer than the budget is cut inside, also behind the dash of its line."""
    cut = cut_to_tokens(f"- {word}", tokens)
    assert len(cut) > 2
    assert f"- {word}".startswith(cut)
