"""Which memories of an owner hold the terms of a query: as words, and as words nearly alike."""

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast

from omniroute_litellm.census import Census
from omniroute_litellm.sqlite import Connection, Value, quoted
from omniroute_litellm.trigrams import holding_alike, pieces_of

MAX_HOLDING: Final = 10_000
"""So many memories that hold one term are looked at, the newest; how many there are is counted."""
TRIGRAMS_UP_TO: Final = 10_000
"""Owners with more memories are searched by whole words alone."""
FEW_MATCHES: Final = 5
MAX_HOLDING_TRIGRAM: Final = 2_000
"""Three letters that so many memories hold tell nothing."""
_ALL: Final = -1
"""No limit, in SQLite's words."""


# What there is of one term for one owner is a range of the index. Sequence numbers are shorter
# than keys: half of the text that is to be read.
_HOLDING: Final = """
(SELECT json_group_array(rowid - :first) FROM (
    SELECT rowid FROM {1} WHERE {1} MATCH :term{0} AND rowid BETWEEN :first AND :last
    ORDER BY rowid DESC LIMIT :most
))
"""
_COUNT: Final = """
SELECT count(*) FROM memory_fts WHERE memory_fts MATCH :term AND rowid BETWEEN :first AND :last
"""


@dataclass(frozen=True, slots=True)
class Held:
    """The memories of one owner that hold a term: how many, and the newest of them."""

    numbers: Sequence[int]
    count: int


@dataclass(frozen=True, slots=True)
class OwnerTerms:
    """What one owner's part of the word indexes is read by, and what of it may be read."""

    connection: Connection
    values: Mapping[str, Value]
    documents: int
    census: Census

    def holding(self, terms: Sequence[str]) -> list[Held]:
        """Return the memories that hold each term and may be read."""
        found: list[Held] = []
        for term, numbers in zip(terms, self._numbers(terms, most=MAX_HOLDING), strict=True):
            is_cut = len(numbers) == MAX_HOLDING
            if is_cut and not self.census.closed:
                found.append(Held(numbers, self._count(term)))
                continue
            every = self._numbers([term], most=_ALL)[0] if is_cut else numbers
            readable = self.census.open_of(every)
            found.append(Held(readable[:MAX_HOLDING], len(readable)))
        return found

    def alike(self, terms: Sequence[str]) -> list[Held]:
        """Return the memories that hold a word nearly like a term, for each that has letters."""
        pieces = pieces_of(terms)
        if self.documents > TRIGRAMS_UP_TO or not pieces:
            return [Held((), 0) for _ in pieces]
        trigrams = list(dict.fromkeys(each for piece in pieces for each in piece))
        numbers = self._numbers(trigrams, most=MAX_HOLDING_TRIGRAM, index="memory_trigrams")
        held = dict(zip(trigrams, numbers, strict=True))
        found: list[Held] = []
        for piece in pieces:
            telling = [held[each] for each in piece if len(held[each]) < MAX_HOLDING_TRIGRAM]
            readable = self.census.open_of(holding_alike(telling) if telling else [])
            found.append(Held(readable, len(readable)))
        return found

    def _numbers(
        self, terms: Sequence[str], *, most: int, index: str = "memory_fts"
    ) -> list[list[int]]:
        """Return the sequence numbers of the memories that hold each term, the newest first."""
        named: dict[str, Value] = {f"term{at}": quoted(term) for at, term in enumerate(terms)}
        values = {**self.values, **named, "most": most}
        found = self.connection.execute(_searching(len(terms), index), values).fetchall()[0]
        return [json.loads(str(numbers)) for numbers in found]

    def _count(self, term: str) -> int:
        """Return how many memories of an owner hold a term."""
        values = {**self.values, "term": quoted(term)}
        return cast("int", self.connection.execute(_COUNT, values).fetchall()[0][0])


def all_holding(
    owners: Sequence[OwnerTerms], terms: Sequence[str], *, is_ascii: bool
) -> list[list[Held]]:
    """Return for each owner the memories that hold each term, as many lists for each.

    Words nearly alike follow behind, for the terms that no memory holds as they are, where the
    query is not ASCII or its words find fewer than five memories.
    """
    found = [owner.holding(terms) for owner in owners]
    numbers = [set(held.numbers) for each in found for held in each]
    is_few = len(set[int]().union(*numbers)) < FEW_MATCHES
    unheld = [at for at in range(len(terms)) if not any(each[at].count for each in found)]
    if unheld and (is_few or not is_ascii):
        for owner, each in zip(owners, found, strict=True):
            each += owner.alike([terms[at] for at in unheld])
    return found


@functools.cache
def _searching(terms: int, index: str) -> str:
    return "SELECT " + ", ".join(_HOLDING.format(at, index) for at in range(terms))
