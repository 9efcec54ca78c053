"""The extractor: any text, the same facts, linear time."""

import time
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omniroute_litellm.extraction.extractor import MAX_CONTENT, Extractor, Sources
from omniroute_litellm.extraction.keys import slug
from omniroute_litellm.extraction.screens import Drop, Keep, Verdict
from omniroute_litellm.extraction.sources import MAX_CHARACTERS, spoken_prose
from omniroute_litellm.types import Category, Fact, MemoryType, Polarity, Speaker

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
    "*",
    "**",
    "(",
    ")",
    "„",
    "it",
    "not",
    "I'll use",
    "usually",
    "\ud800",
)
WORDS: Final = st.lists(st.sampled_from(FRAGMENTS), max_size=40).map(" ".join)
# Texts that tempt an expression, or a loop, into reading the same characters again and again.
HOSTILE: Final = (
    *(
        "I really ",
        "I I I ",
        "my favorite ",
        "my favorite a.b/c ",
        "I've never really ",
        "I always ",
    ),
    *("I prefer a, and ", "I prefer it better ", "I prefer x a lot ", "I prefer x, too, please "),
    *("I prefer x\n", "I prefer ( ", "I prefer x)))", "I'll use to x ", "usually, ", "just just "),
    *("draft ", "translate ", "text: ", "e.g. ", "as an ", "so so ", "and ", "that said"),
    *(
        "'",
        '"',
        '"I ',
        "„",
        "*a",
        "** a",
        "(",
        ". ",
        "?!",
        "…",
        "- ",
        "- [x] ",
        "a",
        "  ",
        "\t",
        "\r\n",
    ),
    *("<a>", "<a_b>\n", "<a></a>", "<!--", "```\n", "~~~\n", "`a", "``", "> ", "\ud800"),
    "Memory context:\n- ",
)


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
        assert words(text[slice(*fact.span)]).startswith(words(fact.content))
        assert fact.key.partition(":")[2] == slug(fact.capture)


def words(text: str) -> str:
    """Return a text without its blanks and marks of emphasis."""
    return "".join(text.replace("*", "").split())


def test_long_contents_are_cut_at_a_word() -> None:
    """A sentence without an end gives at most 500 characters."""
    (fact,) = EXTRACTOR.extract("I prefer " + "wordy " * 200, speaker=Speaker.USER)
    assert len(fact.content) <= MAX_CONTENT
    assert fact.content.endswith("wordy")


@pytest.mark.parametrize("length", [490, 491, 492, 600, 3_000])
def test_long_words_are_cut(length: int) -> None:
    """A word longer than a content gives its beginning, and a slot of its own."""
    (fact,) = EXTRACTOR.extract("I prefer " + "x" * length, speaker=Speaker.USER)
    assert 0 < len(fact.content) <= MAX_CONTENT
    assert len(fact.capture) <= MAX_CONTENT


def test_the_newest_wording_of_a_key_holds() -> None:
    """Said twice in one text, the last time counts, and stands where it was said."""
    facts = EXTRACTOR.extract("I love tea. I love jazz. I hate tea.", speaker=Speaker.USER)
    assert [fact.content for fact in facts] == ["I love jazz", "I hate tea"]
    assert facts[1].polarity is Polarity.NEGATIVE


@pytest.mark.parametrize(
    ("sources", "stated"),
    [
        ("both", {"I love tea": Speaker.USER, "I love jazz": Speaker.ASSISTANT}),
        ("user", {"I love tea": Speaker.USER}),
        ("assistant", {"I hate tea": Speaker.ASSISTANT, "I love jazz": Speaker.ASSISTANT}),
    ],
)
def test_the_person_wins_over_the_answer(sources: Sources, stated: dict[str, Speaker]) -> None:
    """Where both state a key, the person's words are kept; each source can be left out."""
    facts = EXTRACTOR.extract_exchange("I love tea.", "I hate tea. I love jazz.", sources=sources)
    assert {fact.content: fact.speaker for fact in facts} == stated


def test_an_exchange_of_nothing_states_nothing() -> None:
    """Empty texts are texts."""
    assert EXTRACTOR.extract_exchange("", "", sources="both") == ()


def test_a_fact_says_what_it_is() -> None:
    """Every field of a fact is filled."""
    text = "Hi!  Well,  I really  don't like **Python**, thanks."
    (fact,) = EXTRACTOR.extract(text, speaker=Speaker.USER)
    assert fact == Fact(
        category=Category.PREFERENCE,
        type=MemoryType.FACTUAL,
        key="preference:python",
        content="I really don't like Python",
        capture="Python",
        polarity=Polarity.NEGATIVE,
        language="en",
        pattern_id="en.not_like",
        speaker=Speaker.USER,
        span=(text.index("I really"), text.index("Python") + len("Python")),
    )


def test_what_was_read_once_reads_the_same_again() -> None:
    """The cleaned text that waits in the outbox states what the sent text stated."""
    text = (
        "<system-reminder>I hate x.</system-reminder>\nI prefer tabs.\n```\nI love y.\n```\n"
        "I do <b>not</b> like z. I `never` sleep. > I always nap."
    )
    once = EXTRACTOR.extract(text, speaker=Speaker.USER)
    assert [fact.content for fact in once] == ["I prefer tabs"]
    assert EXTRACTOR.extract(spoken_prose(text), speaker=Speaker.USER) == once


def test_the_last_64_kib_are_read() -> None:
    """Of a longer text the end counts, and so do its offsets."""
    text = "I hate noise. " + "word " * MAX_CHARACTERS + ". I prefer tea."
    (fact,) = EXTRACTOR.extract(text, speaker=Speaker.USER)
    assert text[-MAX_CHARACTERS:][slice(*fact.span)] == "I prefer tea"


def test_a_clause_behind_an_endless_one_is_read() -> None:
    """A clause without an end does not hide the next sentence."""
    facts = EXTRACTOR.extract(
        "I prefer " + "a b " * 5_000 + ". I hate noise.", speaker=Speaker.USER
    )
    assert [fact.key for fact in facts][-1] == "preference:noise"


def test_a_language_can_be_left_out() -> None:
    """Without a language nothing is found."""
    assert Extractor(languages=()).extract("I prefer tea.", speaker=Speaker.USER) == ()


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
    text = unit * (MAX_CHARACTERS // len(unit))

    def grows() -> float:
        return seconds(text) / seconds(text[: len(text) // 2])

    assert any(grows() < 4 for _ in range(3))


def seconds(text: str) -> float:
    """Return the time of the faster of two readings."""
    taken: list[float] = []
    for _ in range(2):
        started = time.perf_counter()
        EXTRACTOR.extract(text, speaker=Speaker.ASSISTANT)
        taken.append(time.perf_counter() - started)
    return min(taken)
