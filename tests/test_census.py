"""What may not be read costs no other memory its place, and no word its weight."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings

from omniroute_litellm import sqlite_terms
from omniroute_litellm.sqlite import Database
from omniroute_litellm.sqlite_reader import MATCH_DEPTH
from omniroute_litellm.sqlite_store import SqliteMemoryStore
from omniroute_litellm.store import Alive
from omniroute_litellm.types import (
    MemoryDraft,
    MemorySource,
    MemoryStatus,
    MemoryType,
    OwnerId,
    Scope,
    SessionId,
)
from tests.fakes import FakeClock
from tests.test_sqlite_reader import RETENTION, ROWS, SCOPES, Row, fill

ANN: Final = OwnerId("ann")
OURS: Final = Scope((ANN,), None)
MANY: Final = MATCH_DEPTH + 20


class Shelf:
    """A store that is filled and asked, with a reader that keeps what it has seen."""

    def __init__(self, path: Path) -> None:
        path.mkdir(exist_ok=True)
        self.clock = FakeClock()
        self.store = SqliteMemoryStore(Database(path / "omniroute.db"), clock=self.clock)

    def put(self, key: str, content: str, **fields: Any) -> str:
        """Store one memory of Ann's and return its id."""
        draft = MemoryDraft(ANN, MemoryType.FACTUAL, key, content, MemorySource.MANUAL, **fields)
        return self.store.upsert(draft, actor="test").memory.id

    def ranked(self, query: str, scope: Scope = OURS) -> list[tuple[str, float]]:
        """Return keys and scores, best first."""
        now = self.clock()
        hits = self.store.keyword(scope, Alive(now, now - RETENTION), query=query, limit=50)
        return [(hit.memory.key, hit.score) for hit in hits]


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    """Hand out an empty shelf."""
    return Shelf(tmp_path / "one")


@pytest.fixture
def other(tmp_path: Path) -> Shelf:
    """Hand out another empty shelf."""
    return Shelf(tmp_path / "two")


DEAD: Final[dict[str, Callable[[Shelf], None]]] = {
    **{
        status.value: lambda shelf, status=status: bury(shelf, status=status)
        for status in MemoryStatus
        if status is not MemoryStatus.ACTIVE
    },
    "expired": lambda shelf: bury(shelf, expires_at=shelf.clock() - timedelta(seconds=1)),
    "other session": lambda shelf: bury(shelf, session_id=SessionId("other")),
    "aged out": lambda shelf: (bury(shelf), shelf.clock.move(hours=24 * 31))[1],
}


def bury(shelf: Shelf, **fields: Any) -> None:
    """Store many memories that hold the same words as those that can be read."""
    for number in range(MANY):
        shelf.put(f"dead{number}", "jazz trumpet tea", **fields)


def live(shelf: Shelf) -> None:
    """Store what can be read."""
    session = SessionId("ours")
    shelf.put("a", "jazz with a trumpet", session_id=session)
    shelf.put("b", "jazz and tea", session_id=session)
    shelf.put("c", "chess", session_id=session)


@pytest.mark.parametrize("dead", DEAD.values(), ids=DEAD.keys())
def test_the_dead_change_no_rank_and_no_score(
    shelf: Shelf, other: Shelf, dead: Callable[[Shelf], None]
) -> None:
    """With many unreadable memories of the same words the result is as without them."""
    dead(shelf)
    live(shelf)
    live(other)
    scope = Scope((ANN,), SessionId("ours"))
    found = shelf.ranked("jazz trumpet tea", scope)
    assert [key for key, _ in found] == ["b", "a"]
    assert found == other.ranked("jazz trumpet tea", scope)


@given(rows=ROWS, scope=SCOPES)
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_store_without_the_dead_ranks_alike(
    tmp_path_factory: Any, rows: list[Row], scope: Scope
) -> None:
    """Owner, session, status, age and expiry count in the weights as they do in the reads."""
    first, last = (
        [row for row in rows if row.is_for(scope) is is_alive] for is_alive in (True, False)
    )
    found: list[list[tuple[str, float]]] = []
    for kept in ([*first, *last], first):
        shelf = Shelf(tmp_path_factory.mktemp("census"))
        fill(shelf.store, shelf.clock, kept)
        now = shelf.clock()
        hits = shelf.store.keyword(scope, Alive(now, now - RETENTION), query="tea 1", limit=50)
        found.append(sorted((hit.memory.key, hit.score) for hit in hits))
    assert found[0] == found[1]


def test_rare_words_of_the_dead_do_not_hide_a_common_one(shelf: Shelf) -> None:
    """Among many memories a common word is looked for where the rarer ones hold no reader's."""
    for number in range(2_100):
        shelf.put(f"common{number}", f"database {number}")
    for number in range(MANY):
        shelf.put(f"dead{number}", "zither", status=MemoryStatus.ARCHIVED)
    assert len(shelf.ranked("database zither")) == 50


def test_what_is_cut_off_holds_no_place_open(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a word that too many memories hold, the newest readable ones are looked at."""
    monkeypatch.setattr(sqlite_terms, "MAX_HOLDING", 10)
    live(shelf)
    bury(shelf, status=MemoryStatus.SUPERSEDED)
    assert [key for key, _ in shelf.ranked("jazz")] == ["b", "a"]


def test_what_dies_and_comes_leaves_and_joins(shelf: Shelf, other: Shelf) -> None:
    """Time, a change and a new memory are seen by a reader that has asked before."""
    live(shelf)
    shelf.put("brief", "tea tea", expires_at=shelf.clock() + timedelta(hours=1))
    assert [key for key, _ in shelf.ranked("tea")] == ["brief", "b"]
    shelf.clock.move(hours=2)
    live(other)
    assert shelf.ranked("tea jazz") == other.ranked("tea jazz")
    shelf.put("d", "tea again")
    shelf.put("e", "tea once more", status=MemoryStatus.QUARANTINED)
    other.put("d", "tea again")
    assert shelf.ranked("tea jazz") == other.ranked("tea jazz")


def test_a_census_follows_age(shelf: Shelf, other: Shelf) -> None:
    """A memory that ages out between two questions counts in the first alone."""
    shelf.put("old", "jazz")
    shelf.clock.move(hours=24 * 20)
    live(shelf)
    assert len(shelf.ranked("jazz")) == 3
    shelf.clock.move(hours=24 * 11)
    live(other)
    assert shelf.ranked("jazz tea") == other.ranked("jazz tea")
