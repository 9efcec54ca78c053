"""Percentiles and bootstrap intervals. Pure functions."""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

T = TypeVar("T")

RESAMPLES: Final = 2_000
COVERAGE: Final = 0.95


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure with the interval that holds it in 95 of 100 repetitions."""

    value: float
    low: float
    high: float


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below or at which this share of the values lies (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def bootstrap(
    units: Sequence[T], statistic: Callable[[Sequence[T]], float], *, seed: int
) -> Estimate:
    """Estimate a statistic of independent units by the percentile bootstrap.

    Whole units are drawn again, so that what belongs together within one stays together. Source:
    Efron and Tibshirani, An Introduction to the Bootstrap (1993), chapter 13.
    """
    draw = random.Random(seed)
    drawn = [statistic(draw.choices(units, k=len(units))) for _ in range(RESAMPLES)]
    tail = (1 - COVERAGE) / 2
    return Estimate(statistic(units), percentile(drawn, tail), percentile(drawn, 1 - tail))
