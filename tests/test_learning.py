"""The way back: capture durably, extract later, store each exchange once."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from omniroute_litellm.extraction.extractor import Extractor
from omniroute_litellm.extraction.sources import MAX_CHARACTERS
from omniroute_litellm.health import Health
from omniroute_litellm.identity import MemoryMode
from omniroute_litellm.learning import EXTRACT, Learning
from omniroute_litellm.live_settings import LiveSettings
from omniroute_litellm.outbox import LEASE, MAX_ATTEMPTS, Outbox
from omniroute_litellm.recall import CAPTURE
from omniroute_litellm.request_state import RequestState
from omniroute_litellm.settings import Settings
from omniroute_litellm.sqlite import Database
from omniroute_litellm.sqlite_store import SqliteMemoryStore
from omniroute_litellm.store import MemoryQuery
from omniroute_litellm.types import Fact, Memory, OwnerId, SessionId, TraceId
from tests.fakes import FakeClock

ANN: Final = OwnerId("ann")


class PoisonedExtractor(Extractor):
    """Fails on texts that speak of poison."""

    def extract_exchange(self, user_text: str, answer_text: str, **more: Any) -> tuple[Fact, ...]:
        """Raise, or extract."""
        if "poison" in user_text:
            raise ZeroDivisionError
        return super().extract_exchange(user_text, answer_text, **more)


@dataclass
class Bench:
    """A learning with everything around it that a test looks at."""

    learning: Learning
    store: SqliteMemoryStore
    outbox: Outbox
    health: Health
    database: Database
    clock: FakeClock
    number: int = 0

    def finished(self, text: str | None, **more: Any) -> RequestState:
        """Return the state of a finished request of Ann's."""
        self.number += 1
        values: dict[str, Any] = {
            "id": TraceId(f"t{self.number}"),
            "call_id": "c",
            "model": "gpt",
            "owner": ANN,
            "session": None,
            "mode": MemoryMode.ON,
            "settings": Settings(),
            "started_at": self.clock(),
            "human_text": text,
            **more,
        }
        return RequestState(**values)

    def learn(self, text: str | None, answer: str = "", **more: Any) -> None:
        """Capture and extract one exchange."""
        self.learning.capture(self.finished(text, **more), answer)
        while self.learning.work():
            pass

    def memories(self) -> list[Memory]:
        """Return everything that is stored, oldest first."""
        return list(self.store.page(MemoryQuery(sort="created")).memories)[::-1]

    def contents(self) -> list[str]:
        """Return what the stored memories say."""
        return [memory.content for memory in self.memories()]

    def limit_pages(self, more: int) -> None:
        """Let the file grow by so many pages, and no further."""
        with self.database.writing() as connection:
            pages = connection.execute("PRAGMA page_count").fetchall()[0][0]
            connection.execute(f"PRAGMA max_page_count = {int(str(pages)) + more}")


MakeBench = Callable[..., Bench]


@pytest.fixture
def make_bench(database: Database, store: SqliteMemoryStore, clock: FakeClock) -> MakeBench:
    """Hand out a maker of benches on one file, for settings given as variables."""

    def make(**environ: str) -> Bench:
        outbox = Outbox(database, clock=clock, worker="one")
        live = LiveSettings(database, environ=environ, clock=clock)
        health = Health(clock=clock)
        learning = Learning(store, outbox, PoisonedExtractor(), live, health, clock=clock)
        return Bench(learning, store, outbox, health, database, clock)

    return make


@pytest.fixture
def bench(make_bench: MakeBench) -> Bench:
    """Hand out a bench with the default settings."""
    return make_bench()


def test_a_fact_carries_where_it_came_from(bench: Bench) -> None:
    """Type, source and metadata say what was said, by whom, and in which request."""
    bench.learn("I don't like Python.", session=SessionId("s"))
    (memory,) = bench.memories()
    assert (memory.key, memory.content) == ("preference:python", "I don't like Python")
    assert (memory.type, memory.source, memory.session_id) == ("factual", "user_message", "s")
    extracted_at = memory.metadata["extractedAt"]
    assert isinstance(extracted_at, str)
    assert {name: memory.metadata[name] for name in ("category", "source", "capture")} == {
        "category": "preference",
        "source": "user_message",
        "capture": "Python",
    }
    assert memory.metadata["polarity"] == "negative"
    assert memory.metadata["language"] == "en"
    assert memory.metadata["requestId"] == "t1"
    assert memory.metadata["pattern"]


def test_an_answer_is_the_models(bench: Bench) -> None:
    """What the assistant said is stored as said by the assistant."""
    bench.learn(None, "I love jazz.")
    assert [memory.source for memory in bench.memories()] == ["llm_response"]


@pytest.mark.parametrize(("scope", "rows"), [("apiKey", 1), ("session", 2)])
def test_sessions_have_slots_of_their_own_when_so_set(
    make_bench: MakeBench, scope: str, rows: int
) -> None:
    """Under the session scope two sessions keep two memories of one key, else they share it."""
    bench = make_bench(OMNIROUTE_MEMORY_SCOPE=scope)
    for session in ("one", "two"):
        bench.learn("I prefer tea.", session=SessionId(session))
    assert len(bench.memories()) == rows


def test_saying_it_again_is_one_memory(bench: Bench) -> None:
    """A restatement renews the memory and writes no history."""
    bench.learn("I prefer tea.")
    (first,) = bench.memories()
    bench.learn("I prefer tea.")
    (again,) = bench.memories()
    assert again.id == first.id
    assert again.last_seen_at > first.last_seen_at
    assert bench.store.history(first.id, owner=ANN) == []


@pytest.mark.parametrize(
    "more",
    [
        {"mode": MemoryMode.READ},
        {"mode": MemoryMode.OFF},
        {"owner": None},
        {"settings": Settings(extraction_enabled=False)},
    ],
)
def test_what_may_not_be_learned_is_not_written(bench: Bench, more: dict[str, Any]) -> None:
    """Not even the outbox sees an exchange that memory must not keep."""
    assert not bench.learning.capture(bench.finished("I prefer tea.", **more), "I love jazz.")
    assert bench.outbox.state().waiting == 0


def test_what_nobody_said_is_not_written(bench: Bench) -> None:
    """Code, quotes and tagged sections are gone before an exchange reaches the disk."""
    text = "I prefer tea.\n```\nsecret code\n```\n> secret quote\n<x>secret tag</x>"
    bench.learning.capture(bench.finished(text), "I love jazz. <think>secret thought</think>")
    (claimed,) = bench.outbox.claim(limit=1)
    assert "secret" not in claimed.exchange.user_text + claimed.exchange.answer_text


def test_what_holds_no_fact_is_not_written(bench: Bench) -> None:
    """Most of what is said teaches nothing, and costs no write."""
    assert not bench.learning.capture(bench.finished("Which tea is best?"), "Any of them.")
    assert bench.outbox.state().waiting == 0


def test_a_long_text_keeps_its_end(bench: Bench) -> None:
    """Of more than 64 KiB the last part is written."""
    bench.learning.capture(bench.finished("A word. " * 20_000 + "I prefer tea."), "")
    (claimed,) = bench.outbox.claim(limit=1)
    assert len(claimed.exchange.user_text) <= MAX_CHARACTERS
    assert claimed.exchange.user_text.endswith("I prefer tea.")


@given(text=st.text(st.characters()), answer=st.text(st.characters()))
@example(text="I prefer \ud800 tea\x00.", answer="I love ja\u202ezz.")
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_text_is_captured_or_nothing(make_bench: MakeBench, text: str, answer: str) -> None:
    """No text stops a capture or the extraction after it."""
    bench = make_bench()
    number = id(text)
    state = replace(bench.finished(text), id=TraceId(f"{number}-{len(text)}"))
    bench.learning.capture(state, answer)
    while bench.learning.work():
        pass
    assert bench.learning.backlog == 0
    assert bench.health.faults == []


def test_an_exchange_that_no_store_takes_is_given_up(bench: Bench) -> None:
    """One that can never be written does not keep the others waiting behind it."""
    bench.learning.capture(bench.finished("I prefer tea.", model="gpt\ud800"), "")
    bench.learning.capture(bench.finished("I love jazz."), "")
    while bench.learning.work():
        pass
    assert "I love jazz" in bench.contents()
    assert bench.learning.backlog == 0
    assert bench.health.counters["memory.capture.lost"] == 1


def test_the_backlog_keeps_its_order(bench: Bench) -> None:
    """Exchanges that waited for the disk are learned in the order in which they were said."""
    bench.limit_pages(0)
    for text in ("I prefer tea.", "I prefer green tea."):
        bench.learning.capture(bench.finished(text + " filler" * 5_000), "")
    assert bench.learning.backlog == 2
    bench.limit_pages(1_000)
    bench.learn("I prefer black tea.")
    keys = ["preference:tea", "preference:green_tea", "preference:black_tea"]
    assert [memory.key for memory in bench.memories()] == keys


def test_a_fault_of_the_store_costs_no_exchange_its_tries(bench: Bench) -> None:
    """However long the disk is full, what waits is learned when there is room again."""
    bench.learning.capture(bench.finished(" ".join(f"I like thing{n}." for n in range(200))), "")
    bench.limit_pages(0)
    for _ in range(MAX_ATTEMPTS + 1):
        with pytest.raises(Exception, match="full"):
            bench.learning.work()
        bench.clock.move(seconds=LEASE.total_seconds() + 1)
    bench.limit_pages(1_000)
    assert bench.outbox.state().set_aside == 0
    assert bench.learning.work()
    assert bench.store.totals(ANN).total == 200


def test_a_poisoned_exchange_is_set_aside(bench: Bench) -> None:
    """An exchange that fails five times is kept apart, and what comes after it is learned."""
    bench.learn("I prefer poison.")
    for _ in range(MAX_ATTEMPTS):
        bench.clock.move(seconds=LEASE.total_seconds() + 1)
        bench.learn("I love jazz.")
    assert bench.outbox.state().set_aside == 1
    assert bench.health.counters[f"{EXTRACT}.failed"] == MAX_ATTEMPTS
    assert bench.contents() == ["I love jazz"]


def test_a_failed_extraction_is_logged_without_its_text(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """The event is named as OmniRoute names it; what was said stays out of the log."""
    caplog.set_level(logging.DEBUG)
    bench.learn("I prefer poison.")
    assert "memory.extraction.background.failed" in caplog.text
    assert "I prefer" not in caplog.text


def test_a_capture_that_fails_says_so_until_it_works(bench: Bench) -> None:
    """The fault of the outbox lasts as long as it does."""
    bench.limit_pages(0)
    bench.learning.capture(bench.finished("I prefer tea." + " filler" * 5_000), "")
    assert bench.health.fault(CAPTURE) is not None
    bench.limit_pages(1_000)
    assert bench.learning.flush()
    assert bench.health.fault(CAPTURE) is None
