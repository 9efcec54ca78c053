"""The way back: capture an exchange durably, extract its facts in the background, store them."""

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from omniroute_litellm.errors import BackendUnavailableError
from omniroute_litellm.extraction.extractor import Extractor
from omniroute_litellm.extraction.sources import MAX_CHARACTERS, spoken_prose
from omniroute_litellm.health import Health
from omniroute_litellm.live_settings import LiveSettings
from omniroute_litellm.outbox import Claimed, Outbox
from omniroute_litellm.recall import CAPTURE
from omniroute_litellm.request_state import RequestState
from omniroute_litellm.settings import Settings
from omniroute_litellm.sqlite import Connection
from omniroute_litellm.sqlite_store import SqliteMemoryStore
from omniroute_litellm.telemetry import Metrics, span
from omniroute_litellm.text import storable
from omniroute_litellm.types import (
    Clock,
    Exchange,
    Fact,
    MemoryDraft,
    MemorySource,
    Speaker,
    to_iso,
)

logger = logging.getLogger(__name__)

EXTRACT: Final = "memory.extraction.background"
BACKLOG_CAPACITY: Final = 1_000
_SOURCES: Final = {
    Speaker.USER: MemorySource.USER_MESSAGE,
    Speaker.ASSISTANT: MemorySource.LLM_RESPONSE,
}


class Learning:
    """Turns answered requests into memories.

    ``capture`` writes to the outbox; until that succeeded the exchange waits in a bounded backlog
    of this process. ``work`` drains the outbox. Both are synchronous and run on the one writer
    thread, so that they never compete for the database's lock with each other.
    """

    def __init__(
        self,
        store: SqliteMemoryStore,
        outbox: Outbox,
        extractor: Extractor,
        settings: LiveSettings,
        health: Health,
        *,
        clock: Clock,
        metrics: Metrics | None = None,
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._store = store
        self._outbox = outbox
        self._extractor = extractor
        self._settings = settings
        self._health = health
        self._clock = clock
        self._metrics = metrics
        self._timer = timer
        self._lock = threading.Lock()
        self._backlog: deque[Exchange] = deque()

    def capture(self, state: RequestState, answer: str) -> bool:
        """Store the exchange of a finished request durably, or keep it for the next try.

        Returns False when there was nothing to capture. Never raises. Most exchanges hold no
        fact: looking for one costs less than a write, so those never reach the disk.
        """
        exchange = self.exchange_of(state, answer)
        if exchange is None or not self._may_teach(exchange):
            return False
        with self._lock:
            if len(self._backlog) >= BACKLOG_CAPACITY:
                self._health.count("memory.capture.lost")
                return False
            self._backlog.append(exchange)
        self.flush()
        return True

    def _may_teach(self, exchange: Exchange) -> bool:
        try:
            return bool(self._facts_in(exchange))
        except Exception:
            # A background job's rule: what cannot be read now is kept, and counted when it is
            # taken from the outbox.
            return True

    def _facts_in(self, exchange: Exchange) -> Sequence[Fact]:
        settings = self._settings.current.values
        return self._extractor.extract_exchange(
            exchange.user_text, exchange.answer_text, sources=settings.extract_from
        )

    def exchange_of(self, state: RequestState, answer: str) -> Exchange | None:
        """Return what is to be captured of a finished request, or None: at most once each.

        Sections that nobody spoke (code, quotes, tags) are gone before anything is written.
        """
        settings = state.settings
        if state.is_captured or state.owner is None:
            return None
        state.is_captured = True
        if not (settings.extraction_enabled and state.mode.may_write):
            return None
        user_text = state.human_text if settings.extract_from != "assistant" else None
        answer_text = answer if settings.extract_from != "user" else ""
        user_prose, answer_prose = _prose(user_text or ""), _prose(answer_text)
        if not user_prose and not answer_prose:
            return None
        return Exchange(
            request_id=state.id,
            owner=state.owner,
            session_id=state.session,
            user_text=user_prose,
            answer_text=answer_prose,
            model=state.model,
            captured_at=self._clock(),
            is_resent=state.is_resent,
        )

    def flush(self) -> bool:
        """Move the backlog to the outbox; return False when something had to stay."""
        while True:
            with self._lock:
                if not self._backlog:
                    return True
                exchange = self._backlog[0]
            try:
                with span("memory.queue"):
                    self._outbox.add(exchange)
            except ValueError as error:
                # A value that no store takes, at no time: it must not keep the rest waiting.
                self._health.failed(CAPTURE, error)
                self._health.count("memory.capture.lost")
            except Exception as error:
                # A background job's loop: the exchange stays for the next try.
                self._health.failed(CAPTURE, error)
                return False
            else:
                self._health.count("memory.capture.stored")
                self._health.succeeded(CAPTURE)
            with self._lock:
                self._backlog.popleft()

    @property
    def backlog(self) -> int:
        """How many exchanges wait in this process for the disk."""
        return len(self._backlog)

    def work(self) -> bool:
        """Extract the oldest exchange; return False when none waits.

        One at a time, so that new captures get to the writer thread in between: what is not in
        the outbox yet would be lost with the process. Raises BackendUnavailableError.
        """
        claimed = self._outbox.claim(limit=1)
        if not claimed:
            return False
        started = self._timer()
        with span("memory.extract"):
            self._extract(claimed[0])
        if self._metrics is not None:
            self._metrics.extraction(self._timer() - started)
        return True

    def _extract(self, claimed: Claimed) -> None:
        exchange, settings = claimed.exchange, self._settings.current.values
        try:
            facts = self._facts_in(exchange)
            drafts = [_draft(fact, exchange, settings, at=to_iso(self._clock())) for fact in facts]
            self._outbox.settle(claimed, lambda connection: self._store_all(connection, drafts))
        except BackendUnavailableError:
            # The store's fault, not the exchange's: it costs none of its tries.
            with contextlib.suppress(BackendUnavailableError):
                self._outbox.give_back(claimed)
            raise
        except Exception as error:
            # A background job's loop: one bad exchange must not stop the rest.
            self._health.failed(EXTRACT, error)
            self._outbox.fail(claimed, error=type(error).__name__)
            return
        self._health.succeeded(EXTRACT)
        self._health.count("memory.extraction.facts", len(facts))
        logger.debug("memory.extraction.stored", extra={"facts": len(facts)})

    def _store_all(self, connection: Connection, drafts: Sequence[MemoryDraft]) -> None:
        for draft in drafts:
            self._store.upsert_within(connection, draft, actor="extraction")


def _prose(text: str) -> str:
    return storable(spoken_prose(text))[-MAX_CHARACTERS:].strip()


def _draft(fact: Fact, exchange: Exchange, settings: Settings, *, at: str) -> MemoryDraft:
    return MemoryDraft(
        owner=exchange.owner,
        type=fact.type,
        key=fact.key,
        content=fact.content,
        source=_SOURCES[fact.speaker],
        session_id=exchange.session_id,
        slot_session=exchange.session_id if settings.scope == "session" else None,
        metadata={
            "category": fact.category,
            "extractedAt": at,
            "source": _SOURCES[fact.speaker],
            "capture": fact.capture,
            "polarity": fact.polarity,
            "language": fact.language,
            "pattern": fact.pattern_id,
            "requestId": exchange.request_id,
        },
    )
