"""Templates and static files keep the rules of the console."""

import hashlib
import re
from collections.abc import Iterator
from importlib import resources
from importlib.resources.abc import Traversable

import pytest

HTMX_SHA256 = "a0abb04f2f45a1f89d1d4844023245537e5e6014c87b144553e0607b4cc32130"
BANNED = {
    "inline style": r"\sstyle=",
    "inline script": r"<script(?![^>]*\ssrc=)",
    "inline style sheet": r"<style",
    "event attribute": r"\son[a-z]+=",
    "script in htmx": r"hx-on|js:",
    "trigger filter": r'hx-trigger="[^"]*\[',
    "unescaped output": r"\|\s*safe|Markup\(",
    "link past the mount": r'(?<!data-key)="/',
    "outside address": r'(?:src|href)="https?:',
}


def templates(folder: Traversable) -> Iterator[Traversable]:
    """Return every template below a folder."""
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from templates(entry)
        elif entry.name.endswith(".html"):
            yield entry


@pytest.mark.parametrize("rule", BANNED)
def test_templates_keep_the_policy(rule: str) -> None:
    """Nothing in a template needs more than the content policy allows."""
    folder = resources.files("omniroute_litellm") / "templates"
    files = list(templates(folder))
    assert files
    for file in files:
        assert not re.search(BANNED[rule], file.read_text(encoding="utf-8")), file.name


def test_vendored_script_is_the_one_we_looked_at() -> None:
    """The vendored htmx has the hash of the release, and its licence beside it."""
    vendor = resources.files("omniroute_litellm.console") / "static" / "vendor"
    content = (vendor / "htmx-4.0.1.min.js").read_bytes()
    assert hashlib.sha256(content).hexdigest() == HTMX_SHA256
    assert "BSD" in (vendor / "htmx-LICENSE.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize(("name", "lines"), [("app.css", 700), ("app.js", 200)])
def test_own_assets_stay_small(name: str, lines: int) -> None:
    """Style and script stay within a size that one can read."""
    file = resources.files("omniroute_litellm.console") / "static" / name
    assert len(file.read_text(encoding="utf-8").splitlines()) < lines
