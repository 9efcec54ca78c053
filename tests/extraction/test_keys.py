"""Slugs: one slot for one thing, in any script."""

import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from omniroute_litellm.extraction.keys import MAX_SLUG, slug

TEXTS = st.text(st.characters())


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("TypeScript", "typescript"),
        ("Postgres for this project", "postgres_for_this_project"),
        ("commit before pushing", "commit_before_pushing"),
        ("Next.js 14.2", "next_js_14_2"),
        ("example.org/x?y=1", "example_org_x_y_1"),
        ("snake__case_", "snake_case"),
        ("C++", "c"),
        ("  --dark mode!  ", "dark_mode"),
        ("don't", "don_t"),
        ("Zażółć gęślą JAŹŃ!", "zażółć_gęślą_jaźń"),
        ("STRASSE", "strasse"),
        ("Straße", "strasse"),
        ("東京 タワー", "東京_タワー"),
        ("Русский язык", "русский_язык"),
        ("ελληνικά", "ελληνικά"),
        ("हिन्दी भाषा", "हिन्दी_भाषा"),
        ("ภาษาไทย", "ภาษาไทย"),
        ("اللغة العربية", "اللغة_العربية"),
        ("עברית", "עברית"),
        ("한국어", "한국어"),
        ("cafe\u0301", "caf\u00e9"),
        ("tea ❤️ more", "tea_more"),
        ("❤️", ""),
        ("...", ""),
        ("_", ""),
        ("\u0301", ""),
        ("", ""),
        ("\ud800", ""),
    ],
    ids=repr,
)
def test_slugs_of_any_script(text: str, made: str) -> None:
    """Letters, their marks and digits stay; all else is one separator."""
    assert slug(text) == made


@given(TEXTS)
@example("a" * 39 + " b c")
@example("\ud800" * 50 + "a" * 50)
def test_a_slug_is_short_and_clean(text: str) -> None:
    """At most 40 characters and a hash; no separator at either end, nor two in a row."""
    made = slug(text)
    assert len(made) <= MAX_SLUG + 9
    assert "__" not in made
    assert made == made.strip("_")
    assert not any(char.isspace() or char in "-./:" for char in made)


@given(st.text(st.characters(), max_size=MAX_SLUG // 3))
def test_a_slug_is_its_own_slug(text: str) -> None:
    """What is short enough to stay whole is stable."""
    assert slug(slug(text)) == slug(text)


@given(st.text(st.characters(exclude_characters="\u0345")))
def test_case_and_blanks_do_not_count(text: str) -> None:
    """The same words in other blanks, or folded before, are the same slot.

    U+0345 is left out: it is a mark that folds to a letter.
    """
    assert slug(f"  {text}\n") == slug(text)
    assert slug(text.casefold()) == slug(text)


@given(st.text(st.characters(categories=["L", "Mn", "Mc", "Nd", "Zs"])))
def test_composition_does_not_count(text: str) -> None:
    """An accent typed apart names the same slot."""
    assert slug(unicodedata.normalize("NFC", text)) == slug(text)


def test_a_whole_slug_of_forty_characters_is_not_cut() -> None:
    """The limit itself still fits."""
    assert slug("a" * MAX_SLUG) == "a" * MAX_SLUG
    assert slug("a" * (MAX_SLUG + 1)).startswith("a" * MAX_SLUG + "_")


def test_slugs_of_long_texts_stay_apart() -> None:
    """A cut slug ends in a hash of the whole, so that one beginning is not one slot."""
    one, other = slug("word " * 20 + "one"), slug("word " * 20 + "other")
    assert one != other
    assert one[:30] == other[:30]
    assert slug("word " * 20 + "one!") == one
    assert all(char in "0123456789abcdef" for char in one.rpartition("_")[2])


def test_a_cut_never_leaves_two_separators() -> None:
    """A cut that falls on a separator drops it."""
    made = slug("a" * 39 + " bcd")
    assert made.startswith("a" * 39 + "_")
    assert "__" not in made
