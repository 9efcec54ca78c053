"""Anthropic Messages: ``system`` beside ``messages``."""

from collections.abc import Mapping, Sequence

from omniroute_litellm.placement import BlockForm
from omniroute_litellm.wire.base import Body
from omniroute_litellm.wire.chat import ChatFormat
from omniroute_litellm.wire.parts import as_mapping, holds, prepended


class MessagesFormat:
    """The format of ``/v1/messages``. Its messages look like those of chat completions."""

    def __init__(self) -> None:
        self._chat = ChatFormat()

    def items(self, body: Body) -> Sequence[object]:
        """Return the messages."""
        return self._chat.items(body)

    def preamble(self, body: Body) -> object:
        """Return tools and system text, in the order in which Anthropic caches them."""
        return [body.get("tools"), body.get("system")]

    def prose(self, item: object) -> str | None:
        """Return the prose of a user message; tool results in it are not human."""
        return self._chat.prose(item)

    def has_user_text(self, item: object) -> bool:
        """Tell whether an item is a user message with text of its own beside tool results."""
        return self._chat.has_user_text(item)

    def is_continued(self, body: Body) -> bool:
        """Return False: every request holds its whole conversation."""
        return False

    def contains(self, body: Body, block: str) -> bool:
        """Tell whether this very block stands in the system text or the messages already."""
        return holds(body.get("system"), block) or self._chat.contains(body, block)

    def place_leading(self, body: Body, block: str, form: BlockForm) -> dict[str, object]:
        """Return the system text with the block in front, or a user message as the first."""
        if form is BlockForm.USER:
            return self._chat.place_leading(body, block, form)
        part = {"type": "text", "text": block}
        return {"system": prepended(body.get("system"), block, part=part)}

    def place_behind(self, body: Body, blocks: Mapping[int, str]) -> dict[str, object]:
        """Return new messages with each block inside the user message at its position.

        A string becomes a list of parts, which is the same prompt here: clients send a text as a
        list while it is the newest, to set a cache mark, and as a string later.
        """
        messages = list(self.items(body))
        for at in blocks:
            message = as_mapping(messages[at])
            content = message.get("content")
            if isinstance(content, str):
                messages[at] = {**message, "content": [{"type": "text", "text": content}]}
        return self._chat.place_behind({"messages": messages}, blocks)
