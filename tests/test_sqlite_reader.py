"""Every read sees what its scope may see, all of it, and nothing else."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omniroute_litellm.sqlite import Database
from omniroute_litellm.sqlite_reader import MAX_QUERY_TERMS, query_terms
from omniroute_litellm.sqlite_store import SqliteMemoryStore
from omniroute_litellm.store import Alive
from omniroute_litellm.types import (
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

RETENTION: Final = timedelta(days=30)
OWNERS: Final = ("ann", "bob", "global")
SESSIONS: Final = (None, "one", "two")


@dataclass(frozen=True)
class Row:
    """One memory in the terms that decide who may read it."""

    owner: str
    session: str | None
    status: MemoryStatus
    is_pinned: bool
    is_old: bool
    expires_in_days: int | None

    def is_for(self, scope: Scope) -> bool:
        """Tell what the contract says, in plain words."""
        return (
            self.owner in scope.owners
            and (scope.session is None or self.session == scope.session)
            and self.status is MemoryStatus.ACTIVE
            and (self.is_pinned or not self.is_old)
            and (self.expires_in_days is None or self.expires_in_days > 0)
        )


ROWS: Final = st.lists(
    st.builds(
        Row,
        owner=st.sampled_from(OWNERS),
        session=st.sampled_from(SESSIONS),
        status=st.sampled_from(MemoryStatus),
        is_pinned=st.booleans(),
        is_old=st.booleans(),
        expires_in_days=st.sampled_from([None, -1, 1]),
    ),
    max_size=12,
)
SCOPES: Final = st.builds(
    Scope,
    owners=st.lists(
        st.sampled_from([OwnerId(name) for name in (*OWNERS, "nobody")]), unique=True, max_size=3
    ).map(tuple),
    session=st.sampled_from([SessionId(name) if name else None for name in SESSIONS]),
)


def fill(store: SqliteMemoryStore, clock: FakeClock, rows: list[Row]) -> dict[MemoryId, Row]:
    """Store rows, the old ones first, and return them by id."""
    stored: dict[MemoryId, Row] = {}
    now = clock()
    late = now + RETENTION + timedelta(days=1)
    for is_old in (True, False):
        for number, row in enumerate(rows):
            if row.is_old is not is_old:
                continue
            days = row.expires_in_days
            draft = MemoryDraft(
                owner=OwnerId(row.owner),
                type=MemoryType.FACTUAL,
                key=f"preference:{number}",
                content=f"I prefer tea {number}",
                source=MemorySource.MANUAL,
                session_id=SessionId(row.session) if row.session else None,
                expires_at=late + timedelta(days=days) if days else None,
                pinned=row.is_pinned,
                status=row.status,
            )
            stored[store.upsert(draft, actor="test").memory.id] = row
        if is_old:
            clock.move(seconds=(late - now).total_seconds())
    return stored


@given(rows=ROWS, scope=SCOPES)
@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_reads_are_exactly_the_scope(tmp_path_factory: Any, rows: list[Row], scope: Scope) -> None:
    """Owner, session, status, age and expiry bound every read, and bound it alike."""
    clock = FakeClock()
    database = Database(tmp_path_factory.mktemp("scope") / "omniroute.db")
    store = SqliteMemoryStore(database, clock=clock)
    stored = fill(store, clock, rows)
    alive = Alive(clock(), clock() - RETENTION)
    allowed = {memory_id for memory_id, row in stored.items() if row.is_for(scope)}
    reads = {
        "newest": store.newest(scope, alive, limit=100),
        "profile": store.profile(scope, alive, limit=100),
        "all": store.all_if_few(scope, alive, at_most=100) or [],
        "keyword": [hit.memory for hit in store.keyword(scope, alive, query="tea", limit=100)],
        "ids": list(store.by_ids(scope, alive, list(stored)).values()),
    }
    assert {
        name: {memory.id for memory in found} for name, found in reads.items()
    } == dict.fromkeys(reads, allowed)
    assert all(len(found) == len(allowed) for found in reads.values())
    database.close()


@given(st.lists(st.text(min_size=1), max_size=80))
def test_terms_are_the_last_of_a_query(words: list[str]) -> None:
    """Each word once, in its order, and of many the last ones: there stands the question."""
    terms = query_terms(words)
    assert len(terms) == len(set(terms)) <= MAX_QUERY_TERMS
    unique = list(dict.fromkeys(words))
    assert [word for word in unique if word in terms] == terms
