"""The record of requests: counted use, shares of hits, and nothing that was said."""

from typing import Final

import pytest

from omniroute_litellm.placement import BlockForm
from omniroute_litellm.request_state import RequestState
from omniroute_litellm.sqlite import Database
from omniroute_litellm.sqlite_store import SqliteMemoryStore
from omniroute_litellm.trace import Candidate
from omniroute_litellm.trace_log import HitRate, TraceLog
from omniroute_litellm.types import Memory, MemoryDraft, MemorySource, MemoryType, OwnerId
from tests.fakes import FakeClock
from tests.test_request_state import state
from tests.test_trace import answered, trace

ANN: Final = OwnerId("ann")


@pytest.fixture
def log(database: Database, store: SqliteMemoryStore, clock: FakeClock) -> TraceLog:
    """Hand out an empty record."""
    return TraceLog(database, clock=clock, count_uses=store.count_uses_within)


@pytest.fixture
def memory(store: SqliteMemoryStore) -> Memory:
    """Hand out a stored memory of Ann's."""
    draft = MemoryDraft(ANN, MemoryType.FACTUAL, "a", "I prefer secrets", MemorySource.MANUAL)
    return store.upsert(draft, actor="test").memory


def request(name: str, memory: Memory | None, *, is_placed: bool = True) -> RequestState:
    """Return a finished request with a retrieval that found this memory, or nothing."""
    finished = state(name)
    finished.human_text = "Which secrets?"
    found = (Candidate(memory, {"keyword": 1}, {}, 5),) if memory else ()
    finished.keep(trace(*found, tiers=(answered("keyword"),)))
    finished.form = BlockForm.SYSTEM if memory and is_placed else None
    return finished


def test_use_is_counted_once_a_request(
    log: TraceLog, store: SqliteMemoryStore, memory: Memory
) -> None:
    """A memory that a request carried was used, at the time of that request."""
    carried = request("a", memory)
    log.record(carried)
    log.record(carried)
    log.flush()
    used = store.get(memory.id, owner=ANN)
    assert (used.access_count, used.last_accessed_at) == (1, carried.started_at)


def test_what_was_not_placed_was_not_used(
    log: TraceLog, store: SqliteMemoryStore, memory: Memory
) -> None:
    """A request that failed before any deployment used nothing."""
    log.record(request("a", memory, is_placed=False))
    log.flush()
    assert store.get(memory.id, owner=ANN).access_count == 0


def test_a_memory_that_is_gone_is_no_error(
    log: TraceLog, store: SqliteMemoryStore, memory: Memory
) -> None:
    """A memory may be deleted between its use and the record of it."""
    log.record(request("a", memory))
    store.delete(memory.id, owner=ANN, actor="test")
    assert log.flush() == 1


def test_the_share_of_hits(log: TraceLog, memory: Memory) -> None:
    """Requests with a retrieval count, and those of them that carried something."""
    for name, found in (("a", memory), ("b", None), ("c", None), ("d", memory)):
        log.record(request(name, found))
    log.record(state("e"))
    log.flush()
    assert log.hit_rate(ANN) == HitRate(4, 2)
    assert log.hit_rate(ANN).share == 0.5


def test_without_requests_the_share_is_none(log: TraceLog) -> None:
    """Nothing was asked, so nothing was hit."""
    assert log.hit_rate(None).share == 0.0


def test_the_share_is_the_owners_and_of_one_day(
    log: TraceLog, memory: Memory, clock: FakeClock
) -> None:
    """Other owners' requests do not count, nor do those of yesterday."""
    log.record(request("a", memory))
    log.flush()
    assert log.hit_rate(OwnerId("bob")).retrieved == 0
    assert log.hit_rate(None).retrieved == 1
    clock.move(hours=25)
    assert log.hit_rate(None).retrieved == 0


def test_the_record_holds_nothing_that_was_said(
    log: TraceLog, memory: Memory, database: Database
) -> None:
    """Neither the question nor a memory stands in it."""
    log.record(request("a", memory))
    log.flush()
    with database.reading() as connection:
        rows = connection.execute("SELECT * FROM traces").fetchall()
    assert memory.id in str(rows)
    assert "secret" not in str(rows)


def test_a_record_that_no_store_takes_is_dropped(log: TraceLog, memory: Memory) -> None:
    """The others are written, and the loss is counted."""
    bad = request("a", memory)
    bad.model = "gpt\ud800"
    log.record(bad)
    log.record(request("b", memory))
    log.flush()
    assert (log.dropped, log.hit_rate(ANN).retrieved) == (1, 1)
    assert log.flush() == 0
