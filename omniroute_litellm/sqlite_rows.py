"""How a memory is written as a row of SQLite, and read back."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, cast

from omniroute_litellm.sqlite import Row, Value
from omniroute_litellm.types import (
    JsonObject,
    Memory,
    MemoryId,
    MemorySource,
    MemoryStatus,
    MemoryType,
    OwnerId,
    SessionId,
    from_iso,
    to_iso,
)

JOINED: Final = "memories AS m LEFT JOIN memory_access AS a ON a.pk = m.pk"
COLUMNS: Final = (
    "m.id, m.api_key_id, m.session_id, m.type, m.key, m.content, m.metadata, m.created_at, "
    "m.updated_at, m.last_seen_at, m.expires_at, m.status, m.source, m.pinned, m.needs_reindex, "
    "coalesce(a.access_count, 0), a.last_accessed_at, m.pk, m.slot_session"
)
JSON_COLUMNS: Final = COLUMNS.replace("m.metadata", "json(m.metadata)")
"""The same for a row that comes as JSON: one parser reads it all."""
# An enumeration looks its members up in Python, a dictionary in C; there are dozens a request.
_TYPES: Final = {member.value: member for member in MemoryType}
_STATUSES: Final = {member.value: member for member in MemoryStatus}
_SOURCES: Final = {member.value: member for member in MemorySource}
_HISTORY_COLUMNS: Final = (
    "pk",
    "id",
    "api_key_id",
    "session_id",
    "slot_session",
    "type",
    "key",
    "content",
    "metadata",
    "created_at",
    "updated_at",
    "last_seen_at",
    "expires_at",
    "status",
    "source",
    "pinned",
)


def row_values(table: str) -> str:
    """Return the SQL that renders a whole row of a memories table as one JSON object."""
    pairs = ", ".join(f"'{name}', {table}.{name}" for name in _HISTORY_COLUMNS)
    return f"json_object({pairs})"


def memory_of(row: Row) -> Memory:
    """Read a row of COLUMNS."""
    return memory_of_json([*row[:6], json.loads(str(row[6])), *row[7:]])


def memory_of_json(row: Sequence[object]) -> Memory:
    """Read a row of COLUMNS that came as JSON, its metadata as an object."""
    return Memory(
        id=MemoryId(str(row[0])),
        owner=OwnerId(str(row[1])),
        session_id=None if row[2] is None else SessionId(str(row[2])),
        type=_TYPES[str(row[3])],
        key=str(row[4]),
        content=str(row[5]),
        metadata=cast("JsonObject", row[6]),
        created_at=from_iso(str(row[7])),
        updated_at=from_iso(str(row[8])),
        last_seen_at=from_iso(str(row[9])),
        expires_at=None if row[10] is None else from_iso(str(row[10])),
        status=_STATUSES[str(row[11])],
        source=_SOURCES[str(row[12])],
        pinned=bool(row[13]),
        needs_reindex=bool(row[14]),
        access_count=cast("int", row[15]),
        last_accessed_at=None if row[16] is None else from_iso(str(row[16])),
    )


def column_values(memory: Memory, change: Mapping[str, object]) -> dict[str, Value]:
    """Return the editable columns of a memory after a change (see MemoryChange)."""

    def chosen(name: str) -> object:
        return change[name] if name in change else getattr(memory, name)

    return {
        "id": memory.id,
        "type": str(chosen("type")),
        "key": str(chosen("key")),
        "content": str(chosen("content")),
        "metadata": json.dumps(
            dict(cast("JsonObject", chosen("metadata"))), ensure_ascii=False, sort_keys=True
        ),
        "expires_at": iso_or_none(cast("datetime | None", chosen("expires_at"))),
        "pinned": int(bool(chosen("pinned"))),
        "status": str(chosen("status")),
    }


def iso_or_none(moment: datetime | None) -> str | None:
    """Render a moment as ISO 8601 UTC, None as itself."""
    return None if moment is None else to_iso(moment)
