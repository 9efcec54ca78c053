"""What was captured is never lost: crashes, clean stops, several workers."""

import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Final
from uuid import uuid4

import pytest

from tests.polling import wait_for
from tests.proxy.chatting import health, keys_of, memories, say, wait_idle, wait_learned
from tests.proxy.conftest import MEMORY_ON, ProxyFactory
from tests.proxy.process import MASTER_KEY, Proxy, ProxySetup
from tests.upstream import Upstream

pytestmark = pytest.mark.proxy

HEAVY_EXCHANGES: Final = 80
HEAVY_TEXT: Final = "we went there and it rained all day long. " * 1_500
REQUESTS: Final = 500
CALLERS: Final = 10


@pytest.fixture
def own_proxy(proxy_factory: ProxyFactory) -> Iterator[Proxy]:
    """Run a proxy that the test may kill."""
    with proxy_factory(ProxySetup(with_plugin=True, env=MEMORY_ON)) as running:
        yield running


@pytest.fixture(scope="module")
def two_workers(proxy_factory: ProxyFactory) -> Iterator[Proxy]:
    """Run a proxy with two worker processes on one data directory."""
    setup = ProxySetup(with_plugin=True, env=MEMORY_ON, num_workers=2)
    with proxy_factory(setup) as running:
        yield running


def database(proxy: Proxy) -> sqlite3.Connection:
    """Open the store of a proxy beside it."""
    connection = sqlite3.connect(proxy.data_dir / "omniroute.db", timeout=30)
    connection.isolation_level = None
    return connection


def fill_outbox(proxy: Proxy) -> None:
    """Give the extraction so much to do that a new exchange has to wait."""
    with closing(database(proxy)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(
            "INSERT INTO outbox"
            " (api_key_id, request_id, user_text, answer_text, model, captured_at)"
            " VALUES ('other', ?, ?, '', 'gpt', strftime('%Y-%m-%dT%H:%M:%f000Z', 'now'))",
            [(str(number), HEAVY_TEXT) for number in range(HEAVY_EXCHANGES)],
        )
        connection.execute("COMMIT")


def waiting_for(proxy: Proxy, text: str) -> bool:
    """Tell whether an exchange with this text is in the outbox."""
    with closing(database(proxy)) as connection:
        found = connection.execute(
            "SELECT count(*) FROM outbox WHERE user_text LIKE ?", (f"%{text}%",)
        ).fetchone()
    return bool(found[0])


def test_sigkill_loses_no_captured_exchange(own_proxy: Proxy) -> None:
    """Killed while the exchange waits in the outbox: after a restart it is extracted, once."""
    key = "sk-user-killed"
    fill_outbox(own_proxy)
    say(own_proxy, key, "I prefer TypeScript.")
    wait_for(
        lambda: waiting_for(own_proxy, "TypeScript"), timeout_s=20, what="an exchange in the outbox"
    )
    own_proxy.kill()
    assert waiting_for(own_proxy, "TypeScript"), "it was extracted before the kill"
    own_proxy.start()
    learned = wait_learned(own_proxy, key, 1)
    wait_idle(own_proxy)
    assert [memory["key"] for memory in learned] == ["preference:typescript"]
    assert len(memories(own_proxy, key)) == 1
    with closing(database(own_proxy)) as connection:
        assert connection.execute("SELECT count(*) FROM memory_history").fetchone() == (0,)


def test_sigterm_drains_what_was_answered(own_proxy: Proxy, upstream: Upstream) -> None:
    """A stop right after the answer stores its facts before the process ends."""
    key = "sk-user-stopped"
    say(own_proxy, key, "I prefer TypeScript.")
    own_proxy.stop()
    with closing(database(own_proxy)) as connection:
        keys = connection.execute("SELECT key FROM memories").fetchall()
        left = connection.execute("SELECT count(*) FROM outbox").fetchone()
        workers = connection.execute("SELECT count(*) FROM workers").fetchone()
    assert keys == [("preference:typescript",)]
    assert left == (0,)
    assert workers == (0,)
    own_proxy.start()
    upstream.clear()
    assert say(own_proxy, key, "Which language?").headers["x-omniroute-memory"] == "injected"


def test_two_workers_lose_nothing(two_workers: Proxy) -> None:
    """500 mixed requests of ten callers over two workers: no lock error, no lost write."""
    run = uuid4().hex[:6]

    def one(number: int) -> int:
        key = f"sk-user-{run}{number % CALLERS}"
        mode = number % 5
        if mode == 4:
            with two_workers.client(key) as client:
                return client.get("/omniroute/api/memory").status_code
        headers = {"x-omniroute-no-memory": "1"} if mode == 3 else {}
        text = f"I prefer tool{number}."
        return say(two_workers, key, text, stream=mode == 1, headers=headers).status_code

    with ThreadPoolExecutor(CALLERS) as pool:
        assert set(pool.map(one, range(REQUESTS))) == {200}
    wait_idle(two_workers)
    expected = {f"preference:tool{n}" for n in range(REQUESTS) if n % 5 in {0, 1, 2}}
    stored = set[str]()
    for caller in range(CALLERS):
        stored |= keys_of(two_workers, f"sk-user-{run}{caller}")
    assert stored == expected
    report = health(two_workers)
    assert report["workers"] == 2
    assert report["faults"] == []
    assert "database_locked" not in two_workers.log()
    with closing(database(two_workers)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        mixed = (
            "SELECT count(*) FROM memories AS m JOIN owners AS o ON o.number = m.pk >> 32"
            " WHERE o.api_key_id <> m.api_key_id"
        )
        assert connection.execute(mixed).fetchone() == (0,)


def test_settings_reach_both_workers(two_workers: Proxy) -> None:
    """A setting that one worker stores is in force in the other within two seconds."""
    key = f"sk-user-{uuid4().hex}"
    say(two_workers, key, "I prefer TypeScript.")
    wait_learned(two_workers, key, 1)

    def outcomes() -> set[str]:
        """Ask often enough that both workers have answered: the kernel spreads connections."""
        return {
            say(two_workers, key, "Which language?").headers["x-omniroute-memory"]
            for _ in range(12)
        }

    assert outcomes() == {"injected"}
    with two_workers.client(MASTER_KEY) as client:
        client.put("/omniroute/api/settings/memory", json={"maxTokens": 0})
    try:
        wait_for(lambda: outcomes() == {"none"}, timeout_s=4, what="both workers' obedience")
    finally:
        with two_workers.client(MASTER_KEY) as client:
            client.put("/omniroute/api/settings/memory", json={"maxTokens": 2000})


def test_database_file_is_where_the_log_says(own_proxy: Proxy) -> None:
    """The data directory is named at start."""
    assert str(own_proxy.data_dir) in own_proxy.log()
    assert Path(own_proxy.data_dir / "omniroute.db").is_file()
