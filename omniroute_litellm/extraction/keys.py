"""The slot that a fact is stored in."""

import hashlib
import re
from typing import Final

MAX_SLUG: Final = 40
_SEPARATORS: Final = re.compile(r"[\W_]+")


def slug(text: str) -> str:
    """Casefold a text and turn every run of anything but letters and digits into one ``_``.

    A slug of more than 40 characters is cut there and gets ``_`` and the first 8 hex digits of
    the SHA-256 of the whole slug, so that two long texts with one beginning stay apart.
    """
    whole = _SEPARATORS.sub("_", text.casefold()).strip("_")
    if len(whole) <= MAX_SLUG:
        return whole
    digest = hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{whole[:MAX_SLUG].rstrip('_')}_{digest[:8]}"
