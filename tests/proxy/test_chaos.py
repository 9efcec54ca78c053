"""Requests that ask too much, and faults in the middle of traffic: none of them fails."""

import os
import signal
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from omniroute_litellm.recall import WRITES
from tests.polling import wait_for
from tests.proxy.chatting import (
    CHAT_PATH,
    HEADING,
    Headers,
    blocks_in,
    health,
    memories,
    say,
    wait_idle,
    wait_learned,
)
from tests.proxy.conftest import MEMORY_ON, ProxyFactory
from tests.proxy.process import Proxy, ProxySetup
from tests.proxy.talk import FORMATS, Format, Said, Step, ask
from tests.upstream import Upstream

pytestmark = pytest.mark.proxy

HELD_S: Final = 10.0
RECOVERY_S: Final = 40.0
HOSTILE: Final = (
    "a\u0301" * 2_000,
    "\u202eright to left\u202c and \u2066isolated\u2069",
    "\U000e0041\U000e0042 tags and \ufeff marks \u200b\u200d",
    "nul \x00 bell \x07 escape \x1b[31m",
    "\U0001f469\u200d\U0001f4bb" * 500,
    "I prefer " + "(" * 5_000 + ")" * 5_000,
    "```\n" * 3_000,
    "<" * 10_000,
    "\\ud800 \\u0000 %00 %s {0} ${x} '; DROP TABLE memories; --",
)


def told(response_headers: Any) -> tuple[str, str]:
    """Return outcome and reason of a receipt."""
    receipt: Headers = dict(response_headers)
    return receipt["x-omniroute-memory"], receipt.get("x-omniroute-memory-reason", "")


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
@pytest.mark.parametrize(
    "steps",
    [
        [Said("user" if at % 2 == 0 else "assistant", f"Line {at}.") for at in range(10_001)],
        [Said("user", "Please read this. " + "lorem ipsum " * 90_000)],
        [Said("user", "x" * 1_000_000)],
    ],
    ids=["10,000 messages", "1 MB of words", "one word of 1 MB"],
)
def test_a_huge_request_gets_through(
    proxy: Proxy, upstream: Upstream, user_key: str, form: Format, steps: list[Step]
) -> None:
    """It is answered, with memory or with a receipt that says why not, and stays as it was."""
    say(proxy, user_key, "I prefer TypeScript.")
    wait_learned(proxy, user_key, 1)
    upstream.clear()
    response = ask(proxy, user_key, form, "gpt", steps)
    assert told(response.headers) in {("injected", ""), ("degraded", "deadline")}
    (record,) = upstream.records()
    assert blocks_in(record.body) == int(response.headers["x-omniroute-memory-injected"])
    assert len(record.raw) > 100_000
    wait_idle(proxy)


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: ascii(text[:12]))
def test_hostile_text_in_every_format(
    proxy: Proxy, upstream: Upstream, user_key: str, form: Format, text: str
) -> None:
    """Odd characters reach the provider as they came, and the memory beside them does, too."""
    say(proxy, user_key, "I prefer TypeScript.")
    wait_learned(proxy, user_key, 1)
    upstream.clear()
    response = ask(proxy, user_key, form, "gpt", [Said("user", f"Which one? {text}")])
    assert told(response.headers)[0] in {"injected", "degraded"}
    (record,) = upstream.records()
    assert HEADING in record.raw.decode() or told(response.headers)[1] == "deadline"
    assert len(memories(proxy, user_key)) >= 1


def test_a_lock_of_ten_seconds(proxy_factory: ProxyFactory, upstream: Upstream) -> None:
    """While another program holds the file every request is answered, with what is known."""
    with proxy_factory(ProxySetup(with_plugin=True, env=MEMORY_ON)) as proxy:
        say(proxy, "sk-user-ann", "I prefer TypeScript.")
        wait_learned(proxy, "sk-user-ann", 1)
        wait_idle(proxy)
        path = proxy.data_dir / "omniroute.db"
        outcomes: set[tuple[str, str]] = set()
        with closing(sqlite3.connect(path, isolation_level=None)) as holder:
            holder.execute("BEGIN IMMEDIATE")
            ends = time.monotonic() + HELD_S
            number = 0
            while time.monotonic() < ends:
                number += 1
                response = say(proxy, "sk-user-ann", f"I love topic{number}.")
                outcomes.add(told(response.headers))
                assert HEADING in upstream.records(CHAT_PATH)[-1].raw.decode()
            holder.execute("ROLLBACK")
        assert outcomes <= {("injected", ""), ("error", "database_locked")}
        assert ("error", "database_locked") in outcomes
        report = wait_for(
            lambda: next((found for found in [wait_idle(proxy)] if not found["faults"]), None),
            timeout_s=RECOVERY_S,
            what="recovery from the lock",
        )
        assert sum(report["counters"].get(f"{operation}.failed", 0) for operation in WRITES) >= 1
        assert len(wait_learned(proxy, "sk-user-ann", min(number + 1, 200))) > 1


def workers_of(proxy: Proxy) -> list[int]:
    """Return the process ids of a proxy's workers: those that hold the database open."""
    found: list[int] = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            is_ours = os.getpgid(int(folder.name)) == proxy.pid
            links = [str(link.readlink()) for link in (folder / "fd").iterdir()]
        except OSError:
            continue
        if is_ours and any(link.endswith("omniroute.db") for link in links):
            found.append(int(folder.name))
    return found


def captured(proxy: Proxy) -> int:
    """Count what is on the disk: memories, and exchanges that wait for extraction."""
    path = proxy.data_dir / "omniroute.db"
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        counts = "SELECT (SELECT count(*) FROM outbox) + (SELECT count(*) FROM memories)"
        (count,) = connection.execute(counts).fetchone()
    return int(count)


def test_a_killed_worker_loses_no_memory(proxy_factory: ProxyFactory) -> None:
    """One of two workers is killed under traffic: what was answered is learned by the other."""
    setup = ProxySetup(with_plugin=True, env=MEMORY_ON, num_workers=2)
    with proxy_factory(setup) as proxy:
        first, second = workers_of(proxy)
        statements = [f"I prefer topic{chr(97 + at)}{chr(97 + at)}." for at in range(20)]

        def tell(statement: str) -> bool:
            try:
                say(proxy, "sk-user-ann", statement)
            except (OSError, AssertionError, RuntimeError):
                return False
            return True

        with ThreadPoolExecutor(4) as pool:
            answered = list(pool.map(tell, statements[:10]))
            wait_for(
                lambda: captured(proxy) == 10, timeout_s=RECOVERY_S, what="ten captured exchanges"
            )
            os.kill(first, signal.SIGKILL)
            assert second != first
            wait_for(
                lambda: len([pid for pid in workers_of(proxy) if pid != first]) == 2,
                timeout_s=RECOVERY_S * 2,
                what="a new worker",
            )
            answered += list(pool.map(tell, statements[10:]))
        assert all(answered)
        wait_for(
            lambda: len(memories(proxy, "sk-user-ann")) == len(statements),
            timeout_s=RECOVERY_S * 2,
            what="all memories",
        )
        assert not health(proxy)["faults"]
