"""The wheel holds what the tree holds, and works where nothing else of the project is."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]
SHIPPED: Final = (
    *("*.py", "*.sql", "*.html", "*.css", "*.js", "*.svg", "*.txt", "py.typed"),
    *("*.npy", "*.json", "*.md", "LICENSE.*"),
)
RENDER: Final = """
import os, tempfile
from starlette.testclient import TestClient
from omniroute_litellm.console.app import create_app
from omniroute_litellm.runtime import Runtime
from omniroute_litellm.sign_in import AdminKeyAuthority
folder = tempfile.mkdtemp()
runtime = Runtime(environ={"OMNIROUTE_DATA_DIR": folder}, authority=AdminKeyAuthority("sk-x"))
client = TestClient(create_app(runtime))
assert client.post("/login", data={"key": "sk-x"}).status_code == 200
assert "Nothing is remembered yet" in client.get("/memories").text
assert client.get("/static/vendor/htmx-4.0.1.min.js").status_code == 200
import omniroute_litellm
print(omniroute_litellm.__file__)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from a copy of what is committed, so that nothing untracked slips in."""
    source = tmp_path_factory.mktemp("source")
    folder = tmp_path_factory.mktemp("wheel")
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in listed.stdout.splitlines():
        target = source / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, target, follow_symlinks=False)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", str(folder)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


def names(wheel: Path) -> set[str]:
    """Return the files in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_the_wheel_holds_the_tree(wheel: Path) -> None:
    """Every module, migration, template and static file is in it, nothing stands beside it."""
    expected: set[str] = set()
    places = {
        "omniroute_litellm": "",
        "console": "omniroute_litellm/",
        "templates": "omniroute_litellm/",
    }
    for folder, prefix in places.items():
        for pattern in SHIPPED:
            for path in (ROOT / folder).rglob(pattern):
                relative = path.relative_to(ROOT)
                is_linked = folder == "omniroute_litellm" and relative.parts[1] in places
                if not is_linked and "__pycache__" not in relative.parts:
                    expected.add(prefix + relative.as_posix())
    shipped = {name for name in names(wheel) if ".dist-info/" not in name}
    assert shipped == expected


def test_the_wheel_has_command_and_licence(wheel: Path) -> None:
    """The command line and the licence are part of it."""
    with zipfile.ZipFile(wheel) as archive:
        entry = next(name for name in archive.namelist() if name.endswith("entry_points.txt"))
        assert "omniroute-memory = omniroute_litellm.cli:main" in archive.read(entry).decode()
    assert any(name.endswith("licenses/LICENSE") for name in names(wheel))


def test_the_installed_console_works(wheel: Path, tmp_path: Path) -> None:
    """From an empty folder the installed package renders a page and serves its script."""
    target = tmp_path / "installed"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*install, "--target", str(target), str(wheel)], check=True, capture_output=True)
    environment = {"PYTHONPATH": str(target), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", RENDER], cwd="/", env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().startswith(str(target))
