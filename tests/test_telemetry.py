"""Metrics and spans: what they say, and that they hold no content."""

from collections.abc import Iterator
from typing import Final

import pytest
from opentelemetry import trace as otel
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry, generate_latest

from omniroute_litellm.errors import BackendUnavailableError
from omniroute_litellm.health import Health
from omniroute_litellm.receipt import Outcome, Receipt
from omniroute_litellm.retrieval import Retriever
from omniroute_litellm.sqlite import Database
from omniroute_litellm.telemetry import Metrics, process_metrics, span
from omniroute_litellm.vectors.base import VectorTier
from tests.fakes import FakeClock, ListIndex, TopicEmbedder
from tests.test_lookup import FIRST, Desk
from tests.test_trace import KEPT, answered, failed, trace

EXPORTER: Final = InMemorySpanExporter()


@pytest.fixture(scope="module", autouse=True)
def configured_sdk() -> None:
    """Configure an SDK, as an operator's process does: once, for good."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(EXPORTER))
    otel.set_tracer_provider(provider)


@pytest.fixture(autouse=True)
def no_spans() -> Iterator[None]:
    """Begin without spans."""
    EXPORTER.clear()
    yield
    EXPORTER.clear()


class Scrape:
    """A registry of its own and what a scrape of it says."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.metrics = Metrics(self.registry)

    def value(self, name: str, **labels: str) -> float | None:
        """Return one sample."""
        return self.registry.get_sample_value(f"omniroute_memory_{name}", labels)


def test_requests_are_counted_by_outcome_and_reason() -> None:
    """Every request counts once, with what it carried."""
    scrape = Scrape()
    scrape.metrics.request(Receipt(Outcome.INJECTED, injected=3, tokens=70))
    scrape.metrics.request(Receipt(Outcome.DEGRADED, reason="deadline"))
    assert scrape.value("requests_total", outcome="injected", reason="") == 1
    assert scrape.value("requests_total", outcome="degraded", reason="deadline") == 1
    assert scrape.value("injected_memories_total") == 3
    assert scrape.value("injected_tokens_total") == 70


def test_tiers_are_timed_apart() -> None:
    """A tier that failed is told from one that answered."""
    scrape = Scrape()
    tiers = (answered("keyword"), failed("vector", "embedding_down"))
    scrape.metrics.retrieval(trace(KEPT, tiers=tiers))
    assert scrape.value("retrieval_seconds_count") == 1
    assert scrape.value("tier_seconds_count", tier="keyword", answered="true") == 1
    assert scrape.value("tier_seconds_count", tier="vector", answered="false") == 1


def test_health_feeds_events_and_faults() -> None:
    """What the health report counts is in the metrics as well."""
    scrape = Scrape()
    health = Health(clock=FakeClock(), metrics=scrape.metrics)
    health.count("memory.capture.stored", 2)
    health.failed("memory.outbox", BackendUnavailableError("held", reason="database_locked"))
    assert scrape.value("events_total", event="memory.capture.stored") == 2
    faults = {"operation": "memory.outbox", "reason": "database_locked"}
    assert scrape.value("faults_total", **faults) == 1


def test_what_waits_is_a_gauge() -> None:
    """The queue is shown as it is now; an extraction is timed."""
    scrape = Scrape()
    scrape.metrics.queue(waiting=4, set_aside=1, backlog=2)
    scrape.metrics.queue(waiting=3, set_aside=1, backlog=0)
    scrape.metrics.extraction(0.01)
    assert scrape.value("outbox_exchanges", state="waiting") == 3
    assert scrape.value("outbox_exchanges", state="set_aside") == 1
    assert scrape.value("backlog_exchanges") == 0
    assert scrape.value("extraction_seconds_count") == 1


def test_no_content_is_exported() -> None:
    """A scrape holds codes and figures, no memory."""
    scrape = Scrape()
    scrape.metrics.retrieval(trace(KEPT, tiers=(answered("keyword"),)))
    assert KEPT.memory.content not in generate_latest(scrape.registry).decode()


def test_the_process_has_one_set() -> None:
    """A second runtime in a process registers nothing twice."""
    assert process_metrics() is process_metrics()


def test_a_span_names_the_kind_of_its_error_alone() -> None:
    """The message of an error may hold content and stays out."""
    with pytest.raises(ValueError, match="secret"), span("memory.test"):
        int("secret words")
    (finished,) = EXPORTER.get_finished_spans()
    assert finished.name == "memory.test"
    assert finished.attributes is not None
    assert finished.attributes["error.type"] == "ValueError"
    assert "secret" not in finished.to_json()


async def test_a_request_is_told_in_spans(database: Database) -> None:
    """Retrieval with what it asked of a model, then the placement; figures and codes alone."""
    desk = Desk(database, OMNIROUTE_MEMORY_STRATEGY="semantic")
    desk.know("I drink green tea")
    embedder = TopicEmbedder(is_down=True)
    tier = VectorTier(ListIndex(), embedder)
    desk.retriever = Retriever(desk.store, clock=desk.clock, vectors=lambda: tier)
    await desk.ask(FIRST)
    desk.executor.shutdown()
    spans = {finished.name: finished for finished in EXPORTER.get_finished_spans()}
    assert set(spans) == {"memory.embed", "memory.retrieve", "memory.inject"}
    retrieve = spans["memory.retrieve"]
    parent = spans["memory.embed"].parent
    assert parent is not None
    context = retrieve.get_span_context()
    assert context is not None
    assert parent.span_id == context.span_id
    assert retrieve.attributes is not None
    assert retrieve.attributes["memory.tier"] == "keyword"
    assert retrieve.attributes["memory.found"] == 1
    placed = spans["memory.inject"].attributes
    assert placed is not None
    assert placed["memory.placement"] == "leading"
    assert not any("tea" in finished.to_json() for finished in spans.values())
