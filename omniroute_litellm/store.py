"""What the rest of the system asks of the place where memories are kept.

The protocol stands apart from SQLite because a store for several hosts will join it.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

from omniroute_litellm.types import (
    JsonObject,
    Memory,
    MemoryDraft,
    MemoryId,
    MemorySource,
    MemoryStatus,
    MemoryType,
    OwnerId,
    Scope,
    SessionId,
)

Sort = Literal["updated", "created", "key", "type", "used"]
HistoryAction = Literal["update", "delete"]


@dataclass(frozen=True, slots=True)
class Upserted:
    """The row that now holds a draft, and whether it is a new one."""

    memory: Memory
    created: bool


@dataclass(frozen=True, slots=True)
class Uses:
    """How often a memory was used, and when for the last time."""

    memory_id: MemoryId
    count: int
    last: datetime


@dataclass(frozen=True, slots=True)
class MemoryChange:
    """What an edit sets; a field that is absent from ``values`` stays as it is.

    Names of ``values``: type, key, content, metadata, expires_at, pinned, status.
    """

    values: Mapping[str, object]
    expected_updated_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class MemoryQuery:
    """One page of a filtered list. ``owner`` None means every owner: for admins alone."""

    owner: OwnerId | None = None
    type: MemoryType | None = None
    session_id: SessionId | None = None
    text: str = ""
    status: MemoryStatus | None = None
    source: MemorySource | None = None
    pinned: bool | None = None
    sort: Sort = "updated"
    limit: int = 50
    offset: int = 0


@dataclass(frozen=True, slots=True)
class MemoryPage:
    """The rows of one page and how many rows match in all."""

    memories: tuple[Memory, ...]
    total: int


@dataclass(frozen=True, slots=True)
class MemoryTotals:
    """Counts over the memories of one owner, or of all: per type, per status, and tokens.

    ``by_type`` and ``tokens`` count active memories.
    """

    total: int
    by_type: Mapping[MemoryType, int]
    by_status: Mapping[MemoryStatus, int]
    tokens: int


@dataclass(frozen=True, slots=True)
class OwnerSummary:
    """One owner with how many memories it holds; owners without any are not listed."""

    owner: OwnerId
    count: int
    last_seen_at: datetime


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """What a change replaced: when, by whom, and the whole row as it was before."""

    number: int
    memory_id: MemoryId
    at: datetime
    action: HistoryAction
    actor: str
    before: JsonObject


@dataclass(frozen=True, slots=True)
class Alive:
    """Which rows of a scope a reader may see: unexpired at ``now`` and last seen after ``since``.

    Pinned memories never age out.
    """

    now: datetime
    since: datetime

    def has(self, memory: Memory, session: SessionId | None) -> bool:
        """Tell whether a memory may be read by a scope with such a session."""
        return (
            memory.status is MemoryStatus.ACTIVE
            and (memory.expires_at is None or memory.expires_at > self.now)
            and (memory.pinned or memory.last_seen_at >= self.since)
            and (session is None or memory.session_id == session)
        )


@dataclass(frozen=True, slots=True)
class KeywordHit:
    """A memory that the keyword index found.

    ``score`` is BM25 with the document frequencies of the scope itself, higher is better;
    ``coverage`` the share of the query's terms that the memory holds, in [0, 1].
    """

    memory: Memory
    score: float
    coverage: float


class MemoryReader(Protocol):
    """The reads of one retrieval. Every one is bounded to scope, status and ``alive``.

    The uses that a memory says it had may lag behind: no retrieval asks for them.
    """

    def snapshot(self) -> AbstractContextManager[None]:
        """Let all reads of this thread see the store at one moment."""
        ...

    def newest(self, scope: Scope, alive: Alive, *, limit: int) -> list[Memory]:
        """Return active memories, newest first."""
        ...

    def keyword(self, scope: Scope, alive: Alive, *, query: str, limit: int) -> list[KeywordHit]:
        """Return what shares a word with the query, best first.

        Any text is a valid query; one without a usable word finds nothing.
        """
        ...

    def profile(self, scope: Scope, alive: Alive, *, limit: int) -> list[Memory]:
        """Return pinned memories, preferences, habits and identity, newest first."""
        ...

    def all_if_few(self, scope: Scope, alive: Alive, *, at_most: int) -> list[Memory] | None:
        """Return every memory, oldest first, or None when there are more than ``at_most``."""
        ...

    def by_ids(
        self, scope: Scope, alive: Alive, memory_ids: Sequence[MemoryId]
    ) -> dict[MemoryId, Memory]:
        """Return those of the given memories that the scope may read."""
        ...


class MemoryStore(MemoryReader, Protocol):
    """Canonical storage of memories and their history.

    Does not embed, does not rank across tiers, does not decide who may ask: callers pass the
    owner that they are allowed to see, None for all. An id of another owner is NotFoundError, as
    an unknown one is. Every method may raise BackendUnavailableError.
    """

    def upsert(self, draft: MemoryDraft, *, actor: str) -> Upserted:
        """Store a draft into its slot, or update the active row that holds the slot."""
        ...

    def get(self, memory_id: MemoryId, *, owner: OwnerId | None) -> Memory:
        """Return one memory."""
        ...

    def update(
        self, memory_id: MemoryId, change: MemoryChange, *, owner: OwnerId | None, actor: str
    ) -> Memory:
        """Apply an edit; raise ConflictError on a stale token or an occupied slot."""
        ...

    def delete(self, memory_id: MemoryId, *, owner: OwnerId | None, actor: str) -> None:
        """Remove a memory; its row stays in the history until it is purged."""
        ...

    def undo(self, memory_id: MemoryId, *, owner: OwnerId | None, actor: str) -> Memory:
        """Take back the newest change; raise ConflictError when its slot is taken meanwhile."""
        ...

    def history(self, memory_id: MemoryId, *, owner: OwnerId | None) -> list[HistoryEntry]:
        """Return what was replaced, newest first."""
        ...

    def page(self, query: MemoryQuery) -> MemoryPage:
        """Return one page of a filtered list."""
        ...

    def totals(self, owner: OwnerId | None) -> MemoryTotals:
        """Count memories."""
        ...

    def owners(self) -> list[OwnerSummary]:
        """Return every owner with its counts, the most recently seen first."""
        ...

    def count_access(self, memory_ids: Sequence[MemoryId], *, at: datetime) -> None:
        """Count one use of each memory."""
        ...

    def purge_history(self, *, before: datetime) -> int:
        """Drop history older than a moment and return how many entries went."""
        ...
