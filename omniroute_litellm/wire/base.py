"""The seam of every request format."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from omniroute_litellm.placement import BlockForm

Body = Mapping[str, object]


class WireFormat(Protocol):
    """Knows where one request format keeps its texts. Pure: bodies are never changed in place.

    ``body`` is what LiteLLM hands to a deployment, a mapping with the format's prompt fields
    among others. An *item* is one entry of its conversation: a message, an input item, a content.
    """

    def items(self, body: Body) -> Sequence[object]:
        """Return the conversation, oldest first."""
        ...

    def preamble(self, body: Body) -> object:
        """Return what stands before the conversation: instructions and tools."""
        ...

    def prose(self, item: object) -> str | None:
        """Return what a person wrote in an item, None when nobody did.

        Tagged sections, code and quotes are blanked out; tool results and texts of other roles
        are not human.
        """
        ...

    def has_user_text(self, item: object) -> bool:
        """Tell whether an item is the user's and holds any text, written by a person or not."""
        ...

    def is_continued(self, body: Body) -> bool:
        """Tell whether the provider keeps the earlier turns itself and the body holds new ones."""
        ...

    def contains(self, body: Body, block: str) -> bool:
        """Tell whether this very block stands in the body already."""
        ...

    def place_leading(self, body: Body, block: str, form: BlockForm) -> dict[str, object]:
        """Return the prompt fields that carry the block in front of everything else."""
        ...

    def place_behind(self, body: Body, blocks: Mapping[int, str]) -> dict[str, object]:
        """Return the prompt fields with each block at the end of an item of the user's.

        Keys are positions in ``items``; the block becomes an extra part where the content is a
        list. Its place depends on no cache mark: those wander from request to request.
        """
        ...


def newest_human_text(wire: WireFormat, body: Body) -> str | None:
    """Return the newest text that a person wrote in a body, or None."""
    for item in reversed(wire.items(body)):
        prose = wire.prose(item)
        if prose:
            return prose
    return None
