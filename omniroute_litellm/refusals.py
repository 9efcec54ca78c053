"""Which forms of memory a deployment refuses, learned from its answers and shared by processes."""

import threading
from collections import OrderedDict
from collections.abc import Mapping
from datetime import timedelta
from typing import Final, cast

from omniroute_litellm.sqlite import Database
from omniroute_litellm.types import Clock, to_iso

KEEP: Final = timedelta(days=30)
"""After so long a refused form is tried again: servers get updated."""
ENOUGH_ELSEWHERE: Final = 3
"""So many requests that one deployment refused must have passed, without memory, on another."""
MAX_SUSPECTED: Final = 1_000

_SELECT: Final = "SELECT deployment, form, at FROM refusals WHERE at >= :since ORDER BY at, form"
_PUT: Final = """
INSERT INTO refusals (deployment, form, at) VALUES (:deployment, :form, :at)
ON CONFLICT (deployment, form) DO UPDATE SET at = excluded.at
"""
_FORGET: Final = "DELETE FROM refusals WHERE deployment = :deployment"
_PURGE: Final = "DELETE FROM refusals WHERE at < :before"


class Refusals:
    """Keeps what was last read; ``refresh`` reads the database and is called every second."""

    def __init__(self, database: Database, *, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._lock = threading.Lock()
        self._known: Mapping[str, Mapping[str, str]] = {}
        self._suspected: OrderedDict[tuple[str, str], int] = OrderedDict()

    def of(self, deployment: str) -> frozenset[str]:
        """Return the forms that a deployment refuses; never touches the disk."""
        return frozenset(self._known.get(deployment, ()))

    def all(self) -> Mapping[str, Mapping[str, str]]:
        """Return every deployment with the forms it refuses and since when (ISO 8601)."""
        return self._known

    def refresh(self) -> None:
        """Read the database; raise BackendUnavailableError and keep the last values else."""
        since = to_iso(self._clock() - KEEP)
        with self._database.reading() as connection:
            rows = connection.execute(_SELECT, {"since": since}).fetchall()
        known: dict[str, dict[str, str]] = {}
        for deployment, form, at in cast("list[tuple[str, str, str]]", rows):
            known.setdefault(deployment, {})[form] = at
        with self._lock:
            self._known = known

    def learn(self, deployment: str, form: str) -> None:
        """Remember a refused form, here at once; raise BackendUnavailableError without a disk."""
        at = to_iso(self._clock())
        with self._lock:
            forms = {**self._known.get(deployment, {}), form: at}
            self._known = {**self._known, deployment: forms}
        with self._database.writing() as connection:
            connection.execute(_PUT, {"deployment": deployment, "form": form, "at": at})

    def suspect(self, deployment: str, form: str) -> bool:
        """Count weak evidence; tell whether there is enough of it to learn from.

        It is counted in this process alone: what is lost with it costs a few repeats more.
        """
        with self._lock:
            count = self._suspected.pop((deployment, form), 0) + 1
            if count >= ENOUGH_ELSEWHERE:
                return True
            self._suspected[deployment, form] = count
            while len(self._suspected) > MAX_SUSPECTED:
                self._suspected.popitem(last=False)
        return False

    def clear(self, deployment: str, form: str) -> None:
        """Drop the weak evidence against a form, which the deployment has taken just now."""
        if self._suspected:
            with self._lock:
                self._suspected.pop((deployment, form), None)

    def forget(self, deployment: str) -> None:
        """Try every form anew with a deployment."""
        with self._database.writing() as connection:
            connection.execute(_FORGET, {"deployment": deployment})
        self.refresh()

    def purge(self) -> None:
        """Drop what is too old to count."""
        with self._database.writing() as connection:
            connection.execute(_PURGE, {"before": to_iso(self._clock() - KEEP)})
