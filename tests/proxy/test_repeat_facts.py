"""How LiteLLM repeats a request that was refused because of what a callback placed into it.

A callback gives the request a retry policy of its own, empty at first, and fills it in from the
failure hook of the attempt, which LiteLLM awaits before it consults the policy.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from tests.proxy.conftest import ProxyFactory
from tests.proxy.process import Proxy, ProxySetup
from tests.upstream import Upstream

pytestmark = pytest.mark.proxy

PROBE: Final = Path(__file__).with_name("repeat_probe.py")
BLOCK: Final = "Block of the probe."
ROUTES: Final = ("chat", "responses", "messages", "gemini")
USER: Final = {"role": "user", "content": "Hi"}
OF_THE_MOMENT: Final = ("date", "call-id", "duration", "overhead", "timing")

both_ways = pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "stream"])
every_route = pytest.mark.parametrize("route", ROUTES)


def _setup(**router_settings: Any) -> ProxySetup:
    return ProxySetup(
        callbacks=(f"{PROBE.stem}.handler",),
        modules=(PROBE,),
        env={"PROBE_BLOCK": BLOCK},
        router_settings=router_settings,
    )


@pytest.fixture(scope="module")
def probed(proxy_factory: ProxyFactory) -> Iterator[Proxy]:
    with proxy_factory(_setup(num_retries=0)) as running:
        yield running


def _request(route: str, model: str, *, is_stream: bool) -> tuple[str, dict[str, Any]]:
    if route == "gemini":
        action = "streamGenerateContent?alt=sse" if is_stream else "generateContent"
        body = {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]}
        return f"/v1beta/models/{model}:{action}", body
    common = {"model": model, "stream": is_stream}
    if route == "responses":
        return "/v1/responses", {**common, "input": "Hi"}
    if route == "messages":
        return "/v1/messages", {**common, "messages": [USER], "max_tokens": 20}
    return "/v1/chat/completions", {**common, "messages": [USER]}


def _send(
    proxy: Proxy,
    model: str,
    *,
    route: str = "chat",
    is_stream: bool = False,
    wish: str | None = "place",
    extra: dict[str, Any] | None = None,
) -> httpx.Response:
    path, body = _request(route, model, is_stream=is_stream)
    with proxy.client() as client:
        headers = {} if wish is None else {"x-probe": wish}
        return client.post(path, json={**body, **(extra or {})}, headers=headers)


def _blocks(upstream: Upstream) -> list[int]:
    """Count the placed prompts in each request that reached the provider."""
    return [record.raw.count(BLOCK.encode()) for record in upstream.records()]


def _lasting(answer: httpx.Response) -> tuple[int, bytes, dict[str, str]]:
    """Return what of an answer does not change from one request to the next."""
    headers = {
        name: value
        for name, value in answer.headers.items()
        if not any(part in name for part in OF_THE_MOMENT)
    }
    return answer.status_code, answer.content, headers


@every_route
@both_ways
@pytest.mark.parametrize("family", ["", "claude-"], ids=["openai", "anthropic"])
@pytest.mark.parametrize("refusing", ["nosys", "nosys422"], ids=["400", "422"])
def test_refused_prompt_is_left_out_of_the_repeat(
    probed: Proxy, upstream: Upstream, *, route: str, family: str, refusing: str, is_stream: bool
) -> None:
    """The deployment hook runs again, native or bridged, and the client sees an answer alone."""
    answer = _send(probed, family + refusing, route=route, is_stream=is_stream)
    assert answer.status_code == httpx.codes.OK
    assert _blocks(upstream) == [1, 0]


@both_ways
@pytest.mark.parametrize("refusing", ["nosys", "nosys422"], ids=["400", "422"])
def test_native_gemini_call_is_repeated(
    probed: Proxy, upstream: Upstream, *, refusing: str, is_stream: bool
) -> None:
    """A Gemini deployment called in its own format is repeated, too."""
    answer = _send(probed, f"gemini-{refusing}", route="gemini", is_stream=is_stream)
    assert answer.status_code == httpx.codes.OK
    assert _blocks(upstream) == [1, 0]


@pytest.mark.parametrize("route", ["chat", "responses", "messages"])
def test_stream_bridged_to_gemini_is_not_repeated(
    probed: Proxy, upstream: Upstream, route: str
) -> None:
    """LiteLLM opens this stream after the failure hook's last chance, so the refusal stands."""
    _send(probed, "gemini-fail400", route=route, is_stream=True)
    assert len(upstream.records()) == 1


@every_route
@both_ways
@pytest.mark.parametrize("family", ["", "claude-"], ids=["openai", "anthropic"])
@pytest.mark.parametrize("failing", ["fail400", "fail422"], ids=["400", "422"])
def test_lasting_refusal_reaches_the_client_unchanged(
    probed: Proxy, upstream: Upstream, *, route: str, family: str, failing: str, is_stream: bool
) -> None:
    """Refused without the prompt as well, status, body and headers are those of an own mistake."""
    model = family + failing
    own = _send(probed, model, route=route, is_stream=is_stream, wish=None)
    upstream.clear()
    repeated = _send(probed, model, route=route, is_stream=is_stream)
    assert _blocks(upstream) == [1, 0]
    assert _lasting(repeated) == _lasting(own)


@every_route
@both_ways
def test_empty_policy_repeats_nothing(
    probed: Proxy, upstream: Upstream, *, route: str, is_stream: bool
) -> None:
    """A request into which nothing was placed fails at its first refusal."""
    _send(probed, "fail400", route=route, is_stream=is_stream, wish="watch")
    assert _blocks(upstream) == [0]


@every_route
@both_ways
def test_policy_does_not_reach_the_provider(
    probed: Proxy, upstream: Upstream, *, route: str, is_stream: bool
) -> None:
    """The router keeps the key to itself, in the repeat as well."""
    _send(probed, "nosys", route=route, is_stream=is_stream)
    assert [b"retry_policy" in record.raw for record in upstream.records()] == [False, False]


def test_repeat_shows_in_the_headers(probed: Proxy) -> None:
    """The client can tell a repeated answer by LiteLLM's own count."""
    answer = _send(probed, "nosys")
    assert answer.headers["x-litellm-attempted-retries"] == "1"


def test_client_that_wants_no_retries_gets_none(probed: Proxy, upstream: Upstream) -> None:
    """With `num_retries` 0 in the request, LiteLLM consults no policy."""
    answer = _send(probed, "nosys", extra={"num_retries": 0})
    assert answer.status_code == httpx.codes.BAD_REQUEST
    assert _blocks(upstream) == [1]


def test_other_errors_keep_the_operators_count(
    proxy_factory: ProxyFactory, upstream: Upstream
) -> None:
    """A server error is retried as often as the router's settings say."""
    with proxy_factory(_setup(num_retries=2)) as proxy:
        _send(proxy, "fail500")
    assert len(upstream.records()) == 3


def test_operators_policy_stays_in_force(proxy_factory: ProxyFactory, upstream: Upstream) -> None:
    """What the operator grants a group for another error counts for a request with a grant."""
    policy = {"fail500": {"InternalServerErrorRetries": 3}}
    with proxy_factory(_setup(num_retries=0, model_group_retry_policy=policy)) as proxy:
        _send(proxy, "fail500")
    assert len(upstream.records()) == 4


def test_policy_of_the_router_repeats_every_refusal(
    proxy_factory: ProxyFactory, upstream: Upstream
) -> None:
    """A policy on the router itself cannot tell a client's own mistake, so it is no substitute."""
    policy = {"BadRequestErrorRetries": 1}
    with proxy_factory(_setup(num_retries=0, retry_policy=policy)) as proxy:
        _send(proxy, "fail400", wish=None)
    assert len(upstream.records()) == 2
