"""Memories found by meaning, through the real proxy: the bundled table, remote models, rerank."""

from typing import Any, Final

import httpx
import pytest

from tests.polling import wait_for
from tests.proxy.chatting import last_messages, memories, say
from tests.proxy.conftest import MEMORY_ON, ProxyFactory
from tests.proxy.process import MASTER_KEY, Proxy, ProxySetup
from tests.upstream import Upstream

pytestmark = pytest.mark.proxy

WAIT_S: Final = 30.0
BY_MEANING: Final = {**MEMORY_ON, "OMNIROUTE_MEMORY_STRATEGY": "semantic"}
REMOTE: Final = {
    **BY_MEANING,
    "OMNIROUTE_MEMORY_EMBEDDING_SOURCE": "remote",
    "OMNIROUTE_MEMORY_EMBEDDING_PROVIDER_MODEL": "embed",
    "OMNIROUTE_MEMORY_INJECTION_PLACEMENT": "leading",
}
FACTS: Final = (
    "We chose Postgres for billing",
    "My daughter plays the violin on Tuesdays",
    "The garden shed needs a new roof",
    "Our puppy sleeps in the kitchen",
    "I am allergic to peanuts",
)


def remember(proxy: Proxy, key: str, *contents: str) -> None:
    """Store memories of a key's owner."""
    with proxy.client(key) as client:
        for content in contents:
            response = client.post("/omniroute/api/memory", json={"content": content})
            assert response.status_code == 201, response.text


def wait_indexed(proxy: Proxy, key: str) -> None:
    """Wait until every memory of an owner has its vector, and this process answers by them."""

    def indexed() -> bool:
        if any(memory["needsReindex"] for memory in memories(proxy, key)):
            return False
        answer = say(proxy, key, "Is anybody there?", headers={"x-omniroute-memory": "read"})
        return answer.headers.get("x-omniroute-memory-reason") != "index_building"

    wait_for(indexed, timeout_s=WAIT_S, what="an index of all memories")


def block_of(upstream: Upstream) -> list[str]:
    """Return the memory lines of the newest request, in their order."""
    content = str(last_messages(upstream)[0]["content"])
    return [line.removeprefix("- ") for line in content.splitlines() if line.startswith("- ")]


def told(response: httpx.Response) -> tuple[str, str]:
    """Return outcome and reason of a receipt."""
    headers: Any = response.headers
    return headers["x-omniroute-memory"], headers.get("x-omniroute-memory-reason", "")


def test_other_words_find_it_without_any_key(
    proxy_factory: ProxyFactory, upstream: Upstream, user_key: str
) -> None:
    """A fresh installation finds by meaning: no download, no key, no shared word."""
    with proxy_factory(ProxySetup(with_plugin=True, env=BY_MEANING)) as proxy:
        remember(proxy, user_key, *FACTS)
        wait_indexed(proxy, user_key)
        asked = say(proxy, user_key, "Which SQL dialect should I use?")
        assert asked.headers["x-omniroute-memory-tier"] == "vector"
        assert FACTS[0] in block_of(upstream)
        asked = say(proxy, user_key, "Where is the dog?")
        assert block_of(upstream)[0] == "Our puppy sleeps in the kitchen"
        assert told(asked) == ("injected", "")
        assert upstream.records("/v1/embeddings") == []


def test_a_remote_model_embeds_and_survives_its_faults(
    proxy_factory: ProxyFactory, upstream: Upstream, user_key: str
) -> None:
    """It is called in the proxy, for memories and questions; when it hangs, words answer."""
    with proxy_factory(ProxySetup(with_plugin=True, env=REMOTE)) as proxy:
        remember(proxy, user_key, *FACTS)
        wait_indexed(proxy, user_key)
        calls = [str(record.body["input"]) for record in upstream.records("/v1/embeddings")]
        assert any(FACTS[0] in text for text in calls)
        assert not any("Memory context" in text for text in calls)
        asked = say(proxy, user_key, "Postgres for billing")
        assert (told(asked), block_of(upstream)[0]) == (("injected", ""), FACTS[0])

        upstream.hold(is_held=True)
        asked = say(proxy, user_key, "Who plays the violin?")
        assert told(asked) == ("degraded", "deadline")
        assert block_of(upstream) == [FACTS[1]]
        upstream.hold(is_held=False)

        asked = say(proxy, user_key, "What about peanuts?")
        assert told(asked) == ("injected", "")
        assert FACTS[4] in block_of(upstream)


def test_a_rerank_model_orders_what_was_found(
    proxy_factory: ProxyFactory, upstream: Upstream, user_key: str
) -> None:
    """The provider is asked once with the contents; its order reaches the request."""
    env = {
        **MEMORY_ON,
        "OMNIROUTE_MEMORY_PROFILE_MAX_TOKENS": "0",
        "OMNIROUTE_MEMORY_RERANK_ENABLED": "true",
        "OMNIROUTE_MEMORY_RERANK_PROVIDER_MODEL": "rerank",
    }
    with proxy_factory(ProxySetup(with_plugin=True, env=env)) as proxy:
        remember(proxy, user_key, *FACTS)
        wait_indexed(proxy, user_key)
        asked = say(proxy, user_key, "Postgres for billing, or the puppy?")
        assert told(asked) == ("injected", "")
        (call,) = upstream.records("/v2/rerank")[-1:]
        assert set(call.body["documents"]) == set(FACTS)
        assert block_of(upstream) == list(reversed(call.body["documents"]))
        upstream.hold(is_held=True)
        asked = say(proxy, user_key, "Postgres for billing?")
        assert told(asked) == ("degraded", "deadline")
        assert FACTS[0] in block_of(upstream)


def test_switching_the_model_under_load_fails_no_request(
    proxy_factory: ProxyFactory, upstream: Upstream, user_key: str
) -> None:
    """Words answer until the new table is whole; then it is by meaning again."""
    with proxy_factory(ProxySetup(with_plugin=True, env=BY_MEANING)) as proxy:
        remember(proxy, user_key, *FACTS)
        wait_indexed(proxy, user_key)
        with proxy.client(MASTER_KEY) as client:
            change = {"embeddingSource": "remote", "embeddingProviderModel": "embed"}
            assert client.put("/omniroute/api/settings/memory", json=change).status_code == 200
        outcomes: set[tuple[str, str]] = set()

        def switched() -> bool:
            answer = say(proxy, user_key, "Postgres for billing")
            outcomes.add(told(answer))
            assert FACTS[0] in block_of(upstream)
            return bool(upstream.records("/v1/embeddings")) and told(answer) == ("injected", "")

        wait_for(switched, timeout_s=WAIT_S, what="the new table")
        assert outcomes <= {("injected", ""), ("degraded", "index_building")} | {
            ("degraded", "index_swapped")
        }
