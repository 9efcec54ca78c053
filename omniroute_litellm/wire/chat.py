"""Chat completions: ``messages`` with roles."""

from collections.abc import Sequence
from typing import Final

from omniroute_litellm.placement import BlockForm
from omniroute_litellm.wire.base import Body
from omniroute_litellm.wire.parts import as_list, as_mapping, newest_prose, texts_of

_SYSTEM_ROLES: Final = frozenset({"system", "developer"})
_SEPARATOR: Final = "\n\n"


class ChatFormat:
    """The format of ``/v1/chat/completions``."""

    def human_text(self, body: Body) -> str | None:
        """Return the newest text that a person wrote.

        From the end, the first user message in which prose is left. Every other role is skipped
        wherever it stands.
        """
        for message in map(as_mapping, reversed(_messages(body))):
            if message.get("role") == "user" and (prose := newest_prose(message.get("content"))):
                return prose
        return None

    def contains(self, body: Body, block: str) -> bool:
        """Tell whether this very block stands in the messages already."""
        contents = (as_mapping(message).get("content") for message in _messages(body))
        return any(block in text for content in contents for text in texts_of(content))

    def place(self, body: Body, block: str, form: BlockForm) -> dict[str, object]:
        """Return new messages with the block in front.

        ``MERGED`` puts it into the first system message, whose own text keeps the last word, and
        falls back to a system message of its own when there is none.
        """
        messages = _messages(body)
        if form is BlockForm.USER:
            return {"messages": [{"role": "user", "content": block}, *messages]}
        first = as_mapping(messages[0] if messages else None)
        if form is BlockForm.MERGED and first.get("role") in _SYSTEM_ROLES:
            merged = {**first, "content": _prepended(first.get("content"), block)}
            return {"messages": [merged, *messages[1:]]}
        return {"messages": [{"role": "system", "content": block}, *messages]}


def _messages(body: Body) -> Sequence[object]:
    return as_list(body.get("messages"))


def _prepended(content: object, block: str) -> object:
    if isinstance(content, str) or content is None:
        return f"{block}{_SEPARATOR}{content or ''}".rstrip()
    return [{"type": "text", "text": block}, *as_list(content)]
