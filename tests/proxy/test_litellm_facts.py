"""What the plugin takes for granted about LiteLLM's chat completions."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final
from uuid import uuid4

import httpx
import pytest

from tests.polling import wait_for
from tests.proxy.conftest import ProxyFactory
from tests.proxy.process import MASTER_KEY, Proxy, ProxySetup
from tests.upstream import Upstream
from tests.upstream_answers import NO_FACT

pytestmark = [pytest.mark.proxy, pytest.mark.contract]

PROBE: Final = Path(__file__).with_name("probe.py")
EVENT_TIMEOUT_S: Final = 10.0
HOOKS_IN_ORDER: Final = ["pre_call", "deployment", "headers", "success"]

Event = dict[str, Any]  # one line of the probe's log

both_ways = pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "stream"])


@dataclass(frozen=True, slots=True)
class Probed:
    """A proxy with the probe, and what the probe has seen."""

    proxy: Proxy
    log: Path

    def events(self) -> list[Event]:
        """Return everything seen so far."""
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def of(self, token: str) -> list[Event]:
        """Return what was seen under one token."""
        return [event for event in self.events() if event["token"] == token]

    def chat(
        self,
        model: str = "gpt",
        *,
        key: str = MASTER_KEY,
        is_stream: bool = False,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> tuple[str, httpx.Response]:
        """Have one exchange under a new token; return both when the success event has fired."""
        token = f"token-{uuid4().hex}"
        messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
        body = {"model": model, "stream": is_stream, "messages": messages}
        with self.proxy.client(key) as client:
            answer = client.post(
                "/v1/chat/completions", json=body, headers={"X-Probe": token, **headers}
            )
        answer.raise_for_status()
        wait_for(
            lambda: self.only(token, "success"), timeout_s=EVENT_TIMEOUT_S, what="success event"
        )
        return token, answer

    def only(self, token: str, hook: str) -> list[Event]:
        """Return what one hook has seen under one token."""
        return [event for event in self.of(token) if event["hook"] == hook]


def _probed(proxy_factory: ProxyFactory, log: Path) -> Probed:
    setup = ProxySetup(
        callbacks=(f"{PROBE.stem}.handler",), modules=(PROBE,), env={"PROBE_LOG": str(log)}
    )
    return Probed(proxy_factory(setup), log)


@pytest.fixture(scope="module")
def probed(
    proxy_factory: ProxyFactory, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Probed]:
    probed = _probed(proxy_factory, tmp_path_factory.mktemp("probe") / "probe.jsonl")
    with probed.proxy:
        yield probed


@both_ways
def test_hooks_run_in_order(probed: Probed, *, is_stream: bool) -> None:
    """Identify, place, tell the client, then log: the same for whole and streamed answers."""
    token, _ = probed.chat(is_stream=is_stream)
    assert [event["hook"] for event in probed.of(token)] == HOOKS_IN_ORDER


@both_ways
def test_context_variable_reaches_every_later_hook(probed: Probed, *, is_stream: bool) -> None:
    """What the pre-call hook sets in a ContextVar is seen to the end, in the success event too."""
    token, _ = probed.chat(is_stream=is_stream)
    assert {event["hook"] for event in probed.of(token)} == set(HOOKS_IN_ORDER)


def test_context_variable_does_not_reach_the_next_request(probed: Probed) -> None:
    """A kept-alive connection starts each request without the state of the one before."""
    token = f"token-{uuid4().hex}"
    body = {"model": "gpt", "messages": [{"role": "user", "content": "Hi"}]}
    with probed.proxy.client() as client:
        client.post("/v1/chat/completions", json=body, headers={"x-probe": token})
        second = client.post("/v1/chat/completions", json=body)
    assert second.headers["x-probe-state"] == "none"
    assert len(probed.only(token, "deployment")) == 1


def test_every_hook_runs_in_the_loop_that_imported_the_callback(probed: Probed) -> None:
    """Import and hooks share one running event loop, the success event too."""
    token, _ = probed.chat()
    (imported,) = [event for event in probed.events() if event["hook"] == "import"]
    assert {event["loop"] for event in probed.of(token)} == {imported["loop"]}


@both_ways
def test_response_header_reaches_the_client(probed: Probed, *, is_stream: bool) -> None:
    """A header that the response-headers hook returns arrives, with a stream as well."""
    token, answer = probed.chat(is_stream=is_stream)
    assert answer.headers["x-probe-state"] == token


def test_request_headers_are_lower_case_and_hold_no_key(probed: Probed) -> None:
    """The pre-call hook sees header names in lower case and no authorization."""
    token, _ = probed.chat(headers={"X-OmniRoute-No-Memory": "TRUE"})
    (seen,) = probed.only(token, "pre_call")
    assert seen["headers"]["x-omniroute-no-memory"] == "TRUE"
    assert [name for name in seen["headers"] if name != name.lower()] == []
    assert "authorization" not in seen["headers"]


def test_every_attempt_gets_the_clients_messages(probed: Probed) -> None:
    """Retry and fallback hand the same list to the hook again, without what an attempt placed."""
    token, _ = probed.chat("fragile")
    attempts = probed.only(token, "deployment")
    assert [attempt["provider"] for attempt in attempts] == ["openai", "openai", "zai"]
    assert len({attempt["messages_id"] for attempt in attempts}) == 1
    assert [attempt["tokens_seen"] for attempt in attempts] == [0, 0, 0]


@both_ways
def test_placement_suits_each_attempt(
    probed: Probed, upstream: Upstream, *, is_stream: bool
) -> None:
    """Over a retry and a fallback, each provider gets the block once, in its own role."""
    token, _ = probed.chat("fragile", is_stream=is_stream)
    placed = [
        [turn["role"] for turn in record.body["messages"] if token in turn["content"]]
        for record in upstream.records()
    ]
    assert placed == [["system"], ["system"], ["user"]]


def test_context_window_fallback_places_again(probed: Probed, upstream: Upstream) -> None:
    """A fallback for a full context window passes through the deployment hook as well."""
    token, _ = probed.chat("cramped")
    assert [record.raw.count(token.encode()) for record in upstream.records()] == [1, 1]


@both_ways
@pytest.mark.parametrize("model", ["gpt", "fragile"])
def test_success_fires_once(probed: Probed, model: str, *, is_stream: bool) -> None:
    """One client request is one success event, however many attempts it took."""
    token, _ = probed.chat(model, is_stream=is_stream)
    probed.chat()  # whatever the first request has queued is logged before this one
    assert len(probed.only(token, "success")) == 1


@both_ways
def test_success_event_holds_the_answer_and_the_clients_prompt(
    probed: Probed, *, is_stream: bool
) -> None:
    """The logged answer is complete and the logged prompt is free of what was placed."""
    token, _ = probed.chat(is_stream=is_stream)
    (success,) = probed.only(token, "success")
    assert success["response"] == "ModelResponse"
    assert success["text"] == NO_FACT
    assert success["tokens_seen"] == 0


def test_health_check_fires_success_without_pre_call(probed: Probed) -> None:
    """A health check is a success event without any request behind it."""
    before = len(probed.events())
    with probed.proxy.client() as client:
        client.get("/health", params={"model": "gpt"}).raise_for_status()
    hooks = wait_for(
        lambda: _hooks_up_to_success(probed.events()[before:]),
        timeout_s=EVENT_TIMEOUT_S,
        what="success event of the health check",
    )
    assert "pre_call" not in hooks


def _hooks_up_to_success(events: list[Event]) -> list[str]:
    hooks = [event["hook"] for event in events]
    return hooks if "success" in hooks else []


@pytest.mark.parametrize(
    ("key", "identity"),
    [
        (MASTER_KEY, ("litellm_proxy_master_key", "default_user_id", None)),
        ("sk-user-ann-team-red", (sha256(b"sk-user-ann-team-red").hexdigest(), "ann", "red")),
        ("sk-anon", (None, None, None)),
    ],
    ids=["master", "virtual", "anonymous"],
)
def test_identity_of_the_caller(
    probed: Probed, key: str, identity: tuple[str | None, str | None, str | None]
) -> None:
    """A virtual key appears hashed, the master key as an alias, an anonymous caller as nothing."""
    token, _ = probed.chat(key=key)
    (seen,) = probed.only(token, "pre_call")
    assert (seen["key"], seen["user_id"], seen["team_id"]) == identity


def test_unknown_key_is_refused(bare_proxy: Proxy) -> None:
    """The keys of these tests are checked at all."""
    with bare_proxy.client("sk-unknown") as client:
        assert client.get("/v1/models").status_code == httpx.codes.UNAUTHORIZED


@pytest.mark.parametrize("model", ["o1-mini", "glm"])
def test_system_role_is_not_changed_for_models_that_refuse_it(
    bare_proxy: Proxy, upstream: Upstream, model: str
) -> None:
    """LiteLLM sends a system message on as it is, so the plugin has to know such models."""
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    with bare_proxy.client() as client:
        client.post("/v1/chat/completions", json={"model": model, "messages": messages})
    (record,) = upstream.records()
    assert record.body["messages"] == messages


def test_sigterm_runs_the_shutdown_event(proxy_factory: ProxyFactory, tmp_path: Path) -> None:
    """A wrapped `proxy_shutdown_event` is awaited when the process is asked to end."""
    probed = _probed(proxy_factory, tmp_path / "probe.jsonl")
    with probed.proxy:
        assert [event["hook"] for event in probed.events()] == ["import"]
    assert [event["hook"] for event in probed.events()] == ["import", "shutdown"]
