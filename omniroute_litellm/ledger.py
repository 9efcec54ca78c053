"""What stands behind which human turn: kept for later requests, bounded, shared by processes."""

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, cast

from omniroute_litellm.sqlite import Connection, Database, Value
from omniroute_litellm.types import Clock, Memory, MemoryId, OwnerId, from_iso, to_iso

KEEP: Final = timedelta(hours=24)
"""No provider keeps a prompt cache longer."""
MAX_PER_OWNER: Final = 10_000
MAX_PENDING: Final = 1_000
_TOUCH_AFTER: Final = timedelta(hours=1)

_FIND: Final = """
SELECT p.turn, p.block, p.seen_at FROM json_each(:turns) AS wanted
JOIN placements AS p ON p.turn = wanted.value WHERE p.api_key_id = :owner AND p.seen_at >= :since
"""
_MEMORIES: Final = "SELECT memory_id, content FROM placed_memories WHERE turn = :turn"
_CONTENT: Final = "SELECT content FROM memories WHERE id = :id AND status = 'active'"
_PUT: Final = """
INSERT INTO placements (turn, api_key_id, block, seen_at) VALUES (:turn, :owner, :block, :now)
ON CONFLICT (turn) DO UPDATE SET block = excluded.block, seen_at = excluded.seen_at
"""
_FORGET_MEMORIES: Final = "DELETE FROM placed_memories WHERE turn = :turn"
_PUT_MEMORY: Final = """
INSERT INTO placed_memories (memory_id, turn, content) VALUES (:id, :turn, :content)
"""
_TOUCH: Final = "UPDATE placements SET seen_at = :now WHERE turn = :turn"
_PURGE_OLD: Final = "DELETE FROM placements WHERE seen_at < :before"
_PURGE_MANY: Final = """
DELETE FROM placements WHERE turn IN (
    SELECT turn FROM (
        SELECT turn, row_number() OVER (PARTITION BY api_key_id ORDER BY seen_at DESC) AS place
        FROM placements
    ) WHERE place > :most
)
"""


@dataclass(frozen=True, slots=True)
class Placed:
    """The block behind one turn; an empty one says that the turn got none.

    ``memories`` maps the id of each memory in the block to a digest of its content at that time.
    """

    turn: str
    owner: OwnerId
    block: str
    memories: Mapping[MemoryId, str] = field(default_factory=dict[MemoryId, str])

    def is_true_to(self, memories: Mapping[MemoryId, Memory]) -> bool:
        """Tell whether all it says still holds, given the memories that may be read now."""
        return all(
            memory_id in memories and content_digest(memories[memory_id].content) == digest
            for memory_id, digest in self.memories.items()
        )


def content_digest(content: str) -> str:
    """Return a short name of a content, to see whether it is still the same."""
    return hashlib.blake2b(content.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


class Ledger:
    """Remembers placements. ``put`` takes one at once, ``flush`` writes what was taken.

    Until it is written a placement is known in this process alone. When the disk stays away the
    oldest go: that costs cached tokens, nothing else.
    """

    def __init__(self, database: Database, *, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._lock = threading.Lock()
        self._pending: OrderedDict[str, Placed] = OrderedDict()
        self._touched: set[str] = set()

    def put(self, placed: Placed) -> None:
        """Take the placement of one turn, in place of an earlier one."""
        with self._lock:
            self._pending[placed.turn] = placed
            self._pending.move_to_end(placed.turn)
            while len(self._pending) > MAX_PENDING:
                self._pending.popitem(last=False)

    def find(self, owner: OwnerId, turns: Sequence[str]) -> dict[str, Placed]:
        """Return what is known of an owner's turns; raise BackendUnavailableError.

        Whether the memories in it may still be shown is the caller's question.
        """
        now = self._clock()
        values: dict[str, Value] = {
            "turns": json.dumps(list(turns)),
            "owner": owner,
            "since": to_iso(now - KEEP),
        }
        found: dict[str, Placed] = {}
        old: set[str] = set()
        with self._database.reading() as connection:
            for row in connection.execute(_FIND, values).fetchall():
                turn, block, seen_at = cast("tuple[str, str, str]", row)
                rows = connection.execute(_MEMORIES, {"turn": turn}).fetchall()
                memories = {MemoryId(str(id_)): str(content) for id_, content in rows}
                found[turn] = Placed(turn, owner, block, memories)
                if now - from_iso(seen_at) > _TOUCH_AFTER:
                    old.add(turn)
        with self._lock:
            self._touched |= old
            pending = {turn: self._pending[turn] for turn in turns if turn in self._pending}
        return {**found, **pending}

    @property
    def has_news(self) -> bool:
        """Whether anything waits to be written."""
        return bool(self._pending or self._touched)

    def flush(self) -> None:
        """Write what was put and found; keep it for the next try on BackendUnavailableError."""
        with self._lock:
            batch, touched = list(self._pending.values()), set(self._touched)
        if not batch and not touched:
            return
        now = to_iso(self._clock())
        with self._database.writing() as connection:
            for placed in batch:
                self._write(connection, placed, now)
            for turn in touched:
                connection.execute(_TOUCH, {"turn": turn, "now": now})
        with self._lock:
            self._touched -= touched
            for placed in batch:
                if self._pending.get(placed.turn) is placed:
                    del self._pending[placed.turn]

    def purge(self) -> None:
        """Drop what no conversation came back to for a day, and what is too much for one owner."""
        with self._database.writing() as connection:
            connection.execute(_PURGE_OLD, {"before": to_iso(self._clock() - KEEP)})
            connection.execute(_PURGE_MANY, {"most": MAX_PER_OWNER})

    def _write(self, connection: Connection, placed: Placed, now: str) -> None:
        # A memory that went meanwhile must not come back to the disk in a block.
        for memory_id, digest in placed.memories.items():
            rows = connection.execute(_CONTENT, {"id": memory_id}).fetchall()
            if not rows or content_digest(str(rows[0][0])) != digest:
                return
        turn: dict[str, Value] = {"turn": placed.turn}
        values = {**turn, "owner": placed.owner, "block": placed.block, "now": now}
        connection.execute(_PUT, values)
        connection.execute(_FORGET_MEMORIES, turn)
        for memory_id, digest in placed.memories.items():
            connection.execute(_PUT_MEMORY, {**turn, "id": memory_id, "content": digest})
