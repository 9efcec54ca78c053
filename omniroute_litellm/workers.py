"""The processes that share one data directory, and when each was last seen."""

import os
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, cast

from omniroute_litellm import __version__
from omniroute_litellm.sqlite import Database
from omniroute_litellm.types import Clock, from_iso, to_iso

GONE_AFTER: Final = timedelta(seconds=30)

_BEAT: Final = """
INSERT INTO workers (id, pid, version, started_at, seen_at)
VALUES (:id, :pid, :version, :now, :now)
ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at
"""
_FORGET_GONE: Final = "DELETE FROM workers WHERE seen_at < :before"
_LEAVE: Final = "DELETE FROM workers WHERE id = :id"
_LIST: Final = """
SELECT id, pid, version, started_at, seen_at FROM workers WHERE seen_at >= :after
ORDER BY started_at, id
"""


@dataclass(frozen=True, slots=True)
class Worker:
    """One live process."""

    id: str
    pid: int
    version: str
    started_at: datetime
    seen_at: datetime


class Workers:
    """The list of live processes; this one is ``worker``. Each beat also proves a write."""

    def __init__(self, database: Database, *, clock: Clock, worker: str) -> None:
        self._database = database
        self._clock = clock
        self._worker = worker

    def beat(self) -> None:
        """Say that this process is alive, and forget those that stopped saying so."""
        now = self._clock()
        values = {"id": self._worker, "pid": os.getpid(), "version": __version__}
        with self._database.writing() as connection:
            connection.execute(_BEAT, {**values, "now": to_iso(now)})
            connection.execute(_FORGET_GONE, {"before": to_iso(now - GONE_AFTER)})

    def leave(self) -> None:
        """Take this process off the list."""
        with self._database.writing() as connection:
            connection.execute(_LEAVE, {"id": self._worker})

    def live(self) -> list[Worker]:
        """Return the processes that were seen lately, the oldest first."""
        after = to_iso(self._clock() - GONE_AFTER)
        with self._database.reading() as connection:
            rows = connection.execute(_LIST, {"after": after}).fetchall()
        return [
            Worker(id_, pid, version, from_iso(started), from_iso(seen))
            for id_, pid, version, started, seen in cast(
                "list[tuple[str, int, str, str, str]]", rows
            )
        ]
