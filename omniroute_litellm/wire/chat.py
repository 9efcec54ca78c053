"""Chat completions: ``messages`` with roles."""

from collections.abc import Mapping, Sequence
from typing import Final

from omniroute_litellm.placement import BlockForm
from omniroute_litellm.wire.base import Body
from omniroute_litellm.wire.parts import (
    as_list,
    as_mapping,
    has_text,
    holds,
    newest_prose,
    prepended,
    with_block_behind,
)

_SYSTEM_ROLES: Final = frozenset({"system", "developer"})


class ChatFormat:
    """The format of ``/v1/chat/completions``."""

    def items(self, body: Body) -> Sequence[object]:
        """Return the messages."""
        return as_list(body.get("messages"))

    def preamble(self, body: Body) -> object:
        """Return the tools: system messages stand in the conversation here."""
        return [body.get("tools"), body.get("functions")]

    def prose(self, item: object) -> str | None:
        """Return the prose of a user message."""
        message = as_mapping(item)
        return newest_prose(message.get("content")) if message.get("role") == "user" else None

    def has_user_text(self, item: object) -> bool:
        """Tell whether an item is a user message with text."""
        message = as_mapping(item)
        return message.get("role") == "user" and has_text(message.get("content"))

    def is_continued(self, body: Body) -> bool:
        """Return False: every request holds its whole conversation."""
        return False

    def contains(self, body: Body, block: str) -> bool:
        """Tell whether this very block stands in the messages already."""
        return any(holds(as_mapping(item).get("content"), block) for item in self.items(body))

    def place_leading(self, body: Body, block: str, form: BlockForm) -> dict[str, object]:
        """Return new messages with the block as the first.

        ``MERGED`` puts it into the first system message, whose own text keeps the last word, and
        falls back to a system message of its own when there is none.
        """
        messages = self.items(body)
        if form is BlockForm.USER:
            return {"messages": [{"role": "user", "content": block}, *messages]}
        first = as_mapping(messages[0] if messages else None)
        if form is BlockForm.MERGED and first.get("role") in _SYSTEM_ROLES:
            content = prepended(first.get("content"), block, part=_part(block))
            return {"messages": [{**first, "content": content}, *messages[1:]]}
        return {"messages": [{"role": "system", "content": block}, *messages]}

    def place_behind(self, body: Body, blocks: Mapping[int, str]) -> dict[str, object]:
        """Return new messages with each block inside the user message at its position."""
        messages = list(self.items(body))
        for at, block in blocks.items():
            message = as_mapping(messages[at])
            content = with_block_behind(message.get("content"), block, part=_part(block))
            messages[at] = {**message, "content": content}
        return {"messages": messages}


def _part(block: str) -> dict[str, object]:
    return {"type": "text", "text": block}
