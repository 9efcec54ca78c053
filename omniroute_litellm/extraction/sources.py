"""What of a text was spoken: no code, quotes, tagged sections, and not our own block."""

import re
from typing import Final

from omniroute_litellm.injection import FRAMING, HEADING

MAX_CHARACTERS: Final = 65_536
"""Of a longer text the end is read: there stands what was said last."""
_MAX_SCANNED: Final = 4 * MAX_CHARACTERS
"""So much of a text is looked through for sections that open before its last part."""

MACHINE_OPENINGS: Final = (
    "This session is being continued from a previous conversation",  # Claude Code
    "Another language model started to solve this problem",  # Codex
)
"""How agents open the summary that they put in place of a history, as if a person had said it."""

HOLE: Final = "\ufffc"
"""Stands where something was cut out of a line, so that no clause closes over the gap."""

_FENCE: Final = re.compile(
    r"[ \t]{0,40}(?:(?:[-*+]|\d{1,3}[.)])[ \t]{1,4})?(?:(`{3,})(?=[^`]*$)|(~{3,}))[ \t\r]*(.?)"
)
_TAG: Final = re.compile(r"<(/?)([A-Za-z][\w.:-]{0,80})(?:\s[^<>]{0,500})?(?<!/)>")
_COMMENT: Final = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_INLINE_CODE: Final = re.compile(r"(`{1,3})(?!`)[^`\n]{1,2000}\1")
_QUOTED_LINE: Final = re.compile(r"^[ \t]{0,3}>.*$", re.MULTILINE)
_MARKS: Final = "*#_: "
_LIST_ITEM: Final = re.compile(r"(?:[-*+•]|\d{1,3}[.)])\s")
_NEAR: Final = 100
"""So many characters before a section are looked at for words on the same line."""
_NOT_NEWLINE: Final = re.compile(r"[^\n]")

Span = tuple[int, int]


def spoken_prose(text: str) -> str:
    """Blank out what nobody said; the length and every offset stay.

    Only the last 64 KiB are kept, so offsets count from there for a longer text. Fenced code,
    quoted lines, comments, tagged sections and our memory block become blanks; what is cut out of
    the inside of a line, such as inline code, becomes HOLE characters.
    """
    if text.lstrip().startswith(MACHINE_OPENINGS):
        return _NOT_NEWLINE.sub(" ", text[-MAX_CHARACTERS:])
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
    filler = " "
    for start, end in spans:
        if end <= at:
            continue
        if start > at:
            line = text[max(at, start - _NEAR) : start].rpartition("\n")[2]
            filler = HOLE if line.strip() else " "
            parts.append(text[at:start])
        parts.append(_NOT_NEWLINE.sub(filler, text[max(at, start) : end]))
        at = end
    parts.append(text[at:])
    return "".join(parts)


def _fences(text: str) -> list[Span]:
    """Return fenced code; a fence that is never closed reaches to the end.

    Nothing may stand behind a closing fence.
    """
    spans: list[Span] = []
    opened: tuple[int, str] | None = None
    at = 0
    for line in text.splitlines(keepends=True):
        match = _FENCE.match(line)
        if match:
            fence = match[1] or match[2]
            if opened is None:
                opened = (at, fence)
            elif fence.startswith(opened[1]) and not match[3]:
                spans.append((opened[0], at + len(line)))
                opened = None
        at += len(line)
    if opened is not None:
        spans.append((opened[0], len(text)))
    return spans


def _tagged(text: str) -> list[Span]:
    """Return the outermost sections between a tag and its end tag.

    A tag that is never closed hides nothing: ``List<String>`` is not a section. One with a name
    of several words at the start of a line, as agents write them, hides all that follows.
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
    unclosed = [
        start
        for name, starts in opened.items()
        if "-" in name or "_" in name
        for start in starts
        if text[max(0, start - 1) : start] in {"", "\n"}
    ]
    if unclosed:
        cut = min(unclosed)
        spans = [*(span for span in spans if span[0] < cut), (cut, len(text))]
    return spans


def _memory_blocks(text: str) -> list[Span]:
    """Return our own blocks: the heading and the framing, list and empty lines that follow it."""
    if HEADING not in text:
        return []
    spans: list[Span] = []
    start: int | None = None
    at = 0
    for line in text.splitlines(keepends=True):
        bare = line.strip()
        if bare.strip(_MARKS) == HEADING.strip(_MARKS):
            start = at if start is None else start
        elif start is not None and bare not in ("", FRAMING) and not _LIST_ITEM.match(bare):
            spans.append((start, at))
            start = None
        at += len(line)
    if start is not None:
        spans.append((start, len(text)))
    return spans
