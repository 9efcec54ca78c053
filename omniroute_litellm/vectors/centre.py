"""Cosines as they are seen from the centre of an owner's memories."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from omniroute_litellm.vectors.base import Rows, Vector

SHARE: Final = 0.7
"""How far towards their mean the memories are looked at from, among many of them.

What all of an owner's memories have in common says nothing about one of them; taking the mean off
spreads them (Mu and Viswanath, All-but-the-Top, ICLR 2018). Found within ten by scores at 0.6, 0.7
and 0.8, the data it was chosen on: 69.5, 69.4 and 69.1 % of three LoCoMo conversations (495
questions), 85.1, 87.4 and 87.4 % of 87 short English questions.
"""
FEW: Final = 1
"""The mean of so many memories is trusted half: one alone has nothing in common with others."""
DIGITS: Final = 5
"""Cosines are told to so many: beyond it equal rows differ by where they lie in memory."""


def told(cosines: Vector) -> Vector:
    """Return cosines to as many digits as they are good for."""
    return np.asarray(np.round(cosines, DIGITS), dtype=np.float32)


@dataclass(frozen=True, slots=True)
class Centre:
    """A point that vectors are seen from."""

    point: Vector

    def seen(self, rows: Rows) -> Rows:
        """Return rows as directions from here, of unit length; rows of zeros stay."""
        moved = rows - self.point
        lengths = self.distances(rows)[:, None]
        return np.divide(moved, lengths, out=np.zeros_like(moved), where=np.isfinite(lengths))

    def distances(self, rows: Rows) -> Vector:
        """Return how far each of some rows of unit length is; a row of zeros is infinitely far."""
        point = float(self.point @ self.point)
        squares = np.maximum(1.0 + point - 2.0 * (rows @ self.point), 1e-12)
        squares[~rows.any(axis=1)] = np.inf
        return np.sqrt(squares)


def centre_of(total: NDArray[np.floating], count: int) -> Centre:
    """Return the centre of so many rows, which sum up to ``total``."""
    return Centre((SHARE * total / (count + FEW)).astype(np.float32))
