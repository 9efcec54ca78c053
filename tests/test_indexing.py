"""The worker: from a stored memory to one that is found by meaning, whatever happens between."""

import threading
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import pytest

from omniroute_litellm.embedding.base import (
    EmbedderUnavailableError,
    TextRefusedError,
    unit_rows,
)
from omniroute_litellm.engine import Engine
from omniroute_litellm.errors import ConflictError, ContractError, NotFoundError
from omniroute_litellm.indexing import SHORTEST_PAUSE_S, Indexer
from omniroute_litellm.live_settings import LiveSettings
from omniroute_litellm.sqlite import Database
from omniroute_litellm.sqlite_store import SqliteMemoryStore
from omniroute_litellm.types import OwnerId
from omniroute_litellm.variables import read_variables
from omniroute_litellm.vectors.base import NoTier, VectorTier
from omniroute_litellm.vectors.work import WorkCounts
from tests.embedding.models import FakeCalls
from tests.fakes import FakeClock, FakeTimer
from tests.unit.fakes import alive_at, draft, put, scope_of
from tests.vectors.building import near

TOPICS: Final = ("tea", "jazz", "code")


class TopicCalls(FakeCalls):
    """The proxy's models: one axis a topic, and faults on request."""

    def __init__(self, *, dimension: int = len(TOPICS)) -> None:
        super().__init__()
        self.dimension = dimension
        self.fault: Exception | None = None
        self.refused = ""
        self.hold: Callable[[], object] = lambda: None

    def embed(
        self, model: str, texts: Sequence[str], *, owner: object, timeout_s: float
    ) -> Sequence[Sequence[float]]:
        """Say which topics each text names."""
        self.asked.append((model, list(texts), owner, timeout_s))
        self.hold()
        if self.fault is not None:
            raise self.fault
        if self.refused and any(self.refused in text for text in texts):
            message = "too long"
            raise TextRefusedError(message)
        rows = [[float(topic in text) for topic in TOPICS] for text in texts]
        return [[*row, *[0.0] * (self.dimension - len(row))] for row in rows]


class Process:
    """What one worker process has of the semantic tier."""

    def __init__(
        self,
        database: Database,
        clock: FakeClock,
        calls: TopicCalls | None = None,
        *,
        worker: str = "one",
        **environ: str,
    ) -> None:
        self.clock = clock
        self.calls = calls or TopicCalls()
        self.database = database
        self.store = SqliteMemoryStore(database, clock=clock)
        chosen = {"OMNIROUTE_MEMORY_EMBEDDING_PROVIDER_MODEL": "p/one", **environ}
        names = {name: text for name, text in chosen.items() if text}
        self.settings = LiveSettings(database, environ=names, clock=clock)
        variables = read_variables(names, data_directory=database.path.parent)
        self.engine = Engine(
            database, self.store, self.settings, variables, self.calls, clock=clock, worker=worker
        )
        self.indexer: Indexer = self.engine.indexer

    def settle(self, *, most: int = 1_000) -> int:
        """Work until nothing is left; return how many steps that took."""
        for step in range(most):
            if not self.indexer.step():
                self.engine.semantic.refresh()
                return step
        message = "the worker never rests"
        raise AssertionError(message)

    def found(self, text: str) -> list[str]:
        """Return the keys that are near a text."""
        tier = self.engine.semantic.refresh().tier
        assert isinstance(tier, VectorTier), tier
        nearest = tier.index.search(
            tier.embedder.embed(text), scope=scope_of(), alive=alive_at(self.clock()), limit=10
        )
        return near(nearest)

    @property
    def reason(self) -> str | None:
        """Why nothing answers."""
        tier = self.engine.semantic.refresh().tier
        assert isinstance(tier, NoTier)
        return tier.reason


@pytest.fixture
def process(database: Database, clock: FakeClock) -> Process:
    """Hand out one process."""
    return Process(database, clock)


def away(
    reason: str = "remote_unreachable", *, is_passing: bool = True
) -> EmbedderUnavailableError:
    """Return the error of a model that is away."""
    return EmbedderUnavailableError("away", reason=reason, hint="wait", is_passing=is_passing)


class TestFilling:
    """Writes reach the index."""

    def test_a_stored_memory_is_found(self, process: Process) -> None:
        """From nothing: measured, built, swapped in, found."""
        put(process.store, draft("a", "I drink tea"))
        assert process.reason == "index_building"
        process.settle()
        assert process.found("tea") == ["a"]
        tables = process.engine.semantic.current.tables
        assert tables.active is not None
        assert tables.active.signature == "remote:p/one:3"
        put(process.store, draft("b", "green tea"))
        process.settle()
        assert process.found("tea") == ["b", "a"]

    def test_without_memories_nothing_is_asked(self, process: Process) -> None:
        """An empty store begins no table and costs no call."""
        process.settle()
        assert process.calls.asked == []

    def test_calls_are_charged_to_the_owner(self, process: Process) -> None:
        """Memories of two owners are embedded by calls of each."""
        for number in range(3):
            put(process.store, draft(f"a{number}", "tea", owner=OwnerId("ann")))
        put(process.store, draft("b", "jazz", owner=OwnerId("bob")))
        process.settle()
        calls = [(owner, len(texts)) for _, texts, owner, _ in process.calls.asked]
        assert calls == [("ann", 1), ("ann", 3), ("bob", 1)]

    def test_two_processes_never_embed_one_memory_twice(
        self, database: Database, clock: FakeClock
    ) -> None:
        """Side by side, each memory costs one call at most."""
        calls = TopicCalls()
        store = SqliteMemoryStore(database, clock=clock)
        for number in range(300):
            put(store, draft(f"k{number}", f"tea number {number}"))
        pair = [Process(database, clock, calls, worker=name) for name in ("one", "two")]
        pair[0].indexer.step()
        before = len(calls.asked)
        threads = [threading.Thread(target=each.settle) for each in pair]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        texts = [text for _, asked, _, _ in calls.asked[before:] for text in asked]
        repeated = len(texts) - len(set(texts))
        assert repeated <= 1, "only the first memory, on which the dimension is measured"
        for each in pair:
            assert each.found("tea")[:1] == ["k299"]

    def test_a_poisoned_memory_is_set_aside(self, process: Process, clock: FakeClock) -> None:
        """What the model refuses does not hold the others up, and is shown."""
        process.calls.refused = "poison"
        put(process.store, draft("good", "I drink tea"))
        bad = put(process.store, draft("bad", "poison"))
        put(process.store, draft("fine", "I hear jazz"))
        for _ in range(6):
            process.settle()
            clock.move(hours=1)
        assert process.found("tea") == ["good"]
        assert process.found("jazz") == ["fine"]
        coverage = process.engine.reindexer.coverage()
        assert (coverage.total, coverage.indexed, coverage.failed) == (3, 2, 1)
        (aside,) = process.engine.reindexer.set_aside(limit=10)
        assert (aside.memory_id, aside.error) == (bad.id, "TextRefusedError: too long")
        process.calls.refused = ""
        process.engine.reindexer.start(force=False)
        process.settle()
        assert process.engine.reindexer.coverage().indexed == 3

    def test_nonsense_from_the_model_is_no_vector(self, process: Process, clock: FakeClock) -> None:
        """An answer of the wrong count fails the memory, not the worker."""
        put(process.store, draft("a", "I drink tea"))
        process.settle()
        process.calls.fault = ContractError("one vector for two texts")
        put(process.store, draft("b", "tea too"))
        process.settle()
        active = process.engine.semantic.current.tables.active
        assert active is not None
        assert process.engine.work.counts(active) == WorkCounts(waiting=1, failed=0)
        process.calls.fault = None
        clock.move(minutes=5)
        process.settle()
        assert process.found("tea") == ["b", "a"]

    def test_a_lost_vector_comes_back_after_a_search(
        self, process: Process, database: Database
    ) -> None:
        """Lazy backfill: the search notices, the worker mends."""
        put(process.store, draft("a", "I drink tea"))
        process.settle()
        active = process.engine.semantic.current.tables.active
        assert active is not None
        with database.writing() as connection:
            connection.execute(f"DELETE FROM {active.name}")
        assert process.found("tea") == []
        process.settle()
        assert process.found("tea") == ["a"]


class TestFaults:
    """A model that is away costs time, not memories."""

    def test_it_is_left_alone_for_a_while(self, process: Process, clock: FakeClock) -> None:
        """Each failure doubles the pause; no memory is charged a try for it."""
        timer = FakeTimer()
        process.indexer._timer = timer  # pyright: ignore[reportPrivateUsage] - time alone
        put(process.store, draft("a", "I drink tea"))
        process.settle()
        process.calls.fault = away()
        put(process.store, draft("b", "tea"))
        pause = SHORTEST_PAUSE_S
        for _ in range(3):
            with pytest.raises(EmbedderUnavailableError):
                process.indexer.step()
            asked = len(process.calls.asked)
            timer.now += pause - 0.01
            assert not process.indexer.step()
            assert len(process.calls.asked) == asked
            timer.now += 0.02
            pause *= 2
        process.calls.fault = None
        process.settle()
        assert process.found("tea") == ["b", "a"]

    def test_another_model_is_asked_at_once(self, process: Process) -> None:
        """A pause belongs to the model that was away."""
        process.calls.fault = away("key_missing", is_passing=False)
        put(process.store, draft("a", "I drink tea"))
        with pytest.raises(EmbedderUnavailableError):
            process.indexer.step()
        process.settings.change({"embeddingSource": "static"})
        process.settle()
        tables = process.engine.semantic.current.tables
        assert tables.active is not None
        assert tables.active.spec.source == "static"

    def test_a_crash_in_the_middle_is_repaired(self, database: Database, clock: FakeClock) -> None:
        """What a process had leased when it died is embedded by the next one."""

        class Killed(BaseException):
            """The process is gone."""

        calls = TopicCalls()
        first = Process(database, clock, calls)
        put(first.store, draft("a", "I drink tea"))
        first.settle()
        put(first.store, draft("b", "more tea"))

        def die() -> None:
            raise Killed

        calls.hold = die
        with pytest.raises(Killed):
            first.indexer.step()
        calls.hold = lambda: None
        clock.move(minutes=3)
        second = Process(database, clock, calls, worker="two")
        second.settle()
        assert second.found("tea") == ["b", "a"]


class TestSwitching:
    """Another model, another quantization, no model at all."""

    def test_words_answer_until_the_new_table_is_whole(self, process: Process) -> None:
        """The old table answers no query of another model; it goes when the new one is whole."""
        for number in range(5):
            put(process.store, draft(f"k{number}", f"tea {number}"))
        process.settle()
        process.settings.change({"embeddingSource": "static"})
        assert process.reason == "index_building"
        process.settle()
        tables = process.engine.semantic.current.tables
        assert tables.active is not None
        assert tables.active.signature == "static:static256:256"
        assert process.engine.reindexer.coverage().indexed == 5
        with process.database.reading() as connection:
            rows = connection.execute(
                "SELECT count(*) FROM sqlite_master WHERE sql LIKE 'CREATE VIRTUAL TABLE memory_v%'"
            ).fetchall()
        assert rows[0][0] == 1

    def test_another_quantization_changes_nothing_for_queries(
        self, database: Database, clock: FakeClock
    ) -> None:
        """Numbers of the same model compare: the old table answers until the new one is whole."""
        calls = TopicCalls()
        old = Process(database, clock, calls)
        for number in range(5):
            put(old.store, draft(f"k{number}", f"tea {number}"))
        old.settle()
        new = Process(database, clock, calls, MEMORY_VEC_QUANTIZATION="int8")
        assert len(new.found("tea")) == 5
        new.indexer.step()
        put(new.store, draft("late", "late tea"))
        assert len(new.found("tea")) == 5
        new.settle()
        tables = new.engine.semantic.current.tables
        assert tables.active is not None
        assert tables.active.signature == "remote:p/one:3:int8"
        assert new.found("tea")[0] == "late"

    def test_a_model_that_changed_behind_its_name_gets_a_new_table(self, process: Process) -> None:
        """Another dimension is another table; queries say so meanwhile."""
        put(process.store, draft("a", "I drink tea"))
        process.settle()
        process.calls.dimension = 5
        tier = process.engine.semantic.current.tier
        assert isinstance(tier, VectorTier)
        with pytest.raises(EmbedderUnavailableError, match="5 numbers"):
            tier.embedder.embed("something new")
        put(process.store, draft("b", "tea"))
        process.settle()
        assert process.found("tea") == ["b", "a"]
        tables = process.engine.semantic.current.tables
        assert tables.active is not None
        assert tables.active.dimension == 5

    def test_no_model_is_no_fault(self, database: Database, clock: FakeClock) -> None:
        """Who turns every source off gets words alone, without a reason."""
        process = Process(
            database,
            clock,
            OMNIROUTE_MEMORY_EMBEDDING_PROVIDER_MODEL="",
            OMNIROUTE_MEMORY_STATIC_ENABLED="false",
        )
        put(process.store, draft("a", "I drink tea"))
        process.settle()
        assert process.reason is None

    def test_auto_falls_back_and_says_so(self, database: Database, clock: FakeClock) -> None:
        """Without a key for the named model the table answers, and the reason is known."""
        calls = TopicCalls()
        calls.against = "key_missing"
        process = Process(database, clock, calls)
        put(process.store, draft("a", "I drink tea"))
        process.settle()
        choice = process.engine.semantic.current.choice
        assert choice.embedder is not None
        assert (choice.embedder.source, choice.reason) == ("static", "key_missing")
        assert "p/one" in choice.hint

    def test_remote_without_a_key_is_a_reason(self, database: Database, clock: FakeClock) -> None:
        """Asked for by name, nothing else takes its place."""
        calls = TopicCalls()
        calls.against = "key_missing"
        process = Process(database, clock, calls, OMNIROUTE_MEMORY_EMBEDDING_SOURCE="remote")
        assert process.reason == "key_missing"
        with pytest.raises(EmbedderUnavailableError) as caught:
            process.engine.reindexer.start(force=True)
        assert caught.value.reason == "key_missing"


class TestReindex:
    """On request."""

    def test_force_makes_all_anew(self, process: Process, clock: FakeClock) -> None:
        """Progress is shown, the old vectors answer meanwhile, a second request is refused."""
        for number in range(100):
            put(process.store, draft(f"k{number}", f"tea {number}"))
        process.settle()
        started = process.engine.reindexer.start(force=True)
        assert (started.started, started.pending) == (True, 100)
        with pytest.raises(ConflictError):
            process.engine.reindexer.start(force=True)
        with pytest.raises(ConflictError):
            process.engine.reindexer.start(force=False)
        process.indexer.step()
        process.indexer.step()
        clock.move(seconds=8)
        job = process.engine.reindexer.job()
        assert job is not None
        assert (job.id, job.total, job.done, job.failed) == (started.job_id, 100, 64, 0)
        assert job.rate is not None
        assert 7 < job.rate < 8.1
        assert len(process.found("tea")) == 10
        process.settle()
        assert process.engine.reindexer.job() is None
        assert process.engine.reindexer.coverage().indexed == 100

    def test_cancel_leaves_what_answers(self, process: Process) -> None:
        """A cancelled build is gone, and does not begin again by itself."""
        put(process.store, draft("a", "I drink tea"))
        process.settle()
        process.engine.reindexer.start(force=True)
        process.engine.reindexer.cancel()
        with pytest.raises(NotFoundError):
            process.engine.reindexer.cancel()
        process.settle()
        assert process.found("tea") == ["a"]

    def test_a_cancelled_change_of_model_waits_for_a_request(self, process: Process) -> None:
        """It begins again when somebody asks for it, or when settings name another model."""
        put(process.store, draft("a", "I drink tea"))
        process.settle()
        process.settings.change({"embeddingSource": "static"})
        process.indexer.step()
        process.engine.reindexer.cancel()
        process.settle()
        assert process.reason == "index_building"
        process.engine.reindexer.start(force=False)
        process.settle()
        assert process.engine.semantic.current.tables.active is not None
        assert process.engine.reindexer.coverage().indexed == 1
        assert isinstance(process.engine.semantic.current.tier, VectorTier)

    def test_an_empty_store_has_nothing_to_do(self, process: Process) -> None:
        """Neither force nor a plain request begins a table without memories."""
        for force in (True, False):
            started = process.engine.reindexer.start(force=force)
            assert (started.started, started.pending, started.job_id) == (False, 0, "")

    def test_rows_are_counted_in_the_table(self, process: Process) -> None:
        """The count is that of the vectors there are."""
        for number in range(3):
            put(process.store, draft(f"k{number}", "tea"))
        process.settle()
        active = process.engine.semantic.current.tables.active
        assert active is not None
        assert process.engine.reindexer.row_count(active) == 3


def test_a_table_that_was_swapped_away_is_a_reason(process: Process) -> None:
    """A process that has not noticed a swap yet says so for a moment; no request fails."""
    put(process.store, draft("a", "I drink tea"))
    process.settle()
    stale = process.engine.semantic.current.tier
    assert isinstance(stale, VectorTier)
    process.engine.reindexer.start(force=True)
    while process.indexer.step():
        pass
    vector = unit_rows(np.array([[1, 0, 0]], dtype=np.float32))[0]
    with pytest.raises(Exception, match="swapped") as caught:
        stale.index.search(vector, scope=scope_of(), alive=alive_at(process.clock()), limit=1)
    assert getattr(caught.value, "reason", "") == "index_swapped"
