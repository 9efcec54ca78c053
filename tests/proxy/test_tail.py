"""Memory behind human turns: repeated byte by byte, so that prompt caches stay valid."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from typing import Any, Final

import pytest

from tests.polling import wait_for
from tests.proxy.chatting import HEADING, blocks_in, memories, say, wait_idle, wait_learned
from tests.proxy.conftest import MEMORY_ON, ProxyFactory
from tests.proxy.process import Proxy, ProxySetup
from tests.proxy.talk import FORMATS, Format, Said, Step, Used, ask, items_of
from tests.proxy.test_formats import MODELS
from tests.upstream import Recorded, Upstream

pytestmark = [pytest.mark.proxy, pytest.mark.contract]

CHAT, RESPONSES, MESSAGES, GEMINI = FORMATS
STATEMENT: Final = "I prefer TypeScript."
TALK: Final[tuple[Step, ...]] = (
    Said("user", "Which language should I use?"),
    Used(1, "a = 1"),
    Used(2, "b = 2"),
    Said("assistant", "TypeScript would do."),
    Said("user", "And for the tests?"),
    Used(3, "c = 3"),
)
LONG_SYSTEM: Final = "Answer briefly and name the file that you mean. " * 120


def tail_setup(**env: str) -> ProxySetup:
    """Return a set-up with memory behind turns."""
    placement = {"OMNIROUTE_MEMORY_INJECTION_PLACEMENT": "tail"}
    return ProxySetup(with_plugin=True, env={**MEMORY_ON, **placement, **env})


@pytest.fixture(scope="module")
def tail_proxy(proxy_factory: ProxyFactory) -> Iterator[Proxy]:
    """Run LiteLLM with memory behind turns, whatever the length of a request."""
    with proxy_factory(tail_setup()) as running:
        yield running


def learn(proxy: Proxy, key: str, *statements: str) -> None:
    """Make an owner know something."""
    for count, statement in enumerate(statements, start=len(memories(proxy, key)) + 1):
        say(proxy, key, statement, headers={"x-omniroute-memory": "write"})
        wait_learned(proxy, key, count)


def requests_of(
    proxy: Proxy, upstream: Upstream, key: str, form: Format, model: str, *, stream: bool = False
) -> list[Recorded]:
    """Let a conversation with tool loops grow and return what reached the provider."""
    upstream.clear()
    for length in (1, 2, 3, 5, 6):
        ask(proxy, key, form, model, TALK[:length], stream=stream)
    return upstream.records()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_the_prompt_only_grows(
    tail_proxy: Proxy, upstream: Upstream, user_key: str, form: Format, model: str, stream: bool
) -> None:
    """In a chat with tool loops each request begins with all items of the one before."""
    learn(tail_proxy, user_key, STATEMENT)
    records = requests_of(tail_proxy, upstream, user_key, form, model, stream=stream)
    assert len(records) == 5
    for record in records:
        assert blocks_in(record.body) == 1
        first, *others = items_of(record.body)
        assert blocks_in(first) == 1, first
        assert first["role"] == "user"
        text = json.dumps(first)
        assert text.index("Which language") < text.index(HEADING)
        assert not any(map(blocks_in, others))
    for before, after in pairwise(items_of(record.body) for record in records):
        assert after[: len(before)] == before
    assert len(memories(tail_proxy, user_key)) == 1


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_later_turns_add_what_is_new(
    tail_proxy: Proxy, upstream: Upstream, user_key: str, form: Format
) -> None:
    """A memory learned under way stands behind the next human turn, and no memory stands twice."""
    learn(tail_proxy, user_key, STATEMENT)
    ask(tail_proxy, user_key, form, "gpt", TALK[:1])
    learn(tail_proxy, user_key, "I love jazz.")
    upstream.clear()
    ask(tail_proxy, user_key, form, "gpt", TALK[:3])
    ask(tail_proxy, user_key, form, "gpt", TALK[:5])
    ask(tail_proxy, user_key, form, "gpt", TALK[:6])
    loop, turn, later = (items_of(record.body) for record in upstream.records())
    assert "jazz" not in json.dumps(loop)
    assert [blocks_in(item) for item in turn if item.get("role") == "user"][-1] == 1
    assert json.dumps(turn).count("jazz") == 1
    assert json.dumps(turn).count("I prefer TypeScript") == 1
    assert later[: len(turn)] == turn


def test_what_a_turn_teaches_does_not_change_it(
    tail_proxy: Proxy, upstream: Upstream, user_key: str
) -> None:
    """A fact learned from the very turn that a tool loop works on waits for the next turn."""
    opening = Said("user", "I prefer tabs. What does a.py do?")
    upstream.clear()
    ask(tail_proxy, user_key, MESSAGES, "claude", [opening])
    wait_learned(tail_proxy, user_key, 1)
    steps = [opening, Used(1, "a = 1")]
    ask(tail_proxy, user_key, MESSAGES, "claude", steps)
    next_turn = [*steps, Said("assistant", "It sets a."), Said("user", "And b.py?")]
    ask(tail_proxy, user_key, MESSAGES, "claude", next_turn)
    first, loop, after = (items_of(record.body) for record in upstream.records())
    assert not blocks_in(loop)
    assert loop[: len(first)] == first
    assert blocks_in(after[-1]) == 1
    assert after[: len(loop)] == loop


@pytest.mark.parametrize("how", ["delete", "edit"])
def test_what_is_gone_is_in_no_later_request(
    tail_proxy: Proxy, upstream: Upstream, user_key: str, how: str
) -> None:
    """A memory that is deleted or edited in the middle of a conversation is not repeated."""
    learn(tail_proxy, user_key, STATEMENT, "I love jazz.")
    ask(tail_proxy, user_key, CHAT, "gpt", TALK[:1])
    path = f"/omniroute/api/memory/{memories(tail_proxy, user_key)[0]['id']}"
    with tail_proxy.client(user_key) as client:
        if how == "delete":
            client.delete(path).raise_for_status()
        else:
            client.put(path, json={"content": "I prefer Rust"}).raise_for_status()
    upstream.clear()
    for length in (3, 5):
        ask(tail_proxy, user_key, CHAT, "gpt", TALK[:length])
    for record in upstream.records():
        assert "I prefer TypeScript" not in json.dumps(record.body)
    last = json.dumps(upstream.records()[-1].body)
    assert last.count("I love jazz") == 1
    assert last.count("I prefer Rust") == (how == "edit")


def test_an_opted_out_request_repeats_nothing(
    tail_proxy: Proxy, upstream: Upstream, user_key: str
) -> None:
    """The header takes memory out of earlier turns, too."""
    learn(tail_proxy, user_key, STATEMENT)
    ask(tail_proxy, user_key, CHAT, "gpt", TALK[:1])
    upstream.clear()
    out = {"x-omniroute-no-memory": "true"}
    ask(tail_proxy, user_key, CHAT, "gpt", TALK[:5], headers=out)
    assert not blocks_in(upstream.records()[-1].body)


def test_another_owner_gets_no_repetition(
    tail_proxy: Proxy, upstream: Upstream, user_key: str
) -> None:
    """The same words in another owner's conversation bring up nothing of the first one's."""
    learn(tail_proxy, user_key, STATEMENT)
    ask(tail_proxy, user_key, CHAT, "gpt", TALK[:1])
    upstream.clear()
    ask(tail_proxy, "sk-user-somebody-key-else", CHAT, "gpt", TALK[:5])
    assert not blocks_in(upstream.records()[-1].body)


def test_a_new_conversation_with_the_same_words_is_searched_anew(
    tail_proxy: Proxy, upstream: Upstream, user_key: str
) -> None:
    """What was learned since then is there when somebody starts over."""
    learn(tail_proxy, user_key, STATEMENT)
    ask(tail_proxy, user_key, CHAT, "gpt", TALK[:1])
    learn(tail_proxy, user_key, "I love jazz.")
    ask(tail_proxy, user_key, CHAT, "gpt", TALK[:1])
    assert "jazz" in json.dumps(upstream.records()[-1].body)


def test_wandering_cache_marks_change_nothing(
    tail_proxy: Proxy, upstream: Upstream, user_key: str
) -> None:
    """A mark on the newest part, and a text that was a marked list before, are the same turn."""
    learn(tail_proxy, user_key, STATEMENT)
    mark: dict[str, Any] = {"cache_control": {"type": "ephemeral"}}
    opening = "Which language should I use?"
    first = [{"role": "user", "content": [{"type": "text", "text": opening, **mark}]}]
    newest = [{"type": "text", "text": "And for tests?", **mark}]
    second = [
        {"role": "user", "content": opening},
        {"role": "assistant", "content": "TypeScript."},
        {"role": "user", "content": newest},
    ]
    upstream.clear()
    with tail_proxy.client(user_key) as client:
        for messages in (first, second):
            body = {"model": "claude", "max_tokens": 50, "messages": messages}
            client.post("/v1/messages", json=body).raise_for_status()
    before, after = (items_of(record.body)[0]["content"] for record in upstream.records())
    assert before[0] == {"type": "text", "text": opening, **mark}
    assert after[0] == {"type": "text", "text": opening}
    assert HEADING in before[1]["text"]
    assert before[1:] == after[1:]
    assert "cache_control" not in before[1]


def test_the_memory_of_a_long_chat_is_bounded(
    proxy_factory: ProxyFactory, upstream: Upstream
) -> None:
    """Twenty turns carry at most twice the budget, although every turn finds something new."""
    env = {"OMNIROUTE_MEMORY_MAX_TOKENS": "100", "OMNIROUTE_MEMORY_STRATEGY": "semantic"}
    topics = [f"topic{chr(97 + number)}" for number in range(20)]
    with proxy_factory(tail_setup(**env)) as proxy:
        learn(proxy, "sk-user-ann", *(f"I prefer {topic} over anything." for topic in topics))
        steps: list[Step] = []
        upstream.clear()
        for topic in topics:
            steps.append(Said("user", f"What about {topic}?"))
            ask(proxy, "sk-user-ann", CHAT, "gpt", steps)
            steps.append(Said("assistant", "Fine."))
        bodies = [items_of(record.body) for record in upstream.records()]
    texts = [str(item["content"]) for item in bodies[-1]]
    carried = [text[text.index(HEADING) :] for text in texts if HEADING in text]
    assert 2 <= len(carried) < 20
    assert sum(len(block) for block in carried) / 4 <= 2 * 100
    for before, after in pairwise(bodies):
        assert after[: len(before)] == before


def test_a_restart_changes_nothing(proxy_factory: ProxyFactory, upstream: Upstream) -> None:
    """The ledger survives the process, after a clean stop and after a kill."""
    with proxy_factory(tail_setup()) as proxy:
        learn(proxy, "sk-user-ann", STATEMENT)
        upstream.clear()
        ask(proxy, "sk-user-ann", CHAT, "gpt", TALK[:1])
        proxy.restart()
        ask(proxy, "sk-user-ann", CHAT, "gpt", TALK[:3])
        wait_for(lambda: placements(proxy) == 1, timeout_s=20, what="one placement")
        proxy.kill()
        proxy.start()
        ask(proxy, "sk-user-ann", CHAT, "gpt", TALK[:5])
        bodies = [items_of(record.body) for record in upstream.records()]
    assert blocks_in(bodies[0]) == 1
    for before, after in pairwise(bodies):
        assert after[: len(before)] == before


def test_workers_share_the_ledger(proxy_factory: ProxyFactory, upstream: Upstream) -> None:
    """It does not matter which process gets which request of a conversation."""
    setup = tail_setup()
    two = ProxySetup(with_plugin=True, env=setup.env, num_workers=2)
    with proxy_factory(two) as proxy:
        learn(proxy, "sk-user-ann", STATEMENT)
        upstream.clear()
        steps: list[Step] = []
        for number in range(8):
            steps.append(Said("user", f"Question {number}?"))
            ask(proxy, "sk-user-ann", CHAT, "gpt", steps)
            expected = number + 1
            wait_for(
                lambda expected=expected: placements(proxy) == expected,
                timeout_s=20,
                what="a placement of every turn",
            )
            steps.append(Said("assistant", "Fine."))
        bodies = [items_of(record.body) for record in upstream.records()]
        wait_idle(proxy)
    assert blocks_in(bodies[-1]) == 1
    for before, after in pairwise(bodies):
        assert after[: len(before)] == before


def placements(proxy: Proxy) -> int:
    """Count the turns in the ledger."""
    path = proxy.data_dir / "omniroute.db"
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        (count,) = connection.execute("SELECT count(*) FROM placements").fetchone()
    return int(count)


def test_auto_leads_in_short_requests_and_follows_in_long_ones(
    proxy: Proxy, upstream: Upstream, user_key: str
) -> None:
    """A request that a provider may cache has memory at its end, a short one at its start."""
    learn(proxy, user_key, STATEMENT)
    upstream.clear()
    for system in ("Be brief.", LONG_SYSTEM):
        receipt = ask(proxy, user_key, CHAT, "gpt", TALK[:1], system=system).headers
        assert receipt["x-omniroute-memory"] == "injected"
    short, long = (items_of(record.body) for record in upstream.records())
    assert [blocks_in(item) for item in short] == [1, 0, 0]
    assert [blocks_in(item) for item in long] == [0, 1]
    assert long[0] == {"role": "system", "content": LONG_SYSTEM}


def test_auto_never_breaks_what_may_be_cached(
    proxy: Proxy, upstream: Upstream, user_key: str
) -> None:
    """From the first request that is long enough on, a growing chat keeps its prefix."""
    learn(proxy, user_key, STATEMENT)
    upstream.clear()
    steps: list[Step] = []
    for number in range(6):
        steps.append(Said("user", f"Question {number}? " + "Please think of it. " * 60))
        ask(proxy, user_key, CHAT, "gpt", steps)
        steps.append(Said("assistant", "Fine."))
    bodies = [items_of(record.body) for record in upstream.records()]
    assert bodies[0][0]["role"] == "system"
    cacheable = [body for body in bodies if len(json.dumps(body)) >= 4_096]
    assert len(cacheable) >= 2
    for before, after in pairwise(cacheable):
        assert after[: len(before)] == before
    assert [blocks_in(body) for body in bodies] == [1] * 6


def test_a_continued_response_gets_instructions(
    tail_proxy: Proxy, upstream: Upstream, user_key: str
) -> None:
    """Where the provider keeps the history, no block goes into it: there it could not be undone."""
    learn(tail_proxy, user_key, STATEMENT)
    before = ask(tail_proxy, user_key, RESPONSES, "gpt", TALK[:1]).json()["id"]
    body = {"model": "gpt", "input": "And now?", "previous_response_id": before}
    with tail_proxy.client(user_key) as client:
        client.post("/v1/responses", json=body).raise_for_status()
    sent = upstream.records()[-1].body
    assert HEADING in sent["instructions"]
    assert HEADING not in json.dumps(sent["input"])
