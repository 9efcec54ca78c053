"""Text that every store, model and terminal accepts."""

import re
import unicodedata
from typing import Final

_WHITESPACE: Final = re.compile(r"\s+")
_KEPT_CONTROLS: Final = frozenset("\n\t")


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

    Control, zero-width and bidirectional characters go (Unicode categories Cc, Cf, Cs), so that a
    stored sentence cannot hide text or turn the reading direction of what follows it.
    """
    folded = _WHITESPACE.sub(" ", text)
    if not folded.isascii():
        folded = "".join(
            char for char in folded if unicodedata.category(char) not in {"Cc", "Cf", "Cs"}
        )
    elif not folded.isprintable():
        folded = "".join(char for char in folded if char.isprintable())
    return _WHITESPACE.sub(" ", folded).strip()
