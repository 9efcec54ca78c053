"""Read the prose of an answer, whichever object LiteLLM made of it."""

from omniroute_litellm.wire.parts import as_list, as_mapping, texts_of


def answer_text(response: object) -> str:
    """Return what the model said in its first choice.

    Empty when the answer carries tool calls: its words speak of a tool then, not of a person.
    """
    choices = as_list(_field(response, "choices"))
    if not choices:
        return ""
    message = _field(choices[0], "message")
    if _field(message, "tool_calls") or _field(message, "function_call"):
        return ""
    return "\n".join(texts_of(_field(message, "content")))


def _field(holder: object, name: str) -> object:
    mapping = as_mapping(holder)
    return mapping[name] if name in mapping else getattr(holder, name, None)
