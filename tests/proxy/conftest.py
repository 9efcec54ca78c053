"""Fixtures around the real proxy; everything here runs under `-m proxy` or `-m agents` only."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final
from uuid import uuid4

import pytest

from tests.proxy.process import Proxy, ProxySetup
from tests.upstream import Upstream

ProxyFactory = Callable[[ProxySetup], Proxy]

HERE: Final = Path(__file__).parent
MEMORY_ON: Final = {"OMNIROUTE_MEMORY_ENABLED": "true"}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder, so that none runs by accident without the marker.

    Those with `agents` need more than the proxy and run under that marker alone.
    """
    for item in items:
        if item.path.is_relative_to(HERE) and item.get_closest_marker("agents") is None:
            item.add_marker(pytest.mark.proxy)


@pytest.fixture(scope="session")
def provider() -> Iterator[Upstream]:
    """Run one fake provider for all proxies."""
    with Upstream() as running:
        yield running


@pytest.fixture(autouse=True)
def upstream(provider: Upstream) -> Upstream:
    """Hand out the provider with nothing recorded and the default answer."""
    provider.reset()
    return provider


@pytest.fixture(scope="session")
def proxy_factory(provider: Upstream, tmp_path_factory: pytest.TempPathFactory) -> ProxyFactory:
    """Make a proxy with a folder of its own; enter it to start it."""

    def make(setup: ProxySetup) -> Proxy:
        root = tmp_path_factory.mktemp("proxy")
        return Proxy(root, upstream_url=provider.url, setup=setup)

    return make


@pytest.fixture(scope="session")
def bare_proxy(proxy_factory: ProxyFactory) -> Iterator[Proxy]:
    """Run LiteLLM alone."""
    with proxy_factory(ProxySetup()) as running:
        yield running


@pytest.fixture(scope="module")
def proxy(proxy_factory: ProxyFactory) -> Iterator[Proxy]:
    """Run LiteLLM with the plugin, memory switched on, an empty store for each test module."""
    with proxy_factory(ProxySetup(with_plugin=True, env=MEMORY_ON)) as running:
        yield running


@pytest.fixture(scope="module")
def proxy_session_scope(proxy_factory: ProxyFactory) -> Iterator[Proxy]:
    """Run LiteLLM with the plugin, memories kept apart by session."""
    env = {**MEMORY_ON, "OMNIROUTE_MEMORY_SCOPE": "session"}
    with proxy_factory(ProxySetup(with_plugin=True, env=env)) as running:
        yield running


@pytest.fixture
def proxy_without_texts(proxy_factory: ProxyFactory) -> Iterator[Proxy]:
    """Run LiteLLM with the plugin and with texts kept out of its logs."""
    setup = ProxySetup(
        with_plugin=True, env=MEMORY_ON, litellm_settings={"turn_off_message_logging": True}
    )
    with proxy_factory(setup) as running:
        yield running


@pytest.fixture
def proxy_from_settings(proxy_factory: ProxyFactory) -> Iterator[Proxy]:
    """Run LiteLLM with the plugin and nothing pinned: memory is as the database says."""
    with proxy_factory(ProxySetup(with_plugin=True)) as running:
        yield running


@pytest.fixture
def user_key() -> str:
    """Return a virtual key that nobody has used before."""
    return f"sk-user-{uuid4().hex}"
