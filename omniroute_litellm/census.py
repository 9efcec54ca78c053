"""Which memories of an owner a scope may read: what may not is in no count and takes no place."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

MAX_HELD: Final = 16
"""So many are held for one owner: one for each session that asked last."""


@dataclass(frozen=True, slots=True)
class Census:
    """The memories of one owner as they were at ``taken_at``, named by sequence number.

    ``documents`` is how many were ever stored then, ``readable`` how many may be read.
    ``closed`` has a 1 in the place of each that may not; it is empty where all may. ``until`` is
    when the first of them expires or ages out, None when none ever does.
    """

    documents: int
    readable: int
    closed: bytes
    taken_at: datetime
    until: datetime | None

    def covers(self, now: datetime) -> bool:
        """Tell whether a moment finds the same memories readable, as long as none is changed."""
        return self.taken_at <= now and (self.until is None or now < self.until)

    def open_of(self, numbers: Sequence[int]) -> Sequence[int]:
        """Return those of some numbers that may be read, in their order."""
        closed = self.closed
        if not closed:
            return numbers
        return [number for number in numbers if number >= len(closed) or not closed[number]]

    def joined(self, newer: "Census") -> "Census":
        """Return this census with that of the memories that were stored since."""
        ends = [each for each in (self.until, newer.until) if each is not None]
        return Census(
            documents=newer.documents,
            readable=self.readable + newer.readable,
            closed=_either(self.closed, newer.closed),
            taken_at=max(self.taken_at, newer.taken_at),
            until=min(ends, default=None),
        )


def closed_at(numbers: Iterable[int]) -> bytes:
    """Return a table with a 1 in the place of each number."""
    marked = sorted(numbers)
    table = bytearray(marked[-1] + 1 if marked else 0)
    for number in marked:
        table[number] = 1
    return bytes(table)


def _either(first: bytes, second: bytes) -> bytes:
    if not first or not second:
        return first or second
    # The second names later numbers alone: behind the end of the first.
    return first + second[len(first) :]
