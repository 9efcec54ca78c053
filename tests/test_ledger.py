"""The ledger: what it gives back, what it forgets, and how it behaves without a disk."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from omniroute_litellm import ledger as ledger_module
from omniroute_litellm.conversation import Turn
from omniroute_litellm.errors import BackendUnavailableError
from omniroute_litellm.ledger import Ledger, Placed
from omniroute_litellm.replay import placed_now
from omniroute_litellm.sqlite import Database
from omniroute_litellm.sqlite_store import SqliteMemoryStore
from omniroute_litellm.store import MemoryChange
from omniroute_litellm.types import (
    Memory,
    MemoryDraft,
    MemorySource,
    MemoryStatus,
    MemoryType,
    OwnerId,
)
from tests.fakes import FakeClock

ANN: Final = OwnerId("a" * 64)
BEN: Final = OwnerId("b" * 64)


class Shelf:
    """A store and a ledger over one file, and a second ledger as of another process."""

    def __init__(self, folder: Path) -> None:
        self.clock = FakeClock()
        self.database = Database(folder / "ledger.db")
        self.store = SqliteMemoryStore(self.database, clock=self.clock)
        self.ledger = Ledger(self.database, clock=self.clock)
        self.other = Ledger(self.database, clock=self.clock)

    def know(self, content: str, owner: OwnerId = ANN) -> Memory:
        """Store one memory."""
        draft = MemoryDraft(
            owner, MemoryType.FACTUAL, f"preference:{content}", content, MemorySource.MANUAL
        )
        return self.store.upsert(draft, actor="test").memory

    def placed(self, turn: str, *memories: Memory, owner: OwnerId = ANN) -> Placed:
        """Remember a block with these memories."""
        made = placed_now(Turn(0, turn), owner, f"block of {turn}", memories)
        self.ledger.put(made)
        return made

    def rows(self, sql: str) -> int:
        """Return one number."""
        with self.database.reading() as connection:
            (row,) = connection.execute(sql).fetchall()
        return int(str(row[0]))


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    """Hand out an empty shelf."""
    return Shelf(tmp_path)


def test_what_is_put_is_found_at_once_here_and_later_everywhere(shelf: Shelf) -> None:
    """This process knows it before the disk does, others after the flush."""
    placed = shelf.placed("t1", shelf.know("tea"))
    assert shelf.ledger.find(ANN, ["t0", "t1"]) == {"t1": placed}
    assert shelf.other.find(ANN, ["t1"]) == {}
    shelf.ledger.flush()
    assert not shelf.ledger.has_news
    assert shelf.other.find(ANN, ["t1"]) == {"t1": placed}


def test_a_turn_is_its_owners(shelf: Shelf) -> None:
    """Nobody else finds it, even by its name."""
    shelf.placed("t1", shelf.know("tea"))
    shelf.ledger.flush()
    assert shelf.ledger.find(BEN, ["t1"]) == {}


def test_a_second_placement_replaces_the_first(shelf: Shelf) -> None:
    """A turn has one block, and only the memories of that one hold on to it."""
    tea, jazz = shelf.know("tea"), shelf.know("jazz")
    shelf.placed("t1", tea)
    shelf.ledger.flush()
    second = shelf.placed("t1", jazz)
    shelf.ledger.flush()
    shelf.store.delete(tea.id, owner=ANN, actor="test")
    assert shelf.other.find(ANN, ["t1"]) == {"t1": second}


def edit(shelf: Shelf, memory: Memory) -> None:
    change = MemoryChange({"content": "coffee"})
    shelf.store.update(memory.id, change, owner=ANN, actor="test")


def archive(shelf: Shelf, memory: Memory) -> None:
    change = MemoryChange({"status": MemoryStatus.ARCHIVED})
    shelf.store.update(memory.id, change, owner=ANN, actor="test")


def delete(shelf: Shelf, memory: Memory) -> None:
    shelf.store.delete(memory.id, owner=ANN, actor="test")


CHANGES: Final = pytest.mark.parametrize("change", [edit, archive, delete])


@CHANGES
def test_a_change_leaves_no_copy(shelf: Shelf, change: Callable[[Shelf, Memory], None]) -> None:
    """What is deleted, edited or archived goes from the ledger in the same transaction."""
    tea, jazz = shelf.know("tea"), shelf.know("jazz")
    shelf.placed("t1", tea, jazz)
    kept = shelf.placed("t2", jazz)
    shelf.ledger.flush()
    change(shelf, tea)
    assert shelf.other.find(ANN, ["t1", "t2"]) == {"t2": kept}
    assert shelf.rows("SELECT count(*) FROM placed_memories") == 1


@CHANGES
def test_a_change_before_the_flush_keeps_the_block_off_the_disk(
    shelf: Shelf, change: Callable[[Shelf, Memory], None]
) -> None:
    """A block that waits must not bring back what went meanwhile."""
    tea = shelf.know("tea")
    placed = shelf.placed("t1", tea)
    change(shelf, tea)
    shelf.ledger.flush()
    assert shelf.rows("SELECT count(*) FROM placements") == 0
    assert not placed.is_true_to({})


def test_a_restatement_and_a_use_keep_it(shelf: Shelf) -> None:
    """Saying the same again changes no word, so the cached prompt stays."""
    tea = shelf.know("tea")
    placed = shelf.placed("t1", tea)
    shelf.ledger.flush()
    shelf.clock.move(hours=1)
    again = shelf.know("tea")
    shelf.store.count_access([tea.id], at=shelf.clock())
    assert shelf.ledger.find(ANN, ["t1"]) == {"t1": placed}
    assert placed.is_true_to({again.id: again})


def test_entries_live_as_long_as_they_are_used(shelf: Shelf) -> None:
    """A day after the last use an entry is gone; each use counts anew."""
    tea = shelf.know("tea")
    shelf.placed("t1", tea)
    shelf.placed("t2", tea)
    shelf.ledger.flush()
    shelf.clock.move(hours=23)
    assert set(shelf.ledger.find(ANN, ["t1"])) == {"t1"}
    assert shelf.ledger.has_news
    shelf.ledger.flush()
    shelf.clock.move(hours=2)
    assert set(shelf.ledger.find(ANN, ["t1", "t2"])) == {"t1"}
    shelf.ledger.purge()
    assert shelf.rows("SELECT count(*) FROM placements") == 1


def test_one_owner_does_not_fill_it(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one owner's entries the oldest go; another owner's stay."""
    monkeypatch.setattr(ledger_module, "MAX_PER_OWNER", 2)
    for number in range(4):
        shelf.placed(f"a{number}")
        shelf.ledger.flush()
        shelf.clock.move(seconds=1)
    shelf.placed("b0", owner=BEN)
    shelf.ledger.flush()
    shelf.ledger.purge()
    assert set(shelf.ledger.find(ANN, [f"a{number}" for number in range(4)])) == {"a2", "a3"}
    assert set(shelf.ledger.find(BEN, ["b0"])) == {"b0"}


def test_without_a_disk_it_waits_within_bounds(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be written is tried again, and the oldest goes when there is too much."""
    monkeypatch.setattr(ledger_module, "MAX_PENDING", 2)
    for number in range(3):
        shelf.placed(f"t{number}")
    found = shelf.ledger.find(ANN, ["t0", "t1", "t2"])
    assert set(found) == {"t1", "t2"}
    shelf.database.close()
    with pytest.raises(BackendUnavailableError):
        shelf.ledger.flush()
    assert shelf.ledger.has_news
