"""Without a memory to give, the plugin leaves no trace in what the provider receives."""

from dataclasses import dataclass
from typing import Any, Final

import pytest

from tests.proxy.process import Proxy
from tests.upstream import Upstream

pytestmark = pytest.mark.proxy

CHAT_MODELS: Final = ("gpt", "o1-mini", "glm", "claude", "gemini", "gemini-2.5")

Json = dict[str, Any]  # request bodies


@dataclass(frozen=True, slots=True)
class Case:
    """One request of a client."""

    name: str
    path: str
    body: Json


USER: Final[Json] = {"role": "user", "content": "What is the capital of France?"}
SYSTEM: Final[Json] = {"role": "system", "content": "Answer in one word."}
LATER: Final[Json] = {"role": "user", "content": "Et l'été à Paris ? 🥐"}
EARLIER: Final[list[Json]] = [SYSTEM, USER, {"role": "assistant", "content": "Paris."}, LATER]
PARTS: Final[Json] = {
    "role": "user",
    "content": [
        {"type": "text", "text": "First part.", "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": "Second part."},
    ],
}
CITY: Final[Json] = {"type": "object", "properties": {"city": {"type": "string"}}}
WEATHER: Final[Json] = {"name": "weather", "description": "Look outside.", "parameters": CITY}
TOOL_CALL: Final[Json] = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "weather", "arguments": '{"city": "Paris"}'},
}
TOOL_TRAFFIC: Final[list[Json]] = [
    USER,
    {"role": "assistant", "content": None, "tool_calls": [TOOL_CALL]},
    {"role": "tool", "tool_call_id": "call_1", "content": "Rain."},
]

CHAT_BODIES: Final[dict[str, Json]] = {
    "plain": {"messages": [USER]},
    "system": {"messages": [SYSTEM, USER], "temperature": 0.5, "max_tokens": 20},
    "multi-turn": {"messages": EARLIER},
    "parts": {"messages": [PARTS]},
    "tools": {"messages": TOOL_TRAFFIC, "tools": [{"type": "function", "function": WEATHER}]},
    "stream": {"messages": EARLIER, "stream": True},
}
OPENAI_BODIES: Final[dict[str, Json]] = {
    "n": {"messages": [USER], "n": 2},
    "n-stream": {"messages": [USER], "n": 2, "stream": True},
    "usage-stream": {
        "messages": [USER],
        "stream": True,
        "stream_options": {"include_usage": True},
    },
    "parameters": {
        "messages": [USER],
        "seed": 7,
        "user": "somebody",
        "response_format": {"type": "json_object"},
    },
}
GEMINI_TURN: Final[Json] = {"role": "user", "parts": [{"text": "What is the capital of France?"}]}
NATIVE: Final = (
    Case("responses-text", "/v1/responses", {"model": "gpt", "input": "Hello."}),
    Case(
        "responses-stream",
        "/v1/responses",
        {"model": "gpt", "instructions": "Be brief.", "input": [USER], "stream": True},
    ),
    Case(
        "messages",
        "/v1/messages",
        {"model": "claude", "max_tokens": 20, "system": "Be brief.", "messages": [USER]},
    ),
    Case(
        "messages-stream",
        "/v1/messages",
        {"model": "claude", "max_tokens": 20, "messages": [PARTS], "stream": True},
    ),
    Case(
        "messages-bridged", "/v1/messages", {"model": "gpt", "max_tokens": 20, "messages": [USER]}
    ),
    Case("gemini-native", "/v1beta/models/gemini:generateContent", {"contents": [GEMINI_TURN]}),
    Case(
        "gemini-stream", "/v1beta/models/gemini:streamGenerateContent", {"contents": [GEMINI_TURN]}
    ),
    Case("embeddings", "/v1/embeddings", {"model": "embed", "input": ["Hello.", "Good day."]}),
)


def _chat(name: str, model: str, body: Json) -> Case:
    return Case(f"{model}-{name}", "/v1/chat/completions", {"model": model, **body})


CASES: Final = (
    *(_chat(name, model, body) for model in CHAT_MODELS for name, body in CHAT_BODIES.items()),
    *(_chat(name, "gpt", body) for name, body in OPENAI_BODIES.items()),
    *NATIVE,
)

each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def _upstream_bytes(proxy: Proxy, upstream: Upstream, case: Case, key: str) -> list[bytes]:
    """Send one request and return the bodies that arrived behind the proxy."""
    upstream.clear()
    with proxy.client(key) as client:
        client.post(case.path, json=case.body).raise_for_status()
    return [record.raw for record in upstream.records()]


@each_case
def test_litellm_repeats_itself(
    bare_proxy: Proxy, upstream: Upstream, user_key: str, case: Case
) -> None:
    """LiteLLM alone turns the same request into the same bytes: they can be compared."""
    first, second = (_upstream_bytes(bare_proxy, upstream, case, user_key) for _ in range(2))
    assert len(first) == 1
    assert first == second


@each_case
def test_nothing_to_remember_changes_nothing(
    bare_proxy: Proxy, proxy: Proxy, upstream: Upstream, user_key: str, case: Case
) -> None:
    """For an owner without memories the provider gets what LiteLLM alone would have sent."""
    expected = _upstream_bytes(bare_proxy, upstream, case, user_key)
    assert _upstream_bytes(proxy, upstream, case, user_key) == expected
