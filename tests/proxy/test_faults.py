"""A broken store never breaks a request: the answer comes, and receipt, health and log say why."""

import resource
import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.polling import wait_for
from tests.proxy.chatting import HEADING, Headers, health, say, wait_idle, wait_learned
from tests.proxy.conftest import MEMORY_ON, ProxyFactory
from tests.proxy.process import MASTER_KEY, Proxy, ProxySetup
from tests.upstream import Upstream

pytestmark = pytest.mark.proxy

DATABASE: Final = "omniroute.db"
FAULT_TIMEOUT_S: Final = 20.0


@contextmanager
def started(proxy: Proxy) -> Generator[Proxy]:
    """Run a proxy for the length of a block."""
    with proxy:
        yield proxy


def outcome(proxy: Proxy, key: str, *, stream: bool = False) -> Headers:
    """Return the receipt of one request; the request itself has to succeed."""
    return dict(say(proxy, key, "I prefer TypeScript.", stream=stream).headers)


def wait_for_error(proxy: Proxy, key: str) -> Headers:
    """Return the first receipt that says ``error``."""

    def probe() -> Headers | None:
        receipt = outcome(proxy, key)
        return receipt if receipt["x-omniroute-memory"] == "error" else None

    return wait_for(probe, timeout_s=FAULT_TIMEOUT_S, what="a receipt that says error")


def assert_told(proxy: Proxy, reason: str) -> None:
    """Health and log name the reason, each in one line."""
    report = health(proxy)
    told = {fault["reason"] for fault in (*report["faults"], *report["lastErrors"])}
    assert reason in told
    assert all("\n" not in fault["message"] for fault in report["faults"])
    assert f"reason={reason}" in proxy.log()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_unwritable_data_directory(
    proxy_factory: ProxyFactory, tmp_path: Path, stream: bool
) -> None:
    """A data directory that cannot be made."""
    blocker = tmp_path / "a-file"
    blocker.write_text("in the way")
    env = {**MEMORY_ON, "OMNIROUTE_DATA_DIR": str(blocker / "data")}
    with started(proxy_factory(ProxySetup(with_plugin=True, env=env))) as proxy:
        receipt = outcome(proxy, "sk-user-a", stream=stream)
        assert receipt["x-omniroute-memory"] == "error"
        assert receipt["x-omniroute-memory-reason"] == "database_unwritable"
        report = health(proxy)
        assert report["working"] is False
        assert "data directory" in report["error"]
        assert_told(proxy, "database_unwritable")


def test_corrupt_database_at_start(proxy_factory: ProxyFactory) -> None:
    """A file that is no database."""
    proxy = proxy_factory(ProxySetup(with_plugin=True, env=MEMORY_ON))
    (proxy.data_dir / DATABASE).write_bytes(b"this is not a database, whatever it looks like" * 200)
    with started(proxy):
        receipt = outcome(proxy, "sk-user-a")
        assert receipt["x-omniroute-memory"] == "error"
        assert receipt["x-omniroute-memory-reason"] == "database_corrupt"
        assert_told(proxy, "database_corrupt")


def test_corrupt_database_under_way(proxy_factory: ProxyFactory, upstream: Upstream) -> None:
    """A file that is overwritten while the proxy runs."""
    with started(proxy_factory(ProxySetup(with_plugin=True, env=MEMORY_ON))) as proxy:
        outcome(proxy, "sk-user-a")
        wait_learned(proxy, "sk-user-a", 1)
        path = proxy.data_dir / DATABASE
        size = path.stat().st_size + (proxy.data_dir / f"{DATABASE}-wal").stat().st_size
        for name in (DATABASE, f"{DATABASE}-wal"):
            (proxy.data_dir / name).write_bytes(b"\xff" * size)
        receipt = wait_for_error(proxy, "sk-user-a")
        assert receipt["x-omniroute-memory-reason"] == "database_corrupt"
        assert_told(proxy, "database_corrupt")


def test_disk_full(proxy_factory: ProxyFactory) -> None:
    """A limit on file sizes that the store runs into: reads go on, the receipt says error."""
    with started(proxy_factory(ProxySetup(with_plugin=True, env=MEMORY_ON))) as proxy:
        outcome(proxy, "sk-user-a")
        wait_learned(proxy, "sk-user-a", 1)
        largest = max(path.stat().st_size for path in proxy.data_dir.iterdir())
        resource.prlimit(proxy.pid, resource.RLIMIT_FSIZE, (largest, resource.RLIM_INFINITY))
        receipt = wait_for_error(proxy, "sk-user-a")
        assert receipt["x-omniroute-memory-reason"] in {"database_full", "database_io_error"}
        assert receipt["x-omniroute-memory-injected"] == "1"
        unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        resource.prlimit(proxy.pid, resource.RLIMIT_FSIZE, unlimited)
        assert_told(proxy, receipt["x-omniroute-memory-reason"])
        wait_recovered(proxy)


def test_disk_full_at_start(proxy_factory: ProxyFactory) -> None:
    """A disk on which not even the schema fits."""
    setup = ProxySetup(with_plugin=True, env=MEMORY_ON, limits={resource.RLIMIT_FSIZE: 20_000})
    with started(proxy_factory(setup)) as proxy:
        receipt = outcome(proxy, "sk-user-a")
        assert receipt["x-omniroute-memory"] == "error"
        assert receipt["x-omniroute-memory-reason"] in {"database_full", "database_io_error"}


def test_locked_at_start(proxy_factory: ProxyFactory) -> None:
    """Another program holds the file; when it lets go, memory comes up without a restart."""
    proxy = proxy_factory(ProxySetup(with_plugin=True, env=MEMORY_ON))
    with closing(sqlite3.connect(proxy.data_dir / DATABASE, isolation_level=None)) as holder:
        holder.execute("BEGIN EXCLUSIVE")
        holder.execute("CREATE TABLE in_the_way (x)")
        with started(proxy):
            receipt = wait_for_error(proxy, "sk-user-a")
            assert receipt["x-omniroute-memory-reason"] in {"database_locked", "settings_loading"}
            wait_for(
                lambda: "reason=database_locked" in proxy.log(),
                timeout_s=FAULT_TIMEOUT_S,
                what="a log line",
            )
            holder.execute("ROLLBACK")
            wait_recovered(proxy)


def test_locked_under_way(proxy_factory: ProxyFactory, upstream: Upstream) -> None:
    """A writer that holds the lock: requests are answered with memory, no write is lost."""
    with started(proxy_factory(ProxySetup(with_plugin=True, env=MEMORY_ON))) as proxy:
        outcome(proxy, "sk-user-a")
        wait_learned(proxy, "sk-user-a", 1)
        with closing(sqlite3.connect(proxy.data_dir / DATABASE, isolation_level=None)) as holder:
            holder.execute("BEGIN IMMEDIATE")
            held = say(proxy, "sk-user-a", "I love tea.")
            assert held.headers["x-omniroute-memory"] == "injected"
            receipt = wait_for_error(proxy, "sk-user-a")
            assert receipt["x-omniroute-memory-reason"] == "database_locked"
            assert HEADING in upstream.records()[-1].raw.decode()
            holder.execute("ROLLBACK")
        wait_recovered(proxy)
        keys = {memory["key"] for memory in wait_learned(proxy, "sk-user-a", 2)}
        assert keys == {"preference:typescript", "preference:tea"}


def test_unreadable_environment(proxy_factory: ProxyFactory) -> None:
    """A variable that cannot be read keeps memory off and says which one."""
    env = {**MEMORY_ON, "OMNIROUTE_MEMORY_MAX_TOKENS": "plenty"}
    with started(proxy_factory(ProxySetup(with_plugin=True, env=env))) as proxy:
        receipt = outcome(proxy, "sk-user-a")
        assert receipt["x-omniroute-memory"] == "error"
        assert receipt["x-omniroute-memory-reason"] == "settings_invalid"
        assert "OMNIROUTE_MEMORY_MAX_TOKENS" in proxy.log()


def wait_recovered(proxy: Proxy) -> dict[str, Any]:
    """Return the health report as soon as nothing fails and nothing waits."""

    def probe() -> dict[str, Any] | None:
        say(proxy, MASTER_KEY, "Hello there.")
        report = health(proxy)
        return report if report["working"] and not report["faults"] else None

    wait_for(probe, timeout_s=FAULT_TIMEOUT_S, what="recovery")
    return wait_idle(proxy)
