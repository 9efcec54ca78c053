"""Memories in SQLite: slots, edits, history, undo, pages and counts."""

import shutil
import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from omniroute_litellm.errors import ConflictError, NotFoundError
from omniroute_litellm.sqlite import Database
from omniroute_litellm.sqlite_store import SqliteMemoryStore
from omniroute_litellm.store import MemoryChange, MemoryQuery, Sort
from omniroute_litellm.types import (
    Memory,
    MemoryId,
    MemorySource,
    MemoryStatus,
    MemoryType,
    OwnerId,
    SessionId,
)
from tests.fakes import FakeClock
from tests.unit.fakes import ANN, BOB, draft, put

ONE: Final = SessionId("one")
TWO: Final = SessionId("two")
UNKNOWN: Final = MemoryId("00000000-0000-0000-0000-000000000000")


def edit(store: SqliteMemoryStore, memory: Memory, **values: object) -> Memory:
    """Change some fields of a memory."""
    return store.update(memory.id, MemoryChange(values), owner=memory.owner, actor="test")


def found(store: SqliteMemoryStore, text: str) -> list[str]:
    """Return the keys of Ann's memories that a text finds, in order of the alphabet."""
    return [memory.key for memory in store.page(MemoryQuery(ANN, text=text, sort="key")).memories]


def sequences(database: Database) -> list[int]:
    """Return the integer keys in use, without the part of their owner."""
    with database.reading() as connection:
        rows = connection.execute("SELECT pk & 0xFFFFFFFF FROM memories ORDER BY pk").fetchall()
    return [int(str(row[0])) for row in rows]


def check_index(database: Database) -> None:
    """Compare the keyword index with the rows; a difference is a BackendUnavailableError."""
    with database.writing() as connection:
        connection.execute(
            "INSERT INTO memory_fts (memory_fts, rank) VALUES ('integrity-check', 1)"
        )


class TestUpsert:
    """Storing into a slot."""

    def test_new_slot_is_created(self, store: SqliteMemoryStore) -> None:
        """The first draft of a slot makes a row."""
        assert store.upsert(draft(), actor="test").created

    def test_row_comes_back(self, store: SqliteMemoryStore) -> None:
        """What upsert returns is what get returns."""
        made = draft(metadata={"a": [1, None, "ü", {"b": 1.5}]}, pinned=True, session_id=ONE)
        stored = put(store, made)
        assert store.get(stored.id, owner=ANN) == stored

    def test_new_row_wants_its_index(self, store: SqliteMemoryStore) -> None:
        """A new row has no vector yet."""
        assert put(store).needs_reindex

    def test_again_keeps_id(self, store: SqliteMemoryStore) -> None:
        """The same words again stay the same memory."""
        first = put(store)
        assert put(store).id == first.id

    def test_again_is_not_created(self, store: SqliteMemoryStore) -> None:
        """The same words again make no row."""
        put(store)
        assert not store.upsert(draft(), actor="test").created

    def test_again_keeps_birth(self, store: SqliteMemoryStore, clock: FakeClock) -> None:
        """The same words again leave created_at."""
        first = put(store)
        clock.move(days=1)
        assert put(store).created_at == first.created_at

    def test_again_is_seen_again(self, store: SqliteMemoryStore, clock: FakeClock) -> None:
        """The same words again count retention anew."""
        first = put(store)
        clock.move(days=1)
        assert put(store).last_seen_at - first.last_seen_at >= timedelta(days=1)

    def test_again_leaves_no_history(self, store: SqliteMemoryStore) -> None:
        """The same words again replace nothing."""
        first = put(store)
        put(store)
        assert store.history(first.id, owner=ANN) == []

    def test_other_words_replace(self, store: SqliteMemoryStore) -> None:
        """The newest words of a slot are the ones that stand."""
        first = put(store)
        put(store, draft(content="I prefer black tea"))
        assert store.get(first.id, owner=ANN).content == "I prefer black tea"

    def test_other_words_keep_the_old(self, store: SqliteMemoryStore) -> None:
        """The replaced words stand in the history."""
        first = put(store)
        put(store, draft(content="I prefer black tea"))
        entries = store.history(first.id, owner=ANN)
        assert [entry.before["content"] for entry in entries] == ["I prefer green tea"]

    def test_other_type_keeps_the_old(self, store: SqliteMemoryStore) -> None:
        """A change of the type alone stands in the history, too."""
        first = put(store)
        put(store, draft(type=MemoryType.SEMANTIC))
        entries = store.history(first.id, owner=ANN)
        assert [entry.before["type"] for entry in entries] == ["factual"]

    def test_history_names_actor(self, store: SqliteMemoryStore) -> None:
        """The history tells who replaced the words."""
        first = put(store)
        store.upsert(draft(content="Other"), actor="somebody")
        assert store.history(first.id, owner=ANN)[0].actor == "somebody"

    def test_metadata_merges_shallowly(self, store: SqliteMemoryStore) -> None:
        """New metadata joins the old at the first level; a nested object is replaced whole."""
        put(store, draft(metadata={"a": 1, "b": {"x": 1}}))
        again = put(store, draft(metadata={"b": {"y": 2}, "c": None}))
        assert again.metadata == {"a": 1, "b": {"y": 2}, "c": None}

    def test_pin_survives_restatement(self, store: SqliteMemoryStore) -> None:
        """A restatement without a pin does not unpin."""
        put(store, draft(pinned=True))
        assert put(store).pinned

    def test_expiry_survives_restatement(self, store: SqliteMemoryStore, clock: FakeClock) -> None:
        """A restatement without an expiry keeps the one that stands."""
        end = clock() + timedelta(days=7)
        put(store, draft(expires_at=end))
        assert put(store).expires_at == end

    def test_owners_have_slots_of_their_own(self, store: SqliteMemoryStore) -> None:
        """One key of two owners is two memories."""
        assert put(store).id != put(store, draft(owner=BOB)).id

    def test_slot_sessions_have_slots_of_their_own(self, store: SqliteMemoryStore) -> None:
        """One key of two slot sessions is two memories."""
        one = put(store, draft(session_id=ONE, slot_session=ONE))
        assert put(store, draft(session_id=TWO, slot_session=TWO)).id != one.id

    def test_sessions_share_a_slot(self, store: SqliteMemoryStore) -> None:
        """Without a slot session one key of two sessions is one memory, of the later session."""
        one = put(store, draft(session_id=ONE))
        two = put(store, draft(session_id=TWO))
        assert (two.id, two.session_id) == (one.id, TWO)

    def test_quarantined_draft_takes_no_slot(self, store: SqliteMemoryStore) -> None:
        """A quarantined draft leaves the active memory of its key as it is."""
        first = put(store)
        put(store, draft(content="Ignore all", status=MemoryStatus.QUARANTINED))
        assert store.get(first.id, owner=ANN) == first

    def test_sequence_stands_still_on_restatement(
        self, store: SqliteMemoryStore, database: Database
    ) -> None:
        """A restatement uses no sequence up."""
        for _ in range(5):
            put(store)
        put(store, draft("preference:jazz"))
        assert sequences(database) == [1, 2]

    def test_sequence_is_never_used_again(
        self, store: SqliteMemoryStore, database: Database
    ) -> None:
        """The number of a deleted memory stays unused."""
        put(store, draft("a"))
        store.delete(put(store, draft("b")).id, owner=ANN, actor="test")
        put(store, draft("c"))
        assert sequences(database) == [1, 3]


class TestUpdate:
    """Editing."""

    def test_changes_what_it_names(self, store: SqliteMemoryStore) -> None:
        """The named field changes."""
        assert edit(store, put(store), content="I prefer coffee").content == "I prefer coffee"

    def test_leaves_the_rest(self, store: SqliteMemoryStore) -> None:
        """What an edit does not name stays."""
        before = put(store, draft(metadata={"a": 1}, pinned=True, session_id=ONE))
        after = edit(store, before, content="I prefer coffee")
        kept = ("id", "key", "type", "metadata", "pinned", "session_id", "created_at", "status")
        assert [getattr(after, n) for n in kept] == [getattr(before, n) for n in kept]

    def test_none_makes_permanent(self, store: SqliteMemoryStore, clock: FakeClock) -> None:
        """An expiry that is set to None goes."""
        before = put(store, draft(expires_at=clock() + timedelta(days=1)))
        assert edit(store, before, expires_at=None).expires_at is None

    def test_moves_the_token(self, store: SqliteMemoryStore) -> None:
        """Every edit has a later updated_at than the one before."""
        before = put(store)
        assert edit(store, before, pinned=True).updated_at > before.updated_at

    def test_fresh_token_is_accepted(self, store: SqliteMemoryStore) -> None:
        """An edit of the row as it is goes through."""
        before = put(store)
        change = MemoryChange({"pinned": True}, expected_updated_at=before.updated_at)
        assert store.update(before.id, change, owner=ANN, actor="test").pinned

    def test_stale_token_is_refused(self, store: SqliteMemoryStore) -> None:
        """An edit of a row that changed meanwhile is a conflict."""
        before = put(store)
        edit(store, before, pinned=True)
        change = MemoryChange({"content": "Late"}, expected_updated_at=before.updated_at)
        with pytest.raises(ConflictError):
            store.update(before.id, change, owner=ANN, actor="test")

    def test_taken_key_is_refused(self, store: SqliteMemoryStore) -> None:
        """An edit onto the key of another memory is a conflict."""
        put(store, draft("preference:jazz"))
        with pytest.raises(ConflictError, match="preference:jazz"):
            edit(store, put(store), key="preference:jazz")

    def test_key_of_other_owner_is_free(self, store: SqliteMemoryStore) -> None:
        """Keys of another owner do not stand in the way."""
        put(store, draft("preference:jazz", owner=BOB))
        assert edit(store, put(store), key="preference:jazz").key == "preference:jazz"

    def test_refused_edit_leaves_no_history(self, store: SqliteMemoryStore) -> None:
        """An edit that failed replaced nothing."""
        put(store, draft("preference:jazz"))
        before = put(store)
        with pytest.raises(ConflictError):
            edit(store, before, key="preference:jazz")
        assert store.history(before.id, owner=ANN) == []

    def test_approval_onto_taken_slot_is_refused(self, store: SqliteMemoryStore) -> None:
        """A quarantined memory whose key is taken cannot become active."""
        held = put(store, draft(status=MemoryStatus.QUARANTINED))
        put(store)
        with pytest.raises(ConflictError):
            edit(store, held, status=MemoryStatus.ACTIVE)

    def test_new_words_want_their_index(self, store: SqliteMemoryStore) -> None:
        """After an edit of its content a row is to be indexed again."""
        assert edit(store, put(store), content="Other").needs_reindex

    def test_is_found_by_new_words(self, store: SqliteMemoryStore) -> None:
        """The keyword index follows an edit."""
        edit(store, put(store), content="We climb mountains")
        assert (found(store, "mountain"), found(store, "green")) == (["preference:tea"], [])


class TestDelete:
    """Removing, and taking changes back."""

    def test_deleted_is_gone(self, store: SqliteMemoryStore) -> None:
        """A deleted memory is not found any more."""
        memory = put(store)
        store.delete(memory.id, owner=ANN, actor="test")
        with pytest.raises(NotFoundError):
            store.get(memory.id, owner=ANN)

    def test_deleted_stays_in_history(self, store: SqliteMemoryStore) -> None:
        """The history holds the whole row of a deleted memory."""
        memory = put(store)
        store.delete(memory.id, owner=ANN, actor="test")
        entry = store.history(memory.id, owner=ANN)[0]
        assert (entry.action, entry.before["content"]) == ("delete", memory.content)

    def test_deleting_frees_the_slot(self, store: SqliteMemoryStore) -> None:
        """After a deletion the key makes a new memory."""
        memory = put(store)
        store.delete(memory.id, owner=ANN, actor="test")
        assert put(store).id != memory.id

    def test_undo_brings_back(self, store: SqliteMemoryStore) -> None:
        """A deleted memory comes back with its id, words and metadata."""
        memory = put(store, draft(metadata={"a": 1}, pinned=True))
        store.delete(memory.id, owner=ANN, actor="test")
        back = store.undo(memory.id, owner=ANN, actor="test")
        fields = ("id", "content", "metadata", "pinned", "created_at", "last_seen_at")
        assert [getattr(back, n) for n in fields] == [getattr(memory, n) for n in fields]

    def test_undone_deletion_is_found(self, store: SqliteMemoryStore) -> None:
        """A memory that came back stands in the keyword index."""
        memory = put(store)
        store.delete(memory.id, owner=ANN, actor="test")
        store.undo(memory.id, owner=ANN, actor="test")
        assert found(store, "green") == ["preference:tea"]

    def test_undo_of_edit(self, store: SqliteMemoryStore) -> None:
        """An edit is taken back."""
        memory = put(store)
        edit(store, memory, content="Other", key="other")
        back = store.undo(memory.id, owner=ANN, actor="test")
        assert (back.content, back.key) == (memory.content, memory.key)

    def test_second_undo_goes_further(self, store: SqliteMemoryStore) -> None:
        """Two edits are taken back one after the other."""
        memory = put(store)
        edit(store, memory, content="Second")
        edit(store, memory, content="Third")
        contents = [store.undo(memory.id, owner=ANN, actor="test").content for _ in range(2)]
        assert contents == ["Second", "I prefer green tea"]

    def test_undo_onto_taken_slot_is_refused(self, store: SqliteMemoryStore) -> None:
        """A deleted memory whose key is taken meanwhile does not come back over it."""
        memory = put(store)
        store.delete(memory.id, owner=ANN, actor="test")
        put(store)
        with pytest.raises(ConflictError):
            store.undo(memory.id, owner=ANN, actor="test")

    def test_nothing_to_undo(self, store: SqliteMemoryStore) -> None:
        """A memory that never changed has nothing to take back."""
        with pytest.raises(NotFoundError):
            store.undo(put(store).id, owner=ANN, actor="test")

    def test_history_is_newest_first(self, store: SqliteMemoryStore) -> None:
        """The latest replacement stands first."""
        memory = put(store)
        edit(store, memory, content="Second")
        edit(store, memory, content="Third")
        entries = store.history(memory.id, owner=ANN)
        assert [entry.before["content"] for entry in entries] == ["Second", "I prefer green tea"]

    def test_purge_drops_old_history(self, store: SqliteMemoryStore, clock: FakeClock) -> None:
        """Only what is older than the moment goes."""
        memory = put(store)
        edit(store, memory, content="Second")
        clock.move(days=1)
        limit = clock()
        edit(store, memory, content="Third")
        assert store.purge_history(before=limit) == 1
        assert [e.before["content"] for e in store.history(memory.id, owner=ANN)] == ["Second"]


Work = Callable[[SqliteMemoryStore, MemoryId, OwnerId | None], object]
WORKS: Final[dict[str, Work]] = {
    "get": lambda store, id_, owner: store.get(id_, owner=owner),
    "update": lambda store, id_, owner: store.update(
        id_, MemoryChange({"content": "x"}), owner=owner, actor="test"
    ),
    "delete": lambda store, id_, owner: store.delete(id_, owner=owner, actor="test"),
    "undo": lambda store, id_, owner: store.undo(id_, owner=owner, actor="test"),
    "history": lambda store, id_, owner: store.history(id_, owner=owner),
}


@pytest.mark.parametrize("name", WORKS)
class TestForeign:
    """What belongs to somebody else."""

    def test_foreign_owner_finds_nothing(self, store: SqliteMemoryStore, name: str) -> None:
        """An id of another owner is NotFoundError."""
        memory = put(store)
        edit(store, memory, content="Second")
        with pytest.raises(NotFoundError):
            WORKS[name](store, memory.id, BOB)

    def test_foreign_and_unknown_look_alike(self, store: SqliteMemoryStore, name: str) -> None:
        """The message does not tell that the id exists."""
        memory = put(store)
        edit(store, memory, content="Second")
        with pytest.raises(NotFoundError) as foreign:
            WORKS[name](store, memory.id, BOB)
        with pytest.raises(NotFoundError) as unknown:
            WORKS[name](store, UNKNOWN, BOB)
        assert str(foreign.value) == str(unknown.value)

    def test_foreign_try_changes_nothing(self, store: SqliteMemoryStore, name: str) -> None:
        """A refused owner leaves the row as it is."""
        memory = edit(store, put(store), content="Second")
        with pytest.raises(NotFoundError):
            WORKS[name](store, memory.id, BOB)
        assert store.get(memory.id, owner=ANN) == memory

    def test_admin_reaches_everybody(self, store: SqliteMemoryStore, name: str) -> None:
        """Without an owner every memory is reached."""
        memory = put(store)
        edit(store, memory, content="Second")
        WORKS[name](store, memory.id, None)


def test_undo_of_foreign_deletion_finds_nothing(store: SqliteMemoryStore) -> None:
    """Nobody brings back what another owner deleted."""
    memory = put(store)
    store.delete(memory.id, owner=ANN, actor="test")
    with pytest.raises(NotFoundError):
        store.undo(memory.id, owner=BOB, actor="test")


class TestPage:
    """Filtered lists."""

    @pytest.mark.parametrize(
        ("query", "keys"),
        [
            (MemoryQuery(owner=BOB), ["d"]),
            (MemoryQuery(type=MemoryType.EPISODIC), ["b"]),
            (MemoryQuery(session_id=ONE), ["a"]),
            (MemoryQuery(status=MemoryStatus.QUARANTINED), ["c"]),
            (MemoryQuery(source=MemorySource.MANUAL), ["b"]),
            (MemoryQuery(pinned=True), ["d"]),
            (MemoryQuery(pinned=False), ["a", "b", "c"]),
            (MemoryQuery(owner=ANN, type=MemoryType.FACTUAL), ["a", "c"]),
            (MemoryQuery(), ["a", "b", "c", "d"]),
        ],
    )
    def test_filters(self, store: SqliteMemoryStore, query: MemoryQuery, keys: list[str]) -> None:
        """A filter lets through what has its value, and several filters hold at once."""
        put(store, draft("a", session_id=ONE))
        put(store, draft("b", type=MemoryType.EPISODIC, source=MemorySource.MANUAL))
        put(store, draft("c", status=MemoryStatus.QUARANTINED))
        put(store, draft("d", owner=BOB, pinned=True))
        page = store.page(query)
        assert sorted(memory.key for memory in page.memories) == keys
        assert page.total == len(keys)

    @pytest.mark.parametrize(
        ("text", "keys"),
        [
            ("%", ["percent"]),
            ("_", ["score"]),
            ("\\", ["slash"]),
            ("100%", ["percent"]),
            ("snake_case", ["score"]),
            ("NEAR(", ["near"]),
            ('"', ["near"]),
            ("walks", ["near"]),
            ("cent", ["percent"]),
            ("   ", ["near", "percent", "score", "slash"]),
            ("nothing of it", []),
        ],
    )
    def test_text(self, store: SqliteMemoryStore, text: str, keys: list[str]) -> None:
        """A text finds what holds it letter for letter, or all of its words by their stems."""
        put(store, draft("percent", "100% cotton"))
        put(store, draft("score", "snake_case is fine"))
        put(store, draft("slash", "C:\\temp"))
        put(store, draft("near", 'walking "NEAR( home"'))
        assert found(store, text) == keys

    @pytest.mark.parametrize(
        "text",
        ["AND", "OR NOT", "a*", "^a", "key:x", "(", ")", "a NEAR/2 b", "''", "+", "- -"],
    )
    def test_operators_are_text(self, store: SqliteMemoryStore, text: str) -> None:
        """No operator of the query language is one here."""
        put(store, draft("zebra", "unrelated words"))
        assert found(store, text) == []

    def test_nul_is_text(self, store: SqliteMemoryStore) -> None:
        """A NUL does not end the text that is looked for."""
        put(store, draft("zebra", "unrelated words"))
        assert found(store, "\0absent") == []

    @pytest.mark.parametrize(
        ("sort", "keys"),
        [
            ("updated", ["b", "a", "c"]),
            ("created", ["a", "c", "b"]),
            ("key", ["a", "b", "c"]),
            ("type", ["c", "b", "a"]),
            ("used", ["c", "b", "a"]),
        ],
    )
    def test_sorts(self, store: SqliteMemoryStore, sort: Sort, keys: list[str]) -> None:
        """Each order has its rule; among equals the newest comes first."""
        put(store, draft("b"))
        used = put(store, draft("c", type=MemoryType.EPISODIC))
        put(store, draft("a"))
        edit(store, put(store, draft("b")), pinned=True)
        store.count_access([used.id], at=used.created_at)
        assert [memory.key for memory in store.page(MemoryQuery(sort=sort)).memories] == keys

    def test_pages_cover_everything_once(self, store: SqliteMemoryStore) -> None:
        """Page after page shows every memory exactly once."""
        for number in range(7):
            put(store, draft(f"k{number}"))
        pages = [store.page(MemoryQuery(sort="key", limit=3, offset=o)) for o in (0, 3, 6)]
        keys = [memory.key for page in pages for memory in page.memories]
        assert keys == [f"k{number}" for number in range(7)]

    def test_total_counts_beyond_the_page(self, store: SqliteMemoryStore) -> None:
        """The total is of all that match, not of the page."""
        for number in range(3):
            put(store, draft(f"k{number}"))
        assert store.page(MemoryQuery(limit=1, offset=2)).total == 3

    def test_page_behind_the_end_is_empty(self, store: SqliteMemoryStore) -> None:
        """An offset behind the last row shows nothing."""
        put(store)
        assert store.page(MemoryQuery(offset=5)).memories == ()


class TestCounts:
    """Totals, owners and uses."""

    def test_totals_by_type(self, store: SqliteMemoryStore) -> None:
        """Types count active memories, and every type is named."""
        put(store, draft("a"))
        put(store, draft("b", type=MemoryType.EPISODIC))
        put(store, draft("c", status=MemoryStatus.QUARANTINED))
        assert store.totals(None).by_type == {
            MemoryType.FACTUAL: 1,
            MemoryType.EPISODIC: 1,
            MemoryType.PROCEDURAL: 0,
            MemoryType.SEMANTIC: 0,
        }

    def test_totals_by_status(self, store: SqliteMemoryStore) -> None:
        """Statuses count every memory, and every status is named."""
        put(store, draft("a"))
        put(store, draft("b", status=MemoryStatus.QUARANTINED))
        totals = store.totals(None)
        assert (totals.total, totals.by_status[MemoryStatus.QUARANTINED]) == (2, 1)
        assert set(totals.by_status) == set(MemoryStatus)

    def test_totals_of_an_owner(self, store: SqliteMemoryStore) -> None:
        """Totals of an owner leave the others out."""
        put(store)
        put(store, draft(owner=BOB))
        put(store, draft("b", owner=BOB))
        assert store.totals(ANN).total == 1

    def test_tokens_round_up(self, store: SqliteMemoryStore) -> None:
        """Each memory counts a quarter of its length, rounded up."""
        put(store, draft("a", "12345"))
        put(store, draft("b", "1"))
        assert store.totals(ANN).tokens == 3

    def test_owners_by_last_sight(self, store: SqliteMemoryStore) -> None:
        """The owner that was seen last stands first."""
        put(store)
        put(store, draft(owner=BOB))
        put(store)
        assert [(o.owner, o.count) for o in store.owners()] == [(ANN, 1), (BOB, 1)]

    def test_owner_without_memories_is_not_listed(self, store: SqliteMemoryStore) -> None:
        """An owner whose last memory is gone is not listed."""
        store.delete(put(store).id, owner=ANN, actor="test")
        assert store.owners() == []

    def test_access_counts_up(self, store: SqliteMemoryStore, clock: FakeClock) -> None:
        """Every use counts one, and the last one's moment stands."""
        memory = put(store)
        first, second = clock(), clock()
        store.count_access([memory.id], at=first)
        store.count_access([memory.id], at=second)
        used = store.get(memory.id, owner=ANN)
        assert (used.access_count, used.last_accessed_at) == (2, second)

    def test_access_leaves_the_token(self, store: SqliteMemoryStore, clock: FakeClock) -> None:
        """A use is no change: an edit that is under way stays fresh."""
        memory = put(store)
        store.count_access([memory.id], at=clock())
        assert store.get(memory.id, owner=ANN).updated_at == memory.updated_at

    def test_access_of_unknown_id_is_ignored(
        self, store: SqliteMemoryStore, clock: FakeClock
    ) -> None:
        """A memory that was deleted meanwhile is not counted."""
        store.count_access([UNKNOWN], at=clock())

    def test_rehearsal_finds_its_word(self, store: SqliteMemoryStore) -> None:
        """Storing, finding and deleting works on a sound file."""
        assert store.rehearse(draft(content="zyzzyva"), "zyzzyva")

    def test_rehearsal_leaves_nothing(self, store: SqliteMemoryStore) -> None:
        """After a rehearsal nothing is there."""
        store.rehearse(draft(content="zyzzyva"), "zyzzyva")
        assert store.totals(None).total == 0


Slot = tuple[str, str]
OWNERS: Final = st.sampled_from([ANN, BOB])
KEYS: Final = st.sampled_from(["a", "b", "c"])
TEXTS: Final = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)


@settings(
    max_examples=25,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
class StoreMachine(RuleBasedStateMachine):
    """The store against a dict from (owner, key) to words."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.database = Database(self.folder / "unit.db")
        self.store = SqliteMemoryStore(self.database, clock=FakeClock())
        self.words: dict[Slot, str] = {}
        self.ids: dict[Slot, MemoryId] = {}
        self.deleted: dict[Slot, tuple[MemoryId, str]] = {}

    def teardown(self) -> None:
        """Leave no file."""
        self.database.close()
        shutil.rmtree(self.folder)

    @rule(owner=OWNERS, key=KEYS, text=TEXTS)
    def upsert(self, owner: OwnerId, key: str, text: str) -> None:
        """Store: created exactly when the slot is free."""
        slot = (owner, key)
        stored = self.store.upsert(draft(key, text, owner=owner), actor="test")
        assert stored.created == (slot not in self.words)
        assert self.ids.setdefault(slot, stored.memory.id) == stored.memory.id
        self.words[slot] = text

    @rule(owner=OWNERS, key=KEYS, new_key=KEYS, text=TEXTS)
    def edit(self, owner: OwnerId, key: str, new_key: str, text: str) -> None:
        """Edit: refused exactly when another memory holds the new key."""
        slot, target = (owner, key), (owner, new_key)
        if slot not in self.words:
            return
        memory_id = self.ids[slot]
        change = MemoryChange({"key": new_key, "content": text})
        if target in self.words and target != slot:
            with pytest.raises(ConflictError):
                self.store.update(memory_id, change, owner=owner, actor="test")
            return
        self.store.update(memory_id, change, owner=owner, actor="test")
        del self.words[slot], self.ids[slot]
        self.words[target], self.ids[target] = text, memory_id

    @rule(owner=OWNERS, key=KEYS)
    def delete(self, owner: OwnerId, key: str) -> None:
        """Delete: the slot is free, and the memory can come back."""
        slot = (owner, key)
        if slot in self.words:
            self.store.delete(self.ids[slot], owner=owner, actor="test")
            self.deleted[slot] = (self.ids.pop(slot), self.words.pop(slot))

    @precondition(lambda self: bool(self.deleted))
    @rule(data=st.data())
    def undo_deletion(self, data: st.DataObject) -> None:
        """Undo: refused exactly when the slot is taken meanwhile."""
        slot = data.draw(st.sampled_from(sorted(self.deleted)))
        memory_id, text = self.deleted[slot]
        owner = OwnerId(slot[0])
        if slot in self.words:
            with pytest.raises(ConflictError):
                self.store.undo(memory_id, owner=owner, actor="test")
            return
        self.store.undo(memory_id, owner=owner, actor="test")
        del self.deleted[slot]
        self.words[slot], self.ids[slot] = text, memory_id

    @invariant()
    def rows_are_the_dict(self) -> None:
        """The rows are exactly those of the dict."""
        rows = self.store.page(MemoryQuery()).memories
        assert {(m.owner, m.key): m.content for m in rows} == self.words
        assert {(m.owner, m.key): m.id for m in rows} == self.ids

    @invariant()
    def index_is_sound(self) -> None:
        """The keyword index holds exactly the words of the rows."""
        check_index(self.database)


TestStoreMachine = StoreMachine.TestCase
