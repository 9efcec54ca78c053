"""The reads of one retrieval: each bounded to its scope, its moment and its owner's own words."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omniroute_litellm.sqlite import Database
from omniroute_litellm.sqlite_reader import MATCH_DEPTH, MAX_QUERY_TERMS, query_terms
from omniroute_litellm.sqlite_store import SqliteMemoryStore
from omniroute_litellm.store import Alive, MemoryChange
from omniroute_litellm.types import (
    GLOBAL_OWNER,
    Memory,
    MemoryId,
    MemoryStatus,
    OwnerId,
    Scope,
    SessionId,
)
from tests.fakes import FakeClock
from tests.unit.fakes import ANN, BOB, alive_at, draft, put, scope_of

ONE: Final = SessionId("one")
TWO: Final = SessionId("two")

Read = Callable[[SqliteMemoryStore, Scope, Alive, Sequence[MemoryId]], Sequence[Memory]]
"""One read of everything that a scope holds, told the ids of all memories there are."""

READS: Final[dict[str, Read]] = {
    "newest": lambda store, scope, alive, _: store.newest(scope, alive, limit=100),
    "profile": lambda store, scope, alive, _: store.profile(scope, alive, limit=100),
    "all_if_few": lambda store, scope, alive, _: store.all_if_few(scope, alive, at_most=100) or [],
    "keyword": lambda store, scope, alive, _: [
        hit.memory for hit in store.keyword(scope, alive, query="green tea", limit=100)
    ],
    "by_ids": lambda store, scope, alive, ids: list(store.by_ids(scope, alive, ids).values()),
}
EVERY_READ: Final = pytest.mark.parametrize("read", READS.values(), ids=READS.keys())


@pytest.fixture
def alive(clock: FakeClock) -> Alive:
    """What is alive an hour from now."""
    return alive_at(clock() + timedelta(hours=1))


def keys(found: Sequence[Memory]) -> list[str]:
    """Return the keys in the order of a result."""
    return [memory.key for memory in found]


@EVERY_READ
class TestEveryRead:
    """Rules that no read may leave out."""

    def test_sees_own_memory(self, store: SqliteMemoryStore, alive: Alive, read: Read) -> None:
        """An active, unexpired memory of the owner is seen."""
        memory = put(store)
        assert read(store, scope_of(ANN), alive, [memory.id]) == [memory]

    def test_foreign_is_unseen(self, store: SqliteMemoryStore, alive: Alive, read: Read) -> None:
        """A memory of another owner is not seen."""
        memory = put(store, draft(owner=BOB))
        assert read(store, scope_of(ANN), alive, [memory.id]) == []

    def test_unknown_owner_sees_nothing(
        self, store: SqliteMemoryStore, alive: Alive, read: Read
    ) -> None:
        """An owner that never stored anything sees nothing."""
        memory = put(store)
        assert read(store, scope_of(OwnerId("nobody")), alive, [memory.id]) == []

    def test_empty_scope_sees_nothing(
        self, store: SqliteMemoryStore, alive: Alive, read: Read
    ) -> None:
        """A scope without owners sees nothing, rather than everything."""
        memory = put(store)
        assert read(store, Scope(()), alive, [memory.id]) == []

    def test_expired_is_unseen(
        self, store: SqliteMemoryStore, clock: FakeClock, read: Read
    ) -> None:
        """A memory is gone at the moment of its expiry."""
        end = clock() + timedelta(minutes=1)
        memory = put(store, draft(expires_at=end))
        assert read(store, scope_of(ANN), alive_at(end), [memory.id]) == []

    def test_not_yet_expired_is_seen(
        self, store: SqliteMemoryStore, clock: FakeClock, read: Read
    ) -> None:
        """A memory is there until the moment of its expiry."""
        end = clock() + timedelta(minutes=1)
        memory = put(store, draft(expires_at=end))
        just_before = alive_at(end - timedelta(microseconds=1))
        assert read(store, scope_of(ANN), just_before, [memory.id]) == [memory]

    def test_past_retention_is_unseen(
        self, store: SqliteMemoryStore, clock: FakeClock, read: Read
    ) -> None:
        """What was not said again within the retention is not seen."""
        memory = put(store)
        clock.move(days=31)
        assert read(store, scope_of(ANN), alive_at(clock()), [memory.id]) == []

    def test_restated_stays(self, store: SqliteMemoryStore, clock: FakeClock, read: Read) -> None:
        """What was said again stays alive, however old it is."""
        put(store)
        clock.move(days=29)
        memory = put(store)
        clock.move(days=29)
        assert read(store, scope_of(ANN), alive_at(clock()), [memory.id]) == [memory]

    def test_pinned_never_ages(
        self, store: SqliteMemoryStore, clock: FakeClock, read: Read
    ) -> None:
        """A pinned memory is seen past the retention."""
        memory = put(store, draft(pinned=True))
        clock.move(days=3_000)
        assert read(store, scope_of(ANN), alive_at(clock()), [memory.id]) == [memory]

    def test_pinned_expires(self, store: SqliteMemoryStore, clock: FakeClock, read: Read) -> None:
        """A pin does not lift an expiry that somebody set."""
        end: datetime = clock() + timedelta(minutes=1)
        memory = put(store, draft(pinned=True, expires_at=end))
        assert read(store, scope_of(ANN), alive_at(end), [memory.id]) == []

    @pytest.mark.parametrize("status", [s for s in MemoryStatus if s is not MemoryStatus.ACTIVE])
    def test_inactive_is_unseen(
        self, store: SqliteMemoryStore, alive: Alive, read: Read, status: MemoryStatus
    ) -> None:
        """Only active memories are seen, pinned or not."""
        memory = put(store, draft(status=status, pinned=True))
        assert read(store, scope_of(ANN), alive, [memory.id]) == []

    def test_other_session_is_unseen(
        self, store: SqliteMemoryStore, alive: Alive, read: Read
    ) -> None:
        """A scope of one session sees that session's memories only."""
        one = put(store, draft("preference:a", session_id=ONE))
        two = put(store, draft("preference:b", session_id=TWO))
        none = put(store, draft("preference:c"))
        found = read(store, scope_of(ANN, session=ONE), alive, [one.id, two.id, none.id])
        assert found == [one]

    def test_shared_owner_joins(self, store: SqliteMemoryStore, alive: Alive, read: Read) -> None:
        """A scope of two owners sees the memories of both and of nobody else."""
        mine = put(store)
        shared = put(store, draft(owner=GLOBAL_OWNER))
        foreign = put(store, draft(owner=BOB))
        ids = [mine.id, shared.id, foreign.id]
        found = read(store, scope_of(ANN, GLOBAL_OWNER), alive, ids)
        assert {memory.id for memory in found} == {mine.id, shared.id}


Row = tuple[OwnerId, str, str, SessionId | None]
ROWS: Final = st.lists(
    st.tuples(
        st.sampled_from([ANN, BOB, OwnerId("ANN"), OwnerId("ann%"), OwnerId("")]),
        st.sampled_from(["preference:a", "identity:b", "c"]),
        st.sampled_from(["green tea", "tea", "green", "coffee"]),
        st.sampled_from([None, ONE, TWO]),
    ),
    max_size=12,
)


@EVERY_READ
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(rows=ROWS, session=st.sampled_from([None, ONE]))
def test_owners_never_meet(
    store: SqliteMemoryStore,
    database: Database,
    clock: FakeClock,
    read: Read,
    rows: list[Row],
    session: SessionId | None,
) -> None:
    """Whatever is stored, a scope yields rows of its owner and its session only."""
    with database.writing() as connection:
        connection.execute("DELETE FROM memories")
    stored = [
        put(store, draft(key, text, owner=owner, session_id=of_session))
        for owner, key, text, of_session in rows
    ]
    alive = alive_at(clock() + timedelta(hours=1))
    for owner in {owner for owner, *_ in rows}:
        found = read(store, Scope((owner,), session), alive, [memory.id for memory in stored])
        assert {memory.owner for memory in found} <= {owner}
        assert session is None or {memory.session_id for memory in found} <= {session}


class TestOrder:
    """What comes first, and how much comes."""

    def test_newest_first(self, store: SqliteMemoryStore, alive: Alive) -> None:
        """The memory that changed last stands first."""
        for key in ("a", "b", "c"):
            put(store, draft(key))
        put(store, draft("a", "I prefer black tea"))
        assert keys(store.newest(scope_of(), alive, limit=2)) == ["a", "c"]

    def test_newest_across_owners(self, store: SqliteMemoryStore, alive: Alive) -> None:
        """Newest means newest of all owners of the scope together."""
        put(store, draft("a"))
        put(store, draft("b", owner=BOB))
        put(store, draft("c"))
        assert keys(store.newest(scope_of(ANN, BOB), alive, limit=2)) == ["c", "b"]

    def test_all_are_oldest_first(self, store: SqliteMemoryStore, alive: Alive) -> None:
        """A whole store keeps its order when a memory is said again."""
        for key in ("a", "b", "c"):
            put(store, draft(key))
        put(store, draft("a", "I prefer black tea"))
        assert keys(store.all_if_few(scope_of(), alive, at_most=3) or []) == ["a", "b", "c"]

    def test_too_many_are_none(self, store: SqliteMemoryStore, alive: Alive) -> None:
        """One memory more than allowed means no answer."""
        for key in ("a", "b", "c"):
            put(store, draft(key))
        assert store.all_if_few(scope_of(), alive, at_most=2) is None

    def test_few_counts_all_owners(self, store: SqliteMemoryStore, alive: Alive) -> None:
        """Owners of one scope are counted together."""
        put(store)
        put(store, draft(owner=BOB))
        assert store.all_if_few(scope_of(ANN, BOB), alive, at_most=1) is None

    def test_dead_do_not_count(self, store: SqliteMemoryStore, alive: Alive) -> None:
        """What may not be read does not make a store too large."""
        put(store, draft("a"))
        put(store, draft("b", status=MemoryStatus.QUARANTINED))
        assert keys(store.all_if_few(scope_of(), alive, at_most=1) or []) == ["a"]

    @pytest.mark.parametrize(
        ("key", "category", "is_profile"),
        [
            ("preference:a", None, True),
            ("pattern:a", None, True),
            ("identity:a", None, True),
            ("a", "preference", True),
            ("a", "pattern", True),
            ("a", "identity", True),
            ("decision:a", "decision", False),
            ("a", None, False),
            ("Preference:a", None, False),
        ],
    )
    def test_profile_members(
        self,
        store: SqliteMemoryStore,
        alive: Alive,
        key: str,
        category: str | None,
        is_profile: bool,
    ) -> None:
        """Preferences, habits and identity make the profile, by key or by category."""
        put(store, draft(key, metadata={"category": category} if category else {}))
        assert bool(store.profile(scope_of(), alive, limit=9)) == is_profile

    def test_pinning_makes_profile(self, store: SqliteMemoryStore, alive: Alive) -> None:
        """A memory that is pinned later joins the profile."""
        memory = put(store, draft("decision:a"))
        store.update(memory.id, MemoryChange({"pinned": True}), owner=ANN, actor="test")
        assert keys(store.profile(scope_of(), alive, limit=9)) == ["decision:a"]

    def test_ids_of_nobody_are_left_out(self, store: SqliteMemoryStore, alive: Alive) -> None:
        """An unknown id is no error."""
        assert store.by_ids(scope_of(), alive, [MemoryId("unknown")]) == {}


class TestKeyword:
    """Looking words up."""

    @pytest.fixture
    def search(self, store: SqliteMemoryStore, alive: Alive) -> Callable[..., list[str]]:
        """Hand out a function from a query to Ann's keys, best first."""

        def found(query: str, *, limit: int = 9) -> list[str]:
            hits = store.keyword(scope_of(), alive, query=query, limit=limit)
            return keys([hit.memory for hit in hits])

        return found

    def test_stems_meet(self, store: SqliteMemoryStore, search: Callable[..., list[str]]) -> None:
        """Another form of a word finds it."""
        put(store, draft("a", "Ann climbs mountains"))
        assert search("climbing a mountain") == ["a"]

    def test_diacritics_meet(
        self, store: SqliteMemoryStore, search: Callable[..., list[str]]
    ) -> None:
        """A word is found with and without its accents."""
        put(store, draft("a", "Ann adores crème"))
        assert search("creme") == ["a"]

    def test_key_is_found(self, store: SqliteMemoryStore, search: Callable[..., list[str]]) -> None:
        """A word of the key counts as one of the memory."""
        put(store, draft("decision:postgres", "We use it"))
        assert search("postgres") == ["decision:postgres"]

    def test_more_words_rank_higher(
        self, store: SqliteMemoryStore, search: Callable[..., list[str]]
    ) -> None:
        """Of two memories the one that holds more of the query stands first."""
        put(store, draft("both", "jazz trumpet lesson"))
        put(store, draft("one", "trumpet lesson again"))
        assert search("jazz trumpet") == ["both", "one"]

    def test_tie_breaks_by_newer(
        self, store: SqliteMemoryStore, search: Callable[..., list[str]]
    ) -> None:
        """Of two equally good memories the newer stands first."""
        put(store, draft("x1", "trumpet lesson"))
        put(store, draft("x2", "trumpet lesson"))
        assert search("trumpet") == ["x2", "x1"]

    def test_limit_keeps_the_best(
        self, store: SqliteMemoryStore, search: Callable[..., list[str]]
    ) -> None:
        """A limit cuts the worst."""
        put(store, draft("both", "jazz trumpet lesson"))
        put(store, draft("one", "trumpet lesson again"))
        assert search("jazz trumpet", limit=1) == ["both"]

    @pytest.mark.parametrize("query", ["", "   ", "the of and", "!?…", "\0", "\U0001f600"])
    def test_no_word_finds_nothing(
        self, store: SqliteMemoryStore, search: Callable[..., list[str]], query: str
    ) -> None:
        """A query without a usable word finds nothing."""
        put(store)
        assert search(query) == []

    def test_coverage_is_whole(self, store: SqliteMemoryStore, alive: Alive) -> None:
        """A memory that holds every word covers the query whole."""
        put(store, draft("a", "jazz trumpet"))
        hit = store.keyword(scope_of(), alive, query="trumpet jazz", limit=1)[0]
        assert hit.coverage == pytest.approx(1)

    def test_unknown_word_costs_coverage(self, store: SqliteMemoryStore, alive: Alive) -> None:
        """A word that no memory holds counts against the coverage."""
        put(store, draft("a", "jazz trumpet"))
        hit = store.keyword(scope_of(), alive, query="trumpet xylophone", limit=1)[0]
        assert 0 < hit.coverage < 1

    def test_words_of_strangers_do_not_rank(self, store: SqliteMemoryStore, alive: Alive) -> None:
        """What another owner stores changes no score of Ann's."""
        put(store, draft("a", "jazz lesson"))
        put(store, draft("b", "trumpet lesson"))
        before = store.keyword(scope_of(), alive, query="jazz trumpet", limit=9)
        for number in range(30):
            put(store, draft(f"k{number}", "jazz jazz jazz", owner=BOB))
        assert store.keyword(scope_of(), alive, query="jazz trumpet", limit=9) == before

    def test_dead_memories_do_not_rank(self, store: SqliteMemoryStore, alive: Alive) -> None:
        """What may not be read takes no place, however much of it there is."""
        put(store, draft("a", "jazz lesson"))
        for number in range(MATCH_DEPTH + 5):
            put(store, draft(f"b{number}", "jazz", status=MemoryStatus.QUARANTINED))
        hits = store.keyword(scope_of(), alive, query="jazz", limit=9)
        assert [hit.memory.key for hit in hits] == ["a"]

    @settings(
        max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
    )
    @given(query=st.text(max_size=60))
    def test_any_text_is_a_query(self, store: SqliteMemoryStore, alive: Alive, query: str) -> None:
        """No text, half a surrogate pair included, is an error or yields a coverage beyond 1."""
        put(store)
        for hit in store.keyword(scope_of(), alive, query=query, limit=9):
            assert 0 <= hit.coverage <= 1 + 1e-9

    @pytest.mark.parametrize(
        "query",
        ["AND", '"', "tea AND", "key:tea", "tea*", "NEAR(tea", "(", "-tea", "tea'", "\ud800"],
    )
    def test_operators_are_words(self, store: SqliteMemoryStore, alive: Alive, query: str) -> None:
        """No operator of the query language is one here."""
        put(store, draft("a", "tea"))
        found = store.keyword(scope_of(), alive, query=query, limit=9)
        assert len(found) == ("tea" in query)


def test_query_terms_drop_stop_words() -> None:
    """Words that carry nothing are not looked up."""
    assert query_terms(["what", "is", "the", "tea"]) == ["tea"]


def test_query_terms_come_once() -> None:
    """A word that is said twice is looked up once."""
    assert query_terms(["tea", "jazz", "tea"]) == ["tea", "jazz"]


def test_query_terms_are_the_last() -> None:
    """Of a long message the end is looked up."""
    words = [f"w{number}" for number in range(100)]
    assert query_terms(words) == words[-MAX_QUERY_TERMS:]
