"""Coding agents with their growing histories: learned once, one block, nothing else changed."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any, Final

import httpx
import pytest

from tests.proxy.chatting import blocks_in, memories, say, wait_idle, wait_learned
from tests.proxy.client_bodies import (
    ANSWER,
    CLAUDE_CODE,
    CODEX,
    FOLLOW_UP,
    LEARNED_CONTENT,
    LEARNED_KEY,
    QWEN_CODE,
    QWEN_HELPER,
    SESSION,
    STATEMENT,
    Agent,
    Human,
    Transcript,
    assert_one_block_a_turn,
    assert_own_parts_kept,
    opened,
    with_second_turn,
    with_tool_round,
)
from tests.proxy.conftest import MEMORY_ON, ProxyFactory
from tests.proxy.process import Proxy, ProxySetup
from tests.upstream import Upstream
from tests.upstream_answers import ToolCall

pytestmark = pytest.mark.proxy

AGENTS: Final = (CLAUDE_CODE, CODEX, QWEN_CODE)
STEPS: Final[dict[str, Transcript]] = {
    "first call": opened(),
    "tool loop": with_tool_round(opened()),
    "longer tool loop": with_tool_round(with_tool_round(opened())),
    "second turn": with_second_turn(with_tool_round(opened())),
    "tool loop of the second turn": with_tool_round(with_second_turn(with_tool_round(opened()))),
}

each_agent = pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.name)


@pytest.fixture(scope="module")
def lenient_proxy(proxy_factory: ProxyFactory) -> Iterator[Proxy]:
    """Run a proxy that leaves out what a provider does not take instead of refusing it."""
    setup = ProxySetup(with_plugin=True, env=MEMORY_ON, litellm_settings={"drop_params": True})
    with proxy_factory(setup) as running:
        yield running


def post(
    proxy: Proxy, key: str, agent: Agent, transcript: Transcript, *, model: str = ""
) -> httpx.Response:
    """Send a transcript as an agent does and read the stream to its end."""
    body = agent.body(transcript)
    body["model"] = model or body["model"]
    with proxy.client(key) as client:
        response = client.post(agent.path, json=body, headers=agent.headers)
    assert response.status_code == 200, response.text
    return response


def events_of(response: httpx.Response) -> list[dict[str, Any]]:
    """Return the events of a finished stream."""
    data = [line[6:] for line in response.text.splitlines() if line.startswith("data: ")]
    return [json.loads(text) for text in data if text != "[DONE]"]


def streamed_text(agent: Agent, response: httpx.Response) -> str:
    """Return what the model said; the stream has to be complete."""
    events = events_of(response)
    match agent.path.partition("?")[0]:
        case "/v1/messages":
            assert events[-1]["type"] == "message_stop"
            deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
            return "".join(delta["text"] for delta in deltas)
        case "/v1/responses":
            assert events[-1]["type"] == "response.completed"
            (item,) = events[-1]["response"]["output"]
            return item["content"][0]["text"]
        case _:
            assert response.text.rstrip().endswith("data: [DONE]")
            choices = [choice for event in events for choice in event["choices"]]
            assert "stop" in {choice.get("finish_reason") for choice in choices}
            return "".join(choice["delta"].get("content") or "" for choice in choices)


def replaced_contents(proxy: Proxy) -> int:
    """Count what the store has overwritten or deleted since its start."""
    with closing(sqlite3.connect(proxy.data_dir / "omniroute.db")) as database:
        (count,) = database.execute("SELECT count(*) FROM memory_history").fetchone()
    return int(count)


@each_agent
def test_a_growing_history_teaches_once(
    proxy: Proxy, upstream: Upstream, user_key: str, agent: Agent
) -> None:
    """However often the history comes again, one memory stays, and it is the person's sentence."""
    upstream.set_answer(ANSWER)
    before = replaced_contents(proxy)
    post(proxy, user_key, agent, opened())
    (first,) = wait_learned(proxy, user_key, 1)
    assert (first["key"], first["content"]) == (LEARNED_KEY, LEARNED_CONTENT)
    assert first["source"] == "user_message"
    for transcript in STEPS.values():
        post(proxy, user_key, agent, transcript)
    wait_idle(proxy)
    (last,) = memories(proxy, user_key)
    assert (last["id"], last["createdAt"]) == (first["id"], first["createdAt"])
    assert last["content"] == first["content"]
    assert replaced_contents(proxy) == before


def test_a_background_call_teaches_nothing_more(
    proxy: Proxy, upstream: Upstream, user_key: str
) -> None:
    """The note keeper that repeats the sentence two turns back adds no memory of its own."""
    upstream.set_answer("Done, the notes are up to date.")
    post(proxy, user_key, QWEN_CODE, opened())
    learned = wait_learned(proxy, user_key, 1)
    response = post(proxy, user_key, QWEN_HELPER, opened())
    assert streamed_text(QWEN_HELPER, response) == "Done, the notes are up to date."
    wait_idle(proxy)
    assert [memory["id"] for memory in memories(proxy, user_key)] == [learned[0]["id"]]


@pytest.mark.parametrize("agent", [*AGENTS, QWEN_HELPER], ids=lambda agent: agent.name)
def test_machine_made_text_teaches_nothing(proxy: Proxy, user_key: str, agent: Agent) -> None:
    """First-person lines in reminders, rules, tools and files belong to nobody."""
    question: Transcript = (Human(FOLLOW_UP),)
    post(proxy, user_key, agent, question)
    post(proxy, user_key, agent, with_tool_round(question))
    wait_idle(proxy)
    assert memories(proxy, user_key) == []


@pytest.mark.parametrize("transcript", STEPS.values(), ids=STEPS.keys())
@each_agent
def test_one_block_beside_the_agents_own_parts(
    proxy: Proxy, upstream: Upstream, user_key: str, agent: Agent, transcript: Transcript
) -> None:
    """A block arrives, every part that the agent sent with its cache mark, and a whole answer."""
    say(proxy, user_key, "I always commit before pushing.")
    wait_learned(proxy, user_key, 1)
    upstream.clear()
    upstream.set_answer(ANSWER)
    response = post(proxy, user_key, agent, transcript)
    (record,) = upstream.records()
    assert_one_block_a_turn(record.body, transcript)
    assert_own_parts_kept(record.body, agent.body(transcript))
    assert response.headers["x-omniroute-memory"] == "injected"
    assert streamed_text(agent, response) == ANSWER


@pytest.mark.parametrize(
    ("agent", "model"),
    [
        *((CLAUDE_CODE, model) for model in ("gpt", "glm", "o1-mini")),
        *((CODEX, model) for model in ("claude", "glm", "gemini-2.5", "o1-mini")),
        *((QWEN_CODE, model) for model in ("claude", "glm", "gemini-2.5", "o1-mini")),
    ],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_an_agent_on_another_providers_model(
    lenient_proxy: Proxy, upstream: Upstream, user_key: str, agent: Agent, model: str
) -> None:
    """Translated on its way, a tool loop teaches once, and block and sentence arrive once each."""
    upstream.set_answer(ANSWER)
    say(lenient_proxy, user_key, "I love jazz.")
    wait_learned(lenient_proxy, user_key, 1)
    post(lenient_proxy, user_key, agent, opened(), model=model)
    _, first = wait_learned(lenient_proxy, user_key, 2)
    upstream.clear()
    transcript = with_tool_round(opened())
    response = post(lenient_proxy, user_key, agent, transcript, model=model)
    (record,) = upstream.records()
    assert blocks_in(record.body) == 1
    assert json.dumps(record.body).count(STATEMENT) == 1
    assert streamed_text(agent, response) == ANSWER
    wait_idle(lenient_proxy)
    _, last = memories(lenient_proxy, user_key)
    assert (last["id"], last["key"]) == (first["id"], LEARNED_KEY)


@each_agent
def test_nothing_known_changes_nothing(
    proxy: Proxy, upstream: Upstream, user_key: str, agent: Agent
) -> None:
    """For an owner without memories the provider gets the agent's own parts and no block."""
    response = post(proxy, user_key, agent, (Human(FOLLOW_UP),))
    (record,) = upstream.records()
    assert_own_parts_kept(record.body, agent.body((Human(FOLLOW_UP),)))
    assert blocks_in(record.body) == 0
    assert response.headers["x-omniroute-memory"] == "none"


@pytest.mark.parametrize(
    ("agent", "model", "status"),
    [
        (CLAUDE_CODE, "claude-fail500", 500),
        (CODEX, "fail429", 429),
        (QWEN_CODE, "ctxfail", 400),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_an_agent_sees_the_error_that_it_knows(
    bare_proxy: Proxy, proxy: Proxy, user_key: str, agent: Agent, model: str, status: int
) -> None:
    """An agent decides by status and text whether to retry: with memory injected both stay."""
    say(proxy, user_key, "I always commit before pushing.")
    wait_learned(proxy, user_key, 1)
    body = {**agent.body(opened()), "model": model}
    answers: list[tuple[int, str]] = []
    for running in (bare_proxy, proxy):
        with running.client(user_key) as client:
            response = client.post(agent.path, json=body, headers=agent.headers)
        answers.append((response.status_code, response.text))
    assert answers[0] == answers[1]
    assert answers[0][0] == status


@pytest.mark.parametrize(
    ("agent", "tool"),
    [
        (CLAUDE_CODE, ToolCall("Read", '{"file_path": "/srv/play/a.py"}')),
        (CODEX, ToolCall("exec_command", '{"cmd": "cat a.py"}')),
        (QWEN_CODE, ToolCall("read_file", '{"path": "/srv/play/a.py"}')),
    ],
    ids=lambda value: value.name,
)
def test_a_tool_call_reaches_the_agent(
    proxy: Proxy, upstream: Upstream, user_key: str, agent: Agent, tool: ToolCall
) -> None:
    """With memory injected the model's call comes through, and its words teach nothing."""
    say(proxy, user_key, "I always commit before pushing.")
    wait_learned(proxy, user_key, 1)
    upstream.set_answer("I prefer to look first.", tool=tool)
    response = post(proxy, user_key, agent, (Human(FOLLOW_UP),))
    assert response.headers["x-omniroute-memory"] == "injected"
    called = json.dumps(events_of(response))
    assert tool.name in called
    assert json.dumps(tool.arguments).strip('"') in called
    wait_idle(proxy)
    assert len(memories(proxy, user_key)) == 1


@pytest.mark.parametrize("agent", [CLAUDE_CODE, CODEX], ids=lambda agent: agent.name)
def test_memories_carry_the_agents_session(proxy: Proxy, user_key: str, agent: Agent) -> None:
    """The session that an agent names in its own headers is the memory's."""
    post(proxy, user_key, agent, opened())
    (memory,) = wait_learned(proxy, user_key, 1)
    assert memory["sessionId"] == SESSION


# --- to append to tests/proxy/test_clients.py: fail on 0c266a2 ---


@each_agent
def test_a_deleted_memory_stays_deleted(proxy: Proxy, user_key: str, agent: Agent) -> None:
    """What the owner deleted does not come back with the history of the next tool call."""
    post(proxy, user_key, agent, opened())
    (memory,) = wait_learned(proxy, user_key, 1)
    with proxy.client(user_key) as client:
        assert client.delete(f"/omniroute/api/memory/{memory['id']}").status_code == 200
    post(proxy, user_key, agent, with_tool_round(opened()))
    wait_idle(proxy)
    assert memories(proxy, user_key) == []


@each_agent
def test_a_correction_outlives_the_history(proxy: Proxy, user_key: str, agent: Agent) -> None:
    """What the owner rewrote by hand is not undone by the old sentence in a resent history."""
    post(proxy, user_key, agent, opened())
    (memory,) = wait_learned(proxy, user_key, 1)
    corrected = "I prefer tabs in Go alone"
    with proxy.client(user_key) as client:
        changed = client.put(
            f"/omniroute/api/memory/{memory['id']}",
            json={"content": corrected, "updatedAt": memory["updatedAt"]},
        )
    assert changed.status_code == 200, changed.text
    post(proxy, user_key, agent, with_tool_round(opened()))
    wait_idle(proxy)
    assert [found["content"] for found in memories(proxy, user_key)] == [corrected]


@each_agent
def test_a_resent_sentence_is_read_once(proxy: Proxy, user_key: str, agent: Agent) -> None:
    """A tool call that resends the history extracts nothing: it is no restatement."""
    post(proxy, user_key, agent, opened())
    wait_learned(proxy, user_key, 1)
    wait_idle(proxy)
    (before,) = memories(proxy, user_key)
    post(proxy, user_key, agent, with_tool_round(opened()))
    wait_idle(proxy)
    (after,) = memories(proxy, user_key)
    assert after["lastSeenAt"] == before["lastSeenAt"]


@pytest.mark.parametrize(
    "summary",
    [
        "This session is being continued from a previous conversation that ran out of context."
        "\n\nSummary:\n8. Current Work:\n   I was editing a.py. I'll use pytest for the tests.\n",
        "Another language model started to solve this problem and produced a summary of its"
        " thinking process:\n- I always run the linter first.\n",
    ],
    ids=["claude-code", "codex"],
)
def test_a_compaction_is_nobodys_word(proxy: Proxy, user_key: str, summary: str) -> None:
    """The summary that an agent puts in place of its history speaks for the assistant."""
    agent = CLAUDE_CODE if summary.startswith("This") else CODEX
    post(proxy, user_key, agent, (Human(summary),))
    wait_idle(proxy)
    assert memories(proxy, user_key) == []


def test_a_session_inside_of_the_user_id_counts(proxy: Proxy, user_key: str) -> None:
    """Claude Code's session is read from its metadata where the header got lost on the way."""
    body = {
        "model": "claude",
        "max_tokens": 50,
        "metadata": {"user_id": '{"device_id": "d", "session_id": "session-in-user-id"}'},
        "messages": [{"role": "user", "content": "I prefer walnut."}],
    }
    with proxy.client(user_key) as client:
        client.post("/v1/messages", json=body).raise_for_status()
    (memory,) = wait_learned(proxy, user_key, 1)
    assert memory["sessionId"] == "session-in-user-id"
