"""What every test run shares."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from omniroute_litellm.sqlite import Database
from omniroute_litellm.sqlite_store import SqliteMemoryStore
from tests.fakes import FakeClock


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run that skipped something where skips are forbidden: an untested tier is no pass."""
    reporter: Any = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped: object = reporter.stats.get("skipped") if reporter is not None else None
    if os.environ.get("OMNIROUTE_NO_SKIPS") and skipped:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(autouse=True)
def isolated_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Point every default path of this process at the test's own folder."""
    monkeypatch.setenv("OMNIROUTE_DATA_DIR", str(tmp_path / "data"))


@pytest.fixture
def clock() -> FakeClock:
    """Hand out a clock."""
    return FakeClock()


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """Hand out an empty database."""
    made = Database(tmp_path / "omniroute.db")
    yield made
    made.close()


@pytest.fixture
def store(database: Database, clock: FakeClock) -> SqliteMemoryStore:
    """Hand out an empty store."""
    return SqliteMemoryStore(database, clock=clock)
