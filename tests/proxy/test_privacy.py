"""What must not be learned or sent: masked words, cached answers, calls of our own."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.proxy.chatting import blocks_in, memories, say, wait_idle, wait_learned
from tests.proxy.conftest import MEMORY_ON, ProxyFactory
from tests.proxy.masking import MASK, SECRET
from tests.proxy.process import Proxy, ProxySetup
from tests.proxy.talk import FORMATS, Format, Said, ask
from tests.proxy.test_formats import MODELS
from tests.upstream import Upstream

pytestmark = pytest.mark.proxy

HERE: Final = Path(__file__).parent
GUARDRAIL: Final[dict[str, Any]] = {
    "guardrail_name": "masking",
    "litellm_params": {"guardrail": "masking.Masking", "mode": "pre_call", "default_on": True},
}


@pytest.fixture(scope="module")
def masked_proxy(proxy_factory: ProxyFactory) -> Iterator[Proxy]:
    """Run LiteLLM with the plugin and a guardrail that masks a word."""
    setup = ProxySetup(
        with_plugin=True,
        env=MEMORY_ON,
        modules=(HERE / "masking.py",),
        guardrails=(GUARDRAIL,),
    )
    with proxy_factory(setup) as running:
        yield running


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_only_the_masked_text_is_stored(
    masked_proxy: Proxy, upstream: Upstream, user_key: str, form: Format
) -> None:
    """What a guardrail took out is neither stored nor searched for nor left on the disk."""
    steps = [Said("user", f"I prefer {SECRET} tea.")]
    ask(masked_proxy, user_key, form, "gpt", steps)
    (memory,) = wait_learned(masked_proxy, user_key, 1)
    assert memory["content"] == f"I prefer {MASK} tea"
    assert SECRET not in upstream.records()[-1].raw.decode()
    wait_idle(masked_proxy)
    for path in masked_proxy.data_dir.iterdir():
        assert SECRET.encode() not in path.read_bytes()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_an_answer_from_the_cache_is_not_read_again(
    proxy_factory: ProxyFactory, upstream: Upstream, stream: bool
) -> None:
    """LiteLLM's cache answers the second request: it is served, and teaches nothing again."""
    cache = {"cache": True, "cache_params": {"type": "local"}}
    setup = ProxySetup(with_plugin=True, env=MEMORY_ON, litellm_settings=cache)
    with proxy_factory(setup) as proxy:
        write = {"x-omniroute-memory": "write"}
        say(proxy, "sk-user-ann", "I prefer TypeScript.", stream=stream, headers=write)
        wait_learned(proxy, "sk-user-ann", 1)
        before = wait_idle(proxy)["counters"]["memory.capture.stored"]
        sent = len(upstream.records())
        say(proxy, "sk-user-ann", "I prefer TypeScript.", stream=stream, headers=write)
        say(proxy, "sk-user-ann", "I love jazz.", stream=stream, headers=write)
        wait_learned(proxy, "sk-user-ann", 2)
        assert len(upstream.records()) == sent + 1
        assert wait_idle(proxy)["counters"]["memory.capture.stored"] == before + 1


@pytest.mark.parametrize(("how", "blocks", "learned"), [("marked", 0, 1), ("plain", 1, 2)])
def test_our_own_calls_are_left_alone(
    proxy_factory: ProxyFactory, upstream: Upstream, how: str, blocks: int, learned: int
) -> None:
    """A model called on the way gets and teaches nothing; unmarked, it would do both."""
    setup = ProxySetup(
        with_plugin=True,
        env=MEMORY_ON,
        callbacks=("internal.handler",),
        modules=(HERE / "internal.py",),
    )
    with proxy_factory(setup) as proxy:
        say(proxy, "sk-user-ann", "I prefer TypeScript.")
        wait_learned(proxy, "sk-user-ann", 1)
        upstream.clear()
        say(proxy, "sk-user-ann", "Which language?", headers={"x-internal-call": how})
        wait_idle(proxy)
        inner, embedding, outer = upstream.records()
        assert embedding.path == "/v1/embeddings"
        assert blocks_in(inner.body) == blocks
        assert blocks_in(outer.body) == 1
        assert len(memories(proxy, "sk-user-ann")) == learned


@pytest.mark.parametrize("model", MODELS)
def test_no_log_is_no_capture_in_any_format(proxy: Proxy, user_key: str, model: str) -> None:
    """A request that must not be logged is not learned from, whoever answers it."""
    before = wait_idle(proxy)["counters"].get("memory.capture.stored", 0)
    say(proxy, user_key, "I prefer TypeScript.", model=model, extra={"no-log": True})
    say(proxy, user_key, "I love jazz.", model=model)
    (memory,) = wait_learned(proxy, user_key, 1)
    assert memory["key"] == "preference:jazz"
    assert wait_idle(proxy)["counters"]["memory.capture.stored"] == before + 1
