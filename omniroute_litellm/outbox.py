"""Exchanges that wait for extraction: durable, leased to one worker, stored exactly once."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, cast

from omniroute_litellm.errors import BackendUnavailableError
from omniroute_litellm.sqlite import Connection, Database, Row, Value
from omniroute_litellm.types import Clock, Exchange, OwnerId, SessionId, from_iso, to_iso

CAPACITY: Final = 10_000
LEASE: Final = timedelta(seconds=30)
KEEP: Final = timedelta(hours=24)
KEEP_HEARD: Final = timedelta(days=7)
"""So long a sentence in a history that is sent again is known as read."""
MAX_ATTEMPTS: Final = 5

_COUNT: Final = "SELECT count(*) FROM outbox"
_ADD: Final = """
INSERT INTO outbox (api_key_id, request_id, session_id, user_text, answer_text, model, captured_at)
VALUES (:owner, :request_id, :session, :user_text, :answer_text, :model, :captured_at)
ON CONFLICT (api_key_id, request_id) DO NOTHING
"""
_IS_HEARD: Final = "SELECT 1 FROM heard WHERE api_key_id = :owner AND sentence = :sentence"
_HEAR: Final = """
INSERT INTO heard (api_key_id, sentence, at) VALUES (:owner, :sentence, :at)
ON CONFLICT (api_key_id, sentence) DO UPDATE SET at = excluded.at
"""
_PURGE_HEARD: Final = "DELETE FROM heard WHERE at < :before"
_CLAIM: Final = """
UPDATE outbox SET worker = :worker, leased_until = :until, attempts = attempts + 1
WHERE number IN (
    SELECT number FROM outbox
    WHERE attempts < :max_attempts AND (leased_until IS NULL OR leased_until < :now)
    ORDER BY number LIMIT :limit
)
RETURNING number, api_key_id, request_id, session_id, user_text, answer_text, model, captured_at
"""
_REMOVE: Final = "DELETE FROM outbox WHERE number = :number AND worker = :worker RETURNING number"
_FAIL: Final = """
UPDATE outbox SET leased_until = :until, last_error = :error
WHERE number = :number AND worker = :worker
"""
_GIVE_BACK: Final = """
UPDATE outbox SET leased_until = NULL, attempts = max(attempts - 1, 0)
WHERE number = :number AND worker = :worker
"""
_RELEASE: Final = "UPDATE outbox SET leased_until = NULL WHERE worker = :worker"
_PURGE: Final = "DELETE FROM outbox WHERE captured_at < :before"
_STATE: Final = """
SELECT count(*), coalesce(sum(attempts >= :max_attempts), 0), min(captured_at) FROM outbox
"""


@dataclass(frozen=True, slots=True)
class Claimed:
    """An exchange that this worker may extract until its lease ends."""

    number: int
    exchange: Exchange


@dataclass(frozen=True, slots=True)
class OutboxState:
    """How many exchanges wait, how many were set aside after five failures, and the oldest."""

    waiting: int
    set_aside: int
    oldest: str | None


class Outbox:
    """The queue between the answer and the memory, shared by every process of the host.

    ``worker`` names this process in leases. A lease outlives a crash by 30 s, then another worker
    takes the exchange.
    """

    def __init__(self, database: Database, *, clock: Clock, worker: str) -> None:
        self._database = database
        self._clock = clock
        self._worker = worker

    def add(self, exchange: Exchange) -> None:
        """Store an exchange; one that is there already (same owner and request) stays once.

        The words of a turn that was sent again, as agents do with every tool call, are left out
        when they were heard before: what was deleted or corrected since must not come back.

        Raises BackendUnavailableError (``outbox_full``) at capacity: refusing a new one loses
        less than growing without end while extraction is broken.
        """
        with self._database.writing() as connection:
            if cast("int", connection.execute(_COUNT).fetchall()[0][0]) >= CAPACITY:
                message = f"{CAPACITY} exchanges wait for extraction already"
                raise BackendUnavailableError(message, reason="outbox_full")
            user_text = self._unheard(connection, exchange)
            if not user_text and not exchange.answer_text:
                return
            connection.execute(
                _ADD,
                {
                    "owner": exchange.owner,
                    "request_id": exchange.request_id,
                    "session": exchange.session_id,
                    "user_text": user_text,
                    "answer_text": exchange.answer_text,
                    "model": exchange.model,
                    "captured_at": to_iso(exchange.captured_at),
                },
            )

    def _unheard(self, connection: Connection, exchange: Exchange) -> str:
        """Return the person's words unless they were read before, and note that they are now."""
        if not exchange.user_text:
            return ""
        values: dict[str, Value] = {
            "owner": exchange.owner,
            "sentence": _digest(exchange.user_text),
            "at": to_iso(self._clock()),
        }
        is_heard = bool(connection.execute(_IS_HEARD, values).fetchall())
        connection.execute(_HEAR, values)
        return "" if exchange.is_resent and is_heard else exchange.user_text

    def claim(self, *, limit: int) -> list[Claimed]:
        """Lease the oldest exchanges that nobody works on."""
        now = self._clock()
        values: dict[str, Value] = {
            "worker": self._worker,
            "now": to_iso(now),
            "until": to_iso(now + LEASE),
            "max_attempts": MAX_ATTEMPTS,
            "limit": limit,
        }
        with self._database.writing() as connection:
            rows = connection.execute(_CLAIM, values).fetchall()
        return sorted((_claimed(row) for row in rows), key=lambda claimed: claimed.number)

    def settle(self, claimed: Claimed, store_facts: Callable[[Connection], None]) -> bool:
        """Store the facts of an exchange and delete it in one transaction.

        Returns False, and stores nothing, when the lease was lost to another worker meanwhile.
        """
        with self._database.writing() as connection:
            values: dict[str, Value] = {"number": claimed.number, "worker": self._worker}
            if not connection.execute(_REMOVE, values).fetchall():
                return False
            store_facts(connection)
            return True

    def fail(self, claimed: Claimed, *, error: str) -> None:
        """Note why an exchange could not be extracted; it comes again when its lease ends."""
        values: dict[str, Value] = {
            "number": claimed.number,
            "worker": self._worker,
            "until": to_iso(self._clock() + LEASE),
            "error": error,
        }
        with self._database.writing() as connection:
            connection.execute(_FAIL, values)

    def give_back(self, claimed: Claimed) -> None:
        """End a lease as if it had not been taken: what failed was not the exchange."""
        with self._database.writing() as connection:
            connection.execute(_GIVE_BACK, {"number": claimed.number, "worker": self._worker})

    def release(self) -> None:
        """Give back what this worker leased, so that another one need not wait for the lease."""
        with self._database.writing() as connection:
            connection.execute(_RELEASE, {"worker": self._worker})

    def purge(self) -> int:
        """Drop exchanges older than 24 hours and return how many went."""
        with self._database.writing() as connection:
            connection.execute(_PURGE_HEARD, {"before": to_iso(self._clock() - KEEP_HEARD)})
            connection.execute(_PURGE, {"before": to_iso(self._clock() - KEEP)})
            return connection.changes()

    def state(self) -> OutboxState:
        """Count what waits."""
        with self._database.reading() as connection:
            rows = connection.execute(_STATE, {"max_attempts": MAX_ATTEMPTS}).fetchall()
        waiting, set_aside, oldest = cast("Sequence[tuple[int, int, str | None]]", rows)[0]
        return OutboxState(waiting - set_aside, set_aside, oldest)


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _claimed(row: Row) -> Claimed:
    number, owner, request_id, session, user_text, answer_text, model, captured_at = cast(
        "tuple[int, str, str, str | None, str, str, str, str]", row
    )
    exchange = Exchange(
        request_id=request_id,
        owner=OwnerId(owner),
        session_id=SessionId(session) if session is not None else None,
        user_text=user_text,
        answer_text=answer_text,
        model=model,
        captured_at=from_iso(captured_at),
    )
    return Claimed(number, exchange)
