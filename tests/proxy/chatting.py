"""Talk to a proxy as a client does, and look at what it remembers."""

import json
from typing import Any, Final

import httpx

from tests.polling import wait_for
from tests.proxy.process import MASTER_KEY, Proxy
from tests.upstream import Upstream

HEADING: Final = "Memory context:"
CHAT_PATH: Final = "/v1/chat/completions"
LEARN_TIMEOUT_S: Final = 20.0

Headers = dict[str, str]


def say(
    proxy: Proxy,
    key: str,
    text: str,
    *,
    model: str = "gpt",
    stream: bool = False,
    headers: Headers | None = None,
    extra: dict[str, Any] | None = None,
) -> httpx.Response:
    """Send one human sentence, read the whole answer, and return the response."""
    messages = [{"role": "user", "content": text}]
    return send(proxy, key, messages, model=model, stream=stream, headers=headers, extra=extra)


def send(
    proxy: Proxy,
    key: str,
    messages: list[dict[str, Any]],
    *,
    model: str = "gpt",
    stream: bool = False,
    headers: Headers | None = None,
    extra: dict[str, Any] | None = None,
) -> httpx.Response:
    """Send a conversation, read the whole answer, and return the response."""
    body = {"model": model, "messages": messages, "stream": stream, **(extra or {})}
    with proxy.client(key) as client:
        response = client.post(CHAT_PATH, json=body, headers=headers or {})
    assert response.status_code == 200, response.text
    return response


def memories(proxy: Proxy, key: str) -> list[dict[str, Any]]:
    """Return what a virtual key's owner has stored, oldest first."""
    with proxy.client(key) as client:
        response = client.get("/omniroute/api/memory", params={"sort": "created", "limit": 200})
    assert response.status_code == 200, response.text
    found: list[dict[str, Any]] = response.json()["data"]
    return found[::-1]


def keys_of(proxy: Proxy, key: str) -> set[str]:
    """Return the slots that a virtual key's owner has filled."""
    return {str(memory["key"]) for memory in memories(proxy, key)}


def wait_learned(proxy: Proxy, key: str, count: int) -> list[dict[str, Any]]:
    """Return the owner's memories as soon as there are so many."""

    def enough() -> list[dict[str, Any]] | None:
        found = memories(proxy, key)
        return found if len(found) >= count else None

    return wait_for(enough, timeout_s=LEARN_TIMEOUT_S, what=f"learning {count} memories")


def wait_idle(proxy: Proxy) -> dict[str, Any]:
    """Return the health report as soon as no exchange waits for extraction."""

    def idle() -> dict[str, Any] | None:
        report = health(proxy)
        outbox = report["outbox"]
        return report if outbox and not outbox["waiting"] and not outbox["backlog"] else None

    return wait_for(idle, timeout_s=LEARN_TIMEOUT_S, what="an empty outbox")


def health(proxy: Proxy) -> dict[str, Any]:
    """Return the health report."""
    with proxy.client(MASTER_KEY) as client:
        response = client.get("/omniroute/api/memory/health")
    assert response.status_code == 200, response.text
    report: dict[str, Any] = response.json()
    return report


def last_messages(upstream: Upstream) -> list[dict[str, Any]]:
    """Return the messages of the newest chat completion that reached the provider.

    Embeddings of the indexing worker reach the same provider, at any moment.
    """
    messages: list[dict[str, Any]] = upstream.records(CHAT_PATH)[-1].body["messages"]
    return messages


def blocks_in(body: object) -> int:
    """Count the memory blocks in a request body."""
    return json.dumps(body).count(HEADING)
