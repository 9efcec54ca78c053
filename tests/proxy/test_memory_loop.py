"""Said, learned, remembered: the whole loop on the bodies that reach the provider."""

import json
import sqlite3
from typing import Any, Final

import openai
import pytest

from tests.proxy.chatting import (
    HEADING,
    blocks_in,
    health,
    keys_of,
    last_messages,
    memories,
    say,
    send,
    wait_idle,
    wait_learned,
)
from tests.proxy.process import MASTER_KEY, Proxy
from tests.upstream import Upstream

pytestmark = [pytest.mark.proxy, pytest.mark.contract]

REFERENCE: Final = (
    "I prefer TypeScript. I'll use Postgres for this project. "
    "I always commit before pushing. I don't like Python."
)
REFERENCE_TYPES: Final = {
    "preference:typescript": "factual",
    "decision:postgres_for_this_project": "episodic",
    "pattern:commit_before_pushing": "factual",
    "preference:python": "factual",
}
QUESTION: Final = "Which database should the new service use?"
STREAMED: Final = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


@STREAMED
def test_user_statements_are_learned(proxy: Proxy, user_key: str, stream: bool) -> None:
    """The reference conversation gives exactly its four keys, types and polarities."""
    say(proxy, user_key, REFERENCE, stream=stream)
    learned = wait_learned(proxy, user_key, 4)
    assert {memory["key"]: memory["type"] for memory in learned} == REFERENCE_TYPES
    by_key = {memory["key"]: memory for memory in learned}
    assert by_key["preference:python"]["content"] == "I don't like Python"
    assert by_key["preference:python"]["metadata"]["polarity"] == "negative"
    assert {memory["source"] for memory in learned} == {"user_message"}


@STREAMED
def test_answer_statements_are_learned(
    proxy: Proxy, upstream: Upstream, user_key: str, stream: bool
) -> None:
    """The same sentences from the model give the same memories, marked as its own."""
    upstream.set_answer(REFERENCE)
    say(proxy, user_key, "Tell me about yourself.", stream=stream)
    learned = wait_learned(proxy, user_key, 4)
    assert {memory["key"]: memory["type"] for memory in learned} == REFERENCE_TYPES
    assert {memory["source"] for memory in learned} == {"llm_response"}


def test_repetition_adds_no_row(proxy: Proxy, user_key: str) -> None:
    """Saying it again keeps the rows and moves their time on."""
    say(proxy, user_key, REFERENCE)
    first = wait_learned(proxy, user_key, 4)
    say(proxy, user_key, REFERENCE)
    wait_idle(proxy)
    second = memories(proxy, user_key)
    assert [memory["id"] for memory in second] == [memory["id"] for memory in first]
    assert all(b["lastSeenAt"] > a["lastSeenAt"] for a, b in zip(first, second, strict=True))


@STREAMED
@pytest.mark.parametrize(
    ("model", "role"),
    [("gpt", "system"), ("o1-mini", "user"), ("glm", "user"), ("claude", "top-level")],
)
def test_block_stands_once_in_the_right_role(
    proxy: Proxy, upstream: Upstream, user_key: str, model: str, role: str, stream: bool
) -> None:
    """A later request through another model carries exactly one block, in the role it takes."""
    say(proxy, user_key, REFERENCE)
    wait_learned(proxy, user_key, 4)
    upstream.clear()
    response = say(proxy, user_key, QUESTION, model=model, stream=stream)
    (record,) = upstream.records()
    assert blocks_in(record.body) == 1
    if role == "top-level":
        assert blocks_in(record.body["system"]) == 1
        assert record.body["messages"][-1]["role"] == "user"
    else:
        first = record.body["messages"][0]
        assert first["role"] == role
        assert first["content"].startswith(HEADING)
        assert "- I'll use Postgres for this project" in first["content"]
        assert record.body["messages"][1:] == [{"role": "user", "content": QUESTION}]
    assert response.headers["x-omniroute-memory"] == "injected"
    assert response.headers["x-omniroute-memory-injected"] == "4"
    assert int(response.headers["x-omniroute-memory-tokens"]) > 0
    assert response.headers["x-omniroute-memory-trace"]


@STREAMED
@pytest.mark.parametrize(
    "headers",
    [
        {"x-omniroute-no-memory": "true"},
        {"x-omniroute-no-memory": "1"},
        {"X-OmniRoute-No-Memory": "YES"},
        {"x-omniroute-memory": "off"},
    ],
    ids=lambda headers: "=".join(*headers.items()),
)
def test_opt_out_stops_both_directions(
    proxy: Proxy, upstream: Upstream, user_key: str, headers: dict[str, str], stream: bool
) -> None:
    """With either header nothing is injected and nothing is learned."""
    say(proxy, user_key, "I prefer TypeScript.")
    wait_learned(proxy, user_key, 1)
    upstream.clear()
    response = say(proxy, user_key, "I love jazz.", headers=headers, stream=stream)
    say(proxy, user_key, "I love tea.")
    wait_learned(proxy, user_key, 2)
    assert keys_of(proxy, user_key) == {"preference:typescript", "preference:tea"}
    assert blocks_in(upstream.records()[0].body) == 0
    assert response.headers["x-omniroute-memory"] == "off"
    assert response.headers["x-omniroute-memory-reason"] == "opted_out"


def test_read_mode_learns_nothing(proxy: Proxy, upstream: Upstream, user_key: str) -> None:
    """``x-omniroute-memory: read`` injects and does not extract."""
    say(proxy, user_key, "I prefer TypeScript.")
    wait_learned(proxy, user_key, 1)
    upstream.clear()
    say(proxy, user_key, "I love jazz.", headers={"x-omniroute-memory": "read"})
    assert blocks_in(upstream.records()[0].body) == 1
    wait_idle(proxy)
    assert keys_of(proxy, user_key) == {"preference:typescript"}


def test_write_mode_injects_nothing(proxy: Proxy, upstream: Upstream, user_key: str) -> None:
    """``x-omniroute-memory: write`` extracts and does not inject."""
    say(proxy, user_key, "I prefer TypeScript.")
    wait_learned(proxy, user_key, 1)
    upstream.clear()
    response = say(proxy, user_key, "I love jazz.", headers={"x-omniroute-memory": "write"})
    assert blocks_in(upstream.records()[0].body) == 0
    assert response.headers["x-omniroute-memory"] == "none"
    wait_learned(proxy, user_key, 2)


def test_two_keys_never_meet(proxy: Proxy, upstream: Upstream, user_key: str) -> None:
    """Another key of the same user gets nothing of the first, by any road."""
    other = f"{user_key}-key-2"
    say(proxy, user_key, REFERENCE)
    wait_learned(proxy, user_key, 4)
    upstream.clear()
    response = say(proxy, other, QUESTION)
    assert blocks_in(upstream.records()[0].body) == 0
    assert response.headers["x-omniroute-memory"] == "none"
    assert memories(proxy, other) == []
    foreign = memories(proxy, user_key)[0]["id"]
    with proxy.client(other) as client:
        assert client.get(f"/omniroute/api/memory/{foreign}").status_code == 404
        assert client.delete(f"/omniroute/api/memory/{foreign}").status_code == 404


def test_no_identity_leaves_nothing_behind(proxy: Proxy, upstream: Upstream) -> None:
    """A caller that LiteLLM cannot name is neither remembered nor recorded."""
    response = say(proxy, "sk-anon", "I prefer marzipan.")
    assert response.headers["x-omniroute-memory"] == "off"
    assert response.headers["x-omniroute-memory-reason"] == "no_owner"
    wait_idle(proxy)
    with proxy.client(MASTER_KEY) as client:
        listed = client.get("/omniroute/api/memory", params={"q": "marzipan"}).json()
    assert listed["total"] == 0
    with sqlite3.connect(proxy.data_dir / "omniroute.db") as database:
        assert database.execute(
            "SELECT count(*) FROM traces WHERE api_key_id IS NULL"
        ).fetchone() == (0,)


def test_session_scope_follows_the_header(proxy_session_scope: Proxy, upstream: Upstream) -> None:
    """With scope ``session`` a memory is read in its own session only."""
    key = "sk-user-sessions"
    first = {"x-omniroute-session-id": "one"}
    say(proxy_session_scope, key, "I prefer TypeScript.", headers=first)
    wait_learned(proxy_session_scope, key, 1)
    upstream.clear()
    say(proxy_session_scope, key, QUESTION, headers=first)
    say(proxy_session_scope, key, QUESTION, headers={"x-omniroute-session-id": "two"})
    response = say(proxy_session_scope, key, QUESTION)
    assert [blocks_in(record.body) for record in upstream.records()] == [1, 0, 0]
    assert response.headers["x-omniroute-memory-reason"] == "no_session"


def test_client_messages_stay_as_they_are(proxy: Proxy, upstream: Upstream, user_key: str) -> None:
    """The block goes in front; what the client sent follows unchanged, in its order."""
    say(proxy, user_key, "I prefer TypeScript.")
    wait_learned(proxy, user_key, 1)
    conversation: list[dict[str, Any]] = [
        {"role": "system", "content": "Answer in one word."},
        {"role": "user", "content": [{"type": "text", "text": "Hello."}]},
        {"role": "assistant", "content": "Hi."},
        {"role": "user", "content": "Which language?"},
    ]
    send(proxy, user_key, conversation)
    placed = last_messages(upstream)
    assert placed[0]["role"] == "system"
    assert placed[1:] == conversation


def test_retry_and_fallback_place_the_block_once_each(
    proxy: Proxy, upstream: Upstream, user_key: str
) -> None:
    """Two failed attempts and a fallback to another provider: one block each, the right role."""
    say(proxy, user_key, "I prefer TypeScript.")
    wait_learned(proxy, user_key, 1)
    upstream.clear()
    say(proxy, user_key, "Which language?", model="fragile")
    records = upstream.records()
    assert [record.body["model"] for record in records][-1] == "glm-4.6"
    assert [blocks_in(record.body) for record in records] == [1] * len(records)
    roles = [record.body["messages"][0]["role"] for record in records]
    assert roles == ["system"] * (len(records) - 1) + ["user"]


def test_one_exchange_is_captured_once(proxy: Proxy, user_key: str) -> None:
    """A request that needed a fallback is learned from once."""
    before = wait_idle(proxy)["counters"].get("memory.capture.stored", 0)
    say(proxy, user_key, "I prefer TypeScript.", model="fragile")
    wait_learned(proxy, user_key, 1)
    assert wait_idle(proxy)["counters"]["memory.capture.stored"] == before + 1


def test_real_clients_get_valid_answers(proxy: Proxy, user_key: str) -> None:
    """The official OpenAI client streams and reads an answer while memory is injected."""
    say(proxy, user_key, "I prefer TypeScript.")
    wait_learned(proxy, user_key, 1)
    with openai.OpenAI(base_url=f"{proxy.url}/v1", api_key=user_key) as client:
        whole = client.chat.completions.with_raw_response.create(
            model="gpt", messages=[{"role": "user", "content": "Which language?"}]
        )
        assert whole.headers["x-omniroute-memory"] == "injected"
        assert whole.parse().choices[0].message.content
        with client.chat.completions.create(
            model="gpt", messages=[{"role": "user", "content": "Which language?"}], stream=True
        ) as stream:
            text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
        assert text.strip()


@pytest.mark.parametrize("model", ["fail500", "nosuchmodel"])
def test_errors_carry_a_receipt(proxy: Proxy, user_key: str, model: str) -> None:
    """An error of the provider, or of the proxy, is the client's as it was, with a receipt."""
    body = {"model": model, "messages": [{"role": "user", "content": "I prefer tea."}]}
    with proxy.client(user_key) as client:
        response = client.post("/v1/chat/completions", json=body)
    assert response.status_code >= 400
    assert response.headers["x-omniroute-memory"] == "none"
    wait_idle(proxy)
    assert memories(proxy, user_key) == []


def test_no_log_is_no_capture(proxy: Proxy, user_key: str) -> None:
    """A request that LiteLLM must not log is not learned from."""
    say(proxy, user_key, "I prefer tea.", extra={"no-log": True})
    say(proxy, user_key, "I love jazz.")
    wait_learned(proxy, user_key, 1)
    wait_idle(proxy)
    assert keys_of(proxy, user_key) == {"preference:jazz"}


def test_redacted_logs_are_no_capture(proxy_without_texts: Proxy, upstream: Upstream) -> None:
    """Where LiteLLM keeps texts out of its logs they stay out of the memory."""
    upstream.set_answer("I love jazz.")
    say(proxy_without_texts, "sk-user-private", "I prefer tea.")
    wait_idle(proxy_without_texts)
    assert memories(proxy_without_texts, "sk-user-private") == []


@pytest.mark.parametrize(
    "text",
    [
        "I prefer \ud800 tea.",
        "I prefer tea\u0000.",
        "\u202eI prefer tea.",
        "I prefer 🍵 tea.",
        "\ufffc",
    ],
    ids=["surrogate", "nul", "direction", "emoji", "hole"],
)
def test_hostile_text_is_text(proxy: Proxy, user_key: str, text: str) -> None:
    """Half characters and hidden marks break no request, and none of them reaches a block."""
    say(proxy, user_key, "I prefer coffee.")
    wait_learned(proxy, user_key, 1)
    raw = json.dumps({"model": "gpt", "messages": [{"role": "user", "content": text}]})
    with proxy.client(user_key) as client:
        client.headers["content-type"] = "application/json"
        bare = client.post("/v1/chat/completions", content=raw.encode())
    assert bare.status_code in {200, 400, 500}, bare.text
    wait_idle(proxy)
    response = say(proxy, user_key, "Which tea?")
    assert response.headers["x-omniroute-memory"] == "injected"
    assert not health(proxy)["faults"]


def test_switching_memory_off_reaches_requests(
    proxy_from_settings: Proxy, upstream: Upstream
) -> None:
    """Memory is off by default; an admin's switch is obeyed within two seconds, both ways."""
    proxy, key = proxy_from_settings, "sk-user-switch"
    response = say(proxy, key, "I prefer TypeScript.")
    assert response.headers["x-omniroute-memory"] == "off"
    assert response.headers["x-omniroute-memory-reason"] == "disabled"
    with proxy.client(MASTER_KEY) as client:
        changed = client.put("/omniroute/api/settings/memory", json={"enabled": True})
    assert changed.json()["enabled"] is True
    assert say(proxy, key, "I love tea.").headers["x-omniroute-memory"] == "none"
    assert {memory["key"] for memory in wait_learned(proxy, key, 1)} == {"preference:tea"}
