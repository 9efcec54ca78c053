"""What of a text was spoken: no code, quotes, tagged sections, and not our own block."""

import re
from typing import Final

from omniroute_litellm.injection import FRAMING, HEADING

MAX_CHARACTERS: Final = 65_536
"""Of a longer text the end is read: there stands what was said last."""
_MAX_SCANNED: Final = 4 * MAX_CHARACTERS
"""So much of a text is looked through for sections that open before its last part."""

HOLE: Final = "\ufffc"
"""Stands where something was cut out of a line, so that no clause closes over the gap."""

_FENCE: Final = re.compile(r"[ \t]{0,3}(?:[-*]\s)?(`{3,}|~{3,})")
_TAG: Final = re.compile(r"<(/?)([A-Za-z][\w.:-]{0,80})(?:\s[^<>]{0,500})?>")
_COMMENT: Final = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_INLINE_CODE: Final = re.compile(r"(`{1,2})(?!`)[^`\n]{1,500}\1")
_QUOTED_LINE: Final = re.compile(r"^[ \t]{0,3}>.*$", re.MULTILINE)
_NOT_NEWLINE: Final = re.compile(r"[^\n]")

Span = tuple[int, int]


def spoken_prose(text: str) -> str:
    """Blank out what nobody said; the length and every offset stay.

    Only the last 64 KiB are kept, so offsets count from there for a longer text. Fenced code,
    quoted lines, comments, tagged sections and our memory block become blanks, inline code
    becomes HOLE characters.
    """
    prose = text[-_MAX_SCANNED:]
    prose = _blank(prose, _fences(prose))
    prose = _blank(prose, [match.span() for match in _COMMENT.finditer(prose)])
    prose = _blank(prose, _tagged(prose))
    prose = _blank(prose, _memory_blocks(prose))
    prose = _QUOTED_LINE.sub(lambda match: " " * len(match[0]), prose)
    prose = _INLINE_CODE.sub(lambda match: HOLE * len(match[0]), prose)
    return prose[-MAX_CHARACTERS:]


def has_prose(text: str) -> bool:
    """Tell whether anything is left that a person may have said."""
    return any(char.isalnum() for char in text)


def _blank(text: str, spans: list[Span]) -> str:
    if not spans:
        return text
    parts: list[str] = []
    at = 0
    for start, end in spans:
        if end <= at:
            continue
        parts.append(text[at : max(at, start)])
        parts.append(_NOT_NEWLINE.sub(" ", text[max(at, start) : end]))
        at = end
    parts.append(text[at:])
    return "".join(parts)


def _fences(text: str) -> list[Span]:
    """Return fenced code; a fence that is never closed reaches to the end."""
    spans: list[Span] = []
    opened: tuple[int, str] | None = None
    at = 0
    for line in text.splitlines(keepends=True):
        match = _FENCE.match(line)
        if match and opened is None:
            opened = (at, match[1])
        elif match and opened is not None and match[1].startswith(opened[1]):
            spans.append((opened[0], at + len(line)))
            opened = None
        at += len(line)
    if opened is not None:
        spans.append((opened[0], len(text)))
    return spans


def _tagged(text: str) -> list[Span]:
    """Return the outermost sections between a tag and its end tag.

    A tag that is never closed hides nothing: ``List<String>`` is not a section.
    """
    opened: dict[str, list[int]] = {}
    spans: list[Span] = []
    for match in _TAG.finditer(text):
        name = match[2].casefold()
        if not match[1]:
            opened.setdefault(name, []).append(match.start())
        elif starts := opened.get(name):
            start = starts.pop()
            while spans and spans[-1][0] >= start:
                spans.pop()
            spans.append((start, match.end()))
    return spans


def _memory_blocks(text: str) -> list[Span]:
    """Return our own blocks: the heading and the framing and list lines that follow it."""
    if HEADING not in text:
        return []
    spans: list[Span] = []
    start: int | None = None
    at = 0
    for line in text.splitlines(keepends=True):
        bare = line.strip()
        if bare == HEADING:
            if start is not None:
                spans.append((start, at))
            start = at
        elif start is not None and not (bare == FRAMING or bare.startswith("- ")):
            spans.append((start, at))
            start = None
        at += len(line)
    if start is not None:
        spans.append((start, len(text)))
    return spans
