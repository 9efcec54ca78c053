"""OpenAI Responses: ``instructions`` beside ``input``, a text or a list of items."""

from collections.abc import Mapping, Sequence

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


class ResponsesFormat:
    """The format of ``/v1/responses``."""

    def items(self, body: Body) -> Sequence[object]:
        """Return the input items; a plain text counts as one user message."""
        given = body.get("input")
        return [_message(given)] if isinstance(given, str) else as_list(given)

    def preamble(self, body: Body) -> object:
        """Return instructions and tools."""
        return [body.get("instructions"), body.get("tools")]

    def prose(self, item: object) -> str | None:
        """Return the prose of a user message; outputs of tools are items of other types."""
        return newest_prose(as_mapping(item).get("content")) if _is_user(item) else None

    def has_user_text(self, item: object) -> bool:
        """Tell whether an item is a user message with text."""
        return _is_user(item) and has_text(as_mapping(item).get("content"))

    def is_continued(self, body: Body) -> bool:
        """Tell whether the request goes on from a stored response or conversation."""
        return bool(body.get("previous_response_id") or body.get("conversation"))

    def contains(self, body: Body, block: str) -> bool:
        """Tell whether this very block stands in the instructions or the input already."""
        contents = (as_mapping(item).get("content") for item in self.items(body))
        return holds(body.get("instructions"), block) or any(
            holds(content, block) for content in contents
        )

    def place_leading(self, body: Body, block: str, form: BlockForm) -> dict[str, object]:
        """Return the instructions with the block in front, or a user item as the first.

        Instructions are not carried over by ``previous_response_id``, an item is: the upstream
        conversation has it since the first turn and would pile up copies, so none is added then.
        """
        if form is not BlockForm.USER:
            return {"instructions": prepended(body.get("instructions"), block, part={})}
        if self.is_continued(body):
            return {}
        return {"input": [_message(block), *self.items(body)]}

    def place_behind(self, body: Body, blocks: Mapping[int, str]) -> dict[str, object]:
        """Return a new input with each block inside the user item at its position."""
        items = list(self.items(body))
        for at, block in blocks.items():
            item = as_mapping(items[at])
            part = {"type": "input_text", "text": block}
            content = with_block_behind(item.get("content"), block, part=part)
            items[at] = {**item, "content": content}
        if isinstance(body.get("input"), str):
            return {"input": as_mapping(items[0]).get("content")}
        return {"input": items}


def _is_user(item: object) -> bool:
    message = as_mapping(item)
    return message.get("role") == "user" and message.get("type", "message") == "message"


def _message(text: str) -> dict[str, object]:
    return {"type": "message", "role": "user", "content": text}
