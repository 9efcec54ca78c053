"""What is held in memory is what the database says, whoever changed it."""

import contextlib
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omniroute_litellm.errors import BackendUnavailableError, ConflictError, NotFoundError
from omniroute_litellm.memory_cache import MemoryCache
from omniroute_litellm.sqlite import Database
from omniroute_litellm.sqlite_reader import SqliteMemoryReader
from omniroute_litellm.sqlite_store import SqliteMemoryStore
from omniroute_litellm.store import Alive, MemoryChange
from omniroute_litellm.types import (
    Memory,
    MemoryDraft,
    MemoryId,
    MemorySource,
    MemoryStatus,
    MemoryType,
    OwnerId,
    Scope,
)
from tests.fakes import FakeClock
from tests.test_trace import memory

ANN: Final = OwnerId("ann")
RETENTION: Final = timedelta(days=30)
NAMES: Final = ("tea", "jazz", "chess")
MANY: Final = 5


def held(cache: MemoryCache, owner: int, revision: int) -> set[int]:
    """Return the keys that are known of an owner."""
    return set(cache.of(owner, revision).memories)


def test_what_was_read_is_known_at_its_revision_alone() -> None:
    """A change makes an owner unknown, and nobody else."""
    cache = MemoryCache()
    cache.add(1, cache.of(1, 7), {11: memory("a")})
    cache.add(2, cache.of(2, 0), {21: memory("b")})
    assert held(cache, 1, 7) == {11}
    assert held(cache, 1, 8) == set()
    assert held(cache, 2, 0) == {21}


def test_a_reader_of_an_older_moment_changes_nothing() -> None:
    """Its snapshot began before the change: what it reads must not outlive it."""
    cache = MemoryCache()
    cache.add(1, cache.of(1, 8), {11: memory("new")})
    late = cache.of(1, 7)
    cache.add(1, late, {11: memory("old")})
    assert late.memories == {}
    assert cache.of(1, 8).memories[11].id == "new"


def test_room_is_made_for_the_newest_question() -> None:
    """What was asked about longest ago goes first, and the bound holds for one owner as well."""
    cache = MemoryCache(capacity=3)
    for owner in (1, 2):
        cache.add(owner, cache.of(owner, 0), {owner: memory("a")})
    cache.of(1, 0)
    cache.add(3, cache.of(3, 0), {31: memory("a"), 32: memory("b")})
    assert held(cache, 2, 0) == set()
    assert held(cache, 1, 0) == {1}
    cache.add(4, cache.of(4, 0), {key: memory(str(key)) for key in range(4)})
    assert sum(len(cache.of(owner, 0).memories) for owner in (1, 2, 3, 4)) <= 3


class Stage:
    """Two processes on one file, and one reader that has seen everything so far."""

    def __init__(self, path: Path) -> None:
        self.clock = FakeClock()
        self.databases = [Database(path) for _ in range(3)]
        self.stores = [SqliteMemoryStore(each, clock=self.clock) for each in self.databases[:2]]
        self.ids: list[MemoryId] = []

    def add(self, at: int, name: str, *, category: str) -> None:
        draft = MemoryDraft(
            owner=ANN,
            type=MemoryType.FACTUAL,
            key=f"{category}:{name}",
            content=f"I like {name} and {name}s",
            source=MemorySource.MANUAL,
        )
        stored = self.stores[at].upsert(draft, actor="test").memory.id
        if stored not in self.ids:
            self.ids.append(stored)

    def change(self, at: int, values: dict[str, object]) -> None:
        self._try(
            lambda memory_id: self.stores[at].update(
                memory_id, MemoryChange(values), owner=ANN, actor="test"
            )
        )

    def delete(self, at: int) -> None:
        self._try(lambda memory_id: self.stores[at].delete(memory_id, owner=ANN, actor="test"))

    def undo(self, at: int) -> None:
        self._try(lambda memory_id: self.stores[at].undo(memory_id, owner=ANN, actor="test"))

    def _try(self, work: Callable[[MemoryId], object]) -> None:
        if self.ids:
            memory_id = self.ids.pop(0)
            self.ids.append(memory_id)
            # Where it is not possible now the store says so, and nothing has changed.
            with contextlib.suppress(ConflictError, NotFoundError):
                work(memory_id)

    def read(self, reader: SqliteMemoryReader) -> dict[str, object]:
        """Return the answer to every question; uses may lag behind."""
        now = self.clock()
        scope, alive = Scope((ANN,)), Alive(now, now - RETENTION)
        few = reader.all_if_few(scope, alive, at_most=MANY)
        with reader.snapshot():
            return {
                "newest": plain(reader.newest(scope, alive, limit=4)),
                "profile": plain(reader.profile(scope, alive, limit=2)),
                "few": None if few is None else plain(few),
                "keyword": [
                    (*plain([hit.memory]), hit.score, hit.coverage)
                    for hit in reader.keyword(scope, alive, query="tea or jazz", limit=3)
                ],
            }


def plain(memories: list[Memory]) -> list[Memory]:
    """Leave out what is not promised to be up to date."""
    return [
        replace(each, access_count=0, last_accessed_at=None, needs_reindex=False)
        for each in memories
    ]


CHANGES: Final = st.sampled_from(
    (
        {"content": "I prefer green tea"},
        {"pinned": True},
        {"status": MemoryStatus.QUARANTINED},
        {"status": MemoryStatus.ACTIVE},
        {"key": "decision:moved"},
    )
)
STEPS: Final = st.one_of(
    st.tuples(
        st.just("add"),
        st.integers(0, 1),
        st.sampled_from(NAMES),
        st.sampled_from(("preference", "decision", "pattern")),
    ),
    st.tuples(st.just("change"), st.integers(0, 1), CHANGES),
    st.tuples(st.just("delete"), st.integers(0, 1)),
    st.tuples(st.just("undo"), st.integers(0, 1)),
    st.tuples(st.just("wait"), st.sampled_from((0, 40))),
)


@given(steps=st.lists(STEPS, max_size=12))
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_reader_that_remembers_answers_like_one_that_does_not(
    tmp_path_factory: Any, steps: list[Any]
) -> None:
    """After every change by either process all answers are those of a new reader."""
    stage = Stage(tmp_path_factory.mktemp("cache") / "memory.db")
    for name in NAMES:
        stage.add(0, name, category="preference")
    for step in steps:
        match step:
            case ("add", at, name, category):
                stage.add(at, name, category=category)
            case ("change", at, values):
                stage.change(at, values)
            case ("delete", at):
                stage.delete(at)
            case ("undo", at):
                stage.undo(at)
            case ("wait", days):
                # More than the minute for which a full store counts as full.
                stage.clock.move(days=days, minutes=2)
            case _:
                raise AssertionError(step)
        expected = stage.read(SqliteMemoryReader(stage.databases[2]))
        for store in stage.stores:
            assert stage.read(store) == expected


def test_a_snapshot_stands_still(tmp_path: Path) -> None:
    """What another process writes meanwhile is seen by the next snapshot, not by this one."""
    stage = Stage(tmp_path / "memory.db")
    stage.add(0, "tea", category="preference")
    reader = stage.stores[1]
    with reader.snapshot():
        before = stage.read(reader)
        stage.add(0, "jazz", category="preference")
        assert stage.read(reader) == before
    assert stage.read(reader) != before


def test_another_file_is_read_anew(tmp_path: Path) -> None:
    """What takes the place of a damaged file may say something else at the same revision."""
    path, other = tmp_path / "memory.db", tmp_path / "other.db"
    for where, name in ((path, "tea"), (other, "jazz")):
        stage = Stage(where)
        stage.add(0, name, category="preference")
        for database in stage.databases:
            database.close()
    clock, running = FakeClock(), Database(path, retry_after_s=0)
    reader = SqliteMemoryReader(running)
    scope, alive = Scope((ANN,)), Alive(clock(), clock() - RETENTION)
    assert [each.key for each in reader.newest(scope, alive, limit=9)] == ["preference:tea"]
    path.write_bytes(b"\xff" * path.stat().st_size)
    with pytest.raises(BackendUnavailableError), running.writing() as connection:
        connection.execute("DELETE FROM owners")
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    path.write_bytes(other.read_bytes())
    assert [each.key for each in reader.newest(scope, alive, limit=9)] == ["preference:jazz"]
    running.close()
