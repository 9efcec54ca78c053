"""The shape of a language: what its sentences look like when they state a fact."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from omniroute_litellm.types import Category, MemoryType, Polarity

TYPE_OF: Final[Mapping[Category, MemoryType]] = {
    Category.PREFERENCE: MemoryType.FACTUAL,
    Category.DECISION: MemoryType.EPISODIC,
    Category.PATTERN: MemoryType.FACTUAL,
}


def phrase(expression: str) -> re.Pattern[str]:
    """Compile an expression in which a blank stands for any run of white space.

    Every expression of a language is made by this, and must match in linear time: bounded
    repetition, no nested quantifiers.
    """
    return re.compile(expression.replace(" ", r"\s{1,20}"), re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Pattern:
    """One way to state a fact.

    ``expression`` is matched at the start of a clause; its group ``object`` is the capture.
    """

    id: str
    category: Category
    polarity: Polarity
    expression: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class Language:
    """The patterns of a language and the words around them that change what they mean.

    ``abbreviation`` ends a text before a dot that ends no sentence, unless ``first_person``
    follows; ``boundary`` separates two clauses, unless all before it is ``fronted``; ``opening``
    is what may stand before a statement without changing it; ``closing`` what may follow it.

    ``not_a_fact`` anywhere in a sentence takes its facts away; ``no_object`` is a whole capture
    that names nothing; ``first_person`` in a quotation makes it somebody else's; ``dictation``
    ends where a text begins that is given to be worked on.

    ``self_talk`` anywhere in a sentence of the assistant takes its facts away, as do captures
    that begin with the ``self_talk_object`` of their category.
    """

    name: str
    patterns: tuple[Pattern, ...]
    abbreviation: re.Pattern[str]
    boundary: re.Pattern[str]
    fronted: re.Pattern[str]
    opening: re.Pattern[str]
    closing: re.Pattern[str]
    not_a_fact: re.Pattern[str]
    no_object: re.Pattern[str]
    first_person: re.Pattern[str]
    dictation: re.Pattern[str]
    self_talk: re.Pattern[str]
    self_talk_object: Mapping[Category, re.Pattern[str]]
    short_names: frozenset[str]
