"""One SQLite file: how it opens, upgrades, fails with a reason, and comes back."""

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from omniroute_litellm.errors import BackendUnavailableError
from omniroute_litellm.sqlite import Database, Value, migrate, migrations, open_writer, quick_check

ADD_OWNER = "INSERT INTO owners (api_key_id, created_at) VALUES ('ann', '2026-01-01')"
ADD_MEMORY = """
INSERT INTO memories (
    pk, id, api_key_id, type, key, content, created_at, updated_at, last_seen_at, source
) VALUES (
    (1 << 32) | 1, 'm1', 'ann', 'factual', 'preference:tea', 'Ann prefers running water',
    '2026-01-01', '2026-01-01', '2026-01-01', 'manual'
)
"""
HOLD_LOCK = """
import sqlite3, sys
other = sqlite3.connect(sys.argv[1], isolation_level=None)
other.execute("BEGIN IMMEDIATE")
other.execute("INSERT INTO installation VALUES ('foreign', 'x')")
print("held", flush=True)
sys.stdin.read()
other.execute("ROLLBACK")
"""
COUNT_OWNERS = "SELECT count(*) FROM owners"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Name a file in a folder that exists already."""
    return tmp_path / "unit.db"


@pytest.fixture
def database(path: Path) -> Iterator[Database]:
    """Hand out a database that tries again at once after a fault."""
    made = Database(path, retry_after_s=0)
    yield made
    made.close()


def read(database: Database, sql: str) -> Value:
    """Return the first value that a query finds."""
    with database.reading() as connection:
        return connection.execute(sql).fetchall()[0][0]


def write(database: Database, sql: str) -> None:
    """Run statements in one transaction."""
    with database.writing() as connection:
        connection.execute(sql)


def reason_of(work: Callable[[], object]) -> str:
    """Return the machine code with which something fails."""
    with pytest.raises(BackendUnavailableError) as caught:
        work()
    return caught.value.reason


def wait_briefly(database: Database) -> None:
    """Shorten the wait of the writer for a foreign lock."""
    with database.writing() as connection:
        connection.set_busy_timeout(10)


@contextmanager
def foreign_lock(path: Path) -> Generator[None]:
    """Let another process hold the write lock: two SQLite libraries in one process share locks."""
    command = [sys.executable, "-c", HOLD_LOCK, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline().strip() == b"held"
        yield
        holder.communicate(b"done")


def limit_pages(database: Database, *, spare: int) -> None:
    """Allow the file to grow by so many pages only."""
    with database.writing() as connection:
        pages = connection.execute("PRAGMA page_count").fetchall()[0][0]
        connection.execute(f"PRAGMA max_page_count = {int(str(pages)) + spare}")


def make_old(path: Path, version: int) -> None:
    """Make a file as the release with that schema left it, with one memory in it."""
    with closing(sqlite3.connect(path)) as old:
        for script in migrations()[:version]:
            old.executescript(script)
        old.execute(ADD_OWNER)
        old.execute(ADD_MEMORY)
        old.execute(f"PRAGMA user_version = {version:d}")
        old.commit()


def test_log_mode_is_wal(database: Database) -> None:
    """A file is in WAL mode, so that readers never wait for the writer."""
    assert read(database, "PRAGMA journal_mode") == "wal"


def test_fresh_file_has_newest_schema(database: Database) -> None:
    """A new file has the schema of the last migration."""
    assert read(database, "PRAGMA user_version") == len(migrations())


def test_fresh_file_enforces_foreign_keys(database: Database) -> None:
    """A memory of an unknown owner is refused by the file itself."""
    with database.writing() as connection:
        assert connection.pragma("foreign_keys") == 1


def test_missing_folders_are_made(tmp_path: Path) -> None:
    """Every missing folder above the file is made."""
    path = tmp_path / "a" / "b" / "unit.db"
    database = Database(path)
    database.open()
    database.close()
    assert path.is_file()


def test_migrating_twice_changes_nothing(path: Path) -> None:
    """A file with the newest schema is left as it is."""
    connection = open_writer(path)
    before = connection.execute("SELECT sql FROM sqlite_schema").fetchall()
    migrate(connection)
    after = connection.execute("SELECT sql FROM sqlite_schema").fetchall()
    connection.close()
    assert after == before


@pytest.mark.parametrize("version", range(1, len(migrations())))
class TestUpgrade:
    """From every earlier schema to the newest one."""

    def test_reaches_newest_schema(self, database: Database, path: Path, version: int) -> None:
        """An old file has the newest schema after it was opened."""
        make_old(path, version)
        assert read(database, "PRAGMA user_version") == len(migrations())

    def test_keeps_rows(self, database: Database, path: Path, version: int) -> None:
        """A row of the old file is still there, word for word."""
        make_old(path, version)
        assert read(database, "SELECT content FROM memories") == "Ann prefers running water"

    def test_keeps_index(self, database: Database, path: Path, version: int) -> None:
        """A row of the old file is found by the stem of a word."""
        make_old(path, version)
        found = "SELECT count(*) FROM memory_fts WHERE memory_fts MATCH 'run'"
        assert read(database, found) == 1

    def test_has_same_tables_as_fresh_file(
        self, database: Database, path: Path, tmp_path: Path, version: int
    ) -> None:
        """An upgraded file and a new one have the same tables and indexes."""
        make_old(path, version)
        fresh = Database(tmp_path / "fresh.db")
        names = "SELECT group_concat(name) FROM (SELECT name FROM sqlite_schema ORDER BY name)"
        upgraded_names, fresh_names = read(database, names), read(fresh, names)
        fresh.close()
        assert upgraded_names == fresh_names


def test_newer_schema_is_refused(database: Database, path: Path) -> None:
    """A file of a later release is database_too_new."""
    with closing(sqlite3.connect(path)) as later:
        later.execute("PRAGMA user_version = 999")
    assert reason_of(database.open) == "database_too_new"


def test_newer_schema_is_left_alone(database: Database, path: Path) -> None:
    """A file of a later release keeps its version."""
    with closing(sqlite3.connect(path)) as later:
        later.execute("PRAGMA user_version = 999")
    reason_of(database.open)
    with closing(sqlite3.connect(path)) as later:
        assert later.execute("PRAGMA user_version").fetchone() == (999,)


def test_folder_below_file_is_unwritable(tmp_path: Path) -> None:
    """A path below a regular file is database_unwritable."""
    (tmp_path / "file").write_text("")
    assert reason_of(Database(tmp_path / "file" / "unit.db").open) == "database_unwritable"


def test_directory_in_place_of_file_is_unwritable(tmp_path: Path) -> None:
    """A directory where the file should be is database_unwritable."""
    assert reason_of(Database(tmp_path).open) == "database_unwritable"


def test_unwritable_path_is_found_after_repair(tmp_path: Path) -> None:
    """Once the file in the way is gone the same object opens."""
    (tmp_path / "file").write_text("")
    database = Database(tmp_path / "file" / "unit.db", retry_after_s=0)
    reason_of(database.open)
    (tmp_path / "file").unlink()
    assert read(database, COUNT_OWNERS) == 0
    database.close()


def test_garbage_is_corrupt(database: Database, path: Path) -> None:
    """A file that holds no database is database_corrupt."""
    path.write_bytes(b"no database" * 1_000)
    assert reason_of(database.open) == "database_corrupt"


def test_garbage_is_left_alone(database: Database, path: Path) -> None:
    """A file that holds no database keeps its bytes: it may be somebody's."""
    path.write_bytes(b"no database" * 1_000)
    reason_of(database.open)
    assert path.read_bytes() == b"no database" * 1_000


def test_garbage_is_corrupt_for_readers(database: Database, path: Path) -> None:
    """Reading reports the same reason as opening."""
    path.write_bytes(b"no database" * 1_000)
    assert reason_of(lambda: read(database, COUNT_OWNERS)) == "database_corrupt"


def test_repaired_file_is_found(database: Database, path: Path) -> None:
    """Once the garbage is gone the same object opens, without a restart."""
    path.write_bytes(b"no database" * 1_000)
    reason_of(database.open)
    path.unlink()
    assert read(database, COUNT_OWNERS) == 0


def test_known_fault_answers_within_pause(path: Path) -> None:
    """Within the pause after a fault the file is not tried again."""
    database = Database(path, retry_after_s=3_600)
    path.write_bytes(b"no database" * 1_000)
    reason_of(database.open)
    path.unlink()
    assert reason_of(database.open) == "database_corrupt"


def test_foreign_lock_is_locked(database: Database, path: Path) -> None:
    """A write while another process writes is database_locked."""
    wait_briefly(database)
    with foreign_lock(path):
        assert reason_of(lambda: write(database, ADD_OWNER)) == "database_locked"


def test_reads_go_on_under_foreign_lock(database: Database, path: Path) -> None:
    """A read while another process writes is answered."""
    database.open()
    with foreign_lock(path):
        assert read(database, "SELECT count(*) FROM installation") == 0


def test_write_works_after_foreign_lock(database: Database, path: Path) -> None:
    """Once the other process is done the same object writes."""
    wait_briefly(database)
    with foreign_lock(path):
        reason_of(lambda: write(database, ADD_OWNER))
    write(database, ADD_OWNER)
    assert read(database, COUNT_OWNERS) == 1


def test_full_disk_is_full(database: Database) -> None:
    """A write without room is database_full."""
    limit_pages(database, spare=0)
    large = f"INSERT INTO installation (name, value) VALUES ('x', '{'x' * 100_000}')"
    assert reason_of(lambda: write(database, large)) == "database_full"


def test_full_disk_loses_whole_transaction(database: Database) -> None:
    """What the failed transaction did before the disk was full is taken back."""
    limit_pages(database, spare=0)
    large = f"INSERT INTO installation (name, value) VALUES ('x', '{'x' * 100_000}')"
    reason_of(lambda: write(database, f"{ADD_OWNER}; {large}"))
    assert read(database, COUNT_OWNERS) == 0


def test_write_works_after_full_disk(database: Database) -> None:
    """With room again the same object writes, and the file is sound."""
    limit_pages(database, spare=0)
    large = f"INSERT INTO installation (name, value) VALUES ('x', '{'x' * 100_000}')"
    reason_of(lambda: write(database, large))
    limit_pages(database, spare=1_000)
    write(database, large)
    with database.reading() as connection:
        assert quick_check(connection) == "ok"


def test_error_rolls_back(database: Database) -> None:
    """An error inside of a write takes back all of it."""

    def fail() -> None:
        with database.writing() as connection:
            connection.execute(ADD_OWNER)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert read(database, COUNT_OWNERS) == 0


def test_reader_refuses_to_write(database: Database) -> None:
    """A reading connection changes nothing."""
    assert reason_of(lambda: read(database, ADD_OWNER)) == "database_unwritable"


def test_reader_keeps_its_snapshot(database: Database) -> None:
    """What is written while a reader reads, that reader does not see."""
    with database.reading() as connection:
        connection.execute(COUNT_OWNERS).fetchall()
        write(database, ADD_OWNER)
        assert connection.execute(COUNT_OWNERS).fetchall() == [(0,)]


def test_threads_write_one_after_another(database: Database) -> None:
    """Of many threads that write at once none is lost."""

    def add(number: int) -> None:
        write(database, f"INSERT INTO installation VALUES ('{number}', 'x')")

    threads = [threading.Thread(target=add, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert read(database, "SELECT count(*) FROM installation") == 20


def test_closing_twice_does_nothing(database: Database) -> None:
    """A second close is no error."""
    database.open()
    database.close()
    database.close()


def test_closing_unopened_does_nothing(path: Path) -> None:
    """Closing what was never opened makes no file."""
    Database(path).close()
    assert not path.exists()


def test_closed_database_refuses_reads(database: Database) -> None:
    """A read after closing is database_closed."""
    database.open()
    database.close()
    assert reason_of(lambda: read(database, COUNT_OWNERS)) == "database_closed"


def test_closed_database_refuses_writes(database: Database) -> None:
    """A write after closing is database_closed."""
    database.open()
    database.close()
    assert reason_of(lambda: write(database, ADD_OWNER)) == "database_closed"


def test_closing_folds_the_log_in(database: Database, path: Path) -> None:
    """After closing the file alone holds every row."""
    write(database, ADD_OWNER)
    database.close()
    assert not path.with_name(path.name + "-wal").exists()


def test_two_processes_open_a_fresh_file(path: Path) -> None:
    """Two processes that start at once on no file both get the whole schema."""
    program = (
        "import sys; from pathlib import Path; from omniroute_litellm.sqlite import Database;"
        "d = Database(Path(sys.argv[1])); d.open(); d.close()"
    )
    command = [sys.executable, "-c", program, str(path)]
    started = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(2)]
    told = [process.communicate()[1].decode() for process in started]
    assert [process.returncode for process in started] == [0, 0], told
