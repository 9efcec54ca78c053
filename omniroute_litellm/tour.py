"""The demo: start a real proxy, talk to it, and show what memory did."""

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

import httpx

from omniroute_litellm.errors import OmniRouteError

FIRST_PORT: Final = 4000
_PORTS_TRIED: Final = 50
_READY_S: Final = 120.0
_LEARNED_S: Final = 30.0
_POLL_S: Final = 0.2
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

    Raises DemoError when the proxy does not start or does not learn.
    """
    proxy = start(config, environ=environ, memory_on=True)
    try:
        converse(proxy)
        if not once:
            print_invitation(proxy)
            proxy.process.wait()
    except KeyboardInterrupt:
        print()
    finally:
        stop(proxy)


def serve(config: Path, *, environ: Mapping[str, str]) -> int:
    """Start the proxy without the conversation and return its exit status."""
    proxy = start(config, environ=environ, memory_on=False)
    print_invitation(proxy)
    try:
        return proxy.process.wait()
    except KeyboardInterrupt:
        print()
        return 0
    finally:
        stop(proxy)


def start(config: Path, *, environ: Mapping[str, str], memory_on: bool) -> Proxy:
    """Start ``litellm`` on the first free port from 4000 and wait until it answers."""
    command = shutil.which("litellm", path=str(Path(sys.executable).parent)) or shutil.which(
        "litellm"
    )
    if command is None:
        message = "the litellm command is missing: pip install 'omniroute-litellm[proxy]'"
        raise DemoError(message)
    if not config.is_file():
        message = f"no LiteLLM configuration at {config}"
        raise DemoError(message)
    port = free_port()
    key = environ.get("LITELLM_MASTER_KEY") or f"sk-demo-{secrets.token_hex(16)}"
    data = Path(environ.get("OMNIROUTE_DATA_DIR") or ".demo").absolute()
    data.mkdir(parents=True, exist_ok=True)
    log = data / "proxy.log"
    settings = {
        "LITELLM_MASTER_KEY": key,
        "OMNIROUTE_DATA_DIR": str(data),
        # Prices and context sizes come from the installed package, not from the network.
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }
    if memory_on:
        settings["OMNIROUTE_MEMORY_ENABLED"] = environ.get("OMNIROUTE_MEMORY_ENABLED", "true")
    arguments = ["--config", str(config), "--host", "127.0.0.1", "--port", str(port)]
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 - our own arguments, no shell
            [command, *arguments],
            env={**environ, **settings},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    proxy = Proxy(process, f"http://127.0.0.1:{port}", key, log)
    print(f"Starting a LiteLLM proxy on {proxy.url}; memories go to {data}", flush=True)
    try:
        wait_ready(proxy)
    except BaseException:
        stop(proxy)
        raise
    return proxy


def stop(proxy: Proxy) -> None:
    """Stop a proxy and what it started."""
    if proxy.process.poll() is None:
        proxy.process.send_signal(signal.SIGTERM)
        try:
            proxy.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
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


def converse(proxy: Proxy) -> None:
    """Say four things, wait until they are learned, ask a question, and print every step."""
    headers = {"Authorization": f"Bearer {proxy.key}"}
    with httpx.Client(base_url=proxy.url, headers=headers, timeout=30) as client:
        print(f"\nYou:    {_STATEMENTS}")
        first = _say(client, _STATEMENTS)
        print(f"Model:  {_answer(first)}")
        print("\nLearned:")
        for memory in _learned(client, proxy):
            print(f"  {memory['type']:<9} {memory['key']:<38} {memory['content']}")
        print(f"\nYou:    {_QUESTION}   (a new conversation)")
        second = _say(client, _QUESTION)
        print(f"Model:  {_answer(second)}")
        print("\nReceipt of that request:")
        for name, value in second.headers.items():
            if name.startswith("x-omniroute-"):
                print(f"  {name}: {value}")
        if second.headers.get("x-omniroute-memory") != "injected":
            message = f"the second request carried no memory; see {proxy.log}"
            raise DemoError(message)


def print_invitation(proxy: Proxy) -> None:
    """Print how to look around."""
    body = json.dumps({"model": "demo", "messages": [{"role": "user", "content": "I love tea."}]})
    print(
        f"\nConsole:  {proxy.url}/omniroute/\n"
        f"Key:      {proxy.key}\n\n"
        "Try:\n"
        f"  curl -si {proxy.url}/v1/chat/completions -H 'Authorization: Bearer {proxy.key}' "
        f"-H 'Content-Type: application/json' -d '{body}'\n"
        f"  curl -s {proxy.url}/omniroute/api/memory -H 'Authorization: Bearer {proxy.key}'\n\n"
        f"The proxy's log is {proxy.log}. Press Ctrl-C to stop.",
        flush=True,
    )


def _say(client: httpx.Client, text: str) -> httpx.Response:
    body = {"model": "demo", "messages": [{"role": "user", "content": text}]}
    response = client.post("/v1/chat/completions", json=body)
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
