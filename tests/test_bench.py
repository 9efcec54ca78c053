"""The pure parts of the benchmarks, and that their commands explain themselves."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from bench import corpus
from bench.estimates import Estimate, bootstrap, percentile
from bench.load import Answered, Block, Round, cpu_per_request, latency, throughput
from bench.overhead import main, whole_rounds
from bench.overhead_table import Line, ratio, rendered

OVERHEAD: Final = Path(__file__).parents[1] / "bench" / "overhead.py"


def block(cpu_ms: float, *, latencies: Sequence[float] = (10.0, 20.0)) -> Block:
    """Return a block of one second."""
    return Block(tuple(Answered(ms, "", 0.0) for ms in latencies), 1.0, cpu_ms)


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


@pytest.mark.parametrize(("share", "expected"), [(0.0, 1), (0.5, 50), (0.95, 95), (1.0, 100)])
def test_percentile_is_the_nearest_rank(share: float, expected: int) -> None:
    """Of 1 to 100 each percentile is its own number, in whatever order they come."""
    assert percentile(list(range(100, 0, -1)), share) == expected


def test_bootstrap_of_equal_units_has_no_width() -> None:
    """Where every unit says the same there is nothing to be uncertain about."""
    assert bootstrap([2.0] * 5, mean, seed=1) == Estimate(2.0, 2.0, 2.0)


def test_bootstrap_matches_the_standard_error_of_a_mean() -> None:
    """For a mean the interval is the one of theory: 1.96 standard errors to each side."""
    values = [float(number) for number in range(101)]
    error = 1.96 * mean([(value - 50) ** 2 for value in values]) ** 0.5 / len(values) ** 0.5
    found = bootstrap(values, mean, seed=1)
    assert found.value == 50
    assert found.low == pytest.approx(50 - error, abs=0.6)
    assert found.high == pytest.approx(50 + error, abs=0.6)


def test_bootstrap_repeats_with_its_seed() -> None:
    """The same seed gives the same interval, another one nearly the same."""
    values = [1.0, 4.0, 2.0, 8.0, 5.0, 7.0]
    assert bootstrap(values, mean, seed=3) == bootstrap(values, mean, seed=3)


def test_ratio_pairs_what_was_measured_side_by_side() -> None:
    """A load that slows both proxies of a round alike leaves their ratio alone."""
    rounds = [Round((block(cpu),), (block(1.1 * cpu),)) for cpu in (20.0, 80.0, 35.0, 50.0)]
    found = ratio(rounds, cpu_per_request, seed=1)
    assert (found.value, found.low, found.high) == pytest.approx((1.1, 1.1, 1.1))


def test_figures_of_blocks() -> None:
    """CPU counts per request, throughput per second, latency over the requests of all blocks."""
    blocks = [block(30.0), block(50.0, latencies=(30.0, 40.0))]
    assert cpu_per_request(blocks) == 20
    assert throughput(blocks) == 2
    assert latency(blocks, 0.5) == 20
    assert latency(blocks, 1.0) == 40


@pytest.mark.parametrize(("requests", "expected"), [(1, 20), (20, 20), (21, 40), (300, 300)])
def test_requests_fill_whole_rounds(requests: int, expected: int) -> None:
    """Both proxies get as many requests in front of the other as behind it."""
    assert whole_rounds(requests, block=10) == expected


def test_memories_are_varied_and_the_same_for_a_seed() -> None:
    """Hardly a sentence comes twice, and a seed gives the same ones again."""
    texts = [text for _, text in corpus.sentences(1_000, seed=1)]
    assert texts == [text for _, text in corpus.sentences(1_000, seed=1)]
    assert texts != [text for _, text in corpus.sentences(1_000, seed=2)]
    assert len(set(texts)) > 800


def test_table_says_what_was_met() -> None:
    """A row with a target has a verdict, one without has none."""
    lines = [
        Line("a", "1", "2", "x 2", "<= x 1.1", is_met=False),
        Line("b", "1", "1", "x 1", "<= x 1.1", is_met=True),
        Line("c", "", "3", ""),
    ]
    rows = rendered(lines).splitlines()[1:]
    assert [row.split("  ")[-1].strip() for row in rows] == ["NOT MET", "met", "3"]


def test_overhead_explains_itself() -> None:
    """The script runs from anywhere and names its options."""
    done = subprocess.run(
        [sys.executable, str(OVERHEAD), "--help"],
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
    )
    assert all(option in done.stdout for option in ("--requests", "--memories", "--seed"))


def test_overhead_refuses_a_run_without_requests(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing can be measured without a request."""
    with pytest.raises(SystemExit):
        main(["--requests", "0"])
    assert "at least 1" in capsys.readouterr().err
