"""The runtime without LiteLLM: the request path, the way back, start and stop."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest
from prometheus_client import CollectorRegistry

from omniroute_litellm import learning as learning_module
from omniroute_litellm.identity import Identity
from omniroute_litellm.live_settings import LiveSettings
from omniroute_litellm.paths import DATABASE_NAME
from omniroute_litellm.placement import Deployment
from omniroute_litellm.recall import CAPTURE, Arrival, Patience, Recall
from omniroute_litellm.receipt import Outcome
from omniroute_litellm.request_state import RequestState
from omniroute_litellm.retrieval import RetrievalRequest, Retriever
from omniroute_litellm.runtime import Runtime
from omniroute_litellm.sign_in import AdminKeyAuthority
from omniroute_litellm.sqlite import Database
from omniroute_litellm.store import MemoryQuery
from omniroute_litellm.telemetry import Metrics
from omniroute_litellm.trace import RetrievalTrace
from omniroute_litellm.types import (
    MemoryDraft,
    MemorySource,
    MemoryType,
    OwnerId,
    SessionId,
    utc_now,
)
from omniroute_litellm.wire.formats import FORMATS
from tests.fakes import forget, lookup_over, no_refusals
from tests.polling import wait_for

ANN: Final = OwnerId("a" * 64)
GPT: Final = Deployment("openai", "gpt-4o")
GLM: Final = Deployment("zai", "glm-4.6")
CHAT: Final = FORMATS["acompletion"]
QUESTION: Final[dict[str, Any]] = {"messages": [{"role": "user", "content": "Which tea?"}]}


def runtime_at(folder: Path, **environ: str) -> Runtime:
    """Return a runtime with memory on, over a folder."""
    values = {"OMNIROUTE_DATA_DIR": str(folder), "OMNIROUTE_MEMORY_ENABLED": "true", **environ}
    return Runtime(environ=values, authority=AdminKeyAuthority("sk-x"))


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[Runtime]:
    """Hand out an opened runtime without background work."""
    made = runtime_at(tmp_path / "data")
    made.open()
    yield made
    made.database.close()


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Runtime]:
    """Hand out a runtime with its background work."""
    made = runtime_at(tmp_path / "data")
    made.open()
    made.ensure_started()
    made.ensure_started()
    yield made
    await made.close()


def arrive(
    runtime: Runtime,
    *,
    identity: Identity | None = None,
    session: str | None = None,
    **headers: str,
) -> RequestState:
    """Open the state of one of Ann's requests."""
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    who = Identity(key=ANN) if identity is None else identity
    arrival = Arrival("call", "gpt", who, names, SessionId(session) if session else None)
    return runtime.recall.identify(arrival)


def remember(runtime: Runtime, content: str = "I prefer green tea") -> None:
    """Store one memory of Ann's."""
    draft = MemoryDraft(ANN, MemoryType.FACTUAL, "preference:x", content, MemorySource.MANUAL)
    runtime.store.upsert(draft, actor="test")


async def place(
    runtime: Runtime, state: RequestState, deployment: Deployment = GPT
) -> dict[str, Any] | None:
    """Place memory in the question."""
    return await runtime.recall.place(state, CHAT, QUESTION, deployment)


def contents(runtime: Runtime) -> list[str]:
    """Return everything that is stored."""
    return [memory.content for memory in runtime.store.page(MemoryQuery()).memories]


@pytest.mark.parametrize(
    ("headers", "identity", "outcome", "reason"),
    [
        ({"x_omniroute_no_memory": "1"}, None, "off", "opted_out"),
        ({"x_omniroute_memory": "off"}, None, "off", "opted_out"),
        ({}, Identity(), "off", "no_owner"),
        ({}, None, "none", ""),
    ],
)
async def test_the_gate(
    runtime: Runtime,
    headers: dict[str, str],
    identity: Identity | None,
    outcome: str,
    reason: str,
) -> None:
    """Opted out or without an owner nothing is read, placed or captured."""
    remember(runtime) if outcome == "off" else None
    state = arrive(runtime, identity=identity, **headers)
    assert (state.outcome, state.reason) == (outcome, reason)
    assert await place(runtime, state) is None
    assert not state.is_live or outcome == "none"
    if outcome == "off":
        assert runtime.learning.exchange_of(state, "I love jazz.") is None


async def test_memory_is_placed_for_each_deployment(runtime: Runtime) -> None:
    """One retrieval serves every attempt; each gets the form that it takes; nothing piles up."""
    remember(runtime)
    state = arrive(runtime)
    for deployment, role in ((GPT, "system"), (GLM, "user"), (GPT, "system")):
        placed = await place(runtime, state, deployment)
        assert placed is not None
        assert placed["messages"][0]["role"] == role
        assert placed["messages"][1:] == QUESTION["messages"]
        again = await runtime.recall.place(state, CHAT, placed, deployment)
        assert again is None
    receipt = state.receipt()
    assert (receipt.outcome, receipt.injected, receipt.tier) == ("injected", 1, "all")


@pytest.mark.parametrize(
    "environ",
    [{"OMNIROUTE_MEMORY_INJECTION_ENABLED": "false"}, {"OMNIROUTE_MEMORY_MAX_TOKENS": "0"}],
)
async def test_injection_can_be_off(tmp_path: Path, environ: dict[str, str]) -> None:
    """Without injection, or with a budget of none, nothing is retrieved; learning goes on."""
    runtime = runtime_at(tmp_path, **environ)
    runtime.open()
    remember(runtime)
    state = arrive(runtime)
    assert await place(runtime, state) is None
    assert state.trace is None
    assert runtime.learning.exchange_of(state, "I love jazz.") is not None
    runtime.database.close()


async def test_a_session_scope_needs_a_session(tmp_path: Path) -> None:
    """Without a session nothing is read, and the receipt says why."""
    runtime = runtime_at(tmp_path, OMNIROUTE_MEMORY_SCOPE="session")
    runtime.open()
    state = arrive(runtime)
    assert await place(runtime, state) is None
    assert state.receipt().reason == "no_session"
    runtime.database.close()


class StuckRetriever(Retriever):
    """A retriever that does not come back until it is let go."""

    def __init__(self, inner: Retriever) -> None:
        self.inner = inner
        self.let_go = threading.Event()

    def retrieve(
        self, request: RetrievalRequest, *, keep: Callable[[RetrievalTrace], None] | None = None
    ) -> RetrievalTrace:
        """Wait, then retrieve."""
        self.let_go.wait(30)
        return self.inner.retrieve(request)


async def test_a_late_retrieval_is_left_behind(runtime: Runtime) -> None:
    """After the deadline the request goes on without memory, and says so."""
    remember(runtime)
    stuck = StuckRetriever(runtime.retriever)
    with ThreadPoolExecutor(1) as executor:
        recall = Recall(
            lookup_over(stuck, runtime.database, runtime.clock),
            runtime.settings,
            runtime.health,
            patience=lambda: Patience(executor, 0.02),
            remember=forget,
            refusals=no_refusals(runtime.database),
            clock=runtime.clock,
        )
        state = recall.identify(Arrival("c", "gpt", Identity(key=ANN), {}, None))
        assert await recall.place(state, CHAT, QUESTION, GPT) is None
        stuck.let_go.set()
    assert (state.outcome, state.reason) == (Outcome.DEGRADED, "deadline")
    assert runtime.health.counters["memory.retrieval.deadline"] == 1


async def test_a_lost_store_is_an_error(runtime: Runtime) -> None:
    """When the store cannot be read the request goes on and the receipt names the reason."""
    state = arrive(runtime)
    runtime.database.close()
    assert await place(runtime, state) is None
    assert (state.outcome, state.reason) == (Outcome.ERROR, "database_closed")


async def test_an_unusable_folder_is_an_error_until_it_is_mended(tmp_path: Path) -> None:
    """Nothing raises; requests say error; once the folder can be made all is well."""
    blocker = tmp_path / "file"
    blocker.write_text("")
    runtime = runtime_at(blocker / "data")
    runtime.open()
    assert arrive(runtime).receipt().reason == "database_unwritable"
    runtime.ensure_started()
    blocker.unlink()
    await wait_until(lambda: arrive(runtime).outcome is Outcome.NONE)
    await runtime.close()


def test_unread_settings_are_an_error(tmp_path: Path) -> None:
    """Before the settings were read nobody knows whether memory is on; pinned off is known."""
    assert arrive(runtime_at(tmp_path)).reason == "settings_loading"
    off = runtime_at(tmp_path, OMNIROUTE_MEMORY_ENABLED="false")
    assert arrive(off).reason == "disabled"
    bad = runtime_at(tmp_path, OMNIROUTE_MEMORY_SCOPE="galaxy")
    assert arrive(bad).reason == "settings_invalid"


async def wait_until(condition: Any) -> None:
    """Wait for a condition in a thread, so that the loop goes on."""
    await asyncio.to_thread(wait_for, condition, timeout_s=20, what="the condition")


async def test_what_is_said_is_learned(running: Runtime) -> None:
    """An answered request becomes memories in the background."""
    state = arrive(running)
    state.human_text = "I prefer tea. `code I prefer`"
    await running.capture(state, "I love jazz.\n> I hate rain.")
    await running.capture(state, "I love opera.")
    await wait_until(lambda: len(contents(running)) == 2)
    assert set(contents(running)) == {"I prefer tea", "I love jazz"}


@pytest.mark.parametrize("is_whole", [True, False])
@pytest.mark.parametrize("is_event_first", [True, False])
async def test_a_stream_is_learned_from_at_its_end(
    running: Runtime, is_event_first: bool, is_whole: bool
) -> None:
    """An answer that was cut off is left out, whichever comes first, its event or its end."""
    state = arrive(running)
    state.human_text = "I prefer tea."
    running.stream_began(state)
    if is_event_first:
        await running.capture(state, "I love jazz.")
        assert not running.outbox.state().waiting
    running.stream_ended(state, is_whole=is_whole)
    if not is_event_first:
        await running.capture(state, "I love jazz.")
    expected = {"I prefer tea", "I love jazz"} if is_whole else {"I prefer tea"}
    await wait_until(lambda: set(contents(running)) == expected)
    assert running.health.counters.get("memory.capture.cut_off", 0) == (not is_whole)


async def test_a_request_is_counted_once(tmp_path: Path) -> None:
    """However often its headers are asked for, a request is one in metrics and record."""
    registry = CollectorRegistry()
    environ = {"OMNIROUTE_DATA_DIR": str(tmp_path), "OMNIROUTE_MEMORY_ENABLED": "true"}
    runtime = Runtime(
        environ=environ, authority=AdminKeyAuthority("sk-x"), metrics=Metrics(registry)
    )
    runtime.open()
    remember(runtime)
    state = arrive(runtime)
    await place(runtime, state)
    assert runtime.conclude(state) == runtime.conclude(state)
    runtime.conclude(arrive(runtime, x_omniroute_no_memory="true"))
    labels = {"outcome": "injected", "reason": ""}
    assert registry.get_sample_value("omniroute_memory_requests_total", labels) == 1
    off = {"outcome": "off", "reason": "opted_out"}
    assert registry.get_sample_value("omniroute_memory_requests_total", off) == 1
    assert registry.get_sample_value("omniroute_memory_retrieval_seconds_count") == 1
    assert runtime.traces.flush() == 1
    runtime.database.close()


async def test_a_stream_without_a_state_is_nobodys(running: Runtime) -> None:
    """Calls that memory has nothing to do with stream as ever."""
    running.stream_began(None)
    running.stream_ended(None, is_whole=False)
    assert not running.health.counters.get("memory.capture.cut_off")


async def test_stopping_drains(tmp_path: Path) -> None:
    """What was captured before the stop is stored after it, and the worker is gone."""
    runtime = runtime_at(tmp_path / "data")
    runtime.open()
    runtime.ensure_started()
    state = arrive(runtime)
    state.human_text = "I prefer tea."
    await runtime.capture(state, "")
    runtime.traces.record(state)
    await runtime.close()
    await runtime.close()
    after = runtime_at(tmp_path / "data")
    assert contents(after) == ["I prefer tea"]
    assert after.workers.live() == []
    assert after.outbox.state().waiting == 0
    after.database.close()


@pytest.mark.parametrize(
    ("source", "kept"),
    [
        ("both", {"I prefer tea", "I love jazz"}),
        ("user", {"I prefer tea"}),
        ("assistant", {"I love jazz"}),
    ],
)
def test_sources_are_captured_as_set(tmp_path: Path, source: str, kept: set[str]) -> None:
    """What is not to be read is not even written to the outbox."""
    runtime = runtime_at(tmp_path, OMNIROUTE_MEMORY_EXTRACT_FROM=source)
    runtime.open()
    state = arrive(runtime)
    state.human_text = "I prefer tea."
    assert runtime.learning.capture(state, "I love jazz.")
    (claimed,) = runtime.outbox.claim(limit=1)
    assert bool(claimed.exchange.user_text) == (source != "assistant")
    assert bool(claimed.exchange.answer_text) == (source != "user")
    runtime.outbox.release()
    assert runtime.learning.work()
    assert set(contents(runtime)) == kept
    runtime.database.close()


def test_nothing_to_say_is_nothing_to_capture(runtime: Runtime) -> None:
    """Code and blanks are no exchange; read mode and switched-off extraction capture nothing."""
    state = arrive(runtime)
    state.human_text = "   "
    assert runtime.learning.exchange_of(state, "```\nI love jazz.\n```") is None
    read = arrive(runtime, x_omniroute_memory="read")
    read.human_text = "I prefer tea."
    assert runtime.learning.exchange_of(read, "I love jazz.") is None


def test_captures_wait_for_the_disk(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the outbox refuses, exchanges wait in this process, bounded; later they get there."""
    monkeypatch.setattr(learning_module, "BACKLOG_CAPACITY", 2)
    with runtime.database.writing() as connection:
        pages = connection.execute("PRAGMA page_count").fetchall()[0][0]
        connection.execute(f"PRAGMA max_page_count = {pages}")
    for number in range(3):
        state = arrive(runtime)
        state.human_text = f"I prefer tea{number}. " + "filler words " * 4_000
        runtime.learning.capture(state, "")
    assert runtime.learning.backlog == 2
    assert runtime.health.counters["memory.capture.lost"] == 1
    fault = runtime.health.fault(CAPTURE)
    assert fault is not None
    assert fault.reason == "database_full"
    assert arrive(runtime).receipt().outcome is Outcome.ERROR
    with runtime.database.writing() as connection:
        connection.execute("PRAGMA max_page_count = 1000000")
    assert runtime.learning.flush()
    assert runtime.learning.backlog == 0
    assert arrive(runtime).receipt().outcome is Outcome.NONE


def test_a_poisoned_exchange_does_not_stop_the_rest(runtime: Runtime) -> None:
    """An exchange that cannot be stored is counted and tried later; the next one is done."""
    for text in ("I prefer tea.", "I love jazz."):
        state = arrive(runtime)
        state.human_text = text
        runtime.learning.capture(state, "")
    with runtime.database.writing() as connection:
        connection.execute(
            "CREATE TRIGGER poison BEFORE INSERT ON memories WHEN new.content LIKE '%tea%'"
            " BEGIN SELECT raise(ABORT, 'poison'); END"
        )
    assert runtime.learning.work()
    assert runtime.learning.work()
    assert not runtime.learning.work()
    assert contents(runtime) == ["I love jazz"]
    assert runtime.outbox.state().waiting == 1


@pytest.mark.parametrize("text", ["0", "-5", "soon", "1.5", "9" * 5_000], ids=str.__len__)
def test_a_bad_deadline_is_named(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A deadline that cannot be read falls back to the default, in one log line."""
    runtime_at(tmp_path, MEMORY_DEADLINE_MS=text)
    assert "MEMORY_DEADLINE_MS" in caplog.text
    assert "using the default" in caplog.text


async def test_a_hook_fault_is_seen(runtime: Runtime) -> None:
    """A defect in a hook is counted and shows in the receipt of its request."""
    state = arrive(runtime)
    runtime.states.begin(state)
    runtime.note_hook_fault("async_pre_call_hook", ZeroDivisionError())
    assert state.receipt().reason == "internal_error"
    assert runtime.health.faults[0].operation == "memory.hook.async_pre_call_hook"


async def test_a_change_elsewhere_is_followed(running: Runtime, tmp_path: Path) -> None:
    """What another process sets reaches the requests of this one, without a restart."""
    elsewhere = runtime_at(tmp_path / "data")
    elsewhere.settings.change({"scope": "session", "maxTokens": 7})
    await wait_until(lambda: arrive(running).settings.max_tokens == 7)
    assert arrive(running).settings.scope == "session"
    elsewhere.database.close()


async def test_memory_is_switched_on_under_way(tmp_path: Path) -> None:
    """Off by default; once it is turned on elsewhere the next requests use it."""
    environ = {"OMNIROUTE_DATA_DIR": str(tmp_path)}
    runtime = Runtime(environ=environ, authority=AdminKeyAuthority("sk-x"))
    runtime.open()
    assert arrive(runtime).receipt().reason == "disabled"
    runtime.ensure_started()
    LiveSettings(Database(tmp_path / DATABASE_NAME), environ={}, clock=utc_now).change(
        {"enabled": True}
    )
    await wait_until(lambda: arrive(runtime).outcome is Outcome.NONE)
    await runtime.close()


async def test_stopping_writes_what_waited_for_the_disk(tmp_path: Path) -> None:
    """Captures that the disk refused are stored at the stop, when there is room again."""
    runtime = runtime_at(tmp_path / "data")
    runtime.open()
    limit_pages(runtime, more=0)
    state = arrive(runtime)
    state.human_text = "I prefer tea. " + "filler words " * 4_000
    await runtime.capture(state, "")
    assert runtime.learning.backlog == 1
    limit_pages(runtime, more=10_000)
    await runtime.close()
    after = runtime_at(tmp_path / "data")
    assert contents(after) == ["I prefer tea"]
    after.database.close()


async def test_a_foreign_database_is_an_error_and_stays(tmp_path: Path) -> None:
    """A file of another program stops neither start nor requests, and is not changed."""
    path = tmp_path / DATABASE_NAME
    with closing(sqlite3.connect(path)) as foreign:
        foreign.execute("CREATE TABLE settings (theirs TEXT)")
    before = path.read_bytes()
    runtime = runtime_at(tmp_path)
    runtime.open()
    assert arrive(runtime).receipt().reason == "database_foreign"
    await runtime.close()
    assert path.read_bytes() == before


async def test_an_unforeseen_schema_is_an_error(tmp_path: Path) -> None:
    """A file that looks like ours and is not stops neither start nor requests."""
    with closing(sqlite3.connect(tmp_path / DATABASE_NAME)) as foreign:
        foreign.execute("CREATE TABLE settings (theirs TEXT)")
        foreign.execute("PRAGMA user_version = 2")
    runtime = runtime_at(tmp_path)
    runtime.open()
    assert arrive(runtime).receipt().outcome is Outcome.ERROR
    await runtime.close()


async def test_background_work_outlives_a_bad_exchange(running: Runtime) -> None:
    """What no store takes is dropped; what is said afterwards is learned."""
    bad = arrive(running)
    bad.model, bad.human_text = "gpt\ud800", "I love jazz."
    await running.capture(bad, "")
    good = arrive(running)
    good.human_text = "I prefer tea."
    await running.capture(good, "")
    await wait_until(lambda: contents(running) == ["I prefer tea"])


async def test_background_work_outlives_a_bad_record(running: Runtime) -> None:
    """A request whose record no store takes keeps no other request from being recorded."""
    bad = arrive(running)
    bad.model = "gpt\ud800"
    for state in (bad, arrive(running)):
        await place(running, state)
        running.traces.record(state)
    remember(running)
    state = arrive(running)
    await place(running, state)
    running.traces.record(state)
    await wait_until(lambda: running.traces.hit_rate(ANN).injected == 1)


def test_nothing_is_made_before_it_is_used(tmp_path: Path) -> None:
    """Building a runtime touches no disk."""
    runtime_at(tmp_path / "data")
    assert not (tmp_path / "data").exists()


async def test_a_stopped_runtime_does_not_start_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A request that comes in after the stop starts nothing."""
    runtime = runtime_at(tmp_path / "data")
    await runtime.close()
    runtime.ensure_started()
    assert "memory.start" not in caplog.text


async def test_bad_settings_are_logged_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A variable that cannot be read is named in the log."""
    runtime = runtime_at(tmp_path, OMNIROUTE_MEMORY_SCOPE="galaxy")
    runtime.ensure_started()
    await runtime.close()
    assert "OMNIROUTE_MEMORY_SCOPE" in caplog.text


async def test_a_deadline_is_read(tmp_path: Path) -> None:
    """A deadline that the environment names is in force: none at all is always missed."""
    runtime = runtime_at(tmp_path, MEMORY_DEADLINE_MS="60000")
    runtime.open()
    remember(runtime)
    assert await place(runtime, arrive(runtime)) is not None
    await runtime.close()


def limit_pages(runtime: Runtime, *, more: int) -> None:
    """Let the file grow by so many pages, and no further."""
    with runtime.database.writing() as connection:
        pages = connection.execute("PRAGMA page_count").fetchall()[0][0]
        connection.execute(f"PRAGMA max_page_count = {int(str(pages)) + more}")
