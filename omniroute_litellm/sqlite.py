"""SQLite connections: one writer, several readers, migrations, and errors with a reason.

The only module that imports the driver.
"""

import contextlib
import json
import logging
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Final, cast

import apsw
import sqlite_vec  # pyright: ignore[reportMissingTypeStubs] - it ships none

from omniroute_litellm.errors import BackendUnavailableError
from omniroute_litellm.sqlite_connection import Connection as Connection
from omniroute_litellm.sqlite_connection import Cursor as Cursor
from omniroute_litellm.sqlite_connection import Row as Row
from omniroute_litellm.sqlite_connection import Tokenize as Tokenize
from omniroute_litellm.sqlite_connection import Value as Value

logger = logging.getLogger(__name__)

READ_TIMEOUT_S: Final = 0.1
"""How long a reader waits for a lock: below the deadline of a request."""
WRITE_TIMEOUT_S: Final = 5.0
OPEN_TIMEOUT_S: Final = 2.0
"""How long opening waits for a lock: every other caller waits for it, and it is tried again."""
_OPEN_PAUSE_S: Final = 0.05
# One statement, one snapshot: another process may be making our schema at this moment.
_IS_FOREIGN: Final = """
SELECT user_version = 0 AND EXISTS (SELECT 1 FROM sqlite_master) FROM pragma_user_version
"""
_REASONS: Final = (
    (apsw.BusyError, "database_locked"),
    (apsw.LockedError, "database_locked"),
    (apsw.FullError, "database_full"),
    (apsw.CorruptError, "database_corrupt"),
    (apsw.NotADBError, "database_corrupt"),
    (apsw.ReadOnlyError, "database_unwritable"),
    (apsw.CantOpenError, "database_unwritable"),
    (apsw.PermissionsError, "database_unwritable"),
    (apsw.IOError, "database_io_error"),
)
_DAMAGES: Final = frozenset({"database_corrupt", "database_io_error"})


class Database:
    """One SQLite file in WAL mode, shared by threads of this process and by other processes.

    Opened at first use and again after a failure, at most once in ``retry_after_s``: a repaired
    disk or a restored file is found without a restart. Every fault becomes BackendUnavailableError
    with a machine code: those of ``_REASONS``, ``database_too_new``, ``database_foreign``.
    """

    def __init__(self, path: Path, *, retry_after_s: float = 1.0) -> None:
        self.path = path
        self._retry_after_s = retry_after_s
        self._write_lock = threading.Lock()
        self._pool_lock = threading.Lock()
        self._readers: list[Connection] = []
        self._writer: Connection | None = None
        self._fault: BackendUnavailableError | None = None
        self._fault_at = 0.0
        self._closed = False
        self._lent = threading.local()
        self.generation = 0
        """Grows when the file may have become another one: nothing read before counts then."""

    @contextmanager
    def reading(self) -> Generator[Connection]:
        """Lend a read-only connection inside one snapshot, which nested calls of a thread share."""
        lent: Connection | None = getattr(self._lent, "connection", None)
        if lent is not None:
            yield lent
            return
        with self._reopened_after_damage():
            connection = self._take_reader()
            is_sound = False
            try:
                connection.execute("BEGIN")
                self._lent.connection = connection
                yield connection
                is_sound = True
            finally:
                self._lent.connection = None
                self._give_back(connection, is_sound=is_sound)

    @contextmanager
    def writing(self) -> Generator[Connection]:
        """Lend the writer inside ``BEGIN IMMEDIATE``: commit at the end, roll back on an error."""
        # Threads of this process and other processes are waited for five seconds together.
        ends = time.monotonic() + WRITE_TIMEOUT_S
        with self._reopened_after_damage(), self._exclusive() as connection:
            connection.set_busy_timeout(max(1, int((ends - time.monotonic()) * 1000)))
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def open(self) -> None:
        """Open and migrate now; raise BackendUnavailableError when that fails."""
        with _translated(), self._exclusive():
            pass

    def close(self) -> None:
        """Fold the log into the file and close every connection; a second call does nothing."""
        with self._write_lock:
            self._closed = True
            if self._writer is not None:
                try:
                    self._writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
                except apsw.Error as error:  # the log is folded in at the next start instead
                    logger.warning("database.checkpoint.failed", extra={"error": str(error)})
            self._let_go()

    @contextmanager
    def _reopened_after_damage(self) -> Generator[None]:
        """Translate errors, and let go of a damaged file: what replaces it is another file."""
        try:
            with _translated():
                yield
        except BackendUnavailableError as error:
            # Whoever holds the lock finds the damage as well.
            if error.reason in _DAMAGES and self._write_lock.acquire(blocking=False):
                self._let_go()
                self._write_lock.release()
            raise

    def _let_go(self) -> None:
        with self._pool_lock:
            connections, self._readers = [self._writer, *self._readers], []
            self._writer = None
            self.generation += 1
        for connection in filter(None, connections):
            with contextlib.suppress(apsw.Error):
                connection.close()

    @contextmanager
    def _exclusive(self) -> Generator[Connection]:
        if not self._write_lock.acquire(timeout=WRITE_TIMEOUT_S):
            message = f"another write in this process has held the database {WRITE_TIMEOUT_S} s"
            raise BackendUnavailableError(message, reason="database_locked")
        try:
            yield self._opened()
        finally:
            self._write_lock.release()

    def _opened(self) -> Connection:
        if self._writer is not None:
            return self._writer
        if self._closed:
            raise _closed()
        if self._fault is not None and time.monotonic() - self._fault_at < self._retry_after_s:
            raise BackendUnavailableError(str(self._fault), reason=self._fault.reason)
        try:
            with _translated():
                self._writer = open_writer(self.path)
        except BackendUnavailableError as error:
            self._fault, self._fault_at = error, time.monotonic()
            raise
        self._fault = None
        return self._writer

    def _take_reader(self) -> Connection:
        if self._writer is None:
            self.open()
        with self._pool_lock:
            if self._closed:
                raise _closed()
            if self._readers:
                return self._readers.pop()
        connection = _connect(self.path, flags=apsw.SQLITE_OPEN_READWRITE)
        connection.set_busy_timeout(int(READ_TIMEOUT_S * 1000))
        connection.execute("PRAGMA query_only = ON")
        load_vector_extension(connection)
        return connection

    def _give_back(self, connection: Connection, *, is_sound: bool) -> None:
        if is_sound:
            connection.execute("COMMIT")
            with self._pool_lock:
                if not self._closed:
                    self._readers.append(connection)
                    return
        connection.close()


def open_writer(path: Path) -> Connection:
    """Open a database for writing, make its folder and bring its schema up to date.

    Processes that start together meet each other's locks, some of which SQLite does not wait for
    (the change of the journal mode is one), so the whole opening is tried again for a while.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"cannot make the data directory {path.parent}: {error.strerror}"
        raise BackendUnavailableError(message, reason="database_unwritable") from error
    ends = time.monotonic() + OPEN_TIMEOUT_S
    while True:
        try:
            return _opened_once(path)
        except (apsw.BusyError, apsw.LockedError):
            if time.monotonic() >= ends:
                raise
            time.sleep(_OPEN_PAUSE_S)


def _opened_once(path: Path) -> Connection:
    connection = _connect(path, flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
    try:
        _require_ours(connection)
        if not connection.pragma("user_version"):
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.pragma("journal_mode", "wal")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA foreign_keys = ON")
        load_vector_extension(connection)
        connection.create_scalar_function("merge_objects", _merge_objects, 2, deterministic=True)
        migrate(connection)
        connection.set_busy_timeout(int(WRITE_TIMEOUT_S * 1000))
    except BaseException:
        connection.close()
        raise
    return connection


def _require_ours(connection: Connection) -> None:
    if connection.execute(_IS_FOREIGN).fetchall()[0][0]:
        message = "the file holds the tables of another program"
        raise BackendUnavailableError(message, reason="database_foreign")


def _connect(path: Path, *, flags: int) -> Connection:
    return cast("Connection", apsw.Connection(str(path), flags=flags))


def migrations() -> list[str]:
    """Return the SQL of every migration, oldest first; the schema version is its position."""
    folder = resources.files("omniroute_litellm.migrations")
    files = sorted(
        (entry for entry in folder.iterdir() if entry.name.endswith(".sql")),
        key=lambda entry: entry.name,
    )
    return [entry.read_text(encoding="utf-8") for entry in files]


def migrate(connection: Connection, *, up_to: int | None = None) -> None:
    """Apply the migrations that are missing, each in one transaction.

    Safe against a second process that does the same: the version is read inside the lock. A
    schema from a newer release raises BackendUnavailableError (``database_too_new``).
    """
    scripts = migrations()
    target = len(scripts) if up_to is None else up_to
    while (found := _version(connection)) < target:
        connection.execute("BEGIN IMMEDIATE")
        try:
            version = _version(connection)
            if version < target:
                connection.execute(scripts[version])
                connection.execute(f"PRAGMA user_version = {version + 1:d}")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
    if found > len(scripts):
        message = f"the database has schema {found}, this release knows up to {len(scripts)}"
        raise BackendUnavailableError(message, reason="database_too_new")


def load_vector_extension(connection: Connection) -> str:
    """Load sqlite-vec into a connection and return its version."""
    connection.enable_load_extension(True)
    try:
        connection.load_extension(sqlite_vec.loadable_path())
    finally:
        connection.enable_load_extension(False)
    return str(connection.execute("SELECT vec_version()").fetchall()[0][0])


def driver_versions() -> tuple[str, str]:
    """Return the versions of the driver and of the SQLite that it brings."""
    return apsw.apsw_version(), apsw.sqlite_lib_version()


def tokenizer(connection: Connection) -> Tokenize:
    """Return a function that cuts text into words as the keyword index does, before stemming."""
    cut = connection.fts5_tokenizer("unicode61", [])

    def words(text: str) -> list[str]:
        encoded = text.encode("utf-8", "replace")
        found = cut(
            encoded,
            apsw.FTS5_TOKENIZE_QUERY,
            None,
            include_offsets=False,
            include_colocated=False,
        )
        return [str(word) for word in found]

    return words


def quoted(word: str) -> str:
    """Quote one word for MATCH, so that no operator of the query language can be written in it."""
    return '"' + word.replace('"', '""') + '"'


def quick_check(connection: Connection) -> str:
    """Return ``ok`` or SQLite's own description of the first damage it finds."""
    return str(connection.pragma("quick_check"))


def _merge_objects(old: Value, new: Value) -> Value:
    """Merge two JSON objects at their first level; SQLite's json_patch would merge all levels."""
    merged = cast("dict[str, object]", json.loads(str(old)))
    merged.update(json.loads(str(new)))
    return json.dumps(merged, ensure_ascii=False, sort_keys=True)


def _version(connection: Connection) -> int:
    return cast("int", connection.pragma("user_version"))


@contextmanager
def _translated() -> Generator[None]:
    try:
        yield
    except apsw.Error as error:
        for kind, reason in _REASONS:
            if isinstance(error, kind):
                message = f"{reason}: {error}"
                raise BackendUnavailableError(message, reason=reason) from error
        raise


def _closed() -> BackendUnavailableError:
    return BackendUnavailableError("the database is closed", reason="database_closed")
