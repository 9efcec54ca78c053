"""The composition root: builds every object, starts and stops the background work."""

import asyncio
import contextlib
import contextvars
import logging
import os
import secrets
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from omniroute_litellm import __version__
from omniroute_litellm.engine import Engine
from omniroute_litellm.errors import BackendUnavailableError
from omniroute_litellm.extraction.extractor import Extractor
from omniroute_litellm.fusion import Fuser
from omniroute_litellm.health import Health
from omniroute_litellm.learning import Learning
from omniroute_litellm.ledger import Ledger, Placed
from omniroute_litellm.live_settings import LiveSettings
from omniroute_litellm.lookup import Lookup
from omniroute_litellm.model_calls import ModelCalls
from omniroute_litellm.outbox import Outbox
from omniroute_litellm.paths import DATABASE_NAME, data_directory
from omniroute_litellm.probe import StoreProbe
from omniroute_litellm.recall import HEARTBEAT, LEDGER, OUTBOX, SETTINGS, TRACES, Patience, Recall
from omniroute_litellm.receipt import Outcome, Receipt
from omniroute_litellm.refusals import Refusals
from omniroute_litellm.replay import Replay
from omniroute_litellm.request_state import Delivery, RequestState, RequestStates
from omniroute_litellm.retrieval import Retriever
from omniroute_litellm.sign_in import KeyAuthority, SignIn
from omniroute_litellm.sqlite import Database
from omniroute_litellm.sqlite_store import SqliteMemoryStore
from omniroute_litellm.telemetry import Metrics, process_metrics
from omniroute_litellm.trace_log import TraceLog
from omniroute_litellm.types import Clock, utc_now
from omniroute_litellm.variables import read_variables
from omniroute_litellm.workers import Workers

if TYPE_CHECKING:
    from starlette.applications import Starlette

logger = logging.getLogger(__name__)

T = TypeVar("T")

TICK_S: Final = 1.0
HEARTBEAT_EVERY: Final = 5
PURGE_EVERY: Final = 3_600
DRAIN_TIMEOUT_S: Final = 10.0
INDEX_PAUSE_S: Final = 0.5
"""How long a new memory waits for its vector when nothing else does."""
_READERS: Final = 2
"""More retrievals at once only wait for each other's turn at the interpreter."""
_WAITERS: Final = 32
"""Retrievals that may wait for a remote model at once."""
INDEX: Final = "memory.index"
REFUSALS: Final = "memory.refusals"
PURGE: Final = "memory.purge"
QUEUE: Final = "memory.queue"


class Runtime:
    """Everything of one process: the objects, one writer thread, a few reader threads, one loop.

    ``authority`` tells who a key belongs to; ``calls`` reaches the models of the proxy, None where
    there is none. Nothing is opened before ``ensure_started`` or
    the first use, and no failure of the store comes out of here but as a value or a log line.
    """

    def __init__(
        self,
        *,
        environ: Mapping[str, str],
        authority: KeyAuthority,
        calls: ModelCalls | None = None,
        clock: Clock = utc_now,
        metrics: Metrics | None = None,
    ) -> None:
        self.clock = clock
        self.metrics = metrics or process_metrics()
        self.data_directory: Path = data_directory(environ)
        self.worker_id = f"{os.getpid()}-{secrets.token_hex(4)}"
        self.database = Database(self.data_directory / DATABASE_NAME)
        self.health = Health(clock=clock, metrics=self.metrics)
        self.settings = LiveSettings(self.database, environ=environ, clock=clock)
        self.store = SqliteMemoryStore(self.database, clock=clock)
        variables = read_variables(environ, data_directory=self.data_directory)
        for problem in variables.problems:
            logger.error("memory.settings.invalid: %s", problem)
        self.engine = Engine(
            self.database,
            self.store,
            self.settings,
            variables,
            calls,
            clock=clock,
            worker=self.worker_id,
        )
        self.retriever = Retriever(
            self.store,
            clock=clock,
            vectors=self.engine.semantic.tier,
            rerank=self.engine.rerank,
            fuser=Fuser(rrf_k=variables.rrf_k, rrf_depth=variables.vec_top_k),
        )
        self.ledger = Ledger(self.database, clock=clock)
        self.outbox = Outbox(self.database, clock=clock, worker=self.worker_id)
        self.refusals = Refusals(self.database, clock=clock)
        self.workers = Workers(self.database, clock=clock, worker=self.worker_id)
        self.traces = TraceLog(self.database, clock=clock, count_uses=self.store.count_uses_within)
        self.learning = Learning(
            self.store,
            self.outbox,
            Extractor(),
            self.settings,
            self.health,
            clock=clock,
            metrics=self.metrics,
        )
        self.sign_in = SignIn(authority, self.settings, self.database)
        self.probe = StoreProbe(self.store, clock=clock)
        self.states = RequestStates()
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="omniroute-read")
        self._waiters = ThreadPoolExecutor(_WAITERS, thread_name_prefix="omniroute-wait")
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="omniroute-write")
        self._indexing = ThreadPoolExecutor(1, thread_name_prefix="omniroute-index")
        self.recall = Recall(
            Lookup(self.retriever, Replay(self.ledger, self.store, clock=clock)),
            self.settings,
            self.health,
            patience=self._patience,
            remember=self._remember,
            refusals=self.refusals,
            clock=clock,
        )
        self._task: asyncio.Task[None] | None = None
        self._index_task: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._is_closed = False

    def open(self) -> None:
        """Open the store and read the settings now, so that the first request finds them.

        Blocks for two seconds at most, while nothing is served yet. A fault is noted, and the
        background work tries again.
        """
        try:
            self.settings.refresh()
            self.refusals.refresh()
            self.engine.semantic.refresh()
        except Exception as error:
            # The start of the proxy: no fault of memory may keep it from serving.
            self.health.failed(SETTINGS, error)

    def ensure_started(self) -> None:
        """Start the background work in the running loop, once; later calls cost nothing."""
        if self._task is not None or self._is_closed:
            return
        for problem in self.settings.current.problems:
            logger.error("memory.settings.invalid: %s", problem)
        logger.warning("memory.start version=%s data=%s", __version__, self.data_directory)
        # A fresh context: a task made inside of a request would carry that request's state.
        loop = asyncio.get_running_loop()
        if self.engine.calls is not None:
            self.engine.calls.serve_from(loop)
        self._task = loop.create_task(
            self._run(), name="omniroute-memory", context=contextvars.Context()
        )
        self._index_task = loop.create_task(
            self._keep_indexed(), name="omniroute-index", context=contextvars.Context()
        )

    def stream_began(self, state: RequestState | None) -> None:
        """Note that the answer goes out in pieces from now on."""
        if state is not None:
            state.delivery = Delivery.UNDER_WAY

    def stream_ended(self, state: RequestState | None, *, is_whole: bool) -> None:
        """Note whether all of a stream was delivered; capture what waited for its end."""
        if state is None:
            return
        state.delivery = Delivery.WHOLE if is_whole else Delivery.CUT_OFF
        if is_whole and state.refused:
            self._soon(self.learn_refusal(state))
        if state.answer is not None:
            self._soon(self.capture(state, state.answer))

    def conclude(self, state: RequestState) -> Receipt:
        """Count and record a request whose answer is about to go out, once; return its receipt."""
        receipt = state.receipt()
        if not state.is_concluded:
            state.is_concluded = True
            self.metrics.request(receipt)
            if state.trace is not None:
                self.metrics.retrieval(state.trace)
            self.traces.record(state)
        return receipt

    async def learn_refusal(self, state: RequestState) -> None:
        """Remember which form a deployment refused, once the request passed without memory."""
        lesson = self.recall.lesson(state)
        if lesson is None:
            return
        deployment, form = lesson
        self.health.count("memory.injection.repeated")
        logger.warning("memory.injection.refused deployment=%s form=%s", deployment, form)
        await self._attempt(REFUSALS, lambda: self.refusals.learn(deployment, form))

    async def capture(self, state: RequestState, answer: str) -> None:
        """Write an answered exchange to the outbox and wake the extraction.

        Of an answer that was cut off nothing is learned: half a sentence may say the opposite.
        """
        if state.delivery is Delivery.UNDER_WAY:
            state.answer = answer
            return
        if state.delivery is Delivery.CUT_OFF:
            self.health.count("memory.capture.cut_off")
            answer = ""
        if await self.run_write(lambda: self.learning.capture(state, answer)):
            self._wake.set()

    def _remember(self, placed: Placed) -> None:
        self.ledger.put(placed)
        self._wake.set()

    def _soon(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)  # the loop itself holds tasks by weak references alone
        task.add_done_callback(self._tasks.discard)

    async def run_write(self, work: Callable[[], T]) -> T:
        """Run blocking work on the writer thread."""
        return await asyncio.get_running_loop().run_in_executor(self._writer, work)

    async def run_read(self, work: Callable[[], T]) -> T:
        """Run blocking work on a reader thread."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, work)

    def note_hook_success(self, hook: str) -> None:
        """Note that a hook works (again)."""
        self.health.succeeded(f"memory.hook.{hook}")

    def note_hook_fault(self, hook: str, error: Exception) -> None:
        """Count and log what went wrong in a hook, and say so in the request's receipt."""
        self.health.failed(f"memory.hook.{hook}", error)
        state = self.states.find()
        if state is not None:
            state.fail(Outcome.ERROR, "internal_error")

    def console(self) -> "Starlette":
        """Build the console over this runtime."""
        from omniroute_litellm.console.app import create_app

        return create_app(self)

    async def close(self) -> None:
        """Finish what is captured, give back what is leased, and close the store; once."""
        if self._is_closed:
            return
        self._is_closed = True
        tasks = [task for task in (self._task, self._index_task) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        try:
            async with asyncio.timeout(DRAIN_TIMEOUT_S):
                await self.run_write(self.learning.flush)
                await self._attempt(OUTBOX, self._drain)
                await self._attempt(TRACES, self.traces.flush)
                await self._attempt(LEDGER, self.ledger.flush)
                await self._attempt(HEARTBEAT, self._leave)
        except TimeoutError:
            logger.warning("memory.stop.timeout: the outbox keeps what is left for the next start")
        for executor in (self._readers, self._waiters, self._indexing):
            executor.shutdown(wait=False, cancel_futures=True)
        self._writer.shutdown(wait=False, cancel_futures=True)
        self.database.close()
        logger.warning("memory.stop")

    async def _run(self) -> None:
        tick = 0
        while True:
            await self._attempt(SETTINGS, self.settings.refresh, reads=True)
            await self._attempt(REFUSALS, self.refusals.refresh, reads=True)
            await self._attempt(INDEX, self.engine.semantic.refresh, reads=True)
            if tick % HEARTBEAT_EVERY == 0 or self.health.fault(HEARTBEAT):
                await self._attempt(HEARTBEAT, self.workers.beat)
                await self._attempt(QUEUE, self._show_queue, reads=True)
            if self.learning.backlog:
                await self.run_write(self.learning.flush)
            await self._attempt(TRACES, self.traces.flush)
            if tick % PURGE_EVERY == 0 or self.health.fault(PURGE):
                await self._attempt(PURGE, self._purge)
            tick += 1
            await self._learn_until(time.monotonic() + TICK_S)

    async def _keep_indexed(self) -> None:
        """Give every memory its vector, batch by batch, beside everything else."""
        while True:
            if not await self._attempt(INDEX, self.engine.indexer.step, executor=self._indexing):
                await asyncio.sleep(INDEX_PAUSE_S)

    async def _learn_until(self, ends: float) -> None:
        """Extract what waits, and what comes in, until a moment of the monotonic clock."""
        while (left := ends - time.monotonic()) > 0:
            if self.ledger.has_news:
                await self._attempt(LEDGER, self.ledger.flush)
            if await self._attempt(OUTBOX, self.learning.work):
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._wake.wait()
            self._wake.clear()

    def _patience(self) -> Patience:
        """Return how long a request waits for memory, and on which threads.

        A thread that waits for a remote model must not keep others from looking words up.
        """
        executor = self._waiters if self.engine.is_slow else self._readers
        return Patience(executor, self.engine.deadline_ms / 1000)

    async def _attempt(
        self,
        operation: str,
        work: Callable[[], object],
        *,
        reads: bool = False,
        executor: Executor | None = None,
    ) -> object:
        chosen = executor or (self._readers if reads else self._writer)
        try:
            done = await asyncio.get_running_loop().run_in_executor(chosen, work)
        except BackendUnavailableError as error:
            self.health.failed(operation, error)
        except Exception as error:
            # A background job's loop: the next round tries again.
            self.health.failed(operation, error)
        else:
            self.health.succeeded(operation)
            return done
        return None

    def _drain(self) -> None:
        while self.learning.work():
            pass

    def _show_queue(self) -> None:
        state = self.outbox.state()
        self.metrics.queue(
            waiting=state.waiting, set_aside=state.set_aside, backlog=self.learning.backlog
        )

    def _purge(self) -> None:
        values = self.settings.current.values
        self.outbox.purge()
        self.ledger.purge()
        self.refusals.purge()
        self.traces.purge(days=values.trace_days)
        self.store.purge_history(before=self.clock() - timedelta(days=values.history_days))

    def _leave(self) -> None:
        self.outbox.release()
        self.engine.work.give_back()
        self.workers.leave()
