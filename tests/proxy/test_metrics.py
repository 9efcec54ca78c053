"""What LiteLLM's own metrics page says about memory, and the spans of a configured SDK."""

import re
from typing import Final

import pytest

from tests.polling import wait_for
from tests.proxy.chatting import say, wait_learned
from tests.proxy.conftest import MEMORY_ON, ProxyFactory
from tests.proxy.process import MASTER_KEY, Proxy, ProxySetup

pytestmark = pytest.mark.proxy

QUEUE_TIMEOUT_S: Final = 20.0


def scraped(proxy: Proxy) -> dict[str, float]:
    """Return the samples of memory on LiteLLM's page."""
    with proxy.client(MASTER_KEY) as client:
        text = client.get("/metrics/").raise_for_status().text
    samples = re.findall(r"^(omniroute_memory_\S+(?:\{.*\})?) (\S+)$", text, re.MULTILINE)
    return {name: float(value) for name, value in samples}


def test_metrics_of_litellm_show_memory(proxy_factory: ProxyFactory) -> None:
    """Requests, retrievals, extractions, the queue and fail-open reasons are on ``/metrics``."""
    setup = ProxySetup(with_plugin=True, env=MEMORY_ON, callbacks=("prometheus",))
    with proxy_factory(setup) as proxy:
        say(proxy, "sk-user-ann", "I prefer TypeScript.")
        wait_learned(proxy, "sk-user-ann", 1)
        say(proxy, "sk-user-ann", "Which language?")
        say(proxy, "sk-user-ann", "Hello.", headers={"x-omniroute-no-memory": "1"})
        found = wait_for(
            lambda: next(
                (
                    samples
                    for samples in [scraped(proxy)]
                    if 'omniroute_memory_outbox_exchanges{state="waiting"}' in samples
                ),
                None,
            ),
            timeout_s=QUEUE_TIMEOUT_S,
            what="the gauge of the queue",
        )
    requests = "omniroute_memory_requests_total"
    assert found[f'{requests}{{outcome="injected",reason=""}}'] == 1
    assert found[f'{requests}{{outcome="none",reason=""}}'] == 1
    assert found[f'{requests}{{outcome="off",reason="opted_out"}}'] == 1
    assert found["omniroute_memory_injected_memories_total"] == 1
    assert found["omniroute_memory_retrieval_seconds_count"] == 2
    assert found["omniroute_memory_extraction_seconds_count"] >= 1
    assert found['omniroute_memory_events_total{event="memory.extraction.facts"}'] == 1
    assert not any("TypeScript" in name for name in found)
