"""The database file: opening, upgrading, locking, filling up, and coming back."""

import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, Final, cast

import pytest

from omniroute_litellm import sqlite
from omniroute_litellm.errors import BackendUnavailableError
from omniroute_litellm.sqlite import Connection, Database, Value, migrate, migrations

OWNER_ROW = "INSERT INTO owners (api_key_id, created_at) VALUES ('ann', '2026-01-01')"
MEMORY_ROW = """
INSERT INTO memories (
    pk, id, api_key_id, type, key, content, created_at, updated_at, last_seen_at, source
) VALUES (
    (1 << 32) | 1, 'm1', 'ann', 'factual', 'preference:tea', 'I prefer running water',
    '2026-01-01', '2026-01-01', '2026-01-01', 'manual'
)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Hand out a file in a folder that does not exist yet."""
    return tmp_path / "data" / "omniroute.db"


@pytest.fixture
def database(path: Path) -> Iterator[Database]:
    """Hand out a database that tries again at once after a fault."""
    made = Database(path, retry_after_s=0)
    yield made
    made.close()


def reason_of(work: Callable[[], object]) -> str:
    """Return the machine code with which something fails."""
    with pytest.raises(BackendUnavailableError) as caught:
        work()
    assert "\n" not in str(caught.value)
    return caught.value.reason


def test_opening_makes_folder_schema_and_log(database: Database, path: Path) -> None:
    """The first use makes everything: folder, newest schema, WAL, sqlite-vec."""
    with database.reading() as connection:
        assert connection.pragma("journal_mode") == "wal"
        assert connection.pragma("user_version") == len(migrations())
        assert connection.execute("SELECT vec_version()").fetchall()[0][0]
    assert path.is_file()


def test_readers_cannot_write(database: Database) -> None:
    """A reading connection refuses to change anything."""
    assert (
        reason_of(lambda: run(database, "DELETE FROM owners", write=False)) == "database_unwritable"
    )


def run(database: Database, sql: str, *, write: bool) -> list[tuple[object, ...]]:
    """Run one statement in a transaction."""
    with database.writing() if write else database.reading() as connection:
        return list(connection.execute(sql).fetchall())


def test_a_failed_transaction_leaves_nothing(database: Database) -> None:
    """An error inside of a write takes back all of it, and the next write works."""

    def fail() -> None:
        with database.writing() as connection:
            connection.execute(OWNER_ROW)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert run(database, "SELECT count(*) FROM owners", write=False) == [(0,)]
    run(database, OWNER_ROW, write=True)
    assert run(database, "SELECT count(*) FROM owners", write=False) == [(1,)]


@pytest.mark.parametrize("version", range(1, len(migrations())))
def test_upgrades_keep_rows(database: Database, path: Path, version: int) -> None:
    """From every earlier schema the newest one is reached with rows and index in place."""
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as old:
        for script in migrations()[:version]:
            old.executescript(script)
        old.execute(OWNER_ROW)
        old.execute(MEMORY_ROW)
        old.execute(f"PRAGMA user_version = {version}")
        old.commit()
    assert run(database, "SELECT id FROM memories", write=False) == [("m1",)]
    found = "SELECT rowid - (1 << 32) FROM memory_fts WHERE memory_fts MATCH 'run'"
    assert run(database, found, write=False) == [(1,)]
    assert run(database, "PRAGMA user_version", write=False) == [(len(migrations()),)]


def test_a_newer_schema_is_left_alone(database: Database, path: Path) -> None:
    """A database of a later release is refused, not changed."""
    database.open()
    run(database, "PRAGMA user_version", write=False)
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA user_version = 999")
    second = Database(path)
    assert reason_of(second.open) == "database_too_new"
    second.close()


def test_an_impossible_folder_is_unwritable(tmp_path: Path) -> None:
    """A folder below a file cannot be made."""
    (tmp_path / "file").write_text("")
    assert reason_of(Database(tmp_path / "file" / "x.db").open) == "database_unwritable"


def test_damage_is_named_and_survived(database: Database, path: Path) -> None:
    """A file that is no database fails with its reason until it is gone; then all is well."""
    path.parent.mkdir()
    path.write_bytes(b"no database" * 1_000)
    assert reason_of(database.open) == "database_corrupt"
    path.unlink()
    database.open()


def test_a_fault_is_not_tried_again_at_once(path: Path) -> None:
    """Within the pause the known fault answers, so that a dead disk costs no request its time."""
    patient = Database(path, retry_after_s=3_600)
    path.parent.mkdir()
    path.write_bytes(b"no database" * 1_000)
    assert reason_of(patient.open) == "database_corrupt"
    path.unlink()
    assert reason_of(patient.open) == "database_corrupt"


def test_a_held_lock_is_named_and_survived(
    database: Database, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While somebody else writes, a write fails; reads go on; afterwards both work."""
    monkeypatch.setattr(sqlite, "WRITE_TIMEOUT_S", 0.05)
    database.open()
    other = Database(path)
    with other.writing():
        assert reason_of(lambda: run(database, OWNER_ROW, write=True)) == "database_locked"
        assert run(database, "SELECT count(*) FROM owners", write=False) == [(0,)]
    run(database, OWNER_ROW, write=True)
    other.close()


def test_a_full_disk_is_named_and_survived(database: Database) -> None:
    """With no page left a write fails as full; with room again it works."""
    run(database, OWNER_ROW, write=True)
    with database.writing() as connection:
        pages = connection.execute("PRAGMA page_count").fetchall()[0][0]
        connection.execute(f"PRAGMA max_page_count = {pages}")
    large = f"INSERT INTO installation (name, value) VALUES ('x', '{'x' * 100_000}')"
    assert reason_of(lambda: run(database, large, write=True)) == "database_full"
    with database.writing() as connection:
        connection.execute("PRAGMA max_page_count = 1000000")
    run(database, large, write=True)


def test_closing_twice_is_fine(database: Database) -> None:
    """After closing everything is refused with its reason."""
    database.open()
    database.close()
    database.close()
    assert reason_of(database.open) == "database_closed"
    assert reason_of(lambda: run(database, "SELECT 1", write=False)) == "database_closed"


def test_processes_may_open_a_fresh_file_together(path: Path) -> None:
    """Four processes that start at once on no file all get the whole schema."""
    program = (
        "import sys, pathlib; from omniroute_litellm.sqlite import Database;"
        "d = Database(pathlib.Path(sys.argv[1])); d.open(); d.close()"
    )
    started = [
        subprocess.Popen([sys.executable, "-c", program, str(path)], stderr=subprocess.PIPE)
        for _ in range(4)
    ]
    told = [process.communicate()[1].decode() for process in started]
    assert [process.returncode for process in started] == [0] * 4, told


def test_a_restored_file_is_used_without_a_restart(database: Database, path: Path) -> None:
    """A file that was damaged under way and put back from a backup serves reads and writes."""
    run(database, OWNER_ROW, write=True)
    database.close()
    backup = path.read_bytes()
    running = Database(path, retry_after_s=0)
    run(running, "SELECT 1", write=False)
    path.write_bytes(b"\xff" * len(backup))
    assert reason_of(lambda: run(running, "DELETE FROM owners", write=True)) == "database_corrupt"
    path.unlink()
    path.with_name(path.name + "-wal").unlink(missing_ok=True)
    path.with_name(path.name + "-shm").unlink(missing_ok=True)
    path.write_bytes(backup)
    run(running, "UPDATE owners SET next_sequence = 7", write=True)
    assert run(running, "SELECT next_sequence FROM owners", write=False) == [(7,)]
    running.close()
    with closing(sqlite3.connect(path)) as file:
        assert file.execute("SELECT next_sequence FROM owners").fetchall() == [(7,)]


def test_a_damaged_file_can_be_closed(database: Database, path: Path) -> None:
    """Stopping over a damaged file is no error: what could not be folded in is logged."""
    run(database, OWNER_ROW, write=True)
    path.with_name(path.name + "-wal").write_bytes(b"\xff" * 100_000)
    path.write_bytes(b"\xff" * 100_000)
    database.close()
    assert reason_of(database.open) == "database_closed"


def test_a_foreign_file_is_left_alone(database: Database, path: Path) -> None:
    """A database of another program is refused by name, byte for byte as it was."""
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as foreign:
        foreign.execute("CREATE TABLE memories (theirs TEXT)")
    before = path.read_bytes()
    assert reason_of(database.open) == "database_foreign"
    assert path.read_bytes() == before


def test_a_failed_migration_leaves_the_old_schema(database: Database, path: Path) -> None:
    """A step that cannot be taken is taken back as a whole, and taken once it can be."""
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as old:
        old.executescript(migrations()[0])
        old.execute("CREATE TABLE traces (in_the_way TEXT)")
        old.execute("PRAGMA user_version = 1")
    with pytest.raises(Exception, match="traces"):
        database.open()
    with closing(sqlite3.connect(path)) as old:
        assert old.execute("PRAGMA user_version").fetchone() == (1,)
        assert old.execute(
            "SELECT count(*) FROM sqlite_master WHERE name = 'outbox'"
        ).fetchone() == (0,)
        old.execute("DROP TABLE traces")
    database.open()


class LateConnection:
    """A connection that once tells the schema version of a moment ago."""

    def __init__(self, inner: Connection) -> None:
        self.inner = inner
        self.stale: list[Value] = [0]

    def pragma(self, name: str, value: Value = None) -> Value:
        """Return the stale version first."""
        return self.stale.pop() if self.stale else self.inner.pragma(name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def test_a_step_taken_by_another_process_is_not_taken_again(database: Database) -> None:
    """Who sees an old version and then gets the lock finds the step done, and goes on."""
    with database.writing() as connection:
        connection.execute("COMMIT")
        migrate(cast("Connection", LateConnection(connection)))
        connection.execute("BEGIN")
    assert run(database, "PRAGMA user_version", write=False) == [(len(migrations()),)]


def test_a_writer_that_is_held_too_long_is_named(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that waits in vain for another thread's write fails as locked."""
    monkeypatch.setattr(sqlite, "WRITE_TIMEOUT_S", 0.02)
    with database.writing(), ThreadPoolExecutor(1) as other:
        reason = other.submit(reason_of, lambda: run(database, OWNER_ROW, write=True)).result()
    assert reason == "database_locked"


def test_closing_under_a_reader_is_fine(database: Database) -> None:
    """A read that is under way ends well; its connection is not kept."""
    run(database, OWNER_ROW, write=True)
    with database.reading() as connection:
        database.close()
        assert connection.execute("SELECT count(*) FROM owners").fetchall() == [(1,)]
    assert reason_of(lambda: run(database, "SELECT 1", write=False)) == "database_closed"


HOLD: Final = """
import sqlite3, sys
holder = sqlite3.connect(sys.argv[1], isolation_level=None)
holder.execute("BEGIN EXCLUSIVE")
print("held", flush=True)
sys.stdin.readline()
holder.execute("ROLLBACK")
"""


def test_opening_waits_for_another_process(database: Database, path: Path) -> None:
    """A file that is locked at the start is opened when the lock goes."""
    path.parent.mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == b"held\n"
        with ThreadPoolExecutor(1) as thread:
            opening = thread.submit(database.open)
            holder.communicate(b"go\n")
            opening.result()
    assert run(database, "SELECT count(*) FROM owners", write=False) == [(0,)]


def test_a_file_that_stays_locked_is_named(database: Database, path: Path) -> None:
    """Opening gives up after its time, and works once the lock is gone."""
    path.parent.mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == b"held\n"
        assert reason_of(database.open) == "database_locked"
        holder.communicate(b"go\n")
    database.open()
