"""Every attempt of a request: the right form each time, one block, one extraction."""

from importlib.metadata import version

import pytest

from tests.proxy.chatting import blocks_in, memories, say, wait_idle, wait_learned
from tests.proxy.process import Proxy
from tests.upstream import Upstream

pytestmark = [pytest.mark.proxy, pytest.mark.contract]

REPEATS = tuple(map(int, version("litellm").split(".")[:2])) >= (1, 105)
STATEMENT = "I prefer TypeScript."
QUESTION = "Which language?"


def stored(proxy: Proxy) -> int:
    """Return how many exchanges were captured so far."""
    counters: dict[str, int] = wait_idle(proxy)["counters"]
    return counters.get("memory.capture.stored", 0)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_context_window_fallback_takes_its_own_form(
    proxy: Proxy, upstream: Upstream, user_key: str, stream: bool
) -> None:
    """A prompt too long for one model goes to another provider in the form that that one takes."""
    say(proxy, user_key, STATEMENT)
    wait_learned(proxy, user_key, 1)
    upstream.clear()
    say(proxy, user_key, QUESTION, model="cramped", stream=stream)
    bodies = [record.body for record in upstream.records()]
    assert bodies[-1]["model"] == "glm-4.6"
    # Where LiteLLM can repeat a refused request, the second try is without memory.
    assert [blocks_in(body) for body in bodies] == ([1, 0, 1] if REPEATS else [1, 1])
    assert bodies[0]["messages"][0]["role"] == "system"
    assert bodies[-1]["messages"][0]["role"] == "user"


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_several_choices_are_one_exchange(
    proxy: Proxy, upstream: Upstream, user_key: str, stream: bool
) -> None:
    """A request for three answers carries one block and is learned from once."""
    before = stored(proxy)
    say(proxy, user_key, STATEMENT, stream=stream, extra={"n": 3})
    wait_learned(proxy, user_key, 1)
    assert stored(proxy) == before + 1
    upstream.clear()
    say(proxy, user_key, QUESTION, stream=stream, extra={"n": 3})
    (record,) = upstream.records()
    assert record.body["n"] == 3
    assert blocks_in(record.body) == 1
    assert len(memories(proxy, user_key)) == 1


def test_a_list_of_models_gets_a_form_for_each(
    proxy: Proxy, upstream: Upstream, user_key: str
) -> None:
    """Two models asked at once get one block each in their own role; one exchange is learned."""
    before = stored(proxy)
    say(proxy, user_key, STATEMENT, model="gpt,glm")
    wait_learned(proxy, user_key, 1)
    assert stored(proxy) == before + 1
    upstream.clear()
    say(proxy, user_key, QUESTION, model="gpt,glm")
    roles = {
        record.body["model"]: record.body["messages"][0]["role"] for record in upstream.records()
    }
    assert roles == {"gpt-4o": "system", "glm-4.6": "user"}
    assert [blocks_in(record.body) for record in upstream.records()] == [1, 1]
    assert len(memories(proxy, user_key)) == 1


PARTIAL = "I prefer Haskell. " * 3 + "That is what I would take here. " * 40


def test_a_cut_off_answer_teaches_nothing(proxy: Proxy, upstream: Upstream, user_key: str) -> None:
    """When the client hangs up in the middle, only what the person said is learned."""
    upstream.set_answer(PARTIAL)
    body = {
        "model": "slow",
        "messages": [{"role": "user", "content": STATEMENT}],
        "stream": True,
    }
    before = wait_idle(proxy)["counters"].get("memory.capture.cut_off", 0)
    with (
        proxy.client(user_key) as client,
        client.stream("POST", "/v1/chat/completions", json=body) as response,
    ):
        for line in response.iter_lines():
            if "Haskell" in line:
                break
    wait_learned(proxy, user_key, 1)
    report = wait_idle(proxy)
    assert report["counters"]["memory.capture.cut_off"] == before + 1
    assert [memory["key"] for memory in memories(proxy, user_key)] == ["preference:typescript"]
