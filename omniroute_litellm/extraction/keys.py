"""The slot that a fact is stored in."""

import hashlib
import re
import unicodedata
from typing import Final

MAX_SLUG: Final = 40
_SEPARATORS: Final = re.compile(r"[\W_]+")
_VARIATION_SELECTORS: Final = frozenset(map(chr, range(0xFE00, 0xFE10)))


def slug(text: str) -> str:
    """Casefold a text and turn every run of anything but letters and digits into one ``_``.

    Marks belong to the letter before them: scripts such as Devanagari write vowels that way, and
    an accent makes the same slug composed or not. A slug of more than 40 characters is cut there
    and gets ``_`` and the first 8 hex digits of the SHA-256 of the whole slug, so that two long
    texts with one beginning stay apart.
    """
    folded = unicodedata.normalize("NFD", text).casefold()
    whole = _words(unicodedata.normalize("NFC", folded))
    if len(whole) <= MAX_SLUG:
        return whole
    digest = hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{whole[:MAX_SLUG].rstrip('_')}_{digest[:8]}"


def _words(text: str) -> str:
    if text.isascii():
        return _SEPARATORS.sub("_", text).strip("_")
    inside = False
    kept: list[str] = []
    for char in text:
        inside = char.isalnum() or (inside and _is_mark(char))
        kept.append(char if inside else " ")
    return "_".join("".join(kept).split())


def _is_mark(char: str) -> bool:
    return unicodedata.category(char) in {"Mn", "Mc"} and char not in _VARIATION_SELECTORS
