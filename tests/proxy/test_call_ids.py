"""Requests that carry the same call id: a client chooses it, and it identifies nothing."""

from concurrent.futures import ThreadPoolExecutor
from typing import Final

import httpx
import pytest

from tests.proxy.chatting import blocks_in, keys_of, say, wait_idle, wait_learned
from tests.proxy.process import Proxy
from tests.upstream import Upstream

pytestmark = [pytest.mark.proxy, pytest.mark.contract]

SAME_ID: Final = {"x-litellm-call-id": "4d1d8f4e-chosen-by-the-client"}
ROUNDS: Final = 4
TASTES: Final = {"sk-user-cid": ("TypeScript", "Postgres"), "sk-user-dora": ("Haskell", "Redis")}


def at_once(proxy: Proxy, texts: dict[str, str], *, stream: bool, model: str = "gpt") -> None:
    """Say something with several keys at the same time, all under one call id."""

    def speak(key: str, text: str) -> httpx.Response:
        return say(proxy, key, text, stream=stream, model=model, headers=SAME_ID)

    with ThreadPoolExecutor(len(texts)) as threads:
        for answer in [threads.submit(speak, key, text) for key, text in texts.items()]:
            answer.result()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_two_keys_under_one_call_id_stay_apart(
    proxy: Proxy, upstream: Upstream, stream: bool
) -> None:
    """Each gets its own memory alone, and each sentence is learned for who said it."""
    tastes = {f"{key}{'s' if stream else 'w'}": taste for key, taste in TASTES.items()}
    at_once(proxy, {key: f"I prefer {first}." for key, (first, _) in tastes.items()}, stream=stream)
    for key, (first, _) in tastes.items():
        wait_learned(proxy, key, 1)
        assert keys_of(proxy, key) == {f"preference:{first.casefold()}"}
    upstream.clear()
    for _ in range(ROUNDS):
        texts = {key: f"I prefer {second}." for key, (_, second) in tastes.items()}
        at_once(proxy, texts, stream=stream, model="slow")
    wait_idle(proxy)
    records = upstream.records()
    assert len(records) == ROUNDS * len(tastes)
    (first_own, first_said), (other_own, other_said) = tastes.values()
    for record in records:
        text = record.raw.decode()
        assert blocks_in(record.body) == 1
        assert (first_own in text, other_own in text) == (first_said in text, other_said in text)
    for key, taste in tastes.items():
        wait_learned(proxy, key, 2)
        assert keys_of(proxy, key) == {f"preference:{name.casefold()}" for name in taste}


def test_a_request_that_memory_leaves_alone_gets_no_foreign_receipt(
    proxy: Proxy, user_key: str
) -> None:
    """An embedding under the call id of somebody's chat says nothing of that chat."""
    say(proxy, user_key, "I prefer Rust.", headers=SAME_ID)
    with proxy.client("sk-user-stranger") as client:
        body = {"model": "embed", "input": "Hi"}
        response = client.post("/v1/embeddings", json=body, headers=SAME_ID)
    assert response.status_code == 200, response.text
    assert not [name for name in response.headers if name.startswith("x-omniroute-")]
