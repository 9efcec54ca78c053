"""The queue between the answer and the memory: leased, stored once, never lost."""

from datetime import timedelta
from typing import Final

import pytest

from omniroute_litellm.errors import BackendUnavailableError
from omniroute_litellm.outbox import CAPACITY, KEEP, LEASE, MAX_ATTEMPTS, Outbox, OutboxState
from omniroute_litellm.sqlite import Connection, Database
from omniroute_litellm.sqlite_store import SqliteMemoryStore
from omniroute_litellm.store import MemoryQuery
from omniroute_litellm.types import Exchange, OwnerId, SessionId, to_iso
from tests.fakes import FakeClock
from tests.unit.fakes import ANN, BOB, draft

PAST_LEASE: Final = LEASE + timedelta(seconds=1)
FILL: Final = """
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :count)
INSERT INTO outbox (api_key_id, request_id, user_text, answer_text, model, captured_at)
SELECT 'filler', i, '', '', '', '2030-01-01' FROM n
"""


@pytest.fixture
def outbox(database: Database, clock: FakeClock) -> Outbox:
    """Hand out the outbox of a first worker."""
    return Outbox(database, clock=clock, worker="first")


@pytest.fixture
def other(database: Database, clock: FakeClock) -> Outbox:
    """Hand out the same outbox for a second worker."""
    return Outbox(database, clock=clock, worker="second")


def exchange(clock: FakeClock, request_id: str = "r1", owner: OwnerId = ANN) -> Exchange:
    """Return what one request leaves behind."""
    return Exchange(request_id, owner, SessionId("one"), "I prefer tea", "Noted.", "gpt", clock())


def store_nothing(_: Connection) -> None:
    """Stand for an exchange without facts."""


def names(outbox: Outbox, *, limit: int = 10) -> list[str]:
    """Claim, and return the requests that were claimed."""
    return [claimed.exchange.request_id for claimed in outbox.claim(limit=limit)]


class TestAdd:
    """Putting exchanges in."""

    def test_comes_out_as_it_went_in(self, outbox: Outbox, clock: FakeClock) -> None:
        """What is claimed is what was added."""
        added = exchange(clock)
        outbox.add(added)
        assert [claimed.exchange for claimed in outbox.claim(limit=1)] == [added]

    def test_session_may_be_missing(self, outbox: Outbox, clock: FakeClock) -> None:
        """No session stays none, rather than an empty one."""
        outbox.add(Exchange("r1", ANN, None, "a", "b", "gpt", clock()))
        assert outbox.claim(limit=1)[0].exchange.session_id is None

    def test_same_request_stays_once(self, outbox: Outbox, clock: FakeClock) -> None:
        """A request that is captured twice waits once."""
        outbox.add(exchange(clock))
        outbox.add(exchange(clock))
        assert outbox.state().waiting == 1

    def test_owners_may_share_a_request_id(self, outbox: Outbox, clock: FakeClock) -> None:
        """The same request id of two owners is two exchanges: a client may choose it."""
        outbox.add(exchange(clock))
        outbox.add(exchange(clock, owner=BOB))
        assert outbox.state().waiting == 2

    def test_last_place_is_given(
        self, outbox: Outbox, database: Database, clock: FakeClock
    ) -> None:
        """The exchange that fills the outbox is accepted."""
        with database.writing() as connection:
            connection.execute(FILL, {"count": CAPACITY - 1})
        outbox.add(exchange(clock))
        assert outbox.state().waiting == CAPACITY

    def test_full_refuses(self, outbox: Outbox, database: Database, clock: FakeClock) -> None:
        """A full outbox refuses with its reason."""
        with database.writing() as connection:
            connection.execute(FILL, {"count": CAPACITY})
        with pytest.raises(BackendUnavailableError) as caught:
            outbox.add(exchange(clock))
        assert caught.value.reason == "outbox_full"


class TestClaim:
    """Leasing."""

    def test_oldest_first(self, outbox: Outbox, clock: FakeClock) -> None:
        """Exchanges come in the order in which they went in."""
        for request_id in ("r1", "r2", "r3"):
            outbox.add(exchange(clock, request_id))
        assert names(outbox, limit=2) == ["r1", "r2"]

    def test_leased_is_not_claimed_again(
        self, outbox: Outbox, other: Outbox, clock: FakeClock
    ) -> None:
        """Nobody else gets what is leased."""
        outbox.add(exchange(clock))
        outbox.claim(limit=1)
        assert names(other) == []

    def test_lease_holds_to_its_end(self, outbox: Outbox, other: Outbox, clock: FakeClock) -> None:
        """A second before its end a lease still holds."""
        outbox.add(exchange(clock))
        outbox.claim(limit=1)
        clock.move(seconds=LEASE.total_seconds() - 1)
        assert names(other) == []

    def test_lease_ends(self, outbox: Outbox, other: Outbox, clock: FakeClock) -> None:
        """After its lease an exchange goes to another worker: the first one may be dead."""
        outbox.add(exchange(clock))
        outbox.claim(limit=1)
        clock.move(seconds=PAST_LEASE.total_seconds())
        assert names(other) == ["r1"]

    def test_workers_share_the_work(self, outbox: Outbox, other: Outbox, clock: FakeClock) -> None:
        """Two workers never hold the same exchange."""
        for request_id in ("r1", "r2", "r3"):
            outbox.add(exchange(clock, request_id))
        assert (names(outbox, limit=2), names(other, limit=2)) == (["r1", "r2"], ["r3"])

    def test_released_is_free_at_once(
        self, outbox: Outbox, other: Outbox, clock: FakeClock
    ) -> None:
        """What a worker gives back needs no lease to end."""
        outbox.add(exchange(clock))
        outbox.claim(limit=1)
        outbox.release()
        assert names(other) == ["r1"]

    def test_release_leaves_others(self, outbox: Outbox, other: Outbox, clock: FakeClock) -> None:
        """A worker gives back its own leases only."""
        outbox.add(exchange(clock))
        outbox.claim(limit=1)
        other.release()
        assert names(other) == []


class TestSettle:
    """Storing the facts of an exchange, once."""

    def test_settled_is_gone(self, outbox: Outbox, clock: FakeClock) -> None:
        """A settled exchange waits no more."""
        outbox.add(exchange(clock))
        assert outbox.settle(outbox.claim(limit=1)[0], store_nothing)
        assert outbox.state() == OutboxState(waiting=0, set_aside=0, oldest=None)

    def test_facts_and_removal_are_one(
        self, outbox: Outbox, store: SqliteMemoryStore, clock: FakeClock
    ) -> None:
        """What settling stores is there afterwards."""
        outbox.add(exchange(clock))
        claimed = outbox.claim(limit=1)[0]
        outbox.settle(claimed, lambda connection: put_within(store, connection))
        assert store.page(MemoryQuery(ANN)).total == 1

    def test_settles_once(self, outbox: Outbox, clock: FakeClock) -> None:
        """A second settling of the same exchange is told that it came late."""
        outbox.add(exchange(clock))
        claimed = outbox.claim(limit=1)[0]
        outbox.settle(claimed, store_nothing)
        assert not outbox.settle(claimed, store_nothing)

    def test_lost_lease_is_told(self, outbox: Outbox, other: Outbox, clock: FakeClock) -> None:
        """A worker whose lease went to another one is told so."""
        outbox.add(exchange(clock))
        claimed = outbox.claim(limit=1)[0]
        clock.move(seconds=PAST_LEASE.total_seconds())
        other.claim(limit=1)
        assert not outbox.settle(claimed, store_nothing)

    def test_lost_lease_stores_nothing(
        self, outbox: Outbox, other: Outbox, store: SqliteMemoryStore, clock: FakeClock
    ) -> None:
        """A worker whose lease went to another one stores no fact."""
        outbox.add(exchange(clock))
        claimed = outbox.claim(limit=1)[0]
        clock.move(seconds=PAST_LEASE.total_seconds())
        other.claim(limit=1)
        outbox.settle(claimed, lambda connection: put_within(store, connection))
        assert store.page(MemoryQuery(ANN)).total == 0

    def test_failed_storing_keeps_the_exchange(
        self, outbox: Outbox, store: SqliteMemoryStore, clock: FakeClock
    ) -> None:
        """An error while facts are stored takes all of it back: fact and removal."""
        outbox.add(exchange(clock))

        def half(connection: Connection) -> None:
            put_within(store, connection)
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            outbox.settle(outbox.claim(limit=1)[0], half)
        assert (store.page(MemoryQuery(ANN)).total, outbox.state().waiting) == (0, 1)


def put_within(store: SqliteMemoryStore, connection: Connection) -> None:
    """Store one fact in an open transaction."""
    store.upsert_within(connection, draft(), actor="test")


class TestFail:
    """What cannot be extracted."""

    def test_failed_waits(self, outbox: Outbox, clock: FakeClock) -> None:
        """A failed exchange is not tried again at once."""
        outbox.add(exchange(clock))
        outbox.fail(outbox.claim(limit=1)[0], error="boom")
        assert names(outbox) == []

    def test_failed_comes_again(self, outbox: Outbox, clock: FakeClock) -> None:
        """A failed exchange is tried again when its lease ends."""
        outbox.add(exchange(clock))
        outbox.fail(outbox.claim(limit=1)[0], error="boom")
        clock.move(seconds=PAST_LEASE.total_seconds())
        assert names(outbox) == ["r1"]

    def test_error_is_kept(self, outbox: Outbox, database: Database, clock: FakeClock) -> None:
        """Why an exchange failed stands beside it."""
        outbox.add(exchange(clock))
        outbox.fail(outbox.claim(limit=1)[0], error="boom")
        with database.reading() as connection:
            assert connection.execute("SELECT last_error FROM outbox").fetchall() == [("boom",)]

    def test_late_failure_leaves_the_other_lease(
        self, outbox: Outbox, other: Outbox, clock: FakeClock
    ) -> None:
        """A worker that lost its lease cannot prolong that of another one."""
        outbox.add(exchange(clock))
        claimed = outbox.claim(limit=1)[0]
        clock.move(seconds=PAST_LEASE.total_seconds())
        taken = other.claim(limit=1)[0]
        outbox.fail(claimed, error="late")
        assert other.settle(taken, store_nothing)

    def test_fifth_failure_sets_aside(self, outbox: Outbox, clock: FakeClock) -> None:
        """What failed five times is not tried a sixth time, and is counted apart."""
        outbox.add(exchange(clock))
        fail_often(outbox, clock, MAX_ATTEMPTS)
        assert names(outbox) == []
        state = outbox.state()
        assert (state.waiting, state.set_aside) == (0, 1)

    def test_fourth_failure_does_not(self, outbox: Outbox, clock: FakeClock) -> None:
        """What failed four times is tried once more."""
        outbox.add(exchange(clock))
        fail_often(outbox, clock, MAX_ATTEMPTS - 1)
        assert names(outbox) == ["r1"]

    def test_set_aside_blocks_nobody(self, outbox: Outbox, clock: FakeClock) -> None:
        """Behind an exchange that was set aside the next ones come."""
        outbox.add(exchange(clock))
        fail_often(outbox, clock, MAX_ATTEMPTS)
        outbox.add(exchange(clock, "r2"))
        assert names(outbox) == ["r2"]


def fail_often(outbox: Outbox, clock: FakeClock, times: int) -> None:
    """Claim and fail one exchange several times."""
    for _ in range(times):
        outbox.fail(outbox.claim(limit=1)[0], error="boom")
        clock.move(seconds=PAST_LEASE.total_seconds())


class TestPurge:
    """What nobody extracted in time."""

    def test_old_goes(self, outbox: Outbox, clock: FakeClock) -> None:
        """After a day an exchange is dropped: texts are not kept without end."""
        outbox.add(exchange(clock))
        clock.move(seconds=KEEP.total_seconds() + 1)
        assert outbox.purge() == 1

    def test_young_stays(self, outbox: Outbox, clock: FakeClock) -> None:
        """Within the day nothing is dropped."""
        outbox.add(exchange(clock))
        clock.move(seconds=KEEP.total_seconds() - 1)
        assert outbox.purge() == 0

    def test_set_aside_goes_too(self, outbox: Outbox, clock: FakeClock) -> None:
        """What was set aside is dropped like the rest."""
        outbox.add(exchange(clock))
        fail_often(outbox, clock, MAX_ATTEMPTS)
        clock.move(days=2)
        assert outbox.purge() == 1

    def test_state_names_the_oldest(self, outbox: Outbox, clock: FakeClock) -> None:
        """The state tells since when the oldest exchange waits."""
        first = exchange(clock)
        outbox.add(first)
        outbox.add(exchange(clock, "r2"))
        assert outbox.state().oldest == to_iso(first.captured_at)
