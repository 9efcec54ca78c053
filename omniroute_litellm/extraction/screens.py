"""Checks that every fact passes before it may be stored, in order; the first refusal counts.

A further check (secrets, instructions) is a function of this shape in the extractor's list.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from omniroute_litellm.extraction.sources import HOLE
from omniroute_litellm.types import Fact

MIN_CAPTURE: Final = 3


@dataclass(frozen=True, slots=True)
class Keep:
    """The fact goes on."""


@dataclass(frozen=True, slots=True)
class Drop:
    """The fact ends here; ``reason`` is a machine code."""

    reason: str


Verdict = Keep | Drop
Screen = Callable[[Fact], Verdict]


def whole(fact: Fact) -> Verdict:
    """Refuse a clause out of which code was cut: what is left may say something else."""
    return Drop("cut_out") if HOLE in fact.content else Keep()


def named(fact: Fact) -> Verdict:
    """Refuse a capture in which no slot can be named."""
    return Keep() if fact.key.partition(":")[2] else Drop("no_key")
