"""What the rest of the package sees of a SQLite connection, whatever driver is behind it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

Value = None | int | float | str | bytes
Row = tuple[Value, ...]
Parameters = Mapping[str, Value] | Sequence[Value]
Tokenize = Callable[[str], list[str]]


class Cursor(Protocol):
    """The rows of one statement."""

    def fetchall(self) -> list[Row]:
        """Return every row that is left."""
        ...

    def __iter__(self) -> Iterator[Row]: ...

    def close(self) -> None:
        """Let go of the statement, whatever is left of it."""
        ...


class Connection(Protocol):
    """What this package uses of a driver connection, with the types that its stubs leave open."""

    def execute(self, statements: str, bindings: Parameters | None = None) -> Cursor:
        """Run one or more statements."""
        ...

    def pragma(self, name: str, value: Value = None) -> Value:
        """Read or set a pragma."""
        ...

    def changes(self) -> int:
        """Return how many rows the last statement changed."""
        ...

    def set_busy_timeout(self, milliseconds: int) -> None:
        """Wait this long for a lock."""
        ...

    def enable_load_extension(self, enable: bool) -> None:
        """Allow or forbid loading extensions."""
        ...

    def load_extension(self, filename: str) -> None:
        """Load one extension."""
        ...

    def wal_checkpoint(self, *, mode: int) -> tuple[int, int]:
        """Fold the write-ahead log into the file."""
        ...

    def create_scalar_function(
        self, name: str, function: Callable[..., Value], numargs: int, /, *, deterministic: bool
    ) -> None:
        """Make a Python function callable from SQL."""
        ...

    def fts5_tokenizer(self, name: str, args: list[str]) -> Callable[..., list[str]]:
        """Return a tokenizer of FTS5."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        ...
