"""The seam of every request format."""

from collections.abc import Mapping
from typing import Protocol

from omniroute_litellm.placement import BlockForm

Body = Mapping[str, object]


class WireFormat(Protocol):
    """Knows where one request format keeps its texts. Pure: bodies are never changed in place.

    ``body`` is what LiteLLM hands to a deployment, a mapping with the format's prompt fields
    among others.
    """

    def human_text(self, body: Body) -> str | None:
        """Return the newest text that a person wrote, without tagged sections, code and quotes."""
        ...

    def contains(self, body: Body, block: str) -> bool:
        """Tell whether this very block stands in the body already."""
        ...

    def place(self, body: Body, block: str, form: BlockForm) -> dict[str, object]:
        """Return the prompt fields that carry the block: new objects, only those that change."""
        ...
