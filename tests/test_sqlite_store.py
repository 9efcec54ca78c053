"""Memories in SQLite: slots, history, undo, pages."""

import shutil
import subprocess
import sys
import tempfile
from dataclasses import astuple, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from omniroute_litellm.errors import ConflictError, NotFoundError
from omniroute_litellm.sqlite import Database
from omniroute_litellm.sqlite_store import SqliteMemoryStore
from omniroute_litellm.store import Alive, MemoryChange, MemoryQuery
from omniroute_litellm.text import storable
from omniroute_litellm.types import (
    Memory,
    MemoryDraft,
    MemoryId,
    MemorySource,
    MemoryStatus,
    MemoryType,
    OwnerId,
    Scope,
    SessionId,
)
from tests.fakes import FakeClock

ANN: Final = OwnerId("ann")
BOB: Final = OwnerId("bob")
CHARACTERS: Final = st.characters(codec="utf-8")


def draft(key: str = "preference:tea", content: str = "I prefer tea", **more: Any) -> MemoryDraft:
    """Return a draft of Ann's."""
    values: dict[str, Any] = {
        "owner": ANN,
        "type": MemoryType.FACTUAL,
        "source": MemorySource.USER_MESSAGE,
        **more,
    }
    return MemoryDraft(key=key, content=content, **values)


def put(store: SqliteMemoryStore, *arguments: Any, **more: Any) -> Memory:
    """Store a draft and return the row."""
    return store.upsert(draft(*arguments, **more), actor="test").memory


def sequences(database: Database) -> list[tuple[object, ...]]:
    """Return the integer keys in use, without their owner."""
    with database.reading() as connection:
        rows = connection.execute("SELECT pk & 0xFFFFFFFF FROM memories ORDER BY pk").fetchall()
    return list(rows)


def counted(database: Database) -> list[tuple[object, ...]]:
    """Return how many rows, history entries and owners there are, and the next sequences."""
    with database.reading() as connection:
        rows = connection.execute(
            "SELECT (SELECT count(*) FROM memories), (SELECT count(*) FROM memory_history),"
            " api_key_id, next_sequence FROM owners"
        ).fetchall()
    return list(rows)


def test_a_new_slot_makes_a_row(store: SqliteMemoryStore) -> None:
    """What was stored comes back as it was."""
    stored = store.upsert(draft(metadata={"a": [1, None, "ü"]}), actor="test")
    assert stored.created
    assert store.get(stored.memory.id, owner=ANN) == stored.memory
    assert stored.memory.content == "I prefer tea"
    assert stored.memory.metadata == {"a": [1, None, "ü"]}
    assert stored.memory.status is MemoryStatus.ACTIVE
    assert stored.memory.needs_reindex


def test_a_restatement_moves_time_on_and_leaves_no_history(store: SqliteMemoryStore) -> None:
    """The same words again keep the row, and write no history."""
    first = put(store)
    again = store.upsert(draft(), actor="test")
    assert not again.created
    assert again.memory.id == first.id
    assert again.memory.created_at == first.created_at
    assert again.memory.last_seen_at > first.last_seen_at
    assert store.history(first.id, owner=ANN) == []


def test_new_words_replace_the_old_ones_and_keep_them(store: SqliteMemoryStore) -> None:
    """A changed sentence takes the slot; what it replaced stands in the history."""
    first = put(store, metadata={"a": 1, "b": {"deep": 1}})
    changed = put(store, content="I prefer green tea", metadata={"b": {"new": 2}})
    assert changed.id == first.id
    assert changed.content == "I prefer green tea"
    assert changed.metadata == {"a": 1, "b": {"new": 2}}
    (entry,) = store.history(first.id, owner=ANN)
    assert entry.action == "update"
    assert entry.actor == "test"
    assert entry.before["content"] == "I prefer tea"


def test_slots_are_the_owners_and_the_sessions(store: SqliteMemoryStore) -> None:
    """The same key of another owner, or in another slot session, is another memory."""
    one = SessionId("one")
    rows = {put(store).id, put(store, owner=BOB).id, put(store, slot_session=one).id}
    assert len(rows) == 3
    assert put(store, slot_session=one).id in rows


def test_a_quarantined_memory_holds_no_slot(store: SqliteMemoryStore) -> None:
    """Only active memories compete for a slot."""
    active = put(store)
    waiting = put(store, content="Always say tea", status=MemoryStatus.QUARANTINED)
    assert waiting.id != active.id
    approve = MemoryChange({"status": MemoryStatus.ACTIVE})
    with pytest.raises(ConflictError):
        store.update(waiting.id, approve, owner=ANN, actor="test")
    store.delete(active.id, owner=ANN, actor="test")
    assert store.update(waiting.id, approve, owner=ANN, actor="test").status == "active"


def test_an_edit_changes_what_it_names(store: SqliteMemoryStore, clock: FakeClock) -> None:
    """Other fields stay, and the replaced row stands in the history."""
    first = put(store)
    expires = clock() + timedelta(days=1)
    change = MemoryChange({"content": "I love tea", "pinned": True, "expires_at": expires})
    changed = store.update(first.id, change, owner=ANN, actor="admin")
    assert (changed.content, changed.pinned, changed.key) == ("I love tea", True, first.key)
    assert changed.expires_at == expires
    assert store.history(first.id, owner=ANN)[0].before["content"] == "I prefer tea"


def test_a_stale_edit_is_refused(store: SqliteMemoryStore) -> None:
    """The token of an older reading does not pass."""
    first = put(store)
    change = MemoryChange({"pinned": True}, expected_updated_at=first.updated_at)
    store.update(first.id, change, owner=ANN, actor="test")
    with pytest.raises(ConflictError, match="load it again"):
        store.update(first.id, change, owner=ANN, actor="test")


def test_an_edit_onto_a_taken_key_is_refused(store: SqliteMemoryStore) -> None:
    """Two active memories never share a key."""
    put(store)
    other = put(store, key="preference:coffee")
    with pytest.raises(ConflictError, match="preference:tea"):
        store.update(other.id, MemoryChange({"key": "preference:tea"}), owner=ANN, actor="test")


def test_strangers_find_nothing(store: SqliteMemoryStore) -> None:
    """A foreign id is not there, for every verb."""
    memory = put(store)
    store.update(memory.id, MemoryChange({"pinned": True}), owner=ANN, actor="test")
    for attempt in (
        lambda: store.get(memory.id, owner=BOB),
        lambda: store.update(memory.id, MemoryChange({}), owner=BOB, actor="bob"),
        lambda: store.delete(memory.id, owner=BOB, actor="bob"),
        lambda: store.undo(memory.id, owner=BOB, actor="bob"),
        lambda: store.history(memory.id, owner=BOB),
    ):
        with pytest.raises(NotFoundError):
            attempt()
    assert store.get(memory.id, owner=None).id == memory.id


def test_delete_and_undo(store: SqliteMemoryStore, database: Database) -> None:
    """A deleted memory comes back under its id and its integer key, findable again."""
    memory = put(store)
    store.delete(memory.id, owner=ANN, actor="test")
    assert store.page(MemoryQuery()).total == 0
    restored = store.undo(memory.id, owner=ANN, actor="test")
    assert (restored.id, restored.content) == (memory.id, memory.content)
    assert sequences(database) == [(1,)]
    assert store.page(MemoryQuery(text="tea")).total == 1
    with pytest.raises(NotFoundError, match="nothing to undo"):
        store.undo(memory.id, owner=ANN, actor="test")


def test_undo_never_overwrites(store: SqliteMemoryStore) -> None:
    """When the slot is taken meanwhile, undo is a conflict and changes nothing."""
    memory = put(store)
    store.delete(memory.id, owner=ANN, actor="test")
    newer = put(store, content="I prefer green tea")
    with pytest.raises(ConflictError):
        store.undo(memory.id, owner=ANN, actor="test")
    assert store.get(newer.id, owner=ANN).content == "I prefer green tea"


def test_sequences_are_never_used_again(store: SqliteMemoryStore, database: Database) -> None:
    """A new memory does not take the integer key of a deleted one; an update takes none."""
    memory = put(store)
    put(store, content="I prefer green tea")
    store.delete(memory.id, owner=ANN, actor="test")
    put(store, key="preference:coffee")
    assert sequences(database) == [(2,)]


def test_pages_filter_and_sort(store: SqliteMemoryStore) -> None:
    """Every filter narrows, sorts order, and the total counts all pages."""
    put(store, "a", "alpha one", session_id=SessionId("s"), type=MemoryType.EPISODIC)
    put(store, "b", "beta 100%", pinned=True)
    bob = put(store, "c", "gamma_three", owner=BOB, source=MemorySource.MANUAL)
    store.count_access([bob.id], at=bob.created_at)

    def keys(**query: Any) -> list[str]:
        return [memory.key for memory in store.page(MemoryQuery(**query)).memories]

    assert keys() == ["c", "b", "a"]
    assert keys(owner=ANN) == ["b", "a"]
    assert keys(type=MemoryType.EPISODIC) == ["a"]
    assert keys(session_id=SessionId("s")) == ["a"]
    assert keys(pinned=True) == ["b"]
    assert keys(source=MemorySource.MANUAL) == ["c"]
    assert keys(status=MemoryStatus.ARCHIVED) == []
    assert keys(sort="key") == ["a", "b", "c"]
    assert keys(sort="used")[0] == "c"
    assert keys(text="lph") == ["a"]
    assert keys(text="%") == ["b"]
    assert keys(text="_") == ["c"]
    assert keys(text="ones") == ["a"], "stemmed by the keyword index"
    assert keys(limit=1, offset=1) == ["b"]
    assert store.page(MemoryQuery(limit=1)).total == 3


def test_totals_and_owners(store: SqliteMemoryStore) -> None:
    """Counts are by owner, type and status; owners without memories are not listed."""
    put(store)
    gone = put(store, owner=BOB)
    put(store, key="x", status=MemoryStatus.ARCHIVED)
    store.delete(gone.id, owner=BOB, actor="test")
    totals = store.totals(ANN)
    assert totals.total == 2
    assert totals.by_type[MemoryType.FACTUAL] == 1
    assert totals.by_status[MemoryStatus.ARCHIVED] == 1
    assert totals.tokens == 3
    assert [(summary.owner, summary.count) for summary in store.owners()] == [(ANN, 2)]


def test_access_is_counted_apart(store: SqliteMemoryStore, clock: FakeClock) -> None:
    """Using a memory counts and changes neither its time nor its history."""
    memory = put(store)
    moment = clock()
    store.count_access([memory.id, MemoryId("unknown")], at=moment)
    store.count_access([memory.id], at=moment)
    used = store.get(memory.id, owner=ANN)
    assert (used.access_count, used.last_accessed_at) == (2, moment)
    assert used.updated_at == memory.updated_at


def test_history_is_purged_by_age(store: SqliteMemoryStore, clock: FakeClock) -> None:
    """Entries older than the moment go, younger ones stay."""
    memory = put(store)
    put(store, content="I prefer green tea")
    clock.move(days=2)
    put(store, content="I prefer black tea")
    assert store.purge_history(before=clock() - timedelta(days=1)) == 1
    assert len(store.history(memory.id, owner=ANN)) == 1


def test_a_restatement_of_an_expired_memory_is_read(
    store: SqliteMemoryStore, clock: FakeClock
) -> None:
    """What is said again after its expiry is not stored into the past."""
    put(store, expires_at=clock() + timedelta(days=1))
    clock.move(days=2)
    put(store)
    alive = Alive(clock(), clock() - timedelta(days=30))
    assert [memory.key for memory in store.newest(Scope((ANN,)), alive, limit=5)] == [
        "preference:tea"
    ]


def test_a_restatement_keeps_an_expiry_to_come(store: SqliteMemoryStore, clock: FakeClock) -> None:
    """A memory that is to end in a week still does when it is said again."""
    expires = clock() + timedelta(days=7)
    put(store, expires_at=expires)
    assert put(store, content="I prefer green tea").expires_at == expires


def test_undo_brings_everything_back(store: SqliteMemoryStore, clock: FakeClock) -> None:
    """A deleted memory returns with every field; time and index state alone move on."""
    memory = put(
        store,
        metadata={"deep": {"list": [1, None, "ü"]}},
        session_id=SessionId("s"),
        slot_session=SessionId("s"),
        pinned=True,
        expires_at=clock() + timedelta(days=1),
        type=MemoryType.SEMANTIC,
        source=MemorySource.IMPORT,
    )
    store.delete(memory.id, owner=ANN, actor="test")
    restored = store.undo(memory.id, owner=ANN, actor="test")
    assert replace(restored, updated_at=memory.updated_at) == memory
    assert put(store, slot_session=SessionId("s")).id == memory.id


def test_an_inactive_memory_may_be_edited_beside_the_active_one(store: SqliteMemoryStore) -> None:
    """Only what is active needs the slot."""
    put(store)
    waiting = put(store, status=MemoryStatus.QUARANTINED)
    change = MemoryChange({"content": "I prefer rooibos"})
    assert store.update(waiting.id, change, owner=ANN, actor="test").content == "I prefer rooibos"


@given(
    key=st.text(st.characters(), min_size=1),
    content=st.text(st.characters(), min_size=1),
)
@example(key="\ud800", content="\x00\udfff")
@example(key='"', content="a' OR NEAR(x) -- \\ % _ *")
@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_text_is_stored_and_restated(
    store: SqliteMemoryStore, database: Database, key: str, content: str
) -> None:
    """Any text, once storable, comes back as it was; said again it changes no count."""
    key, content = storable(key), storable(content)
    first = put(store, key, content)
    counts = counted(database)
    again = put(store, key, content)
    assert (again.id, again.key, again.content) == (first.id, key, content)
    assert counted(database) == counts


@given(text=st.text(st.characters()))
@example(text="\ud800")
@example(text='" OR *')
@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_text_filters_a_page(store: SqliteMemoryStore, text: str) -> None:
    """No filter is an error, whatever an admin types."""
    put(store)
    store.page(MemoryQuery(text=text))


def test_no_field_holds_the_integer_key(store: SqliteMemoryStore, database: Database) -> None:
    """What comes out of the store names memories by their id alone."""
    memory = put(store)
    with database.reading() as connection:
        ((pk,),) = connection.execute("SELECT pk FROM memories").fetchall()
    assert pk not in astuple(memory)


WRITER: Final = """
import pathlib, sys
from omniroute_litellm.sqlite import Database
from omniroute_litellm.sqlite_store import SqliteMemoryStore
from omniroute_litellm.types import MemoryDraft, MemorySource, MemoryType, OwnerId, utc_now
database = Database(pathlib.Path(sys.argv[1]))
store = SqliteMemoryStore(database, clock=utc_now)
for number in range(40):
    draft = MemoryDraft(
        OwnerId("ann"), MemoryType.FACTUAL, f"k{number}", f"said by {sys.argv[2]}",
        MemorySource.MANUAL,
    )
    store.upsert(draft, actor=sys.argv[2])
database.close()
"""


def test_processes_share_slots(store: SqliteMemoryStore, database: Database) -> None:
    """Two processes that store the same keys at once make each memory once."""
    database.open()
    started = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(database.path), name], stderr=subprocess.PIPE
        )
        for name in ("one", "two")
    ]
    told = [process.communicate()[1].decode() for process in started]
    assert told == ["", ""]
    assert store.totals(ANN).total == 40
    assert sequences(database) == [(number,) for number in range(1, 41)]


class StoreMachine(RuleBasedStateMachine):
    """Any sequence of writes ends in what a plain dictionary predicts."""

    ids = Bundle("ids")

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="omniroute-test-"))
        self.database = Database(self.folder / "omniroute.db")
        self.store = SqliteMemoryStore(self.database, clock=FakeClock())
        self.rows: dict[MemoryId, tuple[str, str]] = {}
        self.undo: dict[MemoryId, list[tuple[str, str]]] = {}

    def teardown(self) -> None:
        self.database.close()
        shutil.rmtree(self.folder)

    def holder(self, key: str) -> MemoryId | None:
        return next((row for row, (held, _) in self.rows.items() if held == key), None)

    @rule(
        target=ids,
        key=st.sampled_from("abc"),
        content=st.text(st.characters(codec="utf-8"), min_size=1),
    )
    def add(self, key: str, content: str) -> MemoryId:
        content = content.replace("\0", " ")
        known = self.holder(key)
        stored = self.store.upsert(draft(key, content), actor="test")
        assert stored.created == (known is None)
        memory_id = stored.memory.id
        if known is not None:
            assert known == memory_id
            if self.rows[known][1] != content:
                self.undo.setdefault(known, []).append(self.rows[known])
        self.rows[memory_id] = (key, content)
        return memory_id

    @rule(memory_id=ids, key=st.sampled_from("abc"))
    def rename(self, memory_id: MemoryId, key: str) -> None:
        change = MemoryChange({"key": key})
        if memory_id not in self.rows:
            with pytest.raises(NotFoundError):
                self.store.update(memory_id, change, owner=ANN, actor="test")
        elif self.holder(key) not in {None, memory_id}:
            with pytest.raises(ConflictError):
                self.store.update(memory_id, change, owner=ANN, actor="test")
        else:
            self.store.update(memory_id, change, owner=ANN, actor="test")
            self.undo.setdefault(memory_id, []).append(self.rows[memory_id])
            self.rows[memory_id] = (key, self.rows[memory_id][1])

    @rule(memory_id=ids)
    def delete(self, memory_id: MemoryId) -> None:
        if memory_id in self.rows:
            self.store.delete(memory_id, owner=ANN, actor="test")
            self.undo.setdefault(memory_id, []).append(self.rows.pop(memory_id))

    @rule(memory_id=consumes(ids))
    def take_back(self, memory_id: MemoryId) -> None:
        entries = self.undo.get(memory_id, [])
        if not entries:
            with pytest.raises(NotFoundError):
                self.store.undo(memory_id, owner=ANN, actor="test")
        elif self.holder(entries[-1][0]) not in {None, memory_id}:
            with pytest.raises(ConflictError):
                self.store.undo(memory_id, owner=ANN, actor="test")
        else:
            self.store.undo(memory_id, owner=ANN, actor="test")
            self.rows[memory_id] = entries.pop()

    @invariant()
    def rows_are_as_predicted(self) -> None:
        page = self.store.page(MemoryQuery(limit=200))
        assert {memory.id: (memory.key, memory.content) for memory in page.memories} == self.rows

    @invariant()
    def the_index_follows(self) -> None:
        with self.database.writing() as connection:
            connection.execute(
                "INSERT INTO memory_fts (memory_fts, rank) VALUES ('integrity-check', 1)"
            )


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(
    max_examples=30,
    stateful_step_count=20,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
