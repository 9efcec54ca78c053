"""Memories in SQLite: upsert by slot, history, pages, counts."""

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, cast

from omniroute_litellm.errors import ConflictError, NotFoundError
from omniroute_litellm.sqlite import Connection, Database, Row, Value, quoted, tokenizer
from omniroute_litellm.sqlite_reader import SqliteMemoryReader
from omniroute_litellm.sqlite_rows import (
    COLUMNS,
    JOINED,
    column_values,
    iso_or_none,
    memory_of,
    row_values,
)
from omniroute_litellm.store import (
    HistoryAction,
    HistoryEntry,
    MemoryChange,
    MemoryPage,
    MemoryQuery,
    MemoryTotals,
    OwnerSummary,
    Sort,
    Upserted,
    Uses,
)
from omniroute_litellm.text import storable
from omniroute_litellm.tokens import CHARACTERS_PER_TOKEN
from omniroute_litellm.types import (
    Clock,
    JsonObject,
    Memory,
    MemoryDraft,
    MemoryId,
    MemoryStatus,
    MemoryType,
    OwnerId,
    from_iso,
    to_iso,
)

_ADD_OWNER: Final = """
INSERT INTO owners (api_key_id, created_at) VALUES (:owner, :now)
ON CONFLICT (api_key_id) DO NOTHING
"""
_KEEP_REPLACED: Final = f"""
INSERT INTO memory_history (memory_id, api_key_id, at, action, actor, before)
SELECT id, api_key_id, :now, 'update', :actor, {row_values("memories")}
FROM memories
WHERE api_key_id = :owner AND slot_session = :slot_session AND key = :key
  AND status = 'active' AND :status = 'active'
  AND (content <> :content OR type <> :type)
"""
# The next sequence is read here and moved on only when the row is really new.
_UPSERT: Final = """
INSERT INTO memories (
    pk, id, api_key_id, session_id, slot_session, type, key, content, metadata,
    created_at, updated_at, last_seen_at, expires_at, status, source, pinned
)
SELECT (number << 32) | next_sequence, :id, :owner, :session, :slot_session, :type, :key, :content,
       :metadata, :now, :now, :now, :expires_at, :status, :source, :pinned
FROM owners WHERE api_key_id = :owner
ON CONFLICT (api_key_id, slot_session, key) WHERE status = 'active' DO UPDATE SET
    content = excluded.content,
    type = excluded.type,
    metadata = merge_objects(metadata, excluded.metadata),
    session_id = excluded.session_id,
    source = excluded.source,
    expires_at = coalesce(excluded.expires_at, iif(expires_at > :now, expires_at, NULL)),
    pinned = max(pinned, excluded.pinned),
    needs_reindex = needs_reindex OR content <> excluded.content,
    updated_at = excluded.updated_at,
    last_seen_at = excluded.last_seen_at
RETURNING id
"""
_ADVANCE_SEQUENCE: Final = """
UPDATE owners SET next_sequence = next_sequence + 1 WHERE api_key_id = :owner
"""
_SELECT: Final = f"SELECT {COLUMNS} FROM {JOINED} WHERE m.id = :id AND {{owner}}"
_ADD_HISTORY: Final = f"""
INSERT INTO memory_history (memory_id, api_key_id, at, action, actor, before)
SELECT id, api_key_id, :now, :action, :actor, {row_values("memories")}
FROM memories WHERE id = :id
"""
_UPDATE: Final = """
UPDATE memories SET type = :type, key = :key, content = :content, metadata = :metadata,
    expires_at = :expires_at, pinned = :pinned, status = :status, updated_at = :now,
    needs_reindex = needs_reindex OR content <> :content
WHERE id = :id
"""
_DELETE: Final = "DELETE FROM memories WHERE id = :id"
_HISTORY: Final = """
SELECT number, memory_id, at, action, actor, before FROM memory_history
WHERE memory_id = :id AND (:owner IS NULL OR api_key_id = :owner) ORDER BY number DESC
"""
_RESTORE_ROW: Final = """
INSERT INTO memories (
    pk, id, api_key_id, session_id, slot_session, type, key, content, metadata,
    created_at, updated_at, last_seen_at, expires_at, status, source, pinned
) VALUES (
    :pk, :id, :api_key_id, :session_id, :slot_session, :type, :key, :content, :metadata,
    :created_at, :now, :last_seen_at, :expires_at, :status, :source, :pinned
)
ON CONFLICT (id) DO UPDATE SET
    session_id = :session_id, slot_session = :slot_session, type = :type, key = :key,
    content = :content, metadata = :metadata, updated_at = :now, expires_at = :expires_at,
    status = :status, source = :source, pinned = :pinned, needs_reindex = 1
"""
_FORGET_HISTORY_ENTRY: Final = "DELETE FROM memory_history WHERE number = :number"
_SLOT_TAKEN: Final = """
SELECT id FROM memories
WHERE api_key_id = :owner AND slot_session = :slot_session AND key = :key
  AND status = 'active' AND id <> :id
"""
_ORDERS: Final[Mapping[Sort, str]] = {
    "updated": "m.updated_at DESC, m.pk DESC",
    "created": "m.created_at DESC, m.pk DESC",
    "key": "m.key, m.pk",
    "type": "m.type, m.updated_at DESC, m.pk DESC",
    "used": "coalesce(a.access_count, 0) DESC, m.updated_at DESC, m.pk DESC",
}
_TOTALS: Final = f"""
SELECT type, status, count(*),
       sum((length(content) + {CHARACTERS_PER_TOKEN - 1}) / {CHARACTERS_PER_TOKEN})
FROM memories WHERE (:owner IS NULL OR api_key_id = :owner) GROUP BY type, status
"""
_OWNERS: Final = """
SELECT o.api_key_id, count(*), max(m.last_seen_at)
FROM owners AS o JOIN memories AS m ON m.api_key_id = o.api_key_id
GROUP BY o.api_key_id ORDER BY max(m.last_seen_at) DESC, o.number
"""
_COUNT_ACCESS: Final = """
INSERT INTO memory_access (pk, access_count, last_accessed_at)
SELECT m.pk, used.value ->> 1, used.value ->> 2
FROM json_each(:uses) AS used JOIN memories AS m ON m.id = used.value ->> 0 WHERE true
ON CONFLICT (pk) DO UPDATE SET
    access_count = access_count + excluded.access_count,
    last_accessed_at = max(last_accessed_at, excluded.last_accessed_at)
"""
_FIND_WORD: Final = "SELECT rowid FROM memory_fts WHERE memory_fts MATCH :match"
_FORGET_WORK: Final = """
DELETE FROM vector_work WHERE pk IN (SELECT value FROM json_each(:rows))
"""
_PURGE_HISTORY: Final = "DELETE FROM memory_history WHERE at < :before"


@dataclass(frozen=True, slots=True)
class _Stored:
    memory: Memory
    slot_session: str


class SqliteMemoryStore(SqliteMemoryReader):
    """The MemoryStore of one host: any number of processes on one file."""

    def __init__(
        self, database: Database, *, clock: Clock, new_id: Callable[[], str] | None = None
    ) -> None:
        super().__init__(database)
        self._clock = clock
        self._new_id = new_id or (lambda: str(uuid.uuid4()))

    def upsert(self, draft: MemoryDraft, *, actor: str) -> Upserted:
        """Store a draft into its slot, or update the active row that holds the slot."""
        with self._database.writing() as connection:
            return self.upsert_within(connection, draft, actor=actor)

    def upsert_within(self, connection: Connection, draft: MemoryDraft, *, actor: str) -> Upserted:
        """Do the same inside a transaction that the caller has opened."""
        new_id = self._new_id()
        values: dict[str, Value] = {
            "id": new_id,
            "owner": draft.owner,
            "session": draft.session_id,
            "slot_session": draft.slot_session or "",
            "type": draft.type,
            "key": draft.key,
            "content": draft.content,
            "metadata": json.dumps(dict(draft.metadata), ensure_ascii=False, sort_keys=True),
            "expires_at": iso_or_none(draft.expires_at),
            "status": draft.status,
            "source": draft.source,
            "pinned": int(draft.pinned),
            "actor": actor,
            "now": to_iso(self._clock()),
        }
        connection.execute(_ADD_OWNER, values)
        connection.execute(_KEEP_REPLACED, values)
        stored_id = MemoryId(str(connection.execute(_UPSERT, values).fetchall()[0][0]))
        created = stored_id == new_id
        if created:
            connection.execute(_ADVANCE_SEQUENCE, values)
        return Upserted(_find(connection, stored_id, owner=None).memory, created)

    def get(self, memory_id: MemoryId, *, owner: OwnerId | None) -> Memory:
        """Return one memory."""
        with self._database.reading() as connection:
            return _find(connection, memory_id, owner=owner).memory

    def update(
        self, memory_id: MemoryId, change: MemoryChange, *, owner: OwnerId | None, actor: str
    ) -> Memory:
        """Apply an edit; raise ConflictError on a stale token or an occupied slot."""
        with self._database.writing() as connection:
            stored = _find(connection, memory_id, owner=owner)
            expected = change.expected_updated_at
            if expected is not None and expected != stored.memory.updated_at:
                message = f"the memory changed at {to_iso(stored.memory.updated_at)}; load it again"
                raise ConflictError(message)
            values = column_values(stored.memory, change.values)
            slot = {"slot_session": stored.slot_session, "owner": stored.memory.owner}
            _require_free_slot(connection, {**values, **slot})
            parameters = {**values, "now": to_iso(self._clock()), "actor": actor}
            connection.execute(_ADD_HISTORY, {**parameters, "action": "update"})
            connection.execute(_UPDATE, parameters)
            return _find(connection, memory_id, owner=owner).memory

    def delete(self, memory_id: MemoryId, *, owner: OwnerId | None, actor: str) -> None:
        """Remove a memory; its row stays in the history until it is purged."""
        with self._database.writing() as connection:
            _find(connection, memory_id, owner=owner)
            now = to_iso(self._clock())
            entry = {"id": memory_id, "now": now, "actor": actor, "action": "delete"}
            connection.execute(_ADD_HISTORY, entry)
            connection.execute(_DELETE, {"id": memory_id})

    def undo(self, memory_id: MemoryId, *, owner: OwnerId | None, actor: str) -> Memory:
        """Take back the newest change; raise ConflictError when its slot is taken meanwhile.

        The undone change leaves the history, so that a second undo reaches the one before it.
        """
        with self._database.writing() as connection:
            rows = connection.execute(_HISTORY, {"id": memory_id, "owner": owner}).fetchall()
            if not rows:
                message = "nothing to undo for this id"
                raise NotFoundError(message)
            entry = _history_entry(rows[0])
            before = cast("dict[str, Value]", dict(entry.before))
            _require_free_slot(connection, {**before, "owner": before["api_key_id"]})
            connection.execute(_RESTORE_ROW, {**before, "now": to_iso(self._clock())})
            connection.execute(_FORGET_HISTORY_ENTRY, {"number": entry.number})
            return _find(connection, memory_id, owner=owner).memory

    def history(self, memory_id: MemoryId, *, owner: OwnerId | None) -> list[HistoryEntry]:
        """Return what was replaced, newest first; NotFoundError when the id was never there."""
        with self._database.reading() as connection:
            rows = connection.execute(_HISTORY, {"id": memory_id, "owner": owner}).fetchall()
            if not rows:
                _find(connection, memory_id, owner=owner)
            return [_history_entry(row) for row in rows]

    def page(self, query: MemoryQuery) -> MemoryPage:
        """Return one page of a filtered list."""
        with self._database.reading() as connection:
            where, values = self._conditions(connection, query)
            total = connection.execute(
                f"SELECT count(*) FROM {JOINED} WHERE {where}",
                values,
            ).fetchall()[0][0]
            rows = connection.execute(
                f"SELECT {COLUMNS} FROM {JOINED} WHERE {where} "
                f"ORDER BY {_ORDERS[query.sort]} LIMIT :limit OFFSET :offset",
                {**values, "limit": query.limit, "offset": query.offset},
            )
            return MemoryPage(tuple(memory_of(row) for row in rows), cast("int", total))

    def totals(self, owner: OwnerId | None) -> MemoryTotals:
        """Count memories."""
        by_type = dict.fromkeys(MemoryType, 0)
        by_status = dict.fromkeys(MemoryStatus, 0)
        tokens = 0
        with self._database.reading() as connection:
            for row in connection.execute(_TOTALS, {"owner": owner}):
                kind, status, count, size = cast("tuple[str, str, int, int]", row)
                by_status[MemoryStatus(status)] += count
                if status == MemoryStatus.ACTIVE:
                    by_type[MemoryType(kind)] += count
                    tokens += size
        return MemoryTotals(sum(by_status.values()), by_type, by_status, tokens)

    def owners(self) -> list[OwnerSummary]:
        """Return every owner with its counts, the most recently seen first."""
        with self._database.reading() as connection:
            rows = cast("list[tuple[str, int, str]]", connection.execute(_OWNERS).fetchall())
        return [OwnerSummary(OwnerId(owner), count, from_iso(seen)) for owner, count, seen in rows]

    def count_access(self, memory_ids: Sequence[MemoryId], *, at: datetime) -> None:
        """Count one use of each memory."""
        with self._database.writing() as connection:
            self.count_uses_within(connection, [Uses(memory_id, 1, at) for memory_id in memory_ids])

    def count_uses_within(self, connection: Connection, uses: Sequence[Uses]) -> None:
        """Count uses inside a transaction that the caller has opened: one statement for all."""
        rows = [[use.memory_id, use.count, to_iso(use.last)] for use in uses]
        connection.execute(_COUNT_ACCESS, {"uses": json.dumps(rows)})

    def rehearse(self, draft: MemoryDraft, word: str) -> bool:
        """Store a memory, look its word up by keyword, delete it; tell whether it was found.

        One transaction, so that nobody else ever sees it.
        """
        with self._database.writing() as connection:
            memory = self.upsert_within(connection, draft, actor="health").memory
            found = connection.execute(_FIND_WORD, {"match": quoted(word)}).fetchall()
            connection.execute(_DELETE, {"id": memory.id})
            connection.execute(_FORGET_WORK, {"rows": json.dumps([row[0] for row in found])})
            return len(found) == 1

    def purge_history(self, *, before: datetime) -> int:
        """Drop history older than a moment and return how many entries went."""
        with self._database.writing() as connection:
            connection.execute(_PURGE_HISTORY, {"before": to_iso(before)})
            return connection.changes()

    def _conditions(
        self, connection: Connection, query: MemoryQuery
    ) -> tuple[str, dict[str, Value]]:
        equal: dict[str, Value] = {
            "api_key_id": query.owner,
            "type": query.type,
            "session_id": query.session_id,
            "status": query.status,
            "source": query.source,
            "pinned": None if query.pinned is None else int(query.pinned),
        }
        given: dict[str, Value] = {name: v for name, v in equal.items() if v is not None}
        conditions = [f"m.{name} = :{name}" for name in given]
        text = storable(query.text).strip()
        if text:
            conditions.append(_TEXT_CONDITION)
            given["like"] = "%" + "".join(_LIKE_ESCAPES.get(c, c) for c in text) + "%"
            words = tokenizer(connection)(text)
            # No word matches nothing, where an empty MATCH would be a syntax error.
            given["match"] = " ".join(quoted(word) for word in words) or quoted("")
        return " AND ".join(conditions) or "1", given


_LIKE_ESCAPES: Final = {"%": "\\%", "_": "\\_", "\\": "\\\\"}
_TEXT_CONDITION: Final = (
    "(m.content LIKE :like ESCAPE '\\' OR m.key LIKE :like ESCAPE '\\'"
    " OR m.pk IN (SELECT rowid FROM memory_fts WHERE memory_fts MATCH :match))"
)


def _find(connection: Connection, memory_id: MemoryId, *, owner: OwnerId | None) -> _Stored:
    condition = "1" if owner is None else "m.api_key_id = :owner"
    rows = connection.execute(
        _SELECT.format(owner=condition), {"id": memory_id, "owner": owner}
    ).fetchall()
    if not rows:
        message = "no memory has this id"
        raise NotFoundError(message)
    return _Stored(memory_of(rows[0]), str(rows[0][-1]))


def _require_free_slot(connection: Connection, values: Mapping[str, Value]) -> None:
    if values["status"] != MemoryStatus.ACTIVE:
        return
    if connection.execute(_SLOT_TAKEN, dict(values)).fetchall():
        message = f"another active memory holds the key {values['key']!r}"
        raise ConflictError(message)


def _history_entry(row: Row) -> HistoryEntry:
    number, memory_id, at, action, actor, before = cast("tuple[int, str, str, str, str, str]", row)
    return HistoryEntry(
        number=number,
        memory_id=MemoryId(memory_id),
        at=from_iso(at),
        action=cast("HistoryAction", action),
        actor=actor,
        before=cast("JsonObject", json.loads(before)),
    )
