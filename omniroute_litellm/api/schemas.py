"""The bodies of the REST API, in camel case on the wire."""

import json
from datetime import UTC, datetime
from typing import Annotated, Final, Literal, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue
from pydantic.alias_generators import to_camel

from omniroute_litellm.injection import render_line
from omniroute_litellm.store import HistoryEntry
from omniroute_litellm.text import storable
from omniroute_litellm.tokens import estimate_tokens
from omniroute_litellm.types import Memory, MemorySource, MemoryStatus, MemoryType, to_iso

MAX_CONTENT: Final = 8_000
MAX_KEY: Final = 200
MAX_ID: Final = 256
MAX_METADATA: Final = 16_384
MIN_YEAR: Final = 2_000
MAX_YEAR: Final = 9_000


def _filled(text: str) -> str:
    kept = storable(text).strip()
    if not kept:
        message = "expected visible text"
        raise ValueError(message)
    return kept


def _small(metadata: dict[str, JsonValue]) -> dict[str, JsonValue]:
    try:
        text = json.dumps(metadata, allow_nan=False)
    except (ValueError, RecursionError) as error:
        message = "expected finite numbers and at most a few hundred levels"
        raise ValueError(message) from error
    if len(text) > MAX_METADATA:
        message = f"expected at most {MAX_METADATA} characters of JSON, got {len(text)}"
        raise ValueError(message)
    return cast("dict[str, JsonValue]", json.loads(json.dumps(_clean(metadata))))


def _clean(value: JsonValue) -> JsonValue:
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if isinstance(value, dict):
        return {storable(name): _clean(item) for name, item in value.items()}
    return value


def _plausible(moment: datetime) -> datetime:
    if not MIN_YEAR <= moment.year <= MAX_YEAR:
        message = f"expected a year from {MIN_YEAR} to {MAX_YEAR}"
        raise ValueError(message)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


Content = Annotated[str, Field(min_length=1, max_length=MAX_CONTENT), AfterValidator(_filled)]
Key = Annotated[str, Field(min_length=1, max_length=MAX_KEY), AfterValidator(_filled)]
Identifier = Annotated[str, Field(min_length=1, max_length=MAX_ID), AfterValidator(_filled)]
Metadata = Annotated[dict[str, JsonValue], AfterValidator(_small)]
Moment = Annotated[datetime, AfterValidator(_plausible)]
SortName = Literal["updated", "created", "key", "type", "used"]


class Body(BaseModel):
    """Base of every body: camel case outside, unknown fields refused."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True
    )


class MemoryBody(Body):
    """A memory as the API shows it. ``tokens`` is the cost of its line in a block."""

    id: str
    api_key_id: str
    session_id: str | None
    type: MemoryType
    key: str
    content: str
    metadata: dict[str, JsonValue]
    created_at: str
    updated_at: str
    expires_at: str | None
    status: MemoryStatus
    source: MemorySource
    pinned: bool
    last_seen_at: str
    access_count: int
    last_accessed_at: str | None
    needs_reindex: bool
    tokens: int

    @classmethod
    def of(cls, memory: Memory) -> "MemoryBody":
        """Render a memory."""
        return cls(
            id=memory.id,
            api_key_id=memory.owner,
            session_id=memory.session_id,
            type=memory.type,
            key=memory.key,
            content=memory.content,
            metadata=dict(memory.metadata),
            created_at=to_iso(memory.created_at),
            updated_at=to_iso(memory.updated_at),
            expires_at=_iso(memory.expires_at),
            status=memory.status,
            source=memory.source,
            pinned=memory.pinned,
            last_seen_at=to_iso(memory.last_seen_at),
            access_count=memory.access_count,
            last_accessed_at=_iso(memory.last_accessed_at),
            needs_reindex=memory.needs_reindex,
            tokens=estimate_tokens(render_line(memory.content)),
        )


class CacheStats(Body):
    """Counters of the embedding cache."""

    hits: int
    misses: int
    size: int


class Stats(Body):
    """Counts over the listed owner, or over all."""

    total: int
    by_type: dict[MemoryType, int]
    tokens_used: int
    hit_rate: float
    cache_stats: CacheStats


class MemoryList(Body):
    """One page of memories."""

    data: list[MemoryBody]
    total: int
    page: int
    limit: int
    total_pages: int
    stats: Stats


class NewMemory(Body):
    """A memory to store. Without a key, one is derived from the content."""

    content: Content
    key: Key | None = None
    type: MemoryType = MemoryType.FACTUAL
    session_id: Identifier | None = None
    api_key_id: Identifier | None = None
    metadata: Metadata = Field(default_factory=dict[str, JsonValue])
    expires_at: Moment | None = None
    pinned: bool = False


class StoredMemory(Body):
    """What storing did."""

    success: bool
    id: str
    created: bool
    memory: MemoryBody


class MemoryEdit(Body):
    """What to change; a field that is left out stays. ``updatedAt`` is what the editor saw.

    Only ``expiresAt`` may be null: the memory is permanent then.
    """

    type: MemoryType = MemoryType.FACTUAL
    key: Key = ""
    content: Content = ""
    metadata: Metadata = Field(default_factory=dict[str, JsonValue])
    expires_at: Moment | None = None
    pinned: bool = False
    status: MemoryStatus = MemoryStatus.ACTIVE
    updated_at: Moment | None = None

    def values(self) -> dict[str, object]:
        """Return the fields that the caller sent, without the token."""
        sent = self.model_fields_set - {"updated_at"}
        return {name: getattr(self, name) for name in sent}


class OneMemory(Body):
    """One memory."""

    memory: MemoryBody


class EditedMemory(Body):
    """What an edit left."""

    success: bool
    memory: MemoryBody


class Success(Body):
    """It is done."""

    success: bool


class HistoryItem(Body):
    """What one change replaced."""

    at: str
    action: Literal["update", "delete"]
    actor: str
    before: dict[str, JsonValue]

    @classmethod
    def of(cls, entry: HistoryEntry) -> "HistoryItem":
        """Render a history entry."""
        # The integer key never leaves the process.
        before = {name: value for name, value in entry.before.items() if name != "pk"}
        return cls(at=to_iso(entry.at), action=entry.action, actor=entry.actor, before=before)


class HistoryList(Body):
    """What was replaced, newest first."""

    data: list[HistoryItem]


class Coverage(Body):
    """How many memories the indexes hold."""

    total: int
    indexed: int
    failed: int


class TierHealth(Body):
    """One tier: whether it answers, and why not."""

    name: str
    available: bool
    reason: str | None


class HealthFault(Body):
    """An operation that fails, or failed lately."""

    operation: str
    reason: str
    message: str
    since: str
    last: str
    count: int


class OutboxHealth(Body):
    """Exchanges that wait for extraction, those set aside, and those that wait for the disk."""

    waiting: int
    set_aside: int
    backlog: int


class RefusedForms(Body):
    """A deployment that refused memory: each form, and since when."""

    deployment: str
    forms: dict[str, str]


class HealthReport(Body):
    """Whether memory works, proven by a round trip, and what fails at present."""

    working: bool
    latency_ms: float
    error: str | None
    coverage: Coverage
    tiers: list[TierHealth]
    faults: list[HealthFault]
    last_errors: list[HealthFault]
    outbox: OutboxHealth | None
    refusals: list[RefusedForms]
    workers: int
    counters: dict[str, int]
    data_directory: str
    version: str


class SettingState(Body):
    """A setting's value, where it came from, and whether the environment pins it."""

    value: JsonValue
    source: Literal["environment", "database", "default"]
    pinned: bool


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else to_iso(moment)
