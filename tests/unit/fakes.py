"""Builders and stand-ins that these tests share."""

import asyncio
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from omniroute_litellm.errors import UnauthenticatedError
from omniroute_litellm.identity import Identity, MemoryMode
from omniroute_litellm.request_state import RequestState
from omniroute_litellm.settings import Settings
from omniroute_litellm.sqlite_store import SqliteMemoryStore
from omniroute_litellm.store import Alive
from omniroute_litellm.types import (
    JsonValue,
    Memory,
    MemoryDraft,
    MemorySource,
    MemoryStatus,
    MemoryType,
    OwnerId,
    Scope,
    SessionId,
    TraceId,
)

ANN: Final = OwnerId("ann")
BOB: Final = OwnerId("bob")


def draft(
    key: str = "preference:tea",
    content: str = "I prefer green tea",
    *,
    owner: OwnerId = ANN,
    type: MemoryType = MemoryType.FACTUAL,  # noqa: A002 - the field's own name
    source: MemorySource = MemorySource.USER_MESSAGE,
    session_id: SessionId | None = None,
    slot_session: SessionId | None = None,
    metadata: Mapping[str, JsonValue] | None = None,
    expires_at: datetime | None = None,
    pinned: bool = False,
    status: MemoryStatus = MemoryStatus.ACTIVE,
) -> MemoryDraft:
    """Return a draft; what a test does not name is Ann's active preference."""
    return MemoryDraft(
        owner=owner,
        type=type,
        key=key,
        content=content,
        source=source,
        session_id=session_id,
        slot_session=slot_session,
        metadata=metadata or {},
        expires_at=expires_at,
        pinned=pinned,
        status=status,
    )


def put(store: SqliteMemoryStore, made: MemoryDraft | None = None) -> Memory:
    """Store a draft and return its row."""
    return store.upsert(made or draft(), actor="test").memory


def scope_of(*owners: OwnerId, session: SessionId | None = None) -> Scope:
    """Return the scope of some owners, Ann's by default."""
    return Scope(owners or (ANN,), session)


def alive_at(now: datetime, *, days: float = 30) -> Alive:
    """Return what is alive at a moment under a retention of so many days."""
    return Alive(now=now, since=now - timedelta(days=days))


def state_of(at: datetime, *, id: str = "t1", owner: OwnerId | None = ANN) -> RequestState:  # noqa: A002
    """Return the state of a request that may do everything."""
    return RequestState(
        id=TraceId(id),
        call_id=f"call-{id}",
        model="gpt-4o",
        owner=owner,
        session=None,
        mode=MemoryMode.ON,
        settings=Settings(),
        started_at=at,
    )


class FakeTimer:
    """Seconds that pass when they are told to."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


class FakeAuthority:
    """Knows the keys that it is given, and counts how often it is asked."""

    def __init__(self, keys: Mapping[str, Identity], *, signing: str | None = "s3cret") -> None:
        self.keys = dict(keys)
        self.signing = signing
        self.asked = 0

    async def identify(self, key: str) -> Identity:
        """Return who a key belongs to, after a turn of the loop as a lookup takes one."""
        self.asked += 1
        await asyncio.sleep(0)
        if key not in self.keys:
            message = "no such key"
            raise UnauthenticatedError(message)
        return self.keys[key]

    def secret(self) -> str | None:
        """Return the secret of the moment."""
        return self.signing
