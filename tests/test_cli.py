"""The command line: what it answers, and with which status."""

import os
import re
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx
import pytest

from omniroute_litellm import __version__, tour
from omniroute_litellm.cli import main
from omniroute_litellm.doctor import HANDLER, examine
from tests.polling import wait_for

GOOD_CONFIG: Final = f'litellm_settings:\n  callbacks: ["{HANDLER}"]\n'


def doctor(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Run the doctor and return its status and what it printed."""
    status = main(["doctor", *arguments])
    return status, capsys.readouterr().out


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Hand out a LiteLLM config that lists the callback."""
    path = tmp_path / "config.yaml"
    path.write_text(GOOD_CONFIG)
    return path


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    """``--version`` prints the version."""
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out.strip() == __version__


@pytest.mark.parametrize("arguments", [[], ["wrong"], ["doctor", "--wrong"]])
def test_wrong_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Wrong usage ends with status 2 and says what was expected."""
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    assert "usage:" in capsys.readouterr().err


def test_doctor_finds_a_good_installation(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With everything in place each line is ok and the status 0."""
    status, printed = doctor(capsys, "--config", str(config))
    assert status == 0, printed
    assert "FAIL" not in printed
    for name in (
        "python",
        "sqlite driver",
        "data directory",
        "database",
        "keyword index",
        "vector index",
        "environment",
        "litellm",
        "callback",
    ):
        assert re.search(rf"^ok   {name} ", printed, re.MULTILINE), name
    assert "sqlite-vec v0" in printed


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("litellm_settings:\n  callbacks: []\n", "not listed"),
        ("litellm_settings:\n  callbacks: other.handler\n", "not listed"),
        ("- a list\n", "not listed"),
        ("litellm_settings: text\n", "not listed"),
        ("a: [1\n", "config.yaml:"),
    ],
)
def test_doctor_reads_the_config(
    config: Path, text: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A config without the callback, or none at all, fails with what to do."""
    config.write_text(text)
    status, printed = doctor(capsys, "--config", str(config))
    assert status == 1
    assert told in printed
    assert f"FAIL {'callback':<15}" in printed


def test_doctor_takes_a_single_callback(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """LiteLLM allows one callback without a list."""
    config.write_text(f"litellm_settings:\n  callbacks: {HANDLER}\n")
    assert doctor(capsys, "--config", str(config))[0] == 0


def test_doctor_misses_the_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a config in the working directory it asks for one."""
    monkeypatch.chdir(tmp_path)
    status, printed = doctor(capsys)
    assert status == 1
    assert "doctor --config FILE" in printed
    (tmp_path / "config.yaml").write_text(GOOD_CONFIG)
    assert doctor(capsys)[0] == 0


def findings(directory: Path, **environ: str) -> dict[str, tuple[bool, str]]:
    """Return what the doctor finds about a data directory."""
    found = examine({"OMNIROUTE_DATA_DIR": str(directory), **environ}, None)
    return {finding.name: (finding.ok, f"{finding.detail} {finding.advice}") for finding in found}


def test_doctor_names_an_unwritable_directory(tmp_path: Path) -> None:
    """A directory that cannot be made is named together with its variable."""
    blocker = tmp_path / "file"
    blocker.write_text("")
    ok, told = findings(blocker / "data")["data directory"]
    assert not ok
    assert "OMNIROUTE_DATA_DIR" in told


def test_doctor_names_a_damaged_database(tmp_path: Path) -> None:
    """A file that is no database asks for a backup."""
    (tmp_path / "omniroute.db").write_bytes(b"no database " * 500)
    ok, told = findings(tmp_path)["data directory"]
    assert not ok
    assert "restore a backup" in told


def test_doctor_names_a_newer_schema(tmp_path: Path) -> None:
    """A database of a later release is left alone."""
    findings(tmp_path)
    with sqlite3.connect(tmp_path / "omniroute.db") as database:
        database.execute("PRAGMA user_version = 999")
    ok, told = findings(tmp_path)["data directory"]
    assert not ok
    assert "a newer one" in told


def test_doctor_names_an_unreadable_variable(tmp_path: Path) -> None:
    """A variable out of range is named."""
    ok, told = findings(tmp_path, OMNIROUTE_MEMORY_MAX_TOKENS="20000")["environment"]
    assert not ok
    assert "OMNIROUTE_MEMORY_MAX_TOKENS" in told


@contextmanager
def serving(tmp_path: Path, **environ: str) -> Generator[tuple[str, str]]:
    """Run ``omniroute-memory console`` and hand out its address and what it printed."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "omniroute_litellm", "console", "--port", str(port)]
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name in {"PATH", "LANG"} or name.startswith("COVERAGE")
    }
    log = tmp_path / "console.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            env={**inherited, "OMNIROUTE_DATA_DIR": str(tmp_path / "data"), **environ},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    url = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        assert process.poll() is None, log.read_text()
        try:
            return httpx.get(f"{url}/login", trust_env=False).is_success
        except httpx.TransportError:
            return False

    try:
        wait_for(answers, timeout_s=30, what="the console")
        yield url, log.read_text()
    finally:
        process.terminate()
        assert process.wait(20) in {0, -15}, log.read_text()


def test_the_console_runs_alone(tmp_path: Path) -> None:
    """With a configured key the console serves, and the key opens API and pages."""
    with serving(tmp_path, OMNIROUTE_ADMIN_KEY="sk-alone") as (url, printed):
        assert url in printed
        assert str(tmp_path / "data") in printed
        assert "login/link" not in printed
        headers = {"Authorization": "Bearer sk-alone"}
        listed = httpx.get(f"{url}/api/memory", headers=headers, trust_env=False)
        assert listed.json()["total"] == 0
        assert httpx.get(f"{url}/api/memory", trust_env=False).status_code == 401


def test_the_console_without_a_key_prints_a_link(tmp_path: Path) -> None:
    """With no key anywhere nothing is open but the one-time link."""
    with serving(tmp_path) as (url, printed):
        token = re.search(r"login/link\?token=(\S+)", printed)
        assert token
        assert httpx.get(f"{url}/api/memory", trust_env=False).status_code == 401
        with httpx.Client(base_url=url, trust_env=False) as client:
            assert client.post("/login", data={"key": ""}).status_code == 401
            assert client.post("/login/link", data={"token": token[1]}).status_code == 303
            assert client.get("/memories").status_code == 200
            again = client.post("/login/link", data={"token": token[1]})
            assert again.status_code == 401


def test_a_busy_port_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo takes the next free port."""
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        monkeypatch.setattr(tour, "FIRST_PORT", port)
        assert tour.free_port() != port


def test_the_demo_names_a_missing_config(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without its configuration the demo ends with one line."""
    assert main(["demo", "--config", str(tmp_path / "none.yaml")]) == 1
    assert "no LiteLLM configuration at" in capsys.readouterr().err


def test_the_demo_shows_why_a_proxy_did_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A proxy that ends at once leaves the end of its log in the message."""
    config = tmp_path / "broken.yaml"
    config.write_text(
        "litellm_settings:\n  callbacks: [no_such_module_anywhere.handler]\n"
        "general_settings:\n  master_key: sk-of-a-test-4c1d\n"
    )
    monkeypatch.setenv("OMNIROUTE_DATA_DIR", str(tmp_path / "data"))
    assert main(["run", "--config", str(config)]) == 1
    told = capsys.readouterr().err
    assert "the proxy did not start" in told
    assert "no_such_module_anywhere" in told
