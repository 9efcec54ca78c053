"""Anthropic Messages: ``system`` beside ``messages``."""

from collections.abc import Mapping, Sequence

from omniroute_litellm.placement import BlockForm
from omniroute_litellm.wire.base import Body
from omniroute_litellm.wire.chat import ChatFormat
from omniroute_litellm.wire.parts import holds, prepended


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
        """Return new messages with each block inside the user message at its position."""
        return self._chat.place_behind(body, blocks)
