"""Contents that are a string or a list of typed parts, as most formats have them."""

from collections.abc import Mapping, Sequence
from typing import cast

from omniroute_litellm.extraction.sources import spoken_prose

Part = Mapping[str, object]


def as_mapping(value: object) -> Part:
    """Return a mapping as it is, anything else as an empty one."""
    return cast("Part", value) if isinstance(value, Mapping) else {}


def as_list(value: object) -> Sequence[object]:
    """Return a list as it is, anything else as an empty one."""
    return cast("list[object]", value) if isinstance(value, list) else []


def texts_of(content: object) -> list[str]:
    """Return the texts of a content: the string itself, or the ``text`` of each part."""
    if isinstance(content, str):
        return [content]
    texts: list[str] = []
    for part in as_list(content):
        text = part if isinstance(part, str) else as_mapping(part).get("text")
        if isinstance(text, str):
            texts.append(text)
    return texts


def newest_prose(content: object) -> str | None:
    """Return the last part of a content in which prose is left, or None."""
    for text in reversed(texts_of(content)):
        prose = spoken_prose(text).strip()
        if prose:
            return prose
    return None
