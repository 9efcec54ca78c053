"""The commands that start a proxy: whose key and model they use, and that nothing stays behind."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import yaml

from tests.polling import wait_for
from tests.proxy.process import INHERITED, OFFLINE, PLUGIN

pytestmark = pytest.mark.proxy

KEY: Final = "sk-of-the-house-7f3a"
START_TIMEOUT_S: Final = 90.0
END_TIMEOUT_S: Final = 30.0
DEMO: Final = {"provider": "demo", "custom_handler": "omniroute_litellm.demo.model"}


@dataclass(frozen=True, slots=True)
class Command:
    """The command under way, and what it has printed."""

    process: subprocess.Popen[bytes]
    output: Path

    def printed(self) -> str:
        """Return all that it printed so far."""
        return self.output.read_text(errors="replace")

    def children(self) -> list[int]:
        """Return the processes that it started."""
        pid = self.process.pid
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def wait_child(self) -> int:
        """Return the proxy's process as soon as there is one."""
        return wait_for(
            lambda: next(iter(self.children()), None), timeout_s=START_TIMEOUT_S, what="a proxy"
        )

    def wait_printed(self, text: str) -> None:
        """Wait until it has printed something."""
        wait_for(
            lambda: text in self.printed() or self.process.poll() is not None,
            timeout_s=START_TIMEOUT_S,
            what=text,
        )
        assert text in self.printed()


def configuration(model: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration with a key and a model name that nobody could guess."""
    return {
        "model_list": [{"model_name": "house-model", "litellm_params": model}],
        "litellm_settings": {"callbacks": [PLUGIN], "custom_provider_map": [DEMO]},
        "router_settings": {"num_retries": 0},
        "general_settings": {"master_key": KEY},
    }


@contextmanager
def command(tmp_path: Path, *arguments: str, **model: str) -> Generator[Command]:
    """Start the command, and leave nothing of it behind, whatever it does."""
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump(configuration(model or {"model": "demo/echo"})))
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name in INHERITED or name.startswith("COVERAGE")
    }
    output = tmp_path / "output"
    with output.open("wb") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "omniroute_litellm", *arguments, "--config", str(config)],
            env={
                **inherited,
                **OFFLINE,
                "HOME": str(tmp_path),
                "OMNIROUTE_DATA_DIR": str(tmp_path / "data"),
            },
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            cwd=tmp_path,
        )
    running = Command(process, output)
    left: set[int] = set()
    try:
        left.add(running.wait_child())
        yield running
    finally:
        process.kill()
        process.wait()
        for pid in left:
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)


def is_gone(pid: int) -> bool:
    """Tell whether a process and its group have ended."""
    try:
        os.killpg(pid, 0)
    except ProcessLookupError:
        return True
    return False


def wait_gone(pid: int) -> None:
    """Wait until a process and its group have ended."""
    wait_for(lambda: is_gone(pid), timeout_s=END_TIMEOUT_S, what=f"the end of proxy {pid}")


def test_the_demo_uses_the_key_and_the_model_of_the_file(tmp_path: Path) -> None:
    """It holds its conversation with them, says them, and takes its proxy along at its end."""
    with command(tmp_path, "demo", "--once") as demo:
        proxy = demo.wait_child()
        assert demo.process.wait(START_TIMEOUT_S) == 0, demo.printed()
        assert "x-omniroute-memory: injected" in demo.printed()
        wait_gone(proxy)


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("arguments", [("demo",), ("run",)], ids="".join)
def test_a_signal_ends_the_proxy_with_the_command(
    tmp_path: Path, sent: signal.Signals, arguments: tuple[str, ...]
) -> None:
    """Whoever ends the command frees the port."""
    with command(tmp_path, *arguments) as running:
        running.wait_printed("Press Ctrl-C to stop.")
        proxy = running.wait_child()
        printed = running.printed()
        assert f"Key:      {KEY}" in printed
        assert '"model": "house-model"' in printed
        (url,) = re.findall(r"Console:  (http\S+)/omniroute/", printed)
        running.process.send_signal(sent)
        assert running.process.wait(END_TIMEOUT_S) == (0 if sent is signal.SIGINT else 128 + sent)
        wait_gone(proxy)
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{url}/health/liveliness", trust_env=False)
        assert "Traceback" not in running.printed()


def test_a_signal_during_the_start_ends_the_proxy(tmp_path: Path) -> None:
    """Nobody has to wait until it serves."""
    with command(tmp_path, "demo") as running:
        running.wait_printed("Starting a LiteLLM proxy")
        proxy = running.wait_child()
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(END_TIMEOUT_S) == 128 + signal.SIGTERM
        wait_gone(proxy)


def test_an_error_ends_the_proxy(tmp_path: Path) -> None:
    """A model that cannot be reached is named in one line, and nothing stays behind."""
    model = {"model": "openai/x", "api_base": "http://127.0.0.1:9/v1", "api_key": "x"}
    with command(tmp_path, "demo", **model) as running:
        proxy = running.wait_child()
        assert running.process.wait(START_TIMEOUT_S) == 1
        wait_gone(proxy)
        assert "omniroute-memory: the proxy answered 500" in running.printed()
        assert "Traceback" not in running.printed()
