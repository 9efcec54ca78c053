"""Imports point one way, and special libraries stay in the module that is for them."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import omniroute_litellm

ROOT: Final = Path(omniroute_litellm.__file__).parent
PACKAGE: Final = "omniroute_litellm"

# From the ground up: a module imports from its own layer and from those below it.
LAYERS: Final[tuple[tuple[str, ...], ...]] = (
    (
        "",
        "types",
        "errors",
        "text",
        "tokens",
        "stopwords",
        "trigrams",
        "paths",
        "variables",
        "migrations",
    ),
    ("settings", "identity", "injection", "placement", "receipt", "trace", "ranking", "store"),
    ("model_calls", "extraction", "wire", "embedding", "request_state", "conversation"),
    (
        "sqlite_connection",
        "sqlite",
        "census",
        "memory_cache",
        "sqlite_rows",
        "sqlite_terms",
        "sqlite_reader",
        "sqlite_store",
        "vectors",
        "outbox",
        "ledger",
        "refusals",
        "telemetry",
        "trace_log",
        "live_settings",
        "workers",
        "health",
        "probe",
    ),
    (
        "candidates",
        "fusion",
        "retrieval",
        "replay",
        "lookup",
        "recall",
        "learning",
        "sign_in",
        "semantic",
        "indexing",
        "reindex",
        "engine",
    ),
    ("runtime",),
    (
        "api",
        "gateway",
        "litellm_calls",
        "hooks",
        "plugin",
        "demo",
        "cli",
        "doctor",
        "proxy_config",
        "tour",
        "standalone",
        "__main__",
    ),
    ("console",),
)
RANK: Final = {unit: rank for rank, layer in enumerate(LAYERS) for unit in layer}
CONFINED: Final = {
    "litellm": {"hooks", "plugin", "gateway", "litellm_calls", "demo"},
    "apsw": {"sqlite"},
    "sqlite_vec": {"sqlite"},
    "numpy": {"embedding", "vectors", "indexing"},
    "tokenizers": {"embedding"},
    "fastembed": {"embedding"},
    "yaml": {"doctor", "proxy_config"},
    "httpx": {"tour"},
    "prometheus_client": {"telemetry"},
    "opentelemetry": {"telemetry"},
    "fastapi": {"api", "console"},
    "jinja2": {"console"},
}
# A memory fault must not break a chat, one bad exchange must not stop the rest, LiteLLM's refusals
# of a key differ by set-up, and foreign model files raise whatever their readers do.
CATCH_ALL: Final = {"hooks", "runtime", "learning", "gateway", "litellm_calls", "embedding"}
MAX_LINES: Final = 400


def modules() -> list[tuple[str, Path]]:
    """Return every module with the unit that it belongs to: a package counts as one."""
    found: list[tuple[str, Path]] = []
    for folder, prefix in ((ROOT, ""), (ROOT / "console", "console")):
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).parts
            if prefix == "" and parts[0] == "console":
                continue
            unit = prefix or parts[0].removesuffix(".py")
            found.append(("" if unit == "__init__" else unit, path))
    return found


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """Return what a module imports, and whether it does so at its own top level."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    top = set(map(id, tree.body))
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
            if node.module == PACKAGE:
                names = [f"{PACKAGE}.{alias.name}" for alias in node.names]
        for name in names:
            yield name, id(node) in top


@pytest.mark.parametrize(("unit", "path"), modules(), ids=lambda value: str(value)[-40:])
def test_imports_point_down(unit: str, path: Path) -> None:
    """No module imports from a layer above its own."""
    assert unit in RANK, f"{path} is in no layer: add {unit!r} to LAYERS in {__file__}"
    for name, _ in imports(path):
        if not name.startswith(f"{PACKAGE}."):
            continue
        target = name.split(".")[1]
        if target.startswith("__"):
            continue
        assert target in RANK, f"{path} imports {name}, which is in no layer"
        if (unit, target) == ("runtime", "console"):
            continue
        assert RANK[target] <= RANK[unit], f"{path} imports {name} from above"


def test_the_runtime_imports_the_console_lazily() -> None:
    """The one upward import happens when the console is built, not when the runtime loads."""
    found = [top for name, top in imports(ROOT / "runtime.py") if ".console" in name]
    assert found == [False]


@pytest.mark.parametrize("library", CONFINED)
def test_libraries_stay_in_their_modules(library: str) -> None:
    """A special library is imported by the units that exist for it alone."""
    users = {
        unit
        for unit, path in modules()
        for name, _ in imports(path)
        if name.split(".")[0] == library
    }
    assert users <= CONFINED[library]
    assert users


def test_catch_all_handlers_are_the_agreed_ones() -> None:
    """``except Exception`` stands at the boundaries alone, each with its reason beside it."""
    for unit, path in modules():
        lines = path.read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines):
            if "except Exception" in line or "except BaseException" in line:
                near = "\n".join(lines[number : number + 8])
                is_passed_on = "raise" in near
                assert is_passed_on or unit in CATCH_ALL, f"{path}:{number + 1}"
                assert is_passed_on or "#" in near, f"{path}:{number + 1} has no reason"


@pytest.mark.parametrize(("unit", "path"), modules(), ids=lambda value: str(value)[-40:])
def test_modules_stay_small(unit: str, path: Path) -> None:
    """A module that grows past 400 lines wants to be two."""
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MAX_LINES
