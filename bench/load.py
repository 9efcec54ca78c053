"""Send requests to proxies in turns, and read what each turn cost."""

import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx

from bench.corpus import conversation
from bench.estimates import percentile
from tests.proxy.process import Proxy

KEY: Final = "sk-user-bench"
MODEL: Final = "gpt"
CONCURRENCY: Final = 16
OUTCOME: Final = "x-omniroute-memory"
RETRIEVAL: Final = "x-omniroute-memory-ms"
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_UTIME: Final = 11
"""Position of the user time among the fields that follow the command's name (proc(5))."""


@dataclass(frozen=True, slots=True)
class Answered:
    """One request as its client saw it. ``outcome`` is what memory said, empty without the plugin.

    ``retrieval_ms`` is the wall time that the plugin names in the response.
    """

    latency_ms: float
    outcome: str
    retrieval_ms: float


@dataclass(frozen=True, slots=True)
class Block:
    """Requests sent to one proxy without a break; CPU counts to the start of its next block."""

    answers: tuple[Answered, ...]
    wall_s: float
    cpu_ms: float


@dataclass(frozen=True, slots=True)
class Round:
    """Neighbouring blocks of both proxies, which saw the same load of the machine."""

    without: tuple[Block, ...]
    with_plugin: tuple[Block, ...]


def cpu_ms(pid: int) -> float:
    """Return the user and system time of a process so far, over all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[_UTIME]) + int(fields[_UTIME + 1])) * 1000 / _TICKS_PER_S


class Sender:
    """A client of one proxy which keeps as many connections open as it sends requests at once."""

    def __init__(self, proxy: Proxy, *, concurrency: int) -> None:
        self.pid = proxy.pid
        self._client = proxy.client(KEY)
        self._pool = ThreadPoolExecutor(concurrency)

    def __enter__(self) -> "Sender":
        return self

    def __exit__(self, *_error: object) -> None:
        self._pool.shutdown()
        self._client.close()

    def send(self, questions: Sequence[str]) -> tuple[tuple[Answered, ...], float]:
        """Send every question and return the answers, and the seconds for all of them."""
        started = time.perf_counter()
        answers = tuple(self._pool.map(self._ask, questions))
        return answers, time.perf_counter() - started

    def _ask(self, question: str) -> Answered:
        body = {"model": MODEL, "messages": conversation(question)}
        started = time.perf_counter()
        response = self._client.post("/v1/chat/completions", json=body)
        latency_ms = (time.perf_counter() - started) * 1000
        response.raise_for_status()
        headers: httpx.Headers = response.headers
        return Answered(latency_ms, headers.get(OUTCOME, ""), float(headers.get(RETRIEVAL, 0)))


def alternate(
    without: Sender, with_plugin: Sender, questions: Sequence[str], *, block: int, settle_s: float
) -> list[Round]:
    """Send each question to both proxies, in blocks A B B A, and return the rounds.

    What a proxy still does after its block (extraction, records of requests) counts for it: its
    CPU is read when its next block begins, and ``settle_s`` after the last one.
    """
    senders = (without, with_plugin)
    sent: list[list[tuple[tuple[Answered, ...], float]]] = [[], []]
    marks: list[list[float]] = [[], []]
    for turn, some in _turns(questions, block):
        sender = senders[turn]
        marks[turn].append(cpu_ms(sender.pid))
        sent[turn].append(sender.send(some))
    time.sleep(settle_s)
    for sender, mark in zip(senders, marks, strict=True):
        mark.append(cpu_ms(sender.pid))
    blocks = [
        [
            Block(answers, wall_s, after - before)
            for (answers, wall_s), before, after in zip(done, mark[:-1], mark[1:], strict=True)
        ]
        for done, mark in zip(sent, marks, strict=True)
    ]
    return [
        Round(tuple(blocks[0][at : at + 2]), tuple(blocks[1][at : at + 2]))
        for at in range(0, len(blocks[0]), 2)
    ]


def _turns(questions: Sequence[str], block: int) -> Iterator[tuple[int, Sequence[str]]]:
    for at in range(0, len(questions), 2 * block):
        first, second = questions[at : at + block], questions[at + block : at + 2 * block]
        yield from ((0, first), (1, first), (1, second), (0, second))


def answers_of(blocks: Sequence[Block]) -> list[Answered]:
    """Return the answers of several blocks."""
    return [answer for block in blocks for answer in block.answers]


def cpu_per_request(blocks: Sequence[Block]) -> float:
    """Return the milliseconds of CPU for each request."""
    return sum(block.cpu_ms for block in blocks) / len(answers_of(blocks))


def throughput(blocks: Sequence[Block]) -> float:
    """Return the requests in a second."""
    return len(answers_of(blocks)) / sum(block.wall_s for block in blocks)


def latency(blocks: Sequence[Block], share: float) -> float:
    """Return a percentile of the latency in milliseconds."""
    return percentile([answer.latency_ms for answer in answers_of(blocks)], share)


def pooled(rounds: Sequence[Round], *, with_plugin: bool) -> list[Block]:
    """Return the blocks of one proxy."""
    return [block for one in rounds for block in (one.with_plugin if with_plugin else one.without)]
