"""Text that every store, model and terminal accepts."""

import re
import unicodedata
from typing import Final

_WHITESPACE: Final = re.compile(r"\s+")
_KEPT_CONTROLS: Final = frozenset("\n\t")
_IGNORABLE: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2060-\u206f\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufff8"
    "\U000e0000-\U000e0fff]"
)
"""Unicode's Default_Ignorable_Code_Point outside of Cc, Cf and Cs: whole texts hide in these."""


def storable(text: str) -> str:
    """Drop what no store or wire format takes: lone surrogates, NUL and other control characters.

    Line feeds and tabs stay; CR LF and CR become LF.
    """
    unified = text.replace("\r\n", "\n").replace("\r", "\n")
    if unified.isascii() and unified.isprintable():
        return unified
    return "".join(
        char
        for char in unified
        if char in _KEPT_CONTROLS or unicodedata.category(char) not in {"Cc", "Cs"}
    )


def one_line(text: str) -> str:
    """Fold a text to one line of visible characters.

    Control, zero-width and bidirectional characters go (Unicode categories Cc, Cf, Cs, and what
    is ignorable by default), so that a stored sentence cannot hide text or turn the reading
    direction of what follows it.
    """
    if text.isascii() and text.isprintable() and "  " not in text:
        return text.strip()
    folded = _WHITESPACE.sub(" ", text)
    if not folded.isascii():
        folded = "".join(
            char
            for char in _IGNORABLE.sub("", folded)
            if unicodedata.category(char) not in {"Cc", "Cf", "Cs"}
        )
    elif not folded.isprintable():
        folded = "".join(char for char in folded if char.isprintable())
    return _WHITESPACE.sub(" ", folded).strip()
