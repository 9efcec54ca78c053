"""The demo: start a real proxy, talk to it, and show what memory did."""

import json
import os
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final, cast

import httpx

from omniroute_litellm.errors import OmniRouteError
from omniroute_litellm.proxy_config import ProxyConfig, ProxyConfigError, read_proxy_config

FIRST_PORT: Final = 4000
_PORTS_TRIED: Final = 50
_READY_S: Final = 120.0
_LEARNED_S: Final = 30.0
_POLL_S: Final = 0.2
_STOP_S: Final = 20.0
_ENDING: Final = (signal.SIGTERM, signal.SIGHUP)
_BY_SIGNAL: Final = 128
"""What a shell adds to a signal's number in the status of a command that it ended."""
_STATEMENTS: Final = (
    "I prefer TypeScript. I'll use Postgres for this project. "
    "I always commit before pushing. I don't like Python."
)
_QUESTION: Final = "Which database should the new service use?"


class DemoError(OmniRouteError):
    """The demo could not run to its end; the message says what to look at."""


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy under way: its process, address and admin key."""

    process: subprocess.Popen[bytes]
    url: str
    key: str
    log: Path


def run(config: Path, *, once: bool, environ: Mapping[str, str]) -> None:
    """Start the proxy, hold the conversation, print it, and stay up unless ``once``.

    Raises DemoError when the proxy does not start or does not learn, ProxyConfigError when the
    file names no master key or no chat model.
    """
    named = read_proxy_config(config, environ=environ)
    if named.model is None:
        message = f"{config} names no chat model: list one under model_list"
        raise ProxyConfigError(message)
    try:
        with running(config, named, environ=environ, memory_on=True) as proxy:
            converse(proxy, named.model)
            if not once:
                print_invitation(proxy, named.model)
                proxy.process.wait()
    except KeyboardInterrupt:
        print()


def serve(config: Path, *, environ: Mapping[str, str]) -> int:
    """Start the proxy without the conversation and return its exit status."""
    named = read_proxy_config(config, environ=environ)
    try:
        with running(config, named, environ=environ, memory_on=False) as proxy:
            print_invitation(proxy, named.model)
            return proxy.process.wait()
    except KeyboardInterrupt:
        print()
        return 0


@contextmanager
def running(
    config: Path, named: ProxyConfig, *, environ: Mapping[str, str], memory_on: bool
) -> Generator[Proxy]:
    """Run ``litellm`` on the first free port from 4000, and lend it as soon as it answers.

    It has a session of its own, so that no signal of the terminal reaches it: it ends with the
    block, however that is left.
    """
    command = shutil.which("litellm", path=str(Path(sys.executable).parent)) or shutil.which(
        "litellm"
    )
    if command is None:
        message = "the litellm command is missing: pip install 'omniroute-litellm[proxy]'"
        raise DemoError(message)
    port = free_port()
    data = Path(environ.get("OMNIROUTE_DATA_DIR") or ".demo").absolute()
    data.mkdir(parents=True, exist_ok=True)
    log = data / "proxy.log"
    settings = {
        "OMNIROUTE_DATA_DIR": str(data),
        # Prices and context sizes come from the installed package, not from the network.
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }
    key = named.key or f"sk-demo-{secrets.token_hex(16)}"
    if named.variable is not None:
        settings[named.variable] = key
    if memory_on:
        settings["OMNIROUTE_MEMORY_ENABLED"] = environ.get("OMNIROUTE_MEMORY_ENABLED", "true")
    arguments = ["--config", str(config), "--host", "127.0.0.1", "--port", str(port)]
    with ended_by_signals(), log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 - our own arguments, no shell
            [command, *arguments],
            env={**environ, **settings},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        proxy = Proxy(process, f"http://127.0.0.1:{port}", key, log)
        try:
            print(f"Starting a LiteLLM proxy on {proxy.url}; memories go to {data}", flush=True)
            wait_ready(proxy)
            yield proxy
        finally:
            stop(proxy)


@contextmanager
def ended_by_signals() -> Generator[None]:
    """Let the signals that end a command leave its blocks as an exception does."""

    def leave(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(_BY_SIGNAL + number)

    before = {number: signal.signal(number, leave) for number in _ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def stop(proxy: Proxy) -> None:
    """Stop a proxy and what it started; a second signal does it at once."""
    try:
        if proxy.process.poll() is None:
            proxy.process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                proxy.process.wait(timeout=_STOP_S)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(proxy.process.pid, signal.SIGKILL)
        proxy.process.wait()


def free_port() -> int:
    """Return the first port from 4000 on that nobody listens on."""
    for port in range(FIRST_PORT, FIRST_PORT + _PORTS_TRIED):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    message = f"no free port between {FIRST_PORT} and {FIRST_PORT + _PORTS_TRIED - 1}"
    raise DemoError(message)


def wait_ready(proxy: Proxy) -> None:
    """Wait until the proxy answers; raise DemoError with the end of its log when it does not."""
    ends = time.monotonic() + _READY_S
    while time.monotonic() < ends:
        if proxy.process.poll() is not None:
            break
        try:
            if httpx.get(f"{proxy.url}/health/liveliness", timeout=2).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(_POLL_S)
    tail = "\n".join(proxy.log.read_text(errors="replace").splitlines()[-20:])
    message = f"the proxy did not start; the end of {proxy.log}:\n{tail}"
    raise DemoError(message)


def converse(proxy: Proxy, model: str) -> None:
    """Say four things, wait until they are learned, ask a question, and print every step."""
    headers = {"Authorization": f"Bearer {proxy.key}"}
    with httpx.Client(base_url=proxy.url, headers=headers, timeout=30) as client:
        print(f"\nYou:    {_STATEMENTS}")
        first = _say(client, model, _STATEMENTS)
        print(f"Model:  {_answer(first)}")
        print("\nLearned:")
        for memory in _learned(client, proxy):
            print(f"  {memory['type']:<9} {memory['key']:<38} {memory['content']}")
        print(f"\nYou:    {_QUESTION}   (a new conversation)")
        second = _say(client, model, _QUESTION)
        print(f"Model:  {_answer(second)}")
        print("\nReceipt of that request:")
        for name, value in second.headers.items():
            if name.startswith("x-omniroute-"):
                print(f"  {name}: {value}")
        if second.headers.get("x-omniroute-memory") != "injected":
            message = f"the second request carried no memory; see {proxy.log}"
            raise DemoError(message)


def print_invitation(proxy: Proxy, model: str | None) -> None:
    """Print how to look around; without a model there is nothing to say to it."""
    header = f"-H 'Authorization: Bearer {proxy.key}'"
    lines = [f"\nConsole:  {proxy.url}/omniroute/", f"Key:      {proxy.key}", "\nTry:"]
    if model is not None:
        message = {"role": "user", "content": "I love tea."}
        body = shlex.quote(json.dumps({"model": model, "messages": [message]}))
        lines.append(
            f"  curl -si {proxy.url}/v1/chat/completions {header} "
            f"-H 'Content-Type: application/json' -d {body}"
        )
    lines.append(f"  curl -s {proxy.url}/omniroute/api/memory {header}")
    lines.append(f"\nThe proxy's log is {proxy.log}. Press Ctrl-C to stop.")
    print("\n".join(lines), flush=True)


def _say(client: httpx.Client, model: str, text: str) -> httpx.Response:
    body = {"model": model, "messages": [{"role": "user", "content": text}]}
    try:
        response = client.post("/v1/chat/completions", json=body)
    except httpx.TransportError as error:
        message = f"the proxy did not answer: {type(error).__name__}"
        raise DemoError(message) from error
    if response.status_code != 200:
        message = f"the proxy answered {response.status_code}: {response.text[:300]}"
        raise DemoError(message)
    return response


def _answer(response: httpx.Response) -> str:
    body = cast("dict[str, list[dict[str, dict[str, str]]]]", response.json())
    return body["choices"][0]["message"]["content"].replace("\n", "\n        ")


def _learned(client: httpx.Client, proxy: Proxy) -> list[dict[str, str]]:
    ends = time.monotonic() + _LEARNED_S
    while time.monotonic() < ends:
        found = cast("dict[str, object]", client.get("/omniroute/api/memory").json())
        if found.get("total"):
            return cast("list[dict[str, str]]", found["data"])
        time.sleep(_POLL_S)
    message = f"nothing was learned within {_LEARNED_S:.0f} s; see {proxy.log}"
    raise DemoError(message)
