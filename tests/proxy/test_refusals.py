"""A provider that refuses memory: repeated without it once, remembered, told."""

from collections.abc import Iterator
from typing import Any, Final
from uuid import uuid4

import httpx
import pytest

from tests.polling import wait_for
from tests.proxy.chatting import HEADING, blocks_in, health, say, wait_learned
from tests.proxy.conftest import MEMORY_ON, ProxyFactory
from tests.proxy.process import Proxy, ProxySetup
from tests.proxy.talk import FORMATS, Format, Said, Step
from tests.upstream import Upstream

pytestmark = pytest.mark.proxy

CHAT, RESPONSES, MESSAGES, GEMINI = FORMATS
QUESTION: Final[tuple[Step, ...]] = (Said("user", "Which language?"),)
LEARN_TIMEOUT_S: Final = 20.0
GROUP_REQUESTS: Final = 6
LETTERS: Final = str.maketrans("0123456789", "ghijklmnop")
FAMILIES: Final = {"any": "openai", "any-claude": "anthropic", "any-gemini": "gemini"}


@pytest.fixture(scope="module")
def proxy(proxy_factory: ProxyFactory) -> Iterator[Proxy]:
    """Run a proxy whose owner knows something; every test takes models of its own."""
    with proxy_factory(ProxySetup(with_plugin=True, env=MEMORY_ON)) as running:
        say(running, "sk-user-ann", "I prefer TypeScript.")
        wait_learned(running, "sk-user-ann", 1)
        yield running


def fresh(fault: str, family: str = "any") -> str:
    """Return a model that nobody has called before, with a fault; digits would name another."""
    return f"{family}/{fault}-{uuid4().hex[:8].translate(LETTERS)}"


def post(proxy: Proxy, form: Format, model: str, *, stream: bool = False) -> httpx.Response:
    """Ask something and return the response, whatever it is."""
    with proxy.client("sk-user-ann") as client:
        body = form.body(model, QUESTION, stream=stream)
        return client.post(form.path(model, stream=stream), json=body)


def refused(proxy: Proxy, model: str) -> list[str]:
    """Return the forms that the health report says a model refused."""
    family, _, name = model.partition("/")
    deployment = f"{FAMILIES[family]}/{name} at "
    found: list[dict[str, Any]] = health(proxy)["refusals"]
    return [
        form for one in found if one["deployment"].startswith(deployment) for form in one["forms"]
    ]


def wait_refused(proxy: Proxy, model: str, forms: set[str]) -> None:
    """Wait until these forms are known as refused by a model."""
    wait_for(
        lambda: set(refused(proxy, model)) == forms,
        timeout_s=LEARN_TIMEOUT_S,
        what=f"{forms} refused by {model}",
    )


CELLS: Final = [
    (form, family, stream)
    for form in FORMATS
    for family in FAMILIES
    for stream in (False, True)
    # In another format LiteLLM turns the system message for Gemini into one of the user's
    # (nothing is refused), and a stream to it opens behind the retries: see the docs.
    if family != "any-gemini" or form is GEMINI
]


@pytest.mark.parametrize("fault", ["nosys", "nosys422"])
@pytest.mark.parametrize(
    ("form", "family", "stream"),
    CELLS,
    ids=[f"{form.name}-{FAMILIES[family]}-{stream}" for form, family, stream in CELLS],
)
def test_a_refused_request_is_repeated_once_without_memory(
    proxy: Proxy, upstream: Upstream, form: Format, family: str, stream: bool, fault: str
) -> None:
    """Natively and over bridges the client gets its answer, and the deployment is remembered."""
    model = fresh(fault, family)
    response = post(proxy, form, model, stream=stream)
    assert response.status_code == 200, response.text
    assert [blocks_in(record.body) for record in upstream.records()] == [1, 0]
    receipt = response.headers
    assert receipt["x-omniroute-memory"] == "degraded"
    assert receipt["x-omniroute-memory-reason"] == "refused"
    assert receipt["x-omniroute-memory-injected"] == "0"
    wait_refused(proxy, model, {"system"})
    counters = health(proxy)["counters"]
    assert counters["memory.injection.refused"] >= counters["memory.injection.repeated"] >= 1
    assert f"memory.injection.refused deployment={FAMILIES[family]}/" in proxy.log()


def test_the_next_requests_take_another_form(proxy: Proxy, upstream: Upstream) -> None:
    """Refused as a system message, memory goes as a user message at last, and is taken."""
    model = fresh("nosys")
    for forms in ({"system"}, {"system", "merged"}):
        assert post(proxy, CHAT, model).status_code == 200
        wait_refused(proxy, model, forms)
    upstream.clear()
    assert post(proxy, CHAT, model).headers["x-omniroute-memory"] == "injected"
    (record,) = upstream.records()
    message = record.body["messages"][0]
    assert message["role"] == "user"
    assert HEADING in message["content"]


def test_at_last_memory_stays_away(proxy_factory: ProxyFactory, upstream: Upstream) -> None:
    """A deployment that refuses every form is left alone, also after a restart, and it shows."""
    model = fresh("nomem")
    with proxy_factory(ProxySetup(with_plugin=True, env=MEMORY_ON)) as proxy:
        say(proxy, "sk-user-ann", "I prefer TypeScript.")
        wait_learned(proxy, "sk-user-ann", 1)
        for forms in ({"system"}, {"system", "merged"}, {"system", "merged", "user"}):
            assert post(proxy, CHAT, model).status_code == 200
            wait_refused(proxy, model, forms)
        for _ in range(2):
            upstream.clear()
            receipt = post(proxy, CHAT, model).headers
            assert receipt["x-omniroute-memory"] == "degraded"
            assert receipt["x-omniroute-memory-reason"] == "deployment_refuses"
            (record,) = upstream.records()
            assert not blocks_in(record.body)
            proxy.restart()


def test_memory_behind_a_turn_can_be_refused_as_well(
    proxy_factory: ProxyFactory, upstream: Upstream
) -> None:
    """Placement at the end is given up for placement in front, for that deployment alone."""
    env = {**MEMORY_ON, "OMNIROUTE_MEMORY_INJECTION_PLACEMENT": "tail"}
    model = fresh("nomem")
    with proxy_factory(ProxySetup(with_plugin=True, env=env)) as proxy:
        say(proxy, "sk-user-ann", "I prefer TypeScript.")
        wait_learned(proxy, "sk-user-ann", 1)
        for forms in ({"tail"}, {"tail", "system"}):
            assert post(proxy, CHAT, model).status_code == 200
            wait_refused(proxy, model, forms)
        assert post(proxy, CHAT, "gpt").headers["x-omniroute-memory"] == "injected"
        (message,) = upstream.records()[-1].body["messages"]
        assert message["content"].startswith("Which language?")


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
@pytest.mark.parametrize("fault", ["fail400", "fail422"])
def test_a_clients_own_mistake_is_not_held_against_the_deployment(
    proxy: Proxy, bare_proxy: Proxy, upstream: Upstream, form: Format, fault: str
) -> None:
    """Refused without memory as well, the client sees the error that LiteLLM alone would give."""
    model = fresh(fault)
    response = post(proxy, form, model)
    assert [blocks_in(record.body) for record in upstream.records()] == [1, 0]
    bare = post(bare_proxy, form, model)
    assert (response.status_code, response.json()) == (bare.status_code, bare.json())
    assert not refused(proxy, model)


def test_a_request_without_memory_is_not_repeated(proxy: Proxy, upstream: Upstream) -> None:
    """A refusal that cannot be ours comes back as fast as without the plugin."""
    with proxy.client("sk-user-somebody-key-new") as client:
        body = CHAT.body(fresh("fail400"), QUESTION, stream=False)
        assert client.post("/v1/chat/completions", json=body).status_code == 400
    assert len(upstream.records()) == 1


@pytest.mark.parametrize("form", [CHAT, RESPONSES, MESSAGES], ids=lambda form: form.name)
def test_a_group_repeats_without_memory_on_any_server(
    proxy: Proxy, upstream: Upstream, form: Format
) -> None:
    """Of two deployments that both refuse, the one that the repeat reaches gets no memory."""
    for _ in range(GROUP_REQUESTS):
        upstream.clear()
        response = post(proxy, form, "pair")
        assert response.status_code == 200, response.text
        blocks = [blocks_in(record.body) for record in upstream.records()]
        assert blocks in ([1, 0], [0])  # in the end both have refused every form


def test_a_group_remembers_who_refused(proxy: Proxy) -> None:
    """Each of two deployments is remembered, although the other one answers in its place."""

    def are_known() -> bool:
        assert post(proxy, CHAT, "pair").status_code == 200
        return all(refused(proxy, f"any/nomem-{side}") for side in ("left", "right"))

    wait_for(are_known, timeout_s=LEARN_TIMEOUT_S, what="both deployments refusing")


def test_a_prompt_that_is_too_long_teaches_nothing(proxy: Proxy, upstream: Upstream) -> None:
    """Memory that made a prompt too long is left out of the repeat; the form was not the reason."""
    response = post(proxy, CHAT, "cramped")
    assert response.headers["x-omniroute-memory"] == "injected"
    bodies = [record.body for record in upstream.records()]
    assert [blocks_in(body) for body in bodies] == [1, 0, 1]
    assert bodies[-1]["model"] == "glm-4.6"
    assert not any("ctxfail" in one["deployment"] for one in health(proxy)["refusals"])
