"""Conversations in every request format, with tool loops, as clients resend them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import httpx

from tests.proxy.process import Proxy

Json = dict[str, Any]  # request bodies of four formats

TOOL: Final = "read_file"
_SCHEMA: Final[Json] = {"type": "object", "properties": {"path": {"type": "string"}}}


@dataclass(frozen=True, slots=True)
class Said:
    """A sentence of the person's (``user``) or the model's (``assistant``)."""

    role: str
    text: str


@dataclass(frozen=True, slots=True)
class Used:
    """One round of a tool: the call and what came back."""

    number: int
    result: str


Step = Said | Used


@dataclass(frozen=True, slots=True)
class Format:
    """One request format: where it is sent, and how a conversation looks in it."""

    name: str

    def body(self, model: str, steps: Sequence[Step], *, stream: bool, system: str = "") -> Json:
        """Return the request that holds these steps."""
        build = {
            "chat": self._chat,
            "responses": self._responses,
            "messages": self._messages,
            "gemini": self._gemini,
        }[self.name]
        body = build(steps, system)
        return body if self.name == "gemini" else {"model": model, "stream": stream, **body}

    def path(self, model: str, *, stream: bool) -> str:
        """Return the path of a request."""
        if self.name == "gemini":
            verb = "streamGenerateContent?alt=sse" if stream else "generateContent"
            return f"/v1beta/models/{model}:{verb}"
        return {
            "chat": "/v1/chat/completions",
            "responses": "/v1/responses",
            "messages": "/v1/messages",
        }[self.name]

    def _chat(self, steps: Sequence[Step], system: str) -> Json:
        messages: list[Json] = [{"role": "system", "content": system}] if system else []
        for step in steps:
            if isinstance(step, Said):
                messages.append({"role": step.role, "content": step.text})
                continue
            function = {"name": TOOL, "arguments": '{"path": "a.py"}'}
            call = {"id": f"call_{step.number}", "type": "function", "function": function}
            messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": step.result})
        function = {"name": TOOL, "description": "Read a file.", "parameters": _SCHEMA}
        return {"messages": messages, "tools": [{"type": "function", "function": function}]}

    def _responses(self, steps: Sequence[Step], system: str) -> Json:
        items: list[Json] = []
        for step in steps:
            if isinstance(step, Said):
                kind = "input_text" if step.role == "user" else "output_text"
                content = [{"type": kind, "text": step.text}]
                items.append({"type": "message", "role": step.role, "content": content})
                continue
            call: Json = {"type": "function_call", "call_id": f"call_{step.number}"}
            items.append({**call, "name": TOOL, "arguments": '{"path": "a.py"}'})
            items.append({**call, "type": "function_call_output", "output": step.result})
        tool = {"type": "function", "name": TOOL, "description": "Read.", "parameters": _SCHEMA}
        return {"input": items, "tools": [tool], **({"instructions": system} if system else {})}

    def _messages(self, steps: Sequence[Step], system: str) -> Json:
        messages: list[Json] = []
        for step in steps:
            if isinstance(step, Said):
                part = {"type": "text", "text": step.text}
                messages.append({"role": step.role, "content": [part]})
                continue
            use = {"type": "tool_use", "id": f"call_{step.number}", "name": TOOL}
            use |= {"input": {"path": "a.py"}}
            result = {"type": "tool_result", "tool_use_id": use["id"], "content": step.result}
            messages.append({"role": "assistant", "content": [use]})
            messages.append({"role": "user", "content": [result]})
        tool = {"name": TOOL, "description": "Read a file.", "input_schema": _SCHEMA}
        fields: Json = {"messages": messages, "max_tokens": 50, "tools": [tool]}
        return {**fields, "system": system} if system else fields

    def _gemini(self, steps: Sequence[Step], system: str) -> Json:
        contents: list[Json] = []
        for step in steps:
            if isinstance(step, Said):
                role = "user" if step.role == "user" else "model"
                contents.append({"role": role, "parts": [{"text": step.text}]})
                continue
            call = {"functionCall": {"name": TOOL, "args": {"path": "a.py"}}}
            response = {"name": TOOL, "response": {"text": step.result}}
            contents.append({"role": "model", "parts": [call]})
            contents.append({"role": "user", "parts": [{"functionResponse": response}]})
        tool = {"name": TOOL, "description": "Read a file.", "parameters": _SCHEMA}
        fields: Json = {"contents": contents, "tools": [{"functionDeclarations": [tool]}]}
        return {**fields, "systemInstruction": {"parts": [{"text": system}]}} if system else fields


FORMATS: Final = tuple(map(Format, ("chat", "responses", "messages", "gemini")))


def ask(
    proxy: Proxy,
    key: str,
    form: Format,
    model: str,
    steps: Sequence[Step],
    *,
    stream: bool = False,
    system: str = "",
    headers: dict[str, str] | None = None,
) -> httpx.Response:
    """Send a conversation in a format and return the whole answer."""
    with proxy.client(key) as client:
        response = client.post(
            form.path(model, stream=stream),
            json=form.body(model, steps, stream=stream, system=system),
            headers=headers or {},
        )
    assert response.status_code == 200, response.text
    return response


def items_of(body: Json) -> list[Json]:
    """Return the conversation in a body as the provider got it."""
    for name in ("messages", "input", "contents"):
        if name in body:
            found: list[Json] | str = body[name]
            return [{"role": "user", "content": found}] if isinstance(found, str) else found
    return []
