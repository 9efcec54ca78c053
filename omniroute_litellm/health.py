"""What went wrong lately, and how often: counted, logged once, shown."""

import logging
import threading
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from omniroute_litellm.errors import BackendUnavailableError
from omniroute_litellm.telemetry import Metrics
from omniroute_litellm.types import Clock

logger = logging.getLogger(__name__)

LOG_AGAIN_AFTER: Final = timedelta(minutes=1)
_KEPT_ERRORS: Final = 20


@dataclass(frozen=True, slots=True)
class Fault:
    """An operation that fails at present. ``reason`` is a machine code, ``message`` one line."""

    operation: str
    reason: str
    message: str
    since: datetime
    last: datetime
    count: int


class Health:
    """Counts events and remembers which operations fail, for this process and its metrics.

    A fault is logged when it begins, when its reason changes, and once a minute while it lasts:
    a full disk under load must not fill the log as well.
    """

    def __init__(self, *, clock: Clock, metrics: Metrics | None = None) -> None:
        self._clock = clock
        self._metrics = metrics
        self._lock = threading.Lock()
        self._counters: Counter[str] = Counter()
        self._faults: dict[str, Fault] = {}
        self._logged: dict[str, datetime] = {}
        self._recent: deque[Fault] = deque(maxlen=_KEPT_ERRORS)

    def count(self, event: str, by: int = 1) -> None:
        """Count an event."""
        with self._lock:
            self._counters[event] += by
        if self._metrics is not None:
            self._metrics.event(event, by)

    def failed(self, operation: str, error: BaseException) -> Fault:
        """Note that an operation failed, and log it in one line if that is news."""
        reason = error.reason if isinstance(error, BackendUnavailableError) else "internal_error"
        message = " ".join(str(error).split()) or type(error).__name__
        now = self._clock()
        if self._metrics is not None:
            self._metrics.fault(operation, reason)
        with self._lock:
            self._counters[f"{operation}.failed"] += 1
            known = self._faults.get(operation)
            if known is None or known.reason != reason:
                fault = Fault(operation, reason, message, since=now, last=now, count=1)
                self._recent.append(fault)
                is_news = True
            else:
                fault = replace(known, last=now, count=known.count + 1, message=message)
                is_news = now - self._logged[operation] >= LOG_AGAIN_AFTER
            self._faults[operation] = fault
            if is_news:
                self._logged[operation] = now
        if is_news:
            # An unforeseen error is a defect of ours: it gets its stack, a known one a line.
            trace = error if reason == "internal_error" else None
            logger.error("%s.failed reason=%s: %s", operation, reason, message, exc_info=trace)
        return fault

    def succeeded(self, operation: str) -> None:
        """Note that an operation works (again)."""
        if operation not in self._faults:
            return
        with self._lock:
            fault = self._faults.pop(operation, None)
        if fault is not None:
            logger.warning("%s.recovered after %d failures", operation, fault.count)

    def fault(self, *operations: str) -> Fault | None:
        """Return the first of the named operations' faults."""
        with self._lock:
            return next((self._faults[name] for name in operations if name in self._faults), None)

    @property
    def faults(self) -> list[Fault]:
        """The operations that fail at present."""
        with self._lock:
            return list(self._faults.values())

    @property
    def recent(self) -> list[Fault]:
        """The last faults that began, newest first, whether they last or not."""
        with self._lock:
            return list(reversed(self._recent))

    @property
    def counters(self) -> Mapping[str, int]:
        """How often each event happened in this process."""
        with self._lock:
            return dict(self._counters)
