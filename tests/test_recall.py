"""The request path with fakes around it: gate, deadline, one retrieval a request."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any, Final

import pytest

from omniroute_litellm.errors import BackendUnavailableError
from omniroute_litellm.health import Health
from omniroute_litellm.identity import Identity
from omniroute_litellm.live_settings import LiveSettings
from omniroute_litellm.placement import Deployment
from omniroute_litellm.recall import CAPTURE, READ, Arrival, Patience, Recall
from omniroute_litellm.receipt import Outcome
from omniroute_litellm.request_state import RequestState
from omniroute_litellm.retrieval import RetrievalRequest
from omniroute_litellm.sqlite import Database
from omniroute_litellm.trace import RetrievalTrace
from omniroute_litellm.types import GLOBAL_OWNER, Scope, SessionId
from omniroute_litellm.wire.chat import ChatFormat
from tests.fakes import FakeClock, FakeRetriever, forget, lookup_over, no_refusals
from tests.test_trace import KEPT, answered, failed, trace

ANN: Final = "a" * 64
GPT: Final = Deployment("openai", "gpt-4o")
CHAT: Final = ChatFormat()
BODY: Final[dict[str, Any]] = {"messages": [{"role": "user", "content": "Which tea?"}]}
FOUND: Final = trace(KEPT, tiers=(answered("keyword"),))
AWAY: Final = BackendUnavailableError("held", reason="database_locked")


class Bench:
    """A recall over a fake retriever, with memory on unless the variables say otherwise."""

    def __init__(self, database: Database, executor: Executor, **environ: str) -> None:
        clock = FakeClock()
        values = {"OMNIROUTE_MEMORY_ENABLED": "true", **environ}
        self.retriever = FakeRetriever(FOUND)
        self.database = database
        self.health = Health(clock=clock)
        self.settings = LiveSettings(database, environ=values, clock=clock)
        self.settings.refresh()
        self.recall = Recall(
            lookup_over(self.retriever, database, clock),
            self.settings,
            self.health,
            patience=lambda: Patience(executor, 30),
            remember=forget,
            refusals=no_refusals(database),
            clock=clock,
        )

    def arrive(self, *, session: str | None = None, **headers: str) -> RequestState:
        """Open the state of one of Ann's requests."""
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        identity = Identity(key=ANN)
        return self.recall.identify(
            Arrival("c", "gpt", identity, names, SessionId(session) if session else None)
        )

    async def place(
        self, state: RequestState, body: dict[str, Any] = BODY
    ) -> dict[str, Any] | None:
        """Place memory in a body for an ordinary deployment."""
        return await self.recall.place(state, CHAT, body, GPT)


MakeBench = Callable[..., Bench]


@pytest.fixture
def executor() -> Iterator[Executor]:
    """Hand out one thread."""
    with ThreadPoolExecutor(1) as made:
        yield made


@pytest.fixture
def make_bench(database: Database, executor: Executor) -> MakeBench:
    """Hand out a maker of benches for settings given as variables."""

    def make(**environ: str) -> Bench:
        return Bench(database, executor, **environ)

    return make


@pytest.fixture
def bench(make_bench: MakeBench) -> Bench:
    """Hand out a bench with the default settings."""
    return make_bench()


async def test_attempts_side_by_side_retrieve_once(bench: Bench) -> None:
    """Hedged attempts of one request share one retrieval and get the same block."""
    state = bench.arrive()
    placed = await asyncio.gather(*(bench.place(state) for _ in range(5)))
    assert len(bench.retriever.asked) == 1
    assert all(each == placed[0] is not None for each in placed)


async def test_the_retrieval_is_asked_for_what_is_set(make_bench: MakeBench) -> None:
    """Scope, words, strategy, budgets and retention reach the retrieval."""
    bench = make_bench(
        OMNIROUTE_MEMORY_SCOPE="global",
        OMNIROUTE_MEMORY_STRATEGY="semantic",
        OMNIROUTE_MEMORY_MAX_TOKENS="77",
        OMNIROUTE_MEMORY_PROFILE_MAX_TOKENS="7",
        OMNIROUTE_MEMORY_RETENTION_DAYS="3",
    )
    await bench.place(bench.arrive())
    (asked,) = bench.retriever.asked
    assert list(asked.scope.owners) == [ANN, GLOBAL_OWNER]
    assert (asked.query, asked.strategy) == ("Which tea?", "semantic")
    assert (asked.max_tokens, asked.profile_max_tokens, asked.retention.days) == (77, 7, 3)


async def test_a_session_scope_asks_for_its_session(make_bench: MakeBench) -> None:
    """The session of the request bounds what is read."""
    bench = make_bench(OMNIROUTE_MEMORY_SCOPE="session")
    await bench.place(bench.arrive(session="one"))
    assert bench.retriever.asked[0].scope == Scope(
        bench.retriever.asked[0].scope.owners, SessionId("one")
    )


async def test_write_mode_reads_the_person_and_nothing_else(bench: Bench) -> None:
    """What was said is known for learning; nothing is retrieved or placed."""
    state = bench.arrive(x_omniroute_memory="write")
    assert await bench.place(state) is None
    assert state.human_text == "Which tea?"
    assert bench.retriever.asked == []


async def test_read_mode_places(bench: Bench) -> None:
    """A request that must not be learned from still gets memories."""
    assert await bench.place(bench.arrive(x_omniroute_memory="read")) is not None


@pytest.mark.parametrize(
    "body",
    [
        {"messages": []},
        {"messages": [{"role": "system", "content": "Be brief"}]},
        {"messages": [{"role": "user", "content": "```\nonly code\n```"}]},
        {"messages": [{"role": "tool", "content": "Which tea?"}]},
    ],
)
async def test_without_a_person_nothing_is_retrieved(bench: Bench, body: dict[str, Any]) -> None:
    """No human text, no retrieval, and the body stays as it is."""
    state = bench.arrive()
    assert await bench.place(state, body) is None
    assert bench.retriever.asked == []
    assert state.receipt().outcome is Outcome.NONE


async def test_nothing_found_leaves_the_body(bench: Bench) -> None:
    """An empty result places nothing and says none."""
    bench.retriever.answer = trace(tiers=(answered("keyword"),))
    state = bench.arrive()
    assert await bench.place(state) is None
    assert state.receipt().outcome is Outcome.NONE


async def test_a_change_in_between_does_not_tear_a_request(bench: Bench) -> None:
    """A request goes on with the settings of its arrival."""
    state = bench.arrive()
    bench.settings.change({"scope": "session", "maxTokens": 0})
    assert await bench.place(state) is not None


async def test_a_fault_is_an_error_and_counted(bench: Bench) -> None:
    """A store that cannot be read leaves the body alone; the next success clears the fault."""
    bench.retriever.answer = AWAY
    state = bench.arrive()
    assert await bench.place(state) is None
    assert (state.outcome, state.reason) == (Outcome.ERROR, "database_locked")
    assert bench.health.fault(READ) is not None
    bench.retriever.answer = FOUND
    await bench.place(bench.arrive())
    assert bench.health.fault(READ) is None


async def test_a_fault_is_not_retried_within_a_request(bench: Bench) -> None:
    """Further attempts of a request do not wait for the store again."""
    bench.retriever.answer = AWAY
    state = bench.arrive()
    await bench.place(state)
    await bench.place(state)
    assert len(bench.retriever.asked) == 1


async def test_a_failed_tier_degrades(bench: Bench) -> None:
    """What the other tiers found is placed, and the receipt says that one was missing."""
    bench.retriever.answer = trace(KEPT, tiers=(answered("keyword"), failed("vector", "away")))
    state = bench.arrive()
    assert await bench.place(state) is not None
    assert (state.receipt().outcome, state.receipt().injected) == (Outcome.DEGRADED, 1)


async def test_a_lost_way_back_shows_beside_the_memories(bench: Bench) -> None:
    """While captures fail a request says error, and gets its memories all the same."""
    bench.health.failed(CAPTURE, AWAY)
    state = bench.arrive()
    assert await bench.place(state) is not None
    assert (state.receipt().outcome, state.receipt().injected) == (Outcome.ERROR, 1)


def test_a_lost_way_back_is_no_matter_to_readers(bench: Bench) -> None:
    """A request that must not be learned from loses nothing by it."""
    bench.health.failed(CAPTURE, AWAY)
    assert bench.arrive(x_omniroute_memory="read").outcome is Outcome.NONE


class StuckRetriever(FakeRetriever):
    """Does not come back until it is let go; tells when it was asked."""

    def __init__(self) -> None:
        super().__init__(FOUND)
        self.is_asked, self.let_go = threading.Event(), threading.Event()

    def retrieve(
        self, request: RetrievalRequest, *, keep: Callable[[RetrievalTrace], None] | None = None
    ) -> RetrievalTrace:
        """Wait, then answer."""
        self.is_asked.set()
        self.let_go.wait(30)
        return super().retrieve(request)


async def test_a_request_that_found_no_thread_is_learned_from(bench: Bench) -> None:
    """When every thread is busy the memories are missed, what the person said is not."""
    stuck = StuckRetriever()
    with ThreadPoolExecutor(1) as executor:
        busy = executor.submit(stuck.let_go.wait, 30)
        recall = Recall(
            lookup_over(stuck, bench.database, FakeClock()),
            bench.settings,
            bench.health,
            patience=lambda: Patience(executor, 0.02),
            remember=forget,
            refusals=no_refusals(bench.database),
            clock=FakeClock(),
        )
        state = bench.arrive()
        assert await recall.place(state, CHAT, BODY, GPT) is None
        stuck.let_go.set()
        busy.result()
    assert state.reason == "deadline"
    assert state.human_text == "Which tea?"


async def test_a_deadline_does_not_count_as_use(bench: Bench) -> None:
    """What came too late is in no receipt, even when it arrives afterwards."""
    stuck = StuckRetriever()
    with ThreadPoolExecutor(1) as executor:
        recall = Recall(
            lookup_over(stuck, bench.database, FakeClock()),
            bench.settings,
            bench.health,
            patience=lambda: Patience(executor, 0.02),
            remember=forget,
            refusals=no_refusals(bench.database),
            clock=FakeClock(),
        )
        state = bench.arrive()
        await recall.place(state, CHAT, BODY, GPT)
        stuck.let_go.set()
    receipt = state.receipt()
    assert (receipt.outcome, receipt.injected, state.trace) == (Outcome.DEGRADED, 0, None)


async def test_a_cancelled_request_stays_cancelled(bench: Bench) -> None:
    """A client that hangs up is not answered with a deadline."""
    stuck = StuckRetriever()
    with ThreadPoolExecutor(1) as executor:
        recall = Recall(
            lookup_over(stuck, bench.database, FakeClock()),
            bench.settings,
            bench.health,
            patience=lambda: Patience(executor, 30),
            remember=forget,
            refusals=no_refusals(bench.database),
            clock=FakeClock(),
        )
        task = asyncio.create_task(recall.place(bench.arrive(), CHAT, BODY, GPT))
        await asyncio.to_thread(stuck.is_asked.wait, 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        stuck.let_go.set()
    assert "memory.retrieval.deadline" not in bench.health.counters
