"""Text that is stored, and text that is shown."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omniroute_litellm.text import one_line, storable

ANY_TEXT = st.text(st.characters())  # lone surrogates included


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("one\r\ntwo\rthree\nfour", "one\ntwo\nthree\nfour"),
        ("a\tb", "a\tb"),
        ("a\x00b\x07c\x85d", "abcd"),
        ("\ud83d broken, 🍵 whole", " broken, 🍵 whole"),
        ("naïve 日本語 \u200d", "naïve 日本語 \u200d"),
    ],
)
def test_what_is_stored(text: str, kept: str) -> None:
    """Line ends become one kind; control characters and half characters go; the rest stays."""
    assert storable(text) == kept


@given(st.text(st.characters(blacklist_categories=["Cc", "Cs"])))
def test_ordinary_text_is_stored_as_it_is(text: str) -> None:
    """Nothing that every store takes is changed."""
    assert storable(text) == text


@given(ANY_TEXT)
def test_one_line_is_stable(text: str) -> None:
    """A folded line folds to itself."""
    assert one_line(one_line(text)) == one_line(text)


@given(ANY_TEXT)
def test_one_line_keeps_every_letter(text: str) -> None:
    """Letters and digits that can be seen stay, in their order."""

    def visible(value: str) -> str:
        kinds = {"Lu", "Ll", "Lt", "Nd"}
        return "".join(char for char in value if unicodedata.category(char) in kinds)

    assert visible(one_line(text)) == visible(text)


@pytest.mark.parametrize(
    "char",
    [
        "\u00ad",  # soft hyphen
        "\u034f",  # combining grapheme joiner
        "\u115f",  # Hangul filler
        "\u180b",  # Mongolian variation selector
        "\u200b",  # zero-width space
        "\u2060",  # word joiner
        "\u2065",  # unassigned, ignorable by default
        "\u2066",  # left-to-right isolate
        "\u3164",  # Hangul filler
        "\ufe0f",  # variation selector 16
        "\U000e0041",  # tag letter
        "\U000e0100",  # variation selector 17: whole texts are hidden in these
    ],
)
def test_zero_width_characters_go(char: str) -> None:
    """What a person cannot see, a model shall not read."""
    assert one_line(f"te{char}a") == "tea"
