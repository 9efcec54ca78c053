"""Read the prose of an answer, whichever object LiteLLM made of it."""

from collections.abc import Sequence

from omniroute_litellm.wire.parts import as_list, as_mapping, texts_of


def answer_text(response: object) -> str:
    """Return what the model said in its first choice.

    Empty when the answer carries tool calls: its words speak of a tool then, not of a person.
    """
    choices = as_list(_field(response, "choices"))
    if not choices:
        return _output_text(as_list(_field(response, "output")))
    message = _field(choices[0], "message")
    if _field(message, "tool_calls") or _field(message, "function_call"):
        return ""
    return "\n".join(texts_of(_field(message, "content")))


def _output_text(output: Sequence[object]) -> str:
    """Return the texts of a Responses output, empty when it holds a call of any tool."""
    if any(str(_field(item, "type")).endswith("_call") for item in output):
        return ""
    spoken = [item for item in output if _field(item, "type") == "message"]
    contents = (as_list(_field(item, "content")) for item in spoken)
    texts = (_field(part, "text") for content in contents for part in content)
    return "\n".join(text for text in texts if isinstance(text, str))


def _field(holder: object, name: str) -> object:
    mapping = as_mapping(holder)
    return mapping[name] if name in mapping else getattr(holder, name, None)
