"""README, example configuration and code tell the same story."""

import re
from pathlib import Path
from typing import Any, Final, cast

import pytest
import yaml
from prometheus_client import CollectorRegistry

from omniroute_litellm import __version__
from omniroute_litellm.doctor import HANDLER
from omniroute_litellm.settings import FIELDS, public_name, variable_of
from omniroute_litellm.telemetry import Metrics

ROOT: Final = Path(__file__).parents[1]
README: Final = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLE: Final = (ROOT / "config.example.yaml").read_text(encoding="utf-8")
DOCUMENTS: Final = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").glob("*.md")),
]
PACKAGE: Final = ROOT / "omniroute_litellm"


def default_text(field: str) -> str:
    """Return a default as the documents write it."""
    default: Any = FIELDS[field].default
    if isinstance(default, bool):
        return str(default).lower()
    return "none" if default in ((), None) else str(default)


@pytest.mark.parametrize("field", FIELDS)
def test_readme_lists_every_setting(field: str) -> None:
    """Name, variable and default of a setting stand in one row of the README."""
    start = f"| `{public_name(field)}` | `{variable_of(field)}` | {default_text(field)} |"
    assert start in README


@pytest.mark.parametrize("field", FIELDS)
def test_example_lists_every_setting(field: str) -> None:
    """The example configuration names each variable, with its default where there is one."""
    line = next(line for line in EXAMPLE.splitlines() if f" {variable_of(field)} " in line)
    default = default_text(field)
    assert default == "none" or line.endswith(f"({default})")


@pytest.mark.parametrize("field", ["max_tokens", "retention_days", "history_days", "trace_days"])
def test_ranges_are_the_real_ones(field: str) -> None:
    """The range that the documents give is the one that the code enforces."""
    rules: list[Any] = FIELDS[field].metadata
    low = next(rule.ge for rule in rules if hasattr(rule, "ge"))
    high = next(rule.le for rule in rules if hasattr(rule, "le"))
    row = next(line for line in README.splitlines() if line.startswith(f"| `{public_name(field)}`"))
    assert f"| {low}..{high} |" in row
    line = next(line for line in EXAMPLE.splitlines() if f" {variable_of(field)} " in line)
    assert f"{low} to {high}" in line


def test_readme_names_every_reason() -> None:
    """Each reason that a receipt can give is explained."""
    codes = set[str]()
    for name in ("recall.py", "runtime.py", "sqlite.py", "outbox.py"):
        source = (PACKAGE / name).read_text(encoding="utf-8")
        codes |= set(re.findall(r'Outcome\.\w+, "(\w+)"', source))
        codes |= set(re.findall(r'"(database_\w+|outbox_full|no_session|settings_\w+)"', source))
    codes -= {"database_closed"}  # only while the process ends
    assert len(codes) > 10
    assert {code for code in codes if f"`{code}`" not in README} == set()


@pytest.mark.parametrize("command", ["demo", "run", "console", "doctor"])
def test_readme_names_every_command(command: str) -> None:
    """Each command of the command line is explained."""
    assert f"| `omniroute-memory {command}` |" in README
    assert f'add_parser("{command}"' in (PACKAGE / "cli.py").read_text(encoding="utf-8")


def test_example_is_a_config_with_the_callback() -> None:
    """The example parses and lists the callback."""
    content = cast("dict[str, Any]", yaml.safe_load(EXAMPLE))
    assert content["litellm_settings"]["callbacks"] == [HANDLER]
    assert HANDLER in README


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    """Every relative link names a file of the project."""
    text = document.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        if not target.startswith("http"):
            assert (document.parent / target).exists(), target


def test_changelog_names_the_version() -> None:
    """The version of the package has an entry."""
    assert f"## {__version__} " in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_modules_on_the_map_exist() -> None:
    """The development guide names the modules that there are."""
    text = (ROOT / "docs" / "development.md").read_text(encoding="utf-8")
    table = text.partition("| layer | modules |")[2].partition("\n\n")[0]
    named = set(re.findall(r"`(\w+)`", table))
    existing = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__", "__main__"}
    assert existing <= named


def test_readme_names_every_metric() -> None:
    """Each metric that is exported has a row."""
    registry = CollectorRegistry()
    Metrics(registry)
    for family in registry.collect():
        suffix = "_total" if family.type == "counter" else ""
        assert f"`{family.name}{suffix}`" in README, family.name
