"""Look at an installation, line by line: ok, or what to do."""

import importlib.metadata
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

import yaml

from omniroute_litellm.errors import BackendUnavailableError
from omniroute_litellm.paths import DATABASE_NAME, VARIABLE, data_directory
from omniroute_litellm.settings import resolve
from omniroute_litellm.sqlite import Database, driver_versions, load_vector_extension, quick_check

HANDLER: Final = "omniroute_litellm.plugin.handler"
OLDEST_PYTHON: Final = (3, 11)
OLDEST_LITELLM: Final = (1, 94)
FIRST_UNKNOWN_LITELLM: Final = (1, 110)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at; ``advice`` says what to do when it is not ok."""

    name: str
    ok: bool
    detail: str
    advice: str = ""


def examine(environ: Mapping[str, str], config: Path | None) -> Iterator[Finding]:
    """Look at interpreter, driver, indexes, data directory, settings, LiteLLM and its config."""
    yield _interpreter()
    yield _driver()
    database = Database(data_directory(environ) / DATABASE_NAME)
    try:
        yield from _database(database)
    finally:
        database.close()
    yield _settings(environ)
    yield _litellm()
    yield _callback(config)


def _interpreter() -> Finding:
    version = ".".join(str(part) for part in sys.version_info[:3])
    return Finding("python", sys.version_info >= OLDEST_PYTHON, version, "use Python 3.11 or newer")


def _driver() -> Finding:
    driver, library = driver_versions()
    return Finding("sqlite driver", True, f"apsw {driver}, SQLite {library}")


def _database(database: Database) -> Iterator[Finding]:
    folder = database.path.parent
    advice = f"make {folder} writable, or name another directory in {VARIABLE}"
    try:
        database.open()
    except BackendUnavailableError as error:
        yield Finding("data directory", False, str(error), _advice(error.reason, advice))
        return
    yield Finding("data directory", True, str(folder))

    def sound() -> str:
        with database.reading() as connection:
            return quick_check(connection)

    def words() -> str:
        with database.reading() as connection:
            connection.execute("SELECT rowid FROM memory_fts WHERE memory_fts MATCH '\"probe\"'")
            return "FTS5, porter"

    def vectors() -> str:
        with database.writing() as connection:
            return f"sqlite-vec {load_vector_extension(connection)}"

    yield _attempt("database", sound, "restore a backup, or move the file away and start anew")
    yield _attempt("keyword index", words, "reinstall apsw: it brings an SQLite with FTS5")
    yield _attempt("vector index", vectors, "reinstall sqlite-vec for this platform")


def _attempt(name: str, look: Callable[[], str], advice: str) -> Finding:
    try:
        detail = look()
    except BackendUnavailableError as error:
        return Finding(name, False, str(error), advice)
    return Finding(name, name != "database" or detail == "ok", detail, advice)


def _advice(reason: str, default: str) -> str:
    return {
        "database_corrupt": "restore a backup, or move the file away and start anew",
        "database_foreign": f"move the file away, or name another directory in {VARIABLE}",
        "database_locked": "another program holds the database: stop it and try again",
        "database_full": "free some disk space",
        "database_too_new": "install the release that wrote it, or a newer one",
    }.get(reason, default)


def _settings(environ: Mapping[str, str]) -> Finding:
    problems = resolve({}, environ).problems
    detail = "; ".join(problems) or "every OMNIROUTE_MEMORY_* variable is readable"
    return Finding("environment", not problems, detail, "correct or unset the variable")


def _litellm() -> Finding:
    if importlib.util.find_spec("litellm") is None:
        advice = "pip install 'omniroute-litellm[proxy]'"
        return Finding("litellm", False, "not installed", advice)
    version = importlib.metadata.version("litellm")
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
    is_known = OLDEST_LITELLM <= numbers < FIRST_UNKNOWN_LITELLM
    return Finding("litellm", is_known, version, "use litellm[proxy] >=1.94,<1.110")


def _callback(config: Path | None) -> Finding:
    name, advice = "callback", f'add  callbacks: ["{HANDLER}"]  under litellm_settings'
    if config is None:
        return Finding(name, False, "no LiteLLM config found", "name it: doctor --config FILE")
    try:
        content = cast("object", yaml.safe_load(config.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        return Finding(name, False, f"{config}: {reason}", "correct the file")
    is_listed = HANDLER in _callbacks(content)
    return Finding(
        name, is_listed, f"{'listed' if is_listed else 'not listed'} in {config}", advice
    )


def _callbacks(content: object) -> list[object]:
    if not isinstance(content, dict):
        return []
    settings = cast("dict[str, object]", content).get("litellm_settings")
    if not isinstance(settings, dict):
        return []
    callbacks = cast("dict[str, object]", settings).get("callbacks")
    if isinstance(callbacks, list):
        return cast("list[object]", callbacks)
    return [callbacks]
