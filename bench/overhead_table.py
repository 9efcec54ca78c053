"""The table of the overhead benchmark: each figure, its target, and whether it was met."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from bench.estimates import Estimate, bootstrap, percentile
from bench.hook_times import HookTimes
from bench.load import (
    CONCURRENCY,
    Block,
    Round,
    answers_of,
    cpu_per_request,
    latency,
    pooled,
    throughput,
)

MAX_CPU_RATIO: Final = 1.10
MIN_THROUGHPUT_RATIO: Final = 0.95
MAX_P50_MS: Final = 2.0
MAX_P95_MS: Final = 5.0
MAX_BLOCKED_MS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Measured:
    """Everything that one run of the benchmark found."""

    sequential: list[Round]
    concurrent: list[Round]
    hooks: HookTimes
    concurrent_hooks: HookTimes


@dataclass(frozen=True, slots=True)
class Line:
    """One row of the table. ``is_met`` is None for a figure without a target."""

    figure: str
    without: str
    with_plugin: str
    added: str
    target: str = ""
    is_met: bool | None = None


def table(measured: Measured, *, seed: int) -> list[Line]:
    """Compute every figure of the report."""
    sequential, concurrent = measured.sequential, measured.concurrent
    hooks, busy = measured.hooks, measured.concurrent_hooks

    def compared(
        figure: str,
        rounds: list[Round],
        statistic: Callable[[Sequence[Block]], float],
        *,
        target: str = "",
        is_met: Callable[[float], bool] | None = None,
    ) -> Line:
        estimate = ratio(rounds, statistic, seed=seed)
        return Line(
            figure,
            f"{statistic(pooled(rounds, with_plugin=False)):.1f}",
            f"{statistic(pooled(rounds, with_plugin=True)):.1f}",
            f"x {estimate.value:.3f} [{estimate.low:.3f}, {estimate.high:.3f}]",
            target,
            None if is_met is None else is_met(estimate.value),
        )

    def spent(figure: str, value: float, *, at_most: float | None = None) -> Line:
        target = "" if at_most is None else f"<= {at_most:g} ms"
        is_met = None if at_most is None else value <= at_most
        return Line(figure, "", f"{value:.2f}", "", target, is_met)

    at_once = f"{CONCURRENCY} at once"
    return [
        compared(
            "CPU per request, ms",
            sequential,
            cpu_per_request,
            target=f"<= x {MAX_CPU_RATIO:.2f}",
            is_met=lambda value: value <= MAX_CPU_RATIO,
        ),
        compared(f"CPU per request, {at_once}, ms", concurrent, cpu_per_request),
        spent("hooks per request p50, ms", percentile(hooks.totals, 0.5), at_most=MAX_P50_MS),
        spent("hooks per request p95, ms", percentile(hooks.totals, 0.95), at_most=MAX_P95_MS),
        spent("hooks per request p99, ms", percentile(hooks.totals, 0.99)),
        spent("loop blocked, longest, ms", max(hooks.steps), at_most=MAX_BLOCKED_MS),
        spent("loop blocked, p99, ms", percentile(hooks.steps, 0.99)),
        spent("loop blocked, longest by CPU, ms", max(hooks.cpu_steps)),
        *(
            spent(f"  {name} p50, ms", percentile(times, 0.5))
            for name, times in hooks.by_hook.items()
        ),
        spent(f"hooks per request p50, {at_once}, ms", percentile(busy.totals, 0.5)),
        spent(f"hooks per request p95, {at_once}, ms", percentile(busy.totals, 0.95)),
        spent(f"loop blocked, longest, {at_once}, ms", max(busy.steps)),
        spent(f"loop blocked, longest by CPU, {at_once}, ms", max(busy.cpu_steps)),
        compared("latency p50, ms", sequential, lambda blocks: latency(blocks, 0.5)),
        compared("latency p95, ms", sequential, lambda blocks: latency(blocks, 0.95)),
        compared(f"latency p50, {at_once}, ms", concurrent, lambda blocks: latency(blocks, 0.5)),
        compared(f"latency p95, {at_once}, ms", concurrent, lambda blocks: latency(blocks, 0.95)),
        compared(
            f"requests per s, {at_once}",
            concurrent,
            throughput,
            target=f">= x {MIN_THROUGHPUT_RATIO:.2f}",
            is_met=lambda value: value >= MIN_THROUGHPUT_RATIO,
        ),
    ]


def ratio(
    rounds: Sequence[Round], statistic: Callable[[Sequence[Block]], float], *, seed: int
) -> Estimate:
    """Estimate how many times higher a figure is with the plugin."""
    return bootstrap(
        rounds,
        lambda drawn: (
            statistic(pooled(drawn, with_plugin=True)) / statistic(pooled(drawn, with_plugin=False))
        ),
        seed=seed,
    )


def rendered(lines: Sequence[Line]) -> str:
    """Lay the table out in columns."""
    verdicts = {True: "met", False: "NOT MET", None: ""}
    rows = [
        ("figure", "without", "with", "with / without [95 %]", "target", ""),
        *(
            (
                line.figure,
                line.without,
                line.with_plugin,
                line.added,
                line.target,
                verdicts[line.is_met],
            )
            for line in lines
        ),
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def outcomes(blocks: Sequence[Block]) -> str:
    """Count what the plugin said about its requests, with the time of a retrieval."""
    answers = answers_of(blocks)
    counts = Counter(answer.outcome for answer in answers)
    named = ", ".join(f"{count} {outcome}" for outcome, count in counts.most_common())
    times = [answer.retrieval_ms for answer in answers]
    return (
        f"{named}; retrieval p50 {percentile(times, 0.5):.1f} ms, "
        f"p95 {percentile(times, 0.95):.1f} ms"
    )
