"""The values that every part of the system speaks: ids, memories, scopes, facts."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, NewType

OwnerId = NewType("OwnerId", str)
MemoryId = NewType("MemoryId", str)
SessionId = NewType("SessionId", str)
TraceId = NewType("TraceId", str)

JsonValue = None | bool | int | float | str | list["JsonValue"] | dict[str, "JsonValue"]
JsonObject = dict[str, JsonValue]

Clock = Callable[[], datetime]

GLOBAL_OWNER: Final = OwnerId("global")
"""The shared owner that only an admin writes; read by everyone while the scope is ``global``."""


def utc_now() -> datetime:
    """Return the present moment in UTC."""
    return datetime.now(UTC)


def to_iso(moment: datetime) -> str:
    """Render a moment as ISO 8601 UTC with microseconds, so that text order is time order."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def from_iso(text: str) -> datetime:
    """Read an ISO 8601 moment; a moment without a zone counts as UTC. Raise ValueError else."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is UTC:  # what this package writes: nothing to convert
        return moment
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


class MemoryType(StrEnum):
    """What kind of knowledge a memory is."""

    FACTUAL = "factual"
    EPISODIC = "episodic"
    PROCEDURAL = "procedural"
    SEMANTIC = "semantic"


class MemoryStatus(StrEnum):
    """Whether a memory may be read: only active ones are."""

    ACTIVE = "active"
    QUARANTINED = "quarantined"
    SUPERSEDED = "superseded"
    ARCHIVED = "archived"


class MemorySource(StrEnum):
    """Where a memory came from."""

    USER_MESSAGE = "user_message"
    LLM_RESPONSE = "llm_response"
    MANUAL = "manual"
    MCP = "mcp"
    IMPORT = "import"
    SUMMARY = "summary"


@dataclass(frozen=True, slots=True)
class Memory:
    """One stored fact with everything that governs it.

    ``owner`` is whose it is; ``key`` its slot inside the owner; ``session_id`` the session it was
    learned in. ``updated_at`` has microseconds and serves as the stale-write token.
    """

    id: MemoryId
    owner: OwnerId
    session_id: SessionId | None
    type: MemoryType
    key: str
    content: str
    metadata: Mapping[str, JsonValue]
    created_at: datetime
    updated_at: datetime
    last_seen_at: datetime
    expires_at: datetime | None
    status: MemoryStatus
    source: MemorySource
    pinned: bool
    needs_reindex: bool
    access_count: int
    last_accessed_at: datetime | None


@dataclass(frozen=True, slots=True)
class MemoryDraft:
    """A memory about to be stored into the slot (owner, ``slot_session``, key).

    ``slot_session`` is the session while the scope setting is ``session``, else None: then one
    slot serves all sessions of the owner.
    """

    owner: OwnerId
    type: MemoryType
    key: str
    content: str
    source: MemorySource
    session_id: SessionId | None = None
    slot_session: SessionId | None = None
    metadata: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    expires_at: datetime | None = None
    pinned: bool = False
    status: MemoryStatus = MemoryStatus.ACTIVE


@dataclass(frozen=True, slots=True)
class Scope:
    """Which memories one reader may see.

    ``session`` None means every session of the owners. Nothing outside of a scope is ever
    fetched and filtered later: stores apply it inside the query.
    """

    owners: tuple[OwnerId, ...]
    session: SessionId | None = None


class Speaker(StrEnum):
    """Who said a sentence of an exchange."""

    USER = "user"
    ASSISTANT = "assistant"


class Category(StrEnum):
    """The families of facts that extraction knows."""

    PREFERENCE = "preference"
    DECISION = "decision"
    PATTERN = "pattern"


class Polarity(StrEnum):
    """Whether a fact affirms or denies its capture."""

    POSITIVE = "positive"
    NEGATIVE = "negative"


@dataclass(frozen=True, slots=True)
class Fact:
    """What extraction yields before it is stored.

    ``content`` is the matched clause in the speaker's words, ``capture`` the bare object of it,
    ``span`` the (start, end) character offsets of the clause in the text that was read.
    """

    category: Category
    type: MemoryType
    key: str
    content: str
    capture: str
    polarity: Polarity
    language: str
    pattern_id: str
    speaker: Speaker
    span: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Exchange:
    """One human turn and its answer, cleaned, as it waits in the outbox for extraction.

    ``is_resent``: the model had begun to answer the turn before this request, so that its words
    may have come before.
    """

    request_id: str
    owner: OwnerId
    session_id: SessionId | None
    user_text: str
    answer_text: str
    model: str
    captured_at: datetime
    is_resent: bool = False
