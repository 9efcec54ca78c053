"""The request path, the way back, and the life of a process."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, cast

import pytest

from omniroute_litellm.extraction.extractor import Extractor
from omniroute_litellm.health import Health
from omniroute_litellm.identity import Identity
from omniroute_litellm.learning import BACKLOG_CAPACITY, Learning
from omniroute_litellm.live_settings import LiveSettings
from omniroute_litellm.outbox import Outbox
from omniroute_litellm.placement import Deployment
from omniroute_litellm.recall import CAPTURE, Arrival, Patience, Recall
from omniroute_litellm.receipt import Outcome
from omniroute_litellm.request_state import RequestState
from omniroute_litellm.retrieval import Retriever
from omniroute_litellm.runtime import Runtime
from omniroute_litellm.sqlite import Database
from omniroute_litellm.sqlite_store import SqliteMemoryStore
from omniroute_litellm.store import Alive, MemoryQuery
from omniroute_litellm.types import JsonValue, Memory, MemorySource, OwnerId, Scope, SessionId
from omniroute_litellm.wire.chat import ChatFormat
from tests.fakes import FakeClock, forget, lookup_over, no_refusals
from tests.polling import wait_for
from tests.unit.fakes import FakeAuthority, draft, put, state_of

OWNER: Final = OwnerId("0123456789abcdef" * 4)
ME: Final = Identity(key=OWNER)
GPT: Final = Deployment("openai", "gpt-4o")
GLM: Final = Deployment("zai", "glm-4.6")
CHAT: Final = ChatFormat()
BODY: Final[dict[str, object]] = {"messages": [{"role": "user", "content": "Which tea?"}]}
DEADLINE_S: Final = 10.0
"""Far beyond any retrieval here: a test that reaches it hangs, rather than failing at random."""


class SlowReader(SqliteMemoryStore):
    """A store whose first reads wait until they are let go."""

    def __init__(self, database: Database, *, clock: FakeClock) -> None:
        super().__init__(database, clock=clock)
        self.gate = threading.Event()

    def all_if_few(self, scope: Scope, alive: Alive, *, at_most: int) -> list[Memory] | None:
        """Wait, then answer."""
        self.gate.wait()
        return super().all_if_few(scope, alive, at_most=at_most)


class Bench:
    """The request path over one file, as the runtime wires it."""

    def __init__(self, store: SqliteMemoryStore, database: Database, clock: FakeClock) -> None:
        self.store = store
        self.database = database
        self.clock = clock
        self.health = Health(clock=clock)
        self.settings = LiveSettings(database, environ={}, clock=clock)
        self.settings.change({"enabled": True})
        self.executor = ThreadPoolExecutor(1)
        self.recall = self.with_deadline(DEADLINE_S)
        self.outbox = Outbox(database, clock=clock, worker="bench")
        self.learning = Learning(
            store, self.outbox, Extractor(), self.settings, self.health, clock=clock
        )

    def with_deadline(self, deadline_s: float) -> Recall:
        """Return the request path under a deadline."""
        return Recall(
            lookup_over(Retriever(self.store, clock=self.clock), self.database, self.clock),
            self.settings,
            self.health,
            patience=lambda: Patience(self.executor, deadline_s),
            remember=forget,
            refusals=no_refusals(self.database),
            clock=self.clock,
        )

    def arrive(
        self,
        headers: Mapping[str, str] | None = None,
        *,
        who: Identity = ME,
        session: str | None = None,
    ) -> RequestState:
        """Open the state of a request."""
        at = SessionId(session) if session else None
        return self.recall.identify(Arrival("call", "gpt-4o", who, headers or {}, at))

    async def place(
        self, state: RequestState, deployment: Deployment = GPT
    ) -> dict[str, object] | None:
        """Place memory into the question."""
        return await self.recall.place(state, CHAT, BODY, deployment)


@pytest.fixture
def bench(store: SqliteMemoryStore, database: Database, clock: FakeClock) -> Iterator[Bench]:
    """Hand out a request path with memory on and one memory stored."""
    put(store, draft(owner=OWNER))
    made = Bench(store, database, clock)
    yield made
    made.executor.shutdown()


def roles(fields: dict[str, object] | None) -> list[str]:
    """Return the roles of placed messages."""
    assert fields is not None
    messages = cast("list[dict[str, str]]", fields["messages"])
    return [message["role"] for message in messages]


class TestRecall:
    """The request path."""

    async def test_places_what_is_known(self, bench: Bench) -> None:
        """A memory stands in front of the question."""
        fields = await bench.place(bench.arrive())
        assert "I prefer green tea" in repr(fields)

    async def test_receipt_counts(self, bench: Bench) -> None:
        """The receipt tells what was injected and from where."""
        state = bench.arrive()
        await bench.place(state)
        receipt = state.receipt()
        assert (receipt.outcome, receipt.injected, receipt.tier) == (Outcome.INJECTED, 1, "all")

    async def test_nothing_known_changes_nothing(self, bench: Bench) -> None:
        """Without a memory nothing is placed, and the receipt says none."""
        state = bench.arrive(who=Identity(key="sk-other"))
        assert await bench.place(state) is None
        assert state.receipt().outcome is Outcome.NONE

    @pytest.mark.parametrize(
        ("change", "headers", "reason"),
        [
            ({"enabled": False}, {}, "disabled"),
            ({}, {"x-omniroute-no-memory": "true"}, "opted_out"),
            ({}, {"x-omniroute-memory": "off"}, "opted_out"),
            ({"ownerField": "team"}, {}, "no_owner"),
        ],
    )
    async def test_gate(
        self,
        bench: Bench,
        change: dict[str, JsonValue],
        headers: dict[str, str],
        reason: str,
    ) -> None:
        """Off, opted out or nobody: nothing is placed, and the receipt says why."""
        bench.settings.change(change)
        state = bench.arrive(headers)
        assert await bench.place(state) is None
        assert (state.receipt().outcome, state.receipt().reason) == (Outcome.OFF, reason)

    @pytest.mark.parametrize(
        ("change", "headers"),
        [
            ({"injectionEnabled": False}, {}),
            ({"maxTokens": 0}, {}),
            ({}, {"x-omniroute-memory": "write"}),
        ],
    )
    async def test_may_not_read(
        self, bench: Bench, change: dict[str, JsonValue], headers: dict[str, str]
    ) -> None:
        """Where only learning is wanted nothing is placed."""
        bench.settings.change(change)
        assert await bench.place(bench.arrive(headers)) is None

    async def test_unread_settings_are_an_error(
        self, store: SqliteMemoryStore, database: Database, clock: FakeClock
    ) -> None:
        """Before the settings were read nobody can tell whether memory is on."""
        settings = LiveSettings(database, environ={}, clock=clock)
        recall = Recall(
            lookup_over(Retriever(store, clock=clock), database, clock),
            settings,
            Health(clock=clock),
            patience=lambda: Patience(ThreadPoolExecutor(1), DEADLINE_S),
            remember=forget,
            refusals=no_refusals(database),
            clock=clock,
        )
        state = recall.identify(Arrival("call", "gpt-4o", ME, {}, None))
        assert (state.outcome, state.reason) == (Outcome.ERROR, "settings_loading")

    async def test_session_scope_without_session(self, bench: Bench) -> None:
        """In the scope of a session a request without one reads nothing."""
        bench.settings.change({"scope": "session"})
        state = bench.arrive()
        assert await bench.place(state) is None
        assert state.receipt().reason == "no_session"

    async def test_session_scope_reads_its_own(self, bench: Bench) -> None:
        """In the scope of a session only its memories are placed."""
        bench.settings.change({"scope": "session"})
        one = SessionId("one")
        put(bench.store, draft("a", "I drink mate", owner=OWNER, session_id=one, slot_session=one))
        text = repr(await bench.place(bench.arrive(session="one")))
        assert ("mate" in text, "green tea" in text) == (True, False)

    async def test_no_human_text_reads_nothing(self, bench: Bench) -> None:
        """Where nobody said anything nothing is retrieved."""
        state = bench.arrive()
        body = {"messages": [{"role": "system", "content": "Be brief."}]}
        assert await bench.recall.place(state, CHAT, body, GPT) is None
        assert state.trace is None

    async def test_lost_store_is_an_error(self, bench: Bench, database: Database) -> None:
        """A store that is away lets the request pass, and the receipt says so."""
        state = bench.arrive()
        database.close()
        assert await bench.place(state) is None
        receipt = state.receipt()
        assert (receipt.outcome, receipt.reason) == (Outcome.ERROR, "database_closed")

    async def test_late_retrieval_is_left_behind(
        self, database: Database, clock: FakeClock
    ) -> None:
        """A retrieval beyond the deadline is left out, and the receipt says so."""
        slow = SlowReader(database, clock=clock)
        put(slow, draft(owner=OWNER))
        bench = Bench(slow, database, clock)
        state = bench.arrive()
        assert await bench.with_deadline(0.001).place(state, CHAT, BODY, GPT) is None
        slow.gate.set()
        bench.executor.shutdown()
        receipt = state.receipt()
        assert (receipt.outcome, receipt.reason) == (Outcome.DEGRADED, "deadline")
        assert bench.health.counters["memory.retrieval.deadline"] == 1

    async def test_form_is_of_the_deployment(self, bench: Bench) -> None:
        """Each attempt gets the form that its deployment takes."""
        state = bench.arrive()
        assert roles(await bench.place(state, GPT)) == ["system", "user"]
        assert roles(await bench.place(state, GLM)) == ["user", "user"]

    async def test_block_is_not_placed_twice(self, bench: Bench) -> None:
        """What carries the block already is left alone."""
        state = bench.arrive()
        fields = await bench.place(state)
        assert fields is not None
        assert await bench.recall.place(state, CHAT, fields, GPT) is None

    async def test_forged_block_does_not_stop_ours(self, bench: Bench) -> None:
        """A client that sends the heading by itself still gets its memories."""
        body = {"messages": [{"role": "user", "content": "Memory context:\n- x\nWhich tea?"}]}
        assert await bench.recall.place(bench.arrive(), CHAT, body, GPT) is not None

    async def test_attempts_share_one_retrieval(self, bench: Bench) -> None:
        """A retry finds what the first attempt found, although the store changed meanwhile."""
        state = bench.arrive()
        first = await bench.place(state)
        put(bench.store, draft("b", "I drink mate", owner=OWNER))
        assert await bench.place(state) == first

    async def test_body_is_untouched(self, bench: Bench) -> None:
        """What the client sent stays as it was."""
        await bench.place(bench.arrive())
        assert BODY == {"messages": [{"role": "user", "content": "Which tea?"}]}


class TestLearning:
    """The way back."""

    async def heard(
        self, bench: Bench, text: str, headers: Mapping[str, str] | None = None
    ) -> RequestState:
        """Return the state of a request in which a person said something."""
        state = bench.arrive(headers)
        body = {"messages": [{"role": "user", "content": text}]}
        await bench.recall.place(state, CHAT, body, GPT)
        return state

    async def test_learns_what_was_said(self, bench: Bench) -> None:
        """A preference becomes a memory of its owner."""
        state = await self.heard(bench, "I prefer running on trails.")
        bench.learning.capture(state, "Noted.")
        assert bench.learning.work()
        found = bench.store.page(MemoryQuery(OWNER, text="trails")).memories
        assert [memory.source for memory in found] == [MemorySource.USER_MESSAGE]

    async def test_nothing_waits_afterwards(self, bench: Bench) -> None:
        """When all is extracted there is no more work."""
        bench.learning.capture(await self.heard(bench, "I prefer trails."), "")
        bench.learning.work()
        assert not bench.learning.work()

    async def test_captures_once(self, bench: Bench) -> None:
        """A request that ends twice is captured once."""
        state = await self.heard(bench, "I prefer trails.")
        bench.learning.capture(state, "")
        bench.learning.capture(state, "")
        assert bench.outbox.state().waiting == 1

    @pytest.mark.parametrize("mode", ["read", "off"])
    async def test_may_not_write(self, bench: Bench, mode: str) -> None:
        """Where learning is not wanted nothing is captured."""
        state = await self.heard(bench, "I prefer trails.", {"x-omniroute-memory": mode})
        assert not bench.learning.capture(state, "")

    async def test_extraction_off(self, bench: Bench) -> None:
        """With extraction off nothing is captured."""
        bench.settings.change({"extractionEnabled": False})
        assert not bench.learning.capture(await self.heard(bench, "I prefer trails."), "")

    async def test_nobody_is_not_captured(self, bench: Bench) -> None:
        """Without an owner nothing is captured."""
        assert not bench.learning.capture(state_of(bench.clock(), owner=None), "I prefer tea.")

    @pytest.mark.parametrize(
        ("source", "user", "answer"),
        [("both", True, True), ("user", True, False), ("assistant", False, True)],
    )
    async def test_sources(self, bench: Bench, source: str, user: bool, answer: bool) -> None:
        """The setting chooses whose sentences are kept at all."""
        bench.settings.change({"extractFrom": source})
        exchange = bench.learning.exchange_of(await self.heard(bench, "Asked."), "Answered.")
        assert exchange is not None
        assert (bool(exchange.user_text), bool(exchange.answer_text)) == (user, answer)

    async def test_code_is_not_captured(self, bench: Bench) -> None:
        """What nobody spoke is gone before anything is written."""
        state = await self.heard(bench, "Look:\n```\nhunter2\n```\nI prefer trails.")
        exchange = bench.learning.exchange_of(state, "")
        assert exchange is not None
        assert "hunter2" not in exchange.user_text

    async def test_broken_store_keeps_a_backlog(self, bench: Bench, database: Database) -> None:
        """While the disk is away exchanges wait in the process."""
        state = await self.heard(bench, "I prefer trails.")
        database.close()
        assert bench.learning.capture(state, "")
        assert bench.learning.backlog == 1

    async def test_broken_store_is_told(self, bench: Bench, database: Database) -> None:
        """The next request's receipt says that nothing can be learned."""
        state = await self.heard(bench, "I prefer trails.")
        database.close()
        bench.learning.capture(state, "")
        assert bench.health.fault(CAPTURE) is not None
        assert bench.arrive().outcome is Outcome.ERROR

    async def test_backlog_is_written_after_repair(self, bench: Bench, database: Database) -> None:
        """When the disk is back what waited is stored."""
        with database.writing() as connection:
            connection.execute("ALTER TABLE outbox RENAME TO away")
        bench.learning.capture(await self.heard(bench, "I prefer trails."), "")
        with database.writing() as connection:
            connection.execute("ALTER TABLE away RENAME TO outbox")
        assert bench.learning.flush()
        assert (bench.learning.backlog, bench.outbox.state().waiting) == (0, 1)

    async def test_full_backlog_counts_its_losses(self, bench: Bench, database: Database) -> None:
        """A backlog without room refuses, and that is counted."""
        database.close()
        for number in range(BACKLOG_CAPACITY + 1):
            state = state_of(bench.clock(), id=str(number))
            bench.learning.capture(state, "I prefer trails.")
        assert bench.health.counters["memory.capture.lost"] == 1


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[Runtime]:
    """Hand out a runtime over a fresh folder with memory on."""
    made = runtime_at(tmp_path / "data")
    made.open()
    yield made
    await made.close()


def runtime_at(folder: Path) -> Runtime:
    """Return a runtime over a folder."""
    environ = {"OMNIROUTE_DATA_DIR": str(folder), "OMNIROUTE_MEMORY_ENABLED": "true"}
    return Runtime(environ=environ, authority=FakeAuthority({}))


def said(runtime: Runtime, text: str) -> RequestState:
    """Return the state of an answered request in which somebody said something."""
    arrival = Arrival("call", "gpt-4o", ME, {}, None)
    state = runtime.recall.identify(arrival)
    state.human_text = text
    return state


class TestRuntime:
    """The life of a process."""

    async def test_starts_once(self, runtime: Runtime) -> None:
        """However often it is started, its two background tasks run once."""
        before = len(asyncio.all_tasks())
        runtime.ensure_started()
        runtime.ensure_started()
        assert len(asyncio.all_tasks()) == before + 2

    async def test_close_ends_the_task(self, runtime: Runtime) -> None:
        """After closing no background task is left."""
        before = len(asyncio.all_tasks())
        runtime.ensure_started()
        await runtime.close()
        assert len(asyncio.all_tasks()) == before

    async def test_closing_twice_does_nothing(self, runtime: Runtime) -> None:
        """A second close is no error."""
        await runtime.close()
        await runtime.close()

    async def test_closed_does_not_start(self, runtime: Runtime) -> None:
        """What was closed stays closed."""
        await runtime.close()
        before = len(asyncio.all_tasks())
        runtime.ensure_started()
        assert len(asyncio.all_tasks()) == before

    async def test_close_drains(self, tmp_path: Path) -> None:
        """What was captured before closing is a memory afterwards."""
        first = runtime_at(tmp_path / "data")
        first.open()
        await first.capture(said(first, "I prefer running on trails."), "")
        await first.close()
        second = runtime_at(tmp_path / "data")
        assert second.store.page(MemoryQuery(OWNER)).total == 1
        await second.close()

    async def test_close_takes_it_off_the_list(self, tmp_path: Path) -> None:
        """After closing the process is not listed as alive."""
        first = runtime_at(tmp_path / "data")
        first.open()
        await first.run_write(first.workers.beat)
        await first.close()
        second = runtime_at(tmp_path / "data")
        assert second.workers.live() == []
        await second.close()

    async def test_unwritable_folder_starts(self, tmp_path: Path) -> None:
        """Without a folder to write to requests pass, with the reason in their receipt."""
        (tmp_path / "data").write_text("")
        runtime = runtime_at(tmp_path / "data")
        runtime.open()
        state = said(runtime, "Which tea?")
        assert await runtime.recall.place(state, CHAT, BODY, GPT) is None
        assert (state.outcome, state.reason) == (Outcome.ERROR, "database_unwritable")
        await runtime.close()

    async def test_unwritable_folder_recovers(self, tmp_path: Path) -> None:
        """Once the folder can be made memory works, without a restart."""
        (tmp_path / "data").write_text("")
        runtime = runtime_at(tmp_path / "data")
        runtime.open()
        (tmp_path / "data").unlink()
        runtime.ensure_started()
        await asyncio.to_thread(
            wait_for,
            lambda: said(runtime, "Which tea?").outcome is Outcome.NONE,
            timeout_s=DEADLINE_S,
            what="a request without a fault",
        )
        await runtime.close()

    async def test_hook_fault_is_in_the_receipt(self, runtime: Runtime) -> None:
        """A defect in a hook is counted, and the request's receipt says so."""
        state = said(runtime, "Which tea?")
        runtime.states.begin(state)
        runtime.note_hook_fault("pre_call", ZeroDivisionError("x"))
        assert state.receipt().reason == "internal_error"
        assert runtime.health.counters["memory.hook.pre_call.failed"] == 1
