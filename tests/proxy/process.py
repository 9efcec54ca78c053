"""The real LiteLLM proxy as a process of its own, in front of the fake upstream."""

import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import httpx
import yaml

from tests.polling import wait_for

MASTER_KEY: Final = "sk-master-5d0c1f7e9b3a4c68a2e1"
PLUGIN: Final = "omniroute_litellm.plugin.handler"
KEYS_MODULE: Final = Path(__file__).with_name("keys.py")

START_TIMEOUT_S: Final = 90.0
STOP_TIMEOUT_S: Final = 30.0
REQUEST_TIMEOUT_S: Final = 60.0
WORKER_HEALTHCHECK_S: Final = 90
LOG_TAIL_LINES: Final = 60

OFFLINE: Final = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
    "LITELLM_LOCAL_AUTOROUTER_PRESETS": "True",
    "LITELLM_LOCAL_BLOG_POSTS": "True",
    "LITELLM_LOCAL_POLICY_TEMPLATES": "True",
    "HF_HUB_OFFLINE": "1",
}
FAST_RETRIES: Final = {"INITIAL_RETRY_DELAY": "0.05", "MAX_RETRY_DELAY": "0.1", "JITTER": "0"}
REFUSING: Final = ("nosys", "nosys422", "fail400", "fail422")
INHERITED: Final = ("PATH", "LANG", "LC_ALL", "TMPDIR")

Settings = Mapping[str, Any]  # sections of the LiteLLM configuration


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxySetup:
    """How one proxy differs from the plain one.

    `limits` maps `resource.RLIMIT_*` to a size; with RLIMIT_FSIZE the log file counts, too.
    `modules` are copied beside the configuration, from where LiteLLM loads callbacks by name.
    """

    with_plugin: bool = False
    custom_auth: bool = True
    callbacks: tuple[str, ...] = ()
    modules: tuple[Path, ...] = ()
    num_workers: int = 1
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    limits: Mapping[int, int] = field(default_factory=dict[int, int])
    litellm_settings: Settings = field(default_factory=dict[str, Any])
    general_settings: Settings = field(default_factory=dict[str, Any])
    guardrails: tuple[Settings, ...] = ()
    router_settings: Settings = field(default_factory=dict[str, Any])
    cwd: Path | None = None


def deployments(upstream_url: str) -> dict[str, Settings]:
    """Return the parameters of each model the proxy offers, by its public name."""
    key = {"api_key": "sk-upstream"}
    v1 = {**key, "api_base": f"{upstream_url}/v1"}
    openai = {
        name: {"model": f"openai/{name}", **v1}
        for name in ("o1-mini", "fail500", "fail429", "ctxfail", "slow", *REFUSING)
    }
    refusing = {
        f"{family}-{name}": {"model": f"{provider}/{family}-{name}", **key, "api_base": base}
        for provider, family, base in (
            ("anthropic", "claude", upstream_url),
            ("gemini", "gemini", f"{upstream_url}/v1beta"),
        )
        for name in REFUSING
    }
    return {
        **openai,
        **refusing,
        # Any name behind these is a deployment of its own, of which nothing is known yet.
        "any/*": {"model": "openai/*", **v1},
        "any-claude/*": {"model": "anthropic/*", **key, "api_base": upstream_url},
        "any-gemini/*": {"model": "gemini/*", **key, "api_base": f"{upstream_url}/v1beta"},
        "gpt": {"model": "openai/gpt-4o", **v1},
        "glm": {"model": "zai/glm-4.6", **v1},
        "claude": {"model": "anthropic/claude-sonnet-4-5", **key, "api_base": upstream_url},
        "claude-fail500": {"model": "anthropic/fail500", **key, "api_base": upstream_url},
        "gemini": {
            "model": "gemini/gemini-2.0-flash",
            **key,
            "api_base": f"{upstream_url}/v1beta",
        },
        # LiteLLM turns system messages into user parts for 2.0-flash, which its price list lacks.
        "gemini-2.5": {
            "model": "gemini/gemini-2.5-flash",
            **key,
            "api_base": f"{upstream_url}/v1beta",
        },
        "fragile": {"model": "openai/fail500-first", **v1},
        "cramped": {"model": "openai/ctxfail-first", **v1},
        "embed": {"model": "openai/text-embedding-3-small", **v1},
        "rerank": {"model": "cohere/rerank-v3.5", **key, "api_base": upstream_url},
    }


def pair(upstream_url: str) -> list[tuple[str, Settings]]:
    """Return the two deployments of the model `pair`: neither takes memory in any form."""
    v1 = {"api_key": "sk-upstream", "api_base": f"{upstream_url}/v1"}
    return [("pair", {"model": f"openai/nomem-{side}", **v1}) for side in ("left", "right")]


def configuration(upstream_url: str, setup: ProxySetup) -> dict[str, Any]:
    """Return the LiteLLM configuration: `fragile` retries once and falls back to `glm`."""
    callbacks = [*setup.callbacks, *([PLUGIN] if setup.with_plugin else [])]
    auth = {"custom_auth": f"{KEYS_MODULE.stem}.user_api_key_auth"} if setup.custom_auth else {}
    return {
        "model_list": [
            {"model_name": name, "litellm_params": dict(parameters)}
            for name, parameters in (*deployments(upstream_url).items(), *pair(upstream_url))
        ],
        "router_settings": {
            "num_retries": 1,
            "disable_cooldowns": True,  # a test that makes a model fail leaves it usable
            "fallbacks": [{"fragile": ["glm"]}],
            "context_window_fallbacks": [{"cramped": ["glm"]}],
            **setup.router_settings,
        },
        "litellm_settings": {"callbacks": callbacks, **setup.litellm_settings},
        "general_settings": {**auth, **setup.general_settings},
        **({"guardrails": [dict(one) for one in setup.guardrails]} if setup.guardrails else {}),
    }


class Proxy:
    """One `litellm` process: start, stop and kill it, talk to it, read its log.

    It owns `root`: configuration, log, data directory and home. A restart keeps them and the port.
    As a context manager it starts on entering and stops on leaving.
    """

    def __init__(self, root: Path, *, upstream_url: str, setup: ProxySetup) -> None:
        self.root = root
        self.setup = setup
        self.port = _free_port()
        self.data_dir = root / "data"
        self._log_path = root / "proxy.log"
        self._config_path = root / "config.yaml"
        self._process: subprocess.Popen[bytes] | None = None
        self._write_configuration(upstream_url)

    def __enter__(self) -> "Proxy":
        self.start()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        if self._process is not None:
            self.stop()

    def _write_configuration(self, upstream_url: str) -> None:
        self.data_dir.mkdir(parents=True)
        text = yaml.safe_dump(configuration(upstream_url, self.setup), sort_keys=False)
        self._config_path.write_text(text)
        for module in (*self.setup.modules, KEYS_MODULE):
            shutil.copy(module, self.root)

    @property
    def url(self) -> str:
        """Return the base address, without a path."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Return the process id of the running proxy (of the parent, with several workers)."""
        return self._running.pid

    @property
    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            msg = "expected a started proxy"
            raise RuntimeError(msg)
        return self._process

    def client(self, key: str = MASTER_KEY) -> httpx.Client:
        """Return an HTTP client that signs in with this key; close it after use."""
        return httpx.Client(
            base_url=self.url,
            headers={"authorization": f"Bearer {key}"},
            timeout=REQUEST_TIMEOUT_S,
            trust_env=False,
        )

    def log(self) -> str:
        """Return everything the process has printed, over all its starts."""
        return self._log_path.read_text(errors="replace") if self._log_path.exists() else ""

    def start(self) -> None:
        """Start the process and return when every worker serves."""
        log_start = len(self.log())
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self._command(),
                cwd=self.setup.cwd or self.root,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # kill() reaches the workers, Ctrl-C does not
            )
        for kind, size in self.setup.limits.items():
            resource.prlimit(self.pid, kind, (size, size))
        try:
            wait_for(
                lambda: self._is_serving(log_start),
                timeout_s=START_TIMEOUT_S,
                what=f"start-up of {self.url}",
            )
        except (TimeoutError, ChildProcessError) as error:
            self.kill()
            tail = "\n".join(self.log().splitlines()[-LOG_TAIL_LINES:])
            msg = f"{error}; the log ends with\n{tail}"
            raise AssertionError(msg) from error

    def stop(self) -> None:
        """Ask the process to end, as a container runtime does, and wait until it has."""
        self._running.send_signal(signal.SIGTERM)
        try:
            self._running.wait(STOP_TIMEOUT_S)
        finally:
            self.kill()

    def kill(self) -> None:
        """End the process and its workers at once, as a power cut would."""
        if self._process is None:
            return
        with suppress(ProcessLookupError):  # all of them may have ended before
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process = None

    def restart(self) -> None:
        """Stop and start again, with the same data directory and port."""
        self.stop()
        self.start()

    def _command(self) -> list[str]:
        litellm = Path(sys.executable).with_name("litellm")
        address = ["--host", "127.0.0.1", "--port", str(self.port)]
        command = [str(litellm), "--config", str(self._config_path), *address]
        if self.setup.num_workers == 1:
            return command
        # uvicorn's default of 5 s kills workers that are still importing LiteLLM.
        workers = ["--num_workers", str(self.setup.num_workers)]
        return [*command, *workers, "--timeout_worker_healthcheck", str(WORKER_HEALTHCHECK_S)]

    def _environment(self) -> dict[str, str]:
        inherited = {
            name: value
            for name, value in os.environ.items()
            if name in INHERITED or name.startswith("COVERAGE")
        }
        return {
            **inherited,
            **OFFLINE,
            **FAST_RETRIES,
            "HOME": str(self.root),
            "LITELLM_MASTER_KEY": MASTER_KEY,
            "OMNIROUTE_DATA_DIR": str(self.data_dir),
            **self.setup.env,
        }

    def _is_serving(self, log_start: int) -> bool:
        if (code := self._running.poll()) is not None:
            msg = f"litellm ended with {code} during start-up"
            raise ChildProcessError(msg)
        started = self.log()[log_start:].count("Application startup complete")
        return started >= self.setup.num_workers and self._answers()

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/health/liveliness", trust_env=False).is_success
        except httpx.TransportError:
            return False


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port
