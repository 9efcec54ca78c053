"""What of a text was spoken, and what only stands in it."""

from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omniroute_litellm.extraction.sources import (
    HOLE,
    MACHINE_OPENINGS,
    MAX_CHARACTERS,
    has_prose,
    spoken_prose,
)
from omniroute_litellm.injection import HEADING, render_block, render_line

# text, what is left of it with white space folded and each hole written as one ``_``.
CUTS: Final = [
    # fences
    ("a\n```py\nx\n```\nb", "a b"),
    ("a\n~~~\nx\n```\ny\n~~~\nb", "a b"),
    ("a\n```\nx", "a"),
    ("a\n~~~\nx", "a"),
    ("a\n````md\n```py\nx\n```\ny\n````\nb", "a b"),
    ("a\n```js\nx\n```ts\ny\n```\nb", "a b"),
    ("a\n  ```\n  x\n  ```\nb", "a b"),
    ("- a\n  - ```py\n    x\n    ```\n- b", "- a - b"),
    ("1. ```py\nx\n```\nb", "b"),
    ("a\n      ```\nx\n      ```\nb", "a b"),
    ("a\n```\r\nx\r\n```\r\nb", "a b"),
    ("a ``` b", "a ``` b"),
    ("``` x ``` a", "_ a"),
    # inline code
    ("a `x` b", "a _ b"),
    ("a ``x`` b", "a _ b"),
    ("a `x", "a `x"),
    ("a `x\ny` b", "a `x y` b"),
    # quoted lines
    ("a\n> x\n>y\nb", "a b"),
    ("  > x\nb", "b"),
    ("a > b", "a > b"),
    # tagged sections
    ("<t>x</t> a", "a"),
    ("<t a='1'>x <t>y</t> z</t> a", "a"),
    ("<a><b>x</b></a> c", "c"),
    ("<a>x<b>y</a>z</b> c", "c"),
    ("a <b>x</b> c", "a _ c"),
    ("<system-reminder>\nx\n</system-reminder>\na", "a"),
    ("<system-reminder>x <env>y</env> z</system-reminder>\n\na", "a"),
    ("<environment_context>\n  <cwd>x</cwd>\n</environment_context>", ""),
    ("<user_instructions>\n\nx\n\n</user_instructions>\n\na", "a"),
    ("<INSTRUCTIONS>\nx\n</instructions>\na", "a"),
    ('<skill name="x" path="y">\nz\n</skill>\na', "a"),
    ("a\n<system-reminder>\nx\n<b>y</b>\nz", "a"),
    ("a\n<environment_context>\nx", "a"),
    ("run a <input_file> and b", "run a <input_file> and b"),
    ("<my-part />\na", "<my-part /> a"),
    ("List<String> a", "List<String> a"),
    ("Map<String, List<Integer>> a", "Map<String, List<Integer>> a"),
    ("a < b and b > c", "a < b and b > c"),
    ("</t> a", "</t> a"),
    # comments
    ("x <!-- y --> z", "x _ z"),
    ("<!-- y\ny -->\nz", "z"),
    ("<!-- y", ""),
    # our own block
    ("a\nMemory context:\n- x\n- y\nb", "a b"),
    ("Memory context:\n\n- x\n\n- y\n\nb", "b"),
    ("**Memory context:**\n* x\n* y\nb", "b"),
    ("Memory context: x", "Memory context: x"),
]

PIECES: Final = (
    *("a", " ", "\n", "\r\n", "\u2028", "\ud800", "é", "`", "```", "~~~", "> ", "- ", "*"),
    *("<t>", "</t>", "<a_b>", "</a_b>", "<!--", "-->", HEADING),
)


@pytest.mark.parametrize(("text", "left"), CUTS, ids=lambda value: repr(value)[:40])
def test_what_nobody_spoke_is_cut(text: str, left: str) -> None:
    """Code, quotes, sections, comments and our block go; words around them stay."""
    holes = "".join("_" if run else char for run, char in runs(spoken_prose(text)))
    assert " ".join(holes.split()) == left


def runs(prose: str) -> list[tuple[bool, str]]:
    """Fold each run of HOLE into one entry that is marked."""
    folded: list[tuple[bool, str]] = []
    for char in prose:
        if char != HOLE or not folded or not folded[-1][0]:
            folded.append((char == HOLE, char))
    return folded


@given(st.one_of(st.lists(st.sampled_from(PIECES)).map("".join), st.text(st.characters())))
@settings(max_examples=300, deadline=None)
def test_offsets_stay(text: str) -> None:
    """Every character stays at its place or becomes a blank or a hole; line feeds stay."""
    prose = spoken_prose(text)
    assert len(prose) == len(text)
    for before, after in zip(text, prose, strict=True):
        assert after == before or (after in {" ", HOLE} and before != "\n")


@given(st.lists(st.text(min_size=1), min_size=1, max_size=5))
def test_our_block_is_never_read_back(contents: list[str]) -> None:
    """Whatever memories a block holds, an echo of it leaves nothing to learn from."""
    block = render_block([render_line(content) for content in contents])
    assert not has_prose(spoken_prose(f"\n{block}\n"))


def test_the_end_of_a_long_text_is_kept() -> None:
    """What was said last counts, also behind a section that began long before."""
    section = "<log>" + "x" * (2 * MAX_CHARACTERS) + "</log>\nI prefer tea."
    prose = spoken_prose(section)
    assert len(prose) == MAX_CHARACTERS
    assert prose.strip() == "I prefer tea."
    assert spoken_prose("a" * MAX_CHARACTERS + "b").endswith("ab")
    assert len(spoken_prose("a" * MAX_CHARACTERS)) == MAX_CHARACTERS


def test_prose_has_letters_or_digits() -> None:
    """Blanks, holes and punctuation are nothing that a person said."""
    assert has_prose("7")
    assert not has_prose(spoken_prose("`code`"))
    assert not has_prose(" \n.!")


@pytest.mark.parametrize("opening", MACHINE_OPENINGS)
def test_a_summary_of_an_agent_is_nobodys_word(opening: str) -> None:
    """What an agent puts in place of its history is blank, wherever its lines break."""
    text = f"\n{opening} and so on.\nI'll use pytest."
    prose = spoken_prose(text)
    assert not has_prose(prose)
    assert len(prose) == len(text)
    assert has_prose(spoken_prose(f"You wrote: {opening}"))
