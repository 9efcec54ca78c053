"""The record of requests: bounded in time, written in batches, free of content."""

import json
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, cast

from omniroute_litellm.request_state import RequestState
from omniroute_litellm.sqlite import Connection, Database, Value
from omniroute_litellm.store import Uses
from omniroute_litellm.trace import memory_ids
from omniroute_litellm.types import Clock, JsonObject, JsonValue, MemoryId, OwnerId, to_iso

MAX_BUFFERED: Final = 10_000
MAX_CANDIDATES: Final = 40
"""Candidates that a record names: the first ones are those that were injected."""

_ADD: Final = """
INSERT INTO traces (id, api_key_id, at, model, outcome, injected, tokens, retrieved, detail)
VALUES (:id, :owner, :at, :model, :outcome, :injected, :tokens, :retrieved, :detail)
ON CONFLICT (id) DO NOTHING
"""
_PURGE: Final = "DELETE FROM traces WHERE at < :before"
_HIT_RATE: Final = """
SELECT count(*), coalesce(sum(injected > 0), 0) FROM traces
WHERE at >= :since AND retrieved = 1 AND (:owner IS NULL OR api_key_id = :owner)
"""


@dataclass(frozen=True, slots=True)
class HitRate:
    """Requests with a retrieval, and those of them in which something was injected."""

    retrieved: int
    injected: int

    @property
    def share(self) -> float:
        """The share of requests with a hit, in [0, 1]; 0 without requests."""
        return self.injected / self.retrieved if self.retrieved else 0.0


class TraceLog:
    """Takes the record of a request at once and writes it later, off the request path.

    Records are derived: when the buffer is full the oldest go, as does one that no store takes,
    and ``dropped`` counts them.
    """

    def __init__(
        self,
        database: Database,
        *,
        clock: Clock,
        count_uses: Callable[[Connection, Sequence[Uses]], None],
    ) -> None:
        self._database = database
        self._clock = clock
        self._count_uses = count_uses
        self._lock = threading.Lock()
        self._buffer: deque[RequestState] = deque(maxlen=MAX_BUFFERED)
        self.dropped = 0

    def record(self, state: RequestState) -> None:
        """Remember a finished request, once."""
        if state.is_recorded or not state.is_live:
            return
        state.is_recorded = True
        with self._lock:
            if len(self._buffer) == MAX_BUFFERED:
                self.dropped += 1
            self._buffer.append(state)

    def flush(self) -> int:
        """Write what is buffered in one transaction and return how many; keep it on a failure."""
        with self._lock:
            batch = list(self._buffer)
        if not batch:
            return 0
        with self._database.writing() as connection:
            for state in batch:
                try:
                    self._write(connection, state)
                except ValueError:  # a value that no store takes, at no time
                    self.dropped += 1
            self._count_uses(connection, _uses(batch))
        with self._lock:
            for state in batch:
                if self._buffer and self._buffer[0] is state:
                    self._buffer.popleft()
                # A state lives on until its request is forgotten: this is most of its weight.
                state.trace = None
        return len(batch)

    def purge(self, *, days: int) -> int:
        """Drop records older than so many days and return how many went."""
        with self._database.writing() as connection:
            before = to_iso(self._clock() - timedelta(days=days))
            connection.execute(_PURGE, {"before": before})
            return connection.changes()

    def hit_rate(self, owner: OwnerId | None) -> HitRate:
        """Return the share of the last 24 hours' retrievals that injected something."""
        since = to_iso(self._clock() - timedelta(hours=24))
        with self._database.reading() as connection:
            rows = connection.execute(_HIT_RATE, {"since": since, "owner": owner}).fetchall()
        retrieved, injected = cast("tuple[int, int]", rows[0])
        return HitRate(retrieved, injected)

    def _write(self, connection: Connection, state: RequestState) -> None:
        receipt = state.receipt()
        values: dict[str, Value] = {
            "id": state.id,
            "owner": state.owner,
            "at": to_iso(state.started_at),
            "model": state.model,
            "outcome": receipt.outcome,
            "injected": receipt.injected,
            "tokens": receipt.tokens,
            "retrieved": int(state.trace is not None),
            "detail": json.dumps(_detail(state)),
        }
        connection.execute(_ADD, values)


def _uses(batch: Sequence[RequestState]) -> list[Uses]:
    """Return how often each memory was put into a request that had not carried it before."""
    found: dict[MemoryId, Uses] = {}
    for state in batch:
        if state.trace is None or state.form is None:
            continue
        for memory_id in memory_ids(state.trace):
            known = found.get(memory_id)
            last = state.started_at if known is None else max(known.last, state.started_at)
            found[memory_id] = Uses(memory_id, (known.count if known else 0) + 1, last)
    return list(found.values())


def _detail(state: RequestState) -> JsonObject:
    refused: list[JsonValue] = [*sorted(state.refused)]
    return {
        "callId": state.call_id,
        "reason": state.receipt().reason,
        "role": state.form,
        "placement": state.placed,
        "refused": refused,
        "repeated": sum(block.is_repeated for block in state.blocks) if state.form else 0,
        "trace": state.trace.to_json(limit=MAX_CANDIDATES) if state.trace else None,
    }
