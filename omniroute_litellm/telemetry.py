"""Prometheus metrics and OpenTelemetry spans of what memory does. No content, no owners, no keys.

Metrics go into a registry that somebody else serves: in the proxy LiteLLM's ``/metrics``. Spans
cost nothing until the process configures an OpenTelemetry SDK.
"""

import functools
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from opentelemetry import trace
from opentelemetry.trace import Span
from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

from omniroute_litellm.receipt import Receipt
from omniroute_litellm.trace import RetrievalTrace

PREFIX: Final = "omniroute_memory"
_TRACER: Final = trace.get_tracer("omniroute_litellm")
_BUCKETS_S: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.3, 0.6, 1.5, 5.0)


class Metrics:
    """The metrics of one process; durations are in seconds."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            f"{PREFIX}_requests",
            "Requests by what memory did: injected, none, off, degraded or error, and why.",
            ["outcome", "reason"],
            registry=registry,
        )
        self._injected = Counter(
            f"{PREFIX}_injected_memories", "Memories that requests carried.", registry=registry
        )
        self._tokens = Counter(
            f"{PREFIX}_injected_tokens",
            "Estimated tokens of the memory that requests carried.",
            registry=registry,
        )
        self._retrieval = Histogram(
            f"{PREFIX}_retrieval_seconds",
            "Time that finding memories took.",
            registry=registry,
            buckets=_BUCKETS_S,
        )
        self._tiers = Histogram(
            f"{PREFIX}_tier_seconds",
            "Time that one tier took, by whether it answered.",
            ["tier", "answered"],
            registry=registry,
            buckets=_BUCKETS_S,
        )
        self._extraction = Histogram(
            f"{PREFIX}_extraction_seconds",
            "Time from the lease of an exchange to its stored facts.",
            registry=registry,
            buckets=_BUCKETS_S,
        )
        self._events = Counter(
            f"{PREFIX}_events", "Events of the health report.", ["event"], registry=registry
        )
        self._faults = Counter(
            f"{PREFIX}_faults",
            "Failures that no request noticed, by operation and reason.",
            ["operation", "reason"],
            registry=registry,
        )
        self._outbox = Gauge(
            f"{PREFIX}_outbox_exchanges",
            "Exchanges that wait for extraction, and those set aside after five failures.",
            ["state"],
            registry=registry,
            multiprocess_mode="mostrecent",  # every process sees the same table
        )
        self._backlog = Gauge(
            f"{PREFIX}_backlog_exchanges",
            "Exchanges of this process that wait for the disk.",
            registry=registry,
            multiprocess_mode="livesum",
        )

    def request(self, receipt: Receipt) -> None:
        """Count a request by its receipt."""
        self._requests.labels(receipt.outcome, receipt.reason).inc()
        self._injected.inc(receipt.injected)
        self._tokens.inc(receipt.tokens)

    def retrieval(self, found: RetrievalTrace) -> None:
        """Time a retrieval and each tier that it asked."""
        self._retrieval.observe(found.ms / 1000)
        for tier in found.tiers:
            self._tiers.labels(tier.tier, str(tier.answered).lower()).observe(tier.ms / 1000)

    def extraction(self, seconds: float) -> None:
        """Time the extraction of one exchange."""
        self._extraction.observe(seconds)

    def event(self, event: str, by: int) -> None:
        """Count an event."""
        self._events.labels(event).inc(by)

    def fault(self, operation: str, reason: str) -> None:
        """Count a failure."""
        self._faults.labels(operation, reason).inc()

    def queue(self, *, waiting: int, set_aside: int, backlog: int) -> None:
        """Show what waits."""
        self._outbox.labels("waiting").set(waiting)
        self._outbox.labels("set_aside").set(set_aside)
        self._backlog.set(backlog)


@functools.cache
def process_metrics() -> Metrics:
    """Return the metrics in the registry of the process, the same ones at every call."""
    return Metrics(REGISTRY)


@contextmanager
def span(name: str) -> Generator[Span]:
    """Open a span of the configured OpenTelemetry SDK; without one this does nothing.

    An error is noted by its kind alone: messages may hold content.
    """
    with _TRACER.start_as_current_span(
        name, record_exception=False, set_status_on_exception=False
    ) as opened:
        try:
            yield opened
        except Exception as error:
            opened.set_attribute("error.type", type(error).__name__)
            raise
