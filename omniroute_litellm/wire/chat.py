"""Chat completions: ``messages`` in, a ``ModelResponse`` out."""

from collections.abc import Mapping, Sequence
from typing import Final, cast

from omniroute_litellm.extraction.sources import spoken_prose
from omniroute_litellm.placement import BlockForm

Message = Mapping[str, object]

_SYSTEM_ROLES: Final = frozenset({"system", "developer"})
_SEPARATOR: Final = "\n\n"


def human_text(messages: Sequence[object]) -> str | None:
    """Return the newest text that a person wrote, without tagged sections, code and quotes.

    From the end, the first user message in which prose is left. Every other role is skipped
    wherever it stands.
    """
    for message in reversed(messages):
        if _role(message) != "user":
            continue
        parts = _texts(cast("Message", message).get("content"))
        for part in reversed(parts):
            prose = spoken_prose(part).strip()
            if prose:
                return prose
    return None


def contains(messages: Sequence[object], block: str) -> bool:
    """Tell whether this very block stands in the messages already."""
    return any(
        block in text
        for message in messages
        if isinstance(message, Mapping)
        for text in _texts(cast("Message", message).get("content"))
    )


def place(messages: Sequence[object], block: str, form: BlockForm) -> list[object]:
    """Return new messages with the block in front; the given ones are not touched.

    ``MERGED`` puts it into the first system message, whose own text keeps the last word, and
    falls back to a system message of its own when there is none.
    """
    if form is BlockForm.USER:
        return [{"role": "user", "content": block}, *messages]
    if form is BlockForm.MERGED and messages and _role(messages[0]) in _SYSTEM_ROLES:
        first = cast("Message", messages[0])
        return [{**first, "content": _prepended(first.get("content"), block)}, *messages[1:]]
    return [{"role": "system", "content": block}, *messages]


def answer_text(message: object) -> str:
    """Return the prose of an answer, empty when it carries tool calls: those speak of a tool."""
    if _attribute(message, "tool_calls") or _attribute(message, "function_call"):
        return ""
    return "\n".join(_texts(_attribute(message, "content")))


def _prepended(content: object, block: str) -> object:
    if isinstance(content, list):
        return [{"type": "text", "text": block}, *cast("list[object]", content)]
    return f"{block}{_SEPARATOR}{content or ''}".rstrip()


def _role(message: object) -> object:
    return cast("Message", message).get("role") if isinstance(message, Mapping) else None


def _attribute(message: object, name: str) -> object:
    if isinstance(message, Mapping):
        return cast("Message", message).get(name)
    return getattr(message, name, None)


def _texts(content: object) -> list[str]:
    """Return the text parts of a content, which is a string or a list of typed parts."""
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list):
        return []
    texts: list[str] = []
    for part in cast("list[object]", content):
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, Mapping):
            text = cast("Message", part).get("text")
            if isinstance(text, str):
                texts.append(text)
    return texts
