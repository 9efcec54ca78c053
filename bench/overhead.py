"""What memory costs a LiteLLM proxy: CPU, time on the request path, latency, throughput.

    .venv/bin/python bench/overhead.py

Two real proxies run side by side, one without the plugin and one with it and a filled memory, in
front of a fake provider that is a process of its own. They are sent the same questions in blocks
A B B A. A third proxy has its hooks timed; it runs alone, so that the timing costs the others
nothing. Figures are printed, never asserted: the status is 0 unless something failed to run.
"""

import argparse
import os
import platform
import random
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
if __name__ == "__main__":
    # As a script Python looks beside this file alone, not where bench and tests are packages.
    sys.path[0] = str(ROOT)

# ruff: isort: split
from bench import corpus
from bench.hook_times import HookTimes, read_hook_times
from bench.load import CONCURRENCY, KEY, Round, Sender, alternate, answers_of, pooled
from bench.overhead_table import Measured, outcomes, rendered, table
from omniroute_litellm.identity import Identity, resolve_owner
from tests.polling import wait_for
from tests.proxy.process import Proxy, ProxySetup

HOOK_CLOCK: Final = Path(__file__).with_name("hook_clock.py")
MEMORY_ON: Final = {"OMNIROUTE_MEMORY_ENABLED": "true"}

BLOCK: Final = 10
CONCURRENT_BLOCK: Final = 2 * CONCURRENCY
WARM_UP: Final = 30
SETTLE_S: Final = 2.0
UPSTREAM_TIMEOUT_S: Final = 20.0


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line asks for."""

    requests: int
    memories: int
    seed: int


@contextmanager
def upstream() -> Generator[str]:
    """Run the fake provider as a process of its own and hand out its address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    process = subprocess.Popen([sys.executable, "-m", "tests.upstream", str(port)], cwd=ROOT)

    def answers() -> bool:
        if process.poll() is not None:
            message = f"the fake provider ended with {process.returncode}"
            raise ChildProcessError(message)
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    try:
        wait_for(answers, timeout_s=UPSTREAM_TIMEOUT_S, what="start of the fake provider")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def measure(options: Options, folder: Path) -> Measured:
    """Run the three proxies and return what they took."""
    owner = resolve_owner(Identity(key=KEY), "api_key")
    assert owner is not None  # noqa: S101 - a key always has an owner
    filled = folder / "filled"
    say(f"storing {options.memories} memories")
    corpus.fill(filled, owner=owner, memories=options.memories, seed=options.seed)
    with upstream() as url:
        say("starting one proxy without the plugin and one with it")
        sequential, concurrent = compare(options, folder, filled, url)
        say("starting a proxy whose hooks are timed")
        return Measured(sequential, concurrent, *time_hooks(options, folder, filled, url))


def compare(
    options: Options, folder: Path, filled: Path, url: str
) -> tuple[list[Round], list[Round]]:
    """Send the same questions to a proxy without and one with the plugin, in turns."""
    setup = ProxySetup(with_plugin=True, env=MEMORY_ON)
    bare = Proxy(folder / "without", upstream_url=url, setup=ProxySetup())
    full = Proxy(folder / "with", upstream_url=url, setup=setup)
    shutil.copytree(filled, full.data_dir, dirs_exist_ok=True)
    few, many = asked(options)
    with (
        bare,
        full,
        Sender(bare, concurrency=1) as bare_one,
        Sender(full, concurrency=1) as full_one,
        Sender(bare, concurrency=CONCURRENCY) as bare_many,
        Sender(full, concurrency=CONCURRENCY) as full_many,
    ):
        for sender in (bare_one, full_one, bare_many, full_many):
            sender.send(few[:WARM_UP])
        say(f"sequential: {len(few)} requests to each")
        sequential = alternate(bare_one, full_one, few, block=BLOCK, settle_s=SETTLE_S)
        say(f"{CONCURRENCY} at once: {len(many)} requests to each")
        concurrent = alternate(
            bare_many, full_many, many, block=CONCURRENT_BLOCK, settle_s=SETTLE_S
        )
    return sequential, concurrent


def time_hooks(
    options: Options, folder: Path, filled: Path, url: str
) -> tuple[HookTimes, HookTimes]:
    """Return the times inside of the hooks, sequential and at once."""
    log = folder / "hooks.jsonl"
    setup = ProxySetup(
        callbacks=(f"{HOOK_CLOCK.stem}.handler",),
        modules=(HOOK_CLOCK,),
        env={**MEMORY_ON, "HOOK_CLOCK_LOG": str(log)},
    )
    timed = Proxy(folder / "timed", upstream_url=url, setup=setup)
    shutil.copytree(filled, timed.data_dir, dirs_exist_ok=True)
    few, many = asked(options)
    with (
        timed,
        Sender(timed, concurrency=1) as one,
        Sender(timed, concurrency=CONCURRENCY) as several,
    ):
        one.send(few[:WARM_UP])
        warm = read_hook_times(log)
        one.send(few)
        sequential = read_hook_times(log, after=len(warm.totals))
        several.send(many)
        concurrent = read_hook_times(log, after=len(warm.totals) + len(few))
    return sequential, concurrent


def asked(options: Options) -> tuple[list[str], list[str]]:
    """Return the questions of the two phases, shuffled, in whole rounds."""
    few = whole_rounds(options.requests, block=BLOCK)
    many = whole_rounds(2 * options.requests, block=CONCURRENT_BLOCK)
    questions = corpus.questions(few + many, seed=options.seed)
    random.Random(options.seed).shuffle(questions)
    return questions[:few], questions[few:]


def whole_rounds(requests: int, *, block: int) -> int:
    """Round a number of requests up to whole rounds of two blocks, at least one round."""
    size = 2 * block
    return max(1, -(-requests // size)) * size


def circumstances(options: Options, measured: Measured) -> str:
    """Say on what machine and with how much load the figures were taken."""
    return "\n".join(
        (
            f"{os.cpu_count()} cores, load {os.getloadavg()[1]:.1f} over 5 minutes, "
            f"Python {platform.python_version()}, LiteLLM {version('litellm')}",
            f"{options.memories} memories, seed {options.seed}; requests to each proxy: "
            f"{len(answers_of(pooled(measured.sequential, with_plugin=True)))} sequential, "
            f"{len(answers_of(pooled(measured.concurrent, with_plugin=True)))} "
            f"at {CONCURRENCY} at once",
            f"memory sequential: {outcomes(pooled(measured.sequential, with_plugin=True))}",
            f"memory at {CONCURRENCY} at once: "
            f"{outcomes(pooled(measured.concurrent, with_plugin=True))}",
            "loop blocked: one step of a hook between two awaits, in wall time, with whatever else "
            "ran on the machine; by CPU: what the loop's thread itself ran in it",
        )
    )


def say(text: str) -> None:
    """Tell how far the run is, apart from its result."""
    print(text, file=sys.stderr, flush=True)


def parsed(arguments: Sequence[str] | None) -> Options:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="bench/overhead.py", description="Measure what memory costs a LiteLLM proxy."
    )
    parser.add_argument(
        "--requests", type=int, default=300, help="to each proxy, one after another (300)"
    )
    parser.add_argument(
        "--memories", type=int, default=10_000, help="that the caller has stored (10000)"
    )
    parser.add_argument("--seed", type=int, default=1, help="of memories and questions (1)")
    read = parser.parse_args(arguments)
    if read.requests < 1 or read.memories < 1:
        parser.error("--requests and --memories must be at least 1")
    return Options(read.requests, read.memories, read.seed)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    options = parsed(arguments)
    with tempfile.TemporaryDirectory(prefix="omniroute-overhead-") as folder:
        measured = measure(options, Path(folder))
    print(rendered(table(measured, seed=options.seed)))
    print()
    print(circumstances(options, measured))
    return 0


if __name__ == "__main__":
    sys.exit(main())
