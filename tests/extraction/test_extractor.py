"""The extractor: any text, the same facts, linear time."""

import time
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omniroute_litellm.extraction.extractor import MAX_CONTENT, Extractor
from omniroute_litellm.extraction.keys import slug
from omniroute_litellm.extraction.screens import Drop, Keep, Verdict
from omniroute_litellm.extraction.sources import MAX_CHARACTERS
from omniroute_litellm.types import Fact, Speaker

EXTRACTOR: Final = Extractor()
FRAGMENTS: Final = (
    "I",
    "prefer",
    "don't",
    "always",
    "my favorite",
    "is",
    "tea",
    ".",
    "?",
    "`",
    '"',
    "and",
    "```\n",
    "<b>",
    "</b>",
    "> ",
    "\n",
    "if",
    "Memory context:",
    "'",
    "’",
    "never",
    ", ",
)
WORDS: Final = st.lists(st.sampled_from(FRAGMENTS), max_size=40).map(" ".join)
HOSTILE: Final = [
    "I really ",
    "I I I ",
    "my favorite ",
    "'",
    "a",
    "I prefer a, and ",
    "<a>",
    "<a></a>",
    "```\n",
    "I always ",
    '"I ',
    "I prefer x\n",
    ". ",
    "- ",
    "and ",
    "`a",
    "  ",
    "I prefer ( ",
    "Memory context:\n- ",
    "<!--",
]


@given(st.one_of(st.text(st.characters()), WORDS))
@settings(max_examples=300, deadline=None)
def test_any_text_is_read(text: str) -> None:
    """No text raises, the same text gives the same facts, and each fact points at its clause."""
    facts = EXTRACTOR.extract(text, speaker=Speaker.USER)
    assert EXTRACTOR.extract(text, speaker=Speaker.USER) == facts
    assert len({fact.key for fact in facts}) == len(facts)
    for fact in facts:
        assert 0 < len(fact.content) <= MAX_CONTENT
        assert "\n" not in fact.content
        start, end = fact.span
        assert " ".join(text[start:end].split()).startswith(fact.content)
        assert fact.key.partition(":")[2] == slug(fact.capture)


def test_long_contents_are_cut_at_a_word() -> None:
    """A sentence without an end gives at most 500 characters."""
    (fact,) = EXTRACTOR.extract("I prefer " + "wordy " * 200, speaker=Speaker.USER)
    assert len(fact.content) <= MAX_CONTENT
    assert fact.content.endswith("wordy")


def test_the_newest_wording_of_a_key_holds() -> None:
    """Said twice in one text, the last time counts."""
    facts = EXTRACTOR.extract("I love tea. I hate tea.", speaker=Speaker.USER)
    assert [fact.content for fact in facts] == ["I hate tea"]


def test_the_person_wins_over_the_answer() -> None:
    """Where both state a key, the person's words are kept; each source can be left out."""
    both = EXTRACTOR.extract_exchange("I love tea.", "I hate tea. I love jazz.", sources="both")
    assert {fact.content: fact.speaker for fact in both} == {
        "I love tea": Speaker.USER,
        "I love jazz": Speaker.ASSISTANT,
    }
    user = EXTRACTOR.extract_exchange("I love tea.", "I love jazz.", sources="user")
    assert [fact.content for fact in user] == ["I love tea"]
    answer = EXTRACTOR.extract_exchange("I love tea.", "I love jazz.", sources="assistant")
    assert [fact.content for fact in answer] == ["I love jazz"]


def test_a_screen_can_refuse() -> None:
    """A further check in the list keeps facts out."""

    def no_tea(fact: Fact) -> Verdict:
        return Drop("tea") if "tea" in fact.content else Keep()

    picky = Extractor(checks=[no_tea])
    facts = picky.extract("I love tea. I love jazz.", speaker=Speaker.USER)
    assert [fact.content for fact in facts] == ["I love jazz"]


@pytest.mark.parametrize("unit", HOSTILE, ids=repr)
def test_time_is_linear(unit: str) -> None:
    """Twice the text takes about twice the time: nothing is read over and over."""

    def seconds(size: int) -> float:
        text = (unit * size)[:size]
        return min(timed(text) for _ in range(3))

    assert seconds(MAX_CHARACTERS) < 5 * seconds(MAX_CHARACTERS // 2) + 0.005


def timed(text: str) -> float:
    """Return how long one reading takes."""
    started = time.perf_counter()
    EXTRACTOR.extract(text, speaker=Speaker.USER)
    return time.perf_counter() - started
