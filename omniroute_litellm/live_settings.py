"""The settings in force, shared by every process through the database."""

import json
import threading
from collections.abc import Mapping
from typing import Final, cast

from omniroute_litellm.settings import ResolvedSettings, apply_change, resolve
from omniroute_litellm.sqlite import Database
from omniroute_litellm.types import Clock, JsonObject, JsonValue, to_iso

_SELECT: Final = "SELECT name, value FROM settings"
_PUT: Final = """
INSERT INTO settings (name, value, updated_at) VALUES (:name, :value, :now)
ON CONFLICT (name) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at
"""


class LiveSettings:
    """Keeps the last settings that could be read.

    ``current`` never touches the disk; ``refresh`` does and is called every second by the
    runtime, so that a change in one process reaches the others. Until the database was read once
    there is no telling whether memory is on: ``is_known`` is False then.
    """

    def __init__(self, database: Database, *, environ: Mapping[str, str], clock: Clock) -> None:
        self._database = database
        self._environ = dict(environ)
        self._clock = clock
        self._lock = threading.Lock()
        self._current = resolve({}, self._environ)
        self._is_known = False

    @property
    def current(self) -> ResolvedSettings:
        """The settings as they were last read."""
        return self._current

    @property
    def is_known(self) -> bool:
        """Whether the database was read at least once."""
        return self._is_known

    def refresh(self) -> ResolvedSettings:
        """Read the database; raise BackendUnavailableError and keep the last values else."""
        with self._lock:
            self._current = resolve(self._stored(), self._environ)
            self._is_known = True
            return self._current

    def change(self, change: Mapping[str, JsonValue]) -> ResolvedSettings:
        """Store a partial change; raise ValidationError and change nothing when it is refused."""
        accepted = apply_change(self.refresh(), change)
        now = to_iso(self._clock())
        with self._database.writing() as connection:
            for name, value in accepted.items():
                values = {"name": name, "value": json.dumps(value), "now": now}
                connection.execute(_PUT, values)
        return self.refresh()

    def _stored(self) -> JsonObject:
        with self._database.reading() as connection:
            rows = cast("list[tuple[str, str]]", connection.execute(_SELECT).fetchall())
        return {name: cast("JsonValue", json.loads(value)) for name, value in rows}
