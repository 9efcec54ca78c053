"""The console and the API inside of the real proxy."""

from collections.abc import Iterator

import httpx
import pytest

from tests.proxy.chatting import say, wait_learned
from tests.proxy.conftest import MEMORY_ON, ProxyFactory
from tests.proxy.process import MASTER_KEY, Proxy, ProxySetup

pytestmark = pytest.mark.proxy


@pytest.fixture(scope="module")
def plain_proxy(proxy_factory: ProxyFactory) -> Iterator[Proxy]:
    """Run LiteLLM as most people do: a master key, no custom authentication, no database."""
    setup = ProxySetup(with_plugin=True, custom_auth=False, env=MEMORY_ON)
    with proxy_factory(setup) as running:
        yield running


def browser(proxy: Proxy) -> httpx.Client:
    """Return a client that keeps cookies and sends no key."""
    return httpx.Client(base_url=proxy.url, trust_env=False, timeout=30)


def test_a_new_operator_gets_from_request_to_page(plain_proxy: Proxy) -> None:
    """One request, one sign-in with the master key, and the fact stands in the page."""
    say(plain_proxy, MASTER_KEY, "I prefer TypeScript.")
    wait_learned(plain_proxy, MASTER_KEY, 1)
    with browser(plain_proxy) as client:
        front = client.get("/omniroute/")
        assert front.status_code == 303
        assert front.headers["location"] == "/omniroute/login?next=%2Fomniroute%2F"
        signed_in = client.post("/omniroute/login", data={"key": MASTER_KEY})
        assert signed_in.status_code == 303
        assert "Path=/omniroute" in signed_in.headers["set-cookie"]
        html = client.get("/omniroute/memories").text
        assert "I prefer TypeScript" in html
        assert "master key" in html
        for asset in ("app.css", "app.js", "vendor/htmx-4.0.1.min.js"):
            assert client.get(f"/omniroute/static/{asset}").status_code == 200
        assert client.get("/omniroute/api/memory").json()["total"] == 1


@pytest.mark.parametrize("key", ["", "wrong", "sk-wrong"])
def test_litellm_refuses_other_keys(plain_proxy: Proxy, key: str) -> None:
    """Whatever LiteLLM answers to a bad key without a database, here it is a plain no."""
    with browser(plain_proxy) as client:
        assert client.post("/omniroute/login", data={"key": key}).status_code == 401
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        assert client.get("/omniroute/api/memory", headers=headers).status_code == 401
        assert client.get("/omniroute/memories").status_code == 303


def test_the_page_keeps_its_own_policy(plain_proxy: Proxy) -> None:
    """The proxy's own headers do not loosen the console's, and its CORS gives nothing away."""
    with browser(plain_proxy) as client:
        client.post("/omniroute/login", data={"key": MASTER_KEY})
        answer = client.get("/omniroute/memories", headers={"Origin": "https://evil.test"})
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")
        foreign = {"Origin": "https://evil.test"}
        switched = client.post(
            "/omniroute/settings/enabled", data={"value": "off"}, headers=foreign
        )
        assert switched.status_code == 403


def test_a_virtual_key_is_no_admin(proxy: Proxy, user_key: str) -> None:
    """A virtual key gets its own memories by API and no console."""
    with browser(proxy) as client:
        refused = client.post("/omniroute/login", data={"key": user_key})
        assert refused.status_code == 403
        assert "set-cookie" not in refused.headers
    with proxy.client(user_key) as client:
        assert client.get("/omniroute/api/memory").json()["total"] == 0
        assert client.get("/omniroute/api/settings/memory").status_code == 403


def test_the_proxys_own_routes_stay(plain_proxy: Proxy) -> None:
    """The mount takes nothing away from LiteLLM."""
    with plain_proxy.client() as client:
        assert client.get("/v1/models").status_code == 200
        assert client.get("/health/liveliness").status_code == 200
        assert "/omniroute" not in client.get("/openapi.json").text


def test_a_server_root_path_is_followed(proxy_factory: ProxyFactory) -> None:
    """Below SERVER_ROOT_PATH the console answers with links that work there."""
    env = {**MEMORY_ON, "SERVER_ROOT_PATH": "/llm"}
    setup = ProxySetup(with_plugin=True, custom_auth=False, env=env)
    with proxy_factory(setup) as proxy, browser(proxy) as client:
        front = client.get("/llm/omniroute/memories")
        assert front.headers["location"].startswith("/llm/omniroute/login?next=")
        signed_in = client.post("/llm/omniroute/login", data={"key": MASTER_KEY})
        assert signed_in.headers["location"] == "/llm/omniroute/"
        html = client.get("/llm/omniroute/memories").text
        assert 'href="/llm/omniroute/static/app.css"' in html
        assert client.get("/llm/omniroute/static/app.css").status_code == 200
        assert client.get("/llm/omniroute/api/memory").status_code == 200
