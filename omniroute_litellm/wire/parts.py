"""Contents that are a string or a list of typed parts, as most formats have them."""

from collections.abc import Mapping, Sequence
from typing import Final, cast

from omniroute_litellm.extraction.sources import has_prose, spoken_prose

Part = Mapping[str, object]

SEPARATOR: Final = "\n\n"
"""Stands between a block and a text that it is joined to."""


def as_mapping(value: object) -> Part:
    """Return a mapping as it is, anything else as an empty one."""
    return cast("Part", value) if isinstance(value, Mapping) else {}


def as_list(value: object) -> Sequence[object]:
    """Return a list as it is, anything else as an empty one."""
    return cast("list[object]", value) if isinstance(value, list) else []


def text_of(part: object) -> str | None:
    """Return the text of one part, None when it holds something else (an image, a tool result)."""
    text = part if isinstance(part, str) else as_mapping(part).get("text")
    return text if isinstance(text, str) else None


def texts_of(content: object) -> list[str]:
    """Return the texts of a content: the string itself, or the ``text`` of each part."""
    if isinstance(content, str):
        return [content]
    return [text for part in as_list(content) if (text := text_of(part)) is not None]


def newest_prose(content: object) -> str | None:
    """Return the prose of the last part of a content that has any, or None."""
    for text in reversed(texts_of(content)):
        prose = spoken_prose(text).strip()
        if has_prose(prose):
            return prose
    return None


def has_text(content: object) -> bool:
    """Tell whether a content holds any text that is not blank."""
    return any(text.strip() for text in texts_of(content))


def prepended(content: object, block: str, *, part: Part) -> object:
    """Return a content with a block in front; ``part`` is the block as a part of its format."""
    if isinstance(content, str) or not content:
        return f"{block}{SEPARATOR}{content}" if content else block
    return [part, *as_list(content)]


def with_block_behind(content: object, block: str, *, part: Part) -> object:
    """Return a content with a block at its end.

    A string stays a string: some servers take nothing else.
    """
    if isinstance(content, str):
        return f"{content}{SEPARATOR}{block}"
    return [*as_list(content), part]


def holds(content: object, block: str) -> bool:
    """Tell whether a block stands in one of the texts of a content."""
    return any(block in text for text in texts_of(content))
