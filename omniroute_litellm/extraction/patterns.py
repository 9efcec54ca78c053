"""The shape of a language: what its sentences look like when they state a fact."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from omniroute_litellm.types import Category, MemoryType, Polarity

TYPE_OF: Final[Mapping[Category, MemoryType]] = {
    Category.PREFERENCE: MemoryType.FACTUAL,
    Category.DECISION: MemoryType.EPISODIC,
    Category.PATTERN: MemoryType.FACTUAL,
}

FLAGS: Final = re.IGNORECASE


@dataclass(frozen=True, slots=True)
class Pattern:
    """One way to state a fact.

    ``expression`` is matched at the start of a clause; its group ``object`` is the capture. It
    must match in linear time: bounded repetition, no nested quantifiers.
    """

    id: str
    category: Category
    polarity: Polarity
    expression: str
    compiled: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "compiled", re.compile(self.expression, FLAGS))


@dataclass(frozen=True, slots=True)
class Language:
    """The patterns of a language and the words around them that change what they mean.

    Every field but ``name``, ``patterns`` and ``short_names`` is a regular expression:
    ``abbreviation`` ends a text before a dot that ends no sentence; ``boundary`` separates two
    clauses; ``opening`` is what may stand before a statement without changing it; ``closing``
    what may follow it; ``not_a_fact`` anywhere in a sentence takes its facts away; ``no_object``
    is a whole capture that names nothing; ``past`` a first word that tells of the past;
    ``self_talk`` anywhere in a sentence of the assistant takes its facts away, as do the
    captures of ``self_talk_object`` per category; ``speech`` opens a quotation that speaks.
    """

    name: str
    patterns: tuple[Pattern, ...]
    abbreviation: str
    boundary: str
    opening: str
    closing: str
    not_a_fact: str
    no_object: str
    past: str
    self_talk: str
    self_talk_object: Mapping[Category, str]
    speech: str
    short_names: frozenset[str]
