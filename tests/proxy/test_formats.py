"""Every supported request format to every provider: one block, in the right place, and learned."""

from dataclasses import dataclass
from typing import Any, Final

import anthropic
import httpx
import pytest

from tests.proxy.chatting import (
    HEADING,
    blocks_in,
    memories,
    wait_learned,
)
from tests.proxy.process import Proxy
from tests.upstream import Upstream

pytestmark = [pytest.mark.proxy, pytest.mark.contract]

STATEMENT: Final = "I prefer TypeScript."
QUESTION: Final = "Which language should I use?"
MODELS: Final = ("gpt", "claude", "gemini-2.5", "glm", "o1-mini")


@dataclass(frozen=True, slots=True)
class Surface:
    """One way of asking: where, and with which body."""

    name: str
    path: str

    def body(self, model: str, text: str, *, stream: bool) -> dict[str, Any]:
        """Return a request body that says one sentence."""
        if self.name == "responses":
            return {"model": model, "input": text, "stream": stream}
        if self.name == "gemini":
            return {"contents": [{"role": "user", "parts": [{"text": text}]}]}
        body: dict[str, Any] = {
            "model": model,
            "messages": [{"role": "user", "content": text}],
            "stream": stream,
        }
        return {**body, "max_tokens": 50} if self.name == "messages" else body

    def url(self, model: str, *, stream: bool) -> str:
        """Return the path for a model."""
        verb = "streamGenerateContent?alt=sse" if stream else "generateContent"
        return self.path.format(model=model, verb=verb)


SURFACES: Final = (
    Surface("chat", "/v1/chat/completions"),
    Surface("responses", "/v1/responses"),
    Surface("messages", "/v1/messages"),
    Surface("gemini", "/v1beta/models/{model}:{verb}"),
)


def ask(
    proxy: Proxy,
    key: str,
    surface: Surface,
    model: str,
    text: str,
    *,
    stream: bool,
    headers: dict[str, str] | None = None,
) -> httpx.Response:
    """Say one sentence in a format and return the whole answer."""
    with proxy.client(key) as client:
        response = client.post(
            surface.url(model, stream=stream),
            json=surface.body(model, text, stream=stream),
            headers=headers or {},
        )
    assert response.status_code == 200, response.text
    return response


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("surface", SURFACES, ids=lambda surface: surface.name)
def test_one_block_and_one_memory(
    proxy: Proxy, upstream: Upstream, user_key: str, surface: Surface, model: str, stream: bool
) -> None:
    """What is said in a format is learned once; asked again, one block reaches the provider."""
    ask(proxy, user_key, surface, model, STATEMENT, stream=stream)
    (memory,) = wait_learned(proxy, user_key, 1)
    assert memory["key"] == "preference:typescript"
    upstream.clear()
    response = ask(proxy, user_key, surface, model, QUESTION, stream=stream)
    (record,) = upstream.records()
    assert blocks_in(record.body) == 1, record.body
    assert record.raw.decode().count(QUESTION) == 1
    assert response.headers["x-omniroute-memory"] == "injected"
    if model in {"glm", "o1-mini"}:
        assert is_in_user_turn(record.body), record.body
    assert len(memories(proxy, user_key)) == 1
    upstream.clear()
    opted_out = {"x-omniroute-no-memory": "true"}
    response = ask(proxy, user_key, surface, model, QUESTION, stream=stream, headers=opted_out)
    assert response.headers["x-omniroute-memory"] == "off"
    assert blocks_in(upstream.records()[0].body) == 0


def is_in_user_turn(body: dict[str, Any]) -> bool:
    """Tell whether the block stands in a user turn: nowhere else is allowed for these models."""
    items: list[dict[str, Any]] = body.get("messages") or body.get("input") or []
    users = [item for item in items if item.get("role") == "user"]
    return sum(blocks_in(item) for item in users) == blocks_in(body) == 1


def test_the_anthropic_client_works(proxy: Proxy, upstream: Upstream, user_key: str) -> None:
    """The official client streams while memory stands in front of its own system text."""
    with anthropic.Anthropic(base_url=proxy.url, api_key=user_key) as client:
        client.messages.create(
            model="claude", max_tokens=50, messages=[{"role": "user", "content": STATEMENT}]
        )
        wait_learned(proxy, user_key, 1)
        upstream.clear()
        with client.messages.stream(
            model="claude",
            max_tokens=50,
            system="Answer in one word.",
            messages=[{"role": "user", "content": QUESTION}],
        ) as stream:
            assert stream.get_final_text()
    (record,) = upstream.records()
    system = record.body["system"]
    text = system if isinstance(system, str) else "".join(part["text"] for part in system)
    assert text.startswith(HEADING)
    assert text.endswith("Answer in one word.")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/embeddings", {"model": "embed", "input": QUESTION}),
        ("/v1/completions", {"model": "gpt", "prompt": QUESTION}),
        ("/v1/rerank", {"model": "rerank", "query": QUESTION, "documents": ["a", "b"]}),
    ],
    ids=["embeddings", "completions", "rerank"],
)
def test_other_calls_pass_untouched(
    proxy: Proxy, upstream: Upstream, user_key: str, path: str, body: dict[str, Any]
) -> None:
    """Calls that are no conversation carry no memory, no receipt, and teach nothing."""
    ask(proxy, user_key, SURFACES[0], "gpt", STATEMENT, stream=False)
    wait_learned(proxy, user_key, 1)
    upstream.clear()
    with proxy.client(user_key) as client:
        response = client.post(path, json=body)
    assert HEADING not in upstream.records()[-1].raw.decode()
    assert "x-omniroute-memory" not in response.headers
    assert len(memories(proxy, user_key)) == 1
