"""A model that needs no provider: it answers from the messages it received.

LiteLLM loads it as a custom provider (``custom_provider_map``), so a first look at memory costs
nothing and asks nobody.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final, cast

from litellm.llms.custom_llm import CustomLLM
from litellm.types.utils import (  # pyright: ignore[reportMissingTypeStubs]
    Choices,
    GenericStreamingChunk,
    Message,
    ModelResponse,
    Usage,
)

from omniroute_litellm.injection import HEADING
from omniroute_litellm.tokens import estimate_tokens

_KNOWN: Final = "This came with your message as memory:"
_UNKNOWN: Final = "No memory came with your message."


def reply(messages: Sequence[Mapping[str, object]]) -> str:
    """Return the answer of the demo model: the memory block it was given, quoted, or none.

    It is quoted because a quote is not a statement of the speaker: an answer that repeats the
    block must not be learned from.
    """
    for message in messages:
        content = message.get("content")
        if isinstance(content, str) and content.startswith(HEADING):
            return "\n".join([_KNOWN, *(f"> {line}" for line in content.splitlines())])
    return _UNKNOWN


class DemoModel(CustomLLM):
    """The custom provider behind ``demo/echo``."""

    async def acompletion(self, *args: Any, **kwargs: Any) -> ModelResponse:
        """Answer at once."""
        messages = cast("Sequence[Mapping[str, object]]", kwargs["messages"])
        text = reply(messages)
        response = cast("ModelResponse", kwargs["model_response"])
        response.choices = [
            Choices(index=0, finish_reason="stop", message=Message(role="assistant", content=text))
        ]
        sizes = sum(estimate_tokens(str(message.get("content") or "")) for message in messages)
        size = estimate_tokens(text)
        usage = Usage(prompt_tokens=sizes, completion_tokens=size, total_tokens=sizes + size)
        response.usage = usage  # type: ignore[attr-defined] - the model allows extra fields
        return response

    # LiteLLM declares a coroutine here and iterates over what the call returns.
    async def astreaming(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, *args: Any, **kwargs: Any
    ) -> AsyncIterator[GenericStreamingChunk]:
        """Answer line by line."""
        lines = reply(cast("Sequence[Mapping[str, object]]", kwargs["messages"])).splitlines(
            keepends=True
        )
        for position, line in enumerate(lines):
            is_last = position == len(lines) - 1
            yield GenericStreamingChunk(
                text=line,
                is_finished=is_last,
                finish_reason="stop" if is_last else "",
                usage=None,
                index=0,
                tool_use=None,
            )


model: Final = DemoModel()
