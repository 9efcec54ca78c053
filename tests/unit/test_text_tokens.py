"""Text that every store takes, lines that hide nothing, and cuts that fit."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omniroute_litellm.text import one_line, storable
from omniroute_litellm.tokens import cut_to_tokens, estimate_tokens


class TestStorable:
    """What may be stored."""

    @given(st.text())
    def test_encodes(self, text: str) -> None:
        """Whatever comes in, what goes out is UTF-8."""
        assert storable(text).encode("utf-8").decode("utf-8") == storable(text)

    @given(st.text())
    def test_holds_no_control(self, text: str) -> None:
        """Of control characters only line feeds and tabs are left."""
        controls = {char for char in storable(text) if unicodedata.category(char) == "Cc"}
        assert controls <= {"\n", "\t"}

    @given(st.text())
    def test_twice_is_once(self, text: str) -> None:
        """A storable text stays as it is."""
        assert storable(storable(text)) == storable(text)

    @given(st.text(st.characters(exclude_categories=["Cc", "Cs"])))
    def test_leaves_the_rest(self, text: str) -> None:
        """What every store takes is not touched."""
        assert storable(text) == text

    @pytest.mark.parametrize(
        ("text", "stored"),
        [("a\r\nb\rc", "a\nb\nc"), ("a\0b", "ab"), ("\ud83d", ""), ("a\tb\x7f\x85", "a\tb")],
    )
    def test_examples(self, text: str, stored: str) -> None:
        """Line ends become line feeds; NUL, DEL and half characters go."""
        assert storable(text) == stored


class TestOneLine:
    """What a model may read."""

    @given(st.text())
    def test_is_one_line(self, text: str) -> None:
        """No text has a second line afterwards."""
        assert len(one_line(text).splitlines()) <= 1

    @given(st.text())
    def test_twice_is_once(self, text: str) -> None:
        """A folded text stays as it is."""
        assert one_line(one_line(text)) == one_line(text)

    @given(st.text())
    def test_hides_nothing(self, text: str) -> None:
        """No control, format or half character is left."""
        assert not {unicodedata.category(char) for char in one_line(text)} & {"Cc", "Cf", "Cs"}

    @given(st.text())
    def test_has_single_spaces(self, text: str) -> None:
        """Words are parted by one space, and none stands at an end."""
        assert one_line(text) == " ".join(one_line(text).split())

    @pytest.mark.parametrize(
        ("text", "folded"),
        [
            ("a\nb", "a b"),
            ("a\u2028b\u2029c", "a b c"),
            ("pass\u200bword", "password"),
            ("\u202egnp.exe", "gnp.exe"),
            ("a\u00a0 b", "a b"),
            ("a\U000e0041\U000e0042b", "ab"),
            ("\u2066x\u2069", "x"),
            ("\ufeffa", "a"),
            ("a \u200b b", "a b"),
            ("a\x1bb\x07", "ab"),
            ("\u3164", ""),
            ("naïve 日本 \U0001f600", "naïve 日本 \U0001f600"),
        ],
    )
    def test_examples(self, text: str, folded: str) -> None:
        """Line ends, zero-width, bidirectional, tag and filler characters go; words stay."""
        assert one_line(text) == folded


class TestTokens:
    """Estimates and cuts."""

    @pytest.mark.parametrize(("text", "tokens"), [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2)])
    def test_estimate_rounds_up(self, text: str, tokens: int) -> None:
        """A token is four characters, and a begun one counts."""
        assert estimate_tokens(text) == tokens

    @given(st.text(max_size=60), st.integers(-2, 20))
    def test_cut_fits(self, text: str, budget: int) -> None:
        """A cut text never costs more than its budget."""
        assert estimate_tokens(cut_to_tokens(text, budget)) <= max(budget, 0)

    @given(st.text(max_size=60), st.integers(-2, 20))
    def test_cut_is_a_beginning(self, text: str, budget: int) -> None:
        """A cut adds and changes nothing."""
        assert text.startswith(cut_to_tokens(text, budget))

    @given(st.text(max_size=60))
    def test_fitting_text_stays(self, text: str) -> None:
        """A text that fits is not cut."""
        assert cut_to_tokens(text, estimate_tokens(text)) == text

    @pytest.mark.parametrize(
        ("text", "budget", "cut"),
        [
            ("green tea leaves", 2, "green"),
            ("green te leaves", 2, "green te"),
            ("greenteanospace", 2, "greentea"),
            ("- greenteanospace", 2, "- greent"),
            ("green tea", 0, ""),
        ],
    )
    def test_cut_falls_between_words(self, text: str, budget: int, cut: str) -> None:
        """A cut ends with a whole word, unless there is only one."""
        assert cut_to_tokens(text, budget) == cut
