"""Which format a LiteLLM call speaks. A call type that is not listed passes untouched."""

from collections.abc import Mapping
from typing import Final

from omniroute_litellm.wire.base import WireFormat
from omniroute_litellm.wire.chat import ChatFormat
from omniroute_litellm.wire.gemini import GeminiFormat
from omniroute_litellm.wire.messages import MessagesFormat
from omniroute_litellm.wire.responses import ResponsesFormat

FORMATS: Final[Mapping[str, WireFormat]] = {
    "acompletion": ChatFormat(),
    "aresponses": ResponsesFormat(),
    "anthropic_messages": MessagesFormat(),
    "agenerate_content": GeminiFormat(),
    "agenerate_content_stream": GeminiFormat(),
}


def format_of(call_type: object) -> WireFormat | None:
    """Return the format of a call type, given as text or as LiteLLM's enumeration."""
    return FORMATS.get(str(getattr(call_type, "value", call_type)))
