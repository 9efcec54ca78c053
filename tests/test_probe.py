"""The round trip that health is."""

from pathlib import Path

from omniroute_litellm.probe import StoreProbe
from omniroute_litellm.sqlite import Database
from omniroute_litellm.sqlite_store import SqliteMemoryStore
from tests.fakes import FakeClock, FakeTimer


def test_a_store_that_cannot_answer_is_a_result(tmp_path: Path) -> None:
    """The reason is told in one line, and nothing raises."""
    (tmp_path / "file").write_text("")
    database = Database(tmp_path / "file" / "omniroute.db")
    clock = FakeClock()
    result = StoreProbe(SqliteMemoryStore(database, clock=clock), clock=clock).run()
    assert (result.working, result.reason) == (False, "database_unwritable")
    assert result.error
    assert "\n" not in result.error


def test_the_latency_is_measured(store: SqliteMemoryStore) -> None:
    """It is the time between start and end, in milliseconds."""

    class Steps(FakeTimer):
        def __call__(self) -> float:
            self.now += 0.25
            return self.now

    result = StoreProbe(store, clock=FakeClock(), timer=Steps()).run()
    assert (result.working, result.latency_ms) == (True, 250.0)


def test_a_probe_is_never_read(store: SqliteMemoryStore, database: Database) -> None:
    """It leaves neither a row nor a history, however often it runs."""
    for _ in range(3):
        assert StoreProbe(store, clock=FakeClock()).run().working
    with database.reading() as connection:
        rows = connection.execute(
            "SELECT (SELECT count(*) FROM memories), (SELECT count(*) FROM memory_history)"
        ).fetchall()
    assert rows == [(0, 0)]
