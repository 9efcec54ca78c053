"""The record of requests, the list of processes, and the proof that the store works."""

from datetime import timedelta
from typing import Final

import pytest

from omniroute_litellm.errors import BackendUnavailableError
from omniroute_litellm.placement import BlockForm
from omniroute_litellm.probe import PROBE_OWNER, StoreProbe
from omniroute_litellm.request_state import RequestState
from omniroute_litellm.sqlite import Database
from omniroute_litellm.sqlite_store import SqliteMemoryStore
from omniroute_litellm.trace import Candidate, Drop, RetrievalTrace, TierOutcome
from omniroute_litellm.trace_log import MAX_BUFFERED, HitRate, TraceLog
from omniroute_litellm.types import Memory
from omniroute_litellm.workers import GONE_AFTER, Workers
from tests.fakes import FakeClock
from tests.unit.fakes import ANN, BOB, FakeTimer, draft, put, state_of

SECRET_WORDS: Final = "the crown jewels"


@pytest.fixture
def log(database: Database, store: SqliteMemoryStore, clock: FakeClock) -> TraceLog:
    """Hand out an empty record."""
    return TraceLog(database, clock=clock, count_uses=store.count_uses_within)


def trace_of(clock: FakeClock, *memories: Memory, dropped: Drop | None = None) -> RetrievalTrace:
    """Return a retrieval that found some memories by their words."""
    return RetrievalTrace(
        at=clock(),
        strategy="hybrid",
        budget=100,
        tiers=(TierOutcome("keyword", answered=True, candidates=len(memories), ms=1.0),),
        candidates=tuple(
            Candidate(memory, {"keyword": rank}, {"bm25": 1.0}, 3, dropped)
            for rank, memory in enumerate(memories, start=1)
        ),
        lines=() if dropped else tuple(f"- {memory.content}" for memory in memories),
        tokens=3,
        ms=1.0,
    )


def injected(clock: FakeClock, *memories: Memory, id: str = "t1") -> RequestState:  # noqa: A002
    """Return a request that carried some memories."""
    state = state_of(clock(), id=id)
    state.keep(trace_of(clock, *memories))
    state.form = BlockForm.SYSTEM
    return state


class TestTraceLog:
    """The record of requests."""

    def test_written_once(self, log: TraceLog, clock: FakeClock) -> None:
        """A request that is recorded twice is written once."""
        state = state_of(clock())
        log.record(state)
        log.record(state)
        assert (log.flush(), log.flush()) == (1, 0)

    def test_request_without_owner_is_not_recorded(self, log: TraceLog, clock: FakeClock) -> None:
        """Where memory had nothing to do there is no record."""
        log.record(state_of(clock(), owner=None))
        assert log.flush() == 0

    def test_record_holds_no_content(
        self, log: TraceLog, database: Database, store: SqliteMemoryStore, clock: FakeClock
    ) -> None:
        """No word of a memory stands in the record."""
        log.record(injected(clock, put(store, draft(content=SECRET_WORDS))))
        log.flush()
        with database.reading() as connection:
            row = connection.execute("SELECT * FROM traces").fetchall()[0]
        assert SECRET_WORDS not in repr(row)

    def test_use_is_counted(
        self, log: TraceLog, store: SqliteMemoryStore, clock: FakeClock
    ) -> None:
        """What was injected counts as used."""
        memory = put(store)
        log.record(injected(clock, memory))
        log.flush()
        assert store.get(memory.id, owner=ANN).access_count == 1

    def test_unplaced_is_not_used(
        self, log: TraceLog, store: SqliteMemoryStore, clock: FakeClock
    ) -> None:
        """What was found but not placed does not count as used."""
        memory = put(store)
        state = injected(clock, memory)
        state.form = None
        log.record(state)
        log.flush()
        assert store.get(memory.id, owner=ANN).access_count == 0

    def test_dropped_is_not_used(
        self, log: TraceLog, store: SqliteMemoryStore, clock: FakeClock
    ) -> None:
        """What was dropped does not count as used."""
        memory = put(store)
        state = state_of(clock())
        state.keep(trace_of(clock, memory, dropped=Drop.OVER_BUDGET))
        state.form = BlockForm.SYSTEM
        log.record(state)
        log.flush()
        assert store.get(memory.id, owner=ANN).access_count == 0

    def test_full_buffer_drops_the_oldest(self, log: TraceLog, clock: FakeClock) -> None:
        """Records beyond the buffer push the oldest out, and that is counted."""
        for number in range(MAX_BUFFERED + 3):
            log.record(state_of(clock(), id=f"t{number}"))
        assert log.dropped == 3

    def test_failed_flush_keeps(self, log: TraceLog, database: Database, clock: FakeClock) -> None:
        """What could not be written waits for the next flush."""
        log.record(state_of(clock()))
        with database.writing() as connection:
            connection.execute("ALTER TABLE traces RENAME TO away")
        with pytest.raises(Exception, match="traces"):
            log.flush()
        with database.writing() as connection:
            connection.execute("ALTER TABLE away RENAME TO traces")
        assert log.flush() == 1

    def test_closed_store_raises(self, log: TraceLog, database: Database, clock: FakeClock) -> None:
        """A flush tells its caller that the store is away."""
        log.record(state_of(clock()))
        database.close()
        with pytest.raises(BackendUnavailableError):
            log.flush()

    @pytest.mark.parametrize(("days", "gone"), [(6.9, 0), (7.1, 1)])
    def test_purge(self, log: TraceLog, clock: FakeClock, days: float, gone: int) -> None:
        """Records older than so many days go."""
        log.record(state_of(clock()))
        log.flush()
        clock.move(days=days)
        assert log.purge(days=7) == gone

    def test_hit_rate(self, log: TraceLog, store: SqliteMemoryStore, clock: FakeClock) -> None:
        """The rate counts retrievals, and those of them that injected something."""
        log.record(injected(clock, put(store)))
        missed = state_of(clock(), id="t2")
        missed.keep(trace_of(clock))
        log.record(missed)
        log.record(state_of(clock(), id="t3"))
        log.flush()
        assert log.hit_rate(ANN) == HitRate(retrieved=2, injected=1)

    def test_hit_rate_of_others(
        self, log: TraceLog, store: SqliteMemoryStore, clock: FakeClock
    ) -> None:
        """The rate of an owner leaves the others out."""
        log.record(injected(clock, put(store)))
        log.flush()
        assert log.hit_rate(BOB).retrieved == 0

    def test_hit_rate_is_of_today(
        self, log: TraceLog, store: SqliteMemoryStore, clock: FakeClock
    ) -> None:
        """The rate is that of the last 24 hours."""
        log.record(injected(clock, put(store)))
        log.flush()
        clock.move(hours=25)
        assert log.hit_rate(None).retrieved == 0

    def test_share_without_requests(self) -> None:
        """Without requests the share is nothing, rather than an error."""
        assert HitRate(0, 0).share == 0


class TestWorkers:
    """The list of processes."""

    def test_beating_is_alive(self, database: Database, clock: FakeClock) -> None:
        """Who beat is on the list."""
        workers = Workers(database, clock=clock, worker="a")
        workers.beat()
        assert [worker.id for worker in workers.live()] == ["a"]

    def test_start_stays(self, database: Database, clock: FakeClock) -> None:
        """A second beat moves the last sight, not the start."""
        workers = Workers(database, clock=clock, worker="a")
        workers.beat()
        first = workers.live()[0]
        workers.beat()
        second = workers.live()[0]
        assert (second.started_at, second.seen_at > first.seen_at) == (first.started_at, True)

    def test_silent_is_gone(self, database: Database, clock: FakeClock) -> None:
        """Who stopped beating is off the list."""
        workers = Workers(database, clock=clock, worker="a")
        workers.beat()
        clock.move(seconds=(GONE_AFTER + timedelta(seconds=1)).total_seconds())
        assert workers.live() == []

    def test_leaving_is_gone_at_once(self, database: Database, clock: FakeClock) -> None:
        """Who leaves is off the list, the others stay."""
        first = Workers(database, clock=clock, worker="a")
        second = Workers(database, clock=clock, worker="b")
        first.beat()
        second.beat()
        first.leave()
        assert [worker.id for worker in second.live()] == ["b"]


class TestProbe:
    """The proof that the store works."""

    def test_sound_store_works(self, store: SqliteMemoryStore, clock: FakeClock) -> None:
        """A store that writes and finds is working."""
        assert StoreProbe(store, clock=clock).run().working

    def test_leaves_nothing(self, store: SqliteMemoryStore, clock: FakeClock) -> None:
        """After a probe no memory and no owner is listed."""
        StoreProbe(store, clock=clock).run()
        assert store.totals(PROBE_OWNER).total == 0
        assert store.owners() == []

    def test_takes_its_time(self, store: SqliteMemoryStore, clock: FakeClock) -> None:
        """The latency is that of the timer."""
        assert StoreProbe(store, clock=clock, timer=FakeTimer()).run().latency_ms == 0

    def test_lost_index_is_noticed(
        self, store: SqliteMemoryStore, database: Database, clock: FakeClock
    ) -> None:
        """A store that forgets to index is not working."""
        with database.writing() as connection:
            connection.execute("DROP TRIGGER memories_fts_insert; DROP TRIGGER memories_fts_delete")
        assert StoreProbe(store, clock=clock).run().reason == "keyword_lost"

    def test_closed_store_is_a_result(
        self, store: SqliteMemoryStore, database: Database, clock: FakeClock
    ) -> None:
        """A store that is away is told, not raised."""
        database.close()
        found = StoreProbe(store, clock=clock).run()
        assert (found.working, found.reason) == (False, "database_closed")
