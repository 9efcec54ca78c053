"""Read a text sentence by sentence and clause by clause, and yield the facts it states."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from omniroute_litellm.extraction import screens
from omniroute_litellm.extraction.english import ENGLISH
from omniroute_litellm.extraction.keys import slug
from omniroute_litellm.extraction.patterns import FLAGS, TYPE_OF, Language, Pattern
from omniroute_litellm.extraction.screens import MIN_CAPTURE, Drop, Screen
from omniroute_litellm.extraction.sources import spoken_prose
from omniroute_litellm.types import Category, Fact, Speaker

MAX_CONTENT: Final = 500
MAX_CLAUSE: Final = 2_000
"""A longer clause is no sentence that somebody said; what follows its start is not read."""
_MAX_OPENINGS: Final = 4

_SENTENCE_END: Final = re.compile(r"""[.!?…]{1,10}["'”’)\]]{0,3}(?=\s|$)|[。！？]|\n""")
_QUOTED: Final = re.compile(r"""["“]([^"“”\n]{1,1000})["”]""")
_EDGES: Final = " \t\r\n\f\v*_\"'“”‘’.,;:!?…()[]"
_BLANKS: Final = re.compile(r"\s+")

Sources = Literal["both", "user", "assistant"]
DEFAULT_LANGUAGES: Final = (ENGLISH,)
DEFAULT_SCREENS: Final[tuple[Screen, ...]] = (screens.whole, screens.named)


@dataclass(frozen=True, slots=True)
class _Reader:
    """A language with its expressions compiled."""

    language: Language
    abbreviation: re.Pattern[str]
    boundary: re.Pattern[str]
    opening: re.Pattern[str]
    closing: re.Pattern[str]
    not_a_fact: re.Pattern[str]
    no_object: re.Pattern[str]
    past: re.Pattern[str]
    self_talk: re.Pattern[str]
    self_talk_object: dict[Category, re.Pattern[str]]
    speech: re.Pattern[str]

    @classmethod
    def of(cls, language: Language) -> "_Reader":
        def compiled(expression: str) -> re.Pattern[str]:
            return re.compile(expression, FLAGS)

        return cls(
            language=language,
            abbreviation=compiled(language.abbreviation),
            boundary=compiled(language.boundary),
            opening=compiled(language.opening),
            closing=compiled(language.closing),
            not_a_fact=compiled(language.not_a_fact),
            no_object=compiled(language.no_object),
            past=compiled(language.past),
            self_talk=compiled(language.self_talk),
            self_talk_object={
                category: compiled(expression)
                for category, expression in language.self_talk_object.items()
            },
            speech=compiled(language.speech),
        )


class Extractor:
    """Finds facts. Any text is valid; the same text always yields the same facts.

    Time is linear in the text: sentences and clauses are cut by one scan each, and a pattern is
    tried only at the start of a clause.
    """

    def __init__(
        self,
        languages: Sequence[Language] = DEFAULT_LANGUAGES,
        checks: Sequence[Screen] = DEFAULT_SCREENS,
    ) -> None:
        self._readers = [_Reader.of(language) for language in languages]
        self._checks = tuple(checks)

    def extract(self, text: str, *, speaker: Speaker) -> tuple[Fact, ...]:
        """Return the facts of one speaker's text, one a key: the newest wording holds.

        ``span`` counts from the start of the last 64 KiB of a longer text.
        """
        prose = spoken_prose(text)
        facts: dict[str, Fact] = {}
        for reader in self._readers:
            for fact in _facts(reader, prose, speaker):
                if not any(isinstance(check(fact), Drop) for check in self._checks):
                    facts.pop(fact.key, None)
                    facts[fact.key] = fact
        return tuple(facts.values())

    def extract_exchange(
        self, user_text: str, answer_text: str, *, sources: Sources
    ) -> tuple[Fact, ...]:
        """Return the facts of a turn; where both speakers state a key, the person's holds."""
        facts: dict[str, Fact] = {}
        if sources != "user":
            facts.update({f.key: f for f in self.extract(answer_text, speaker=Speaker.ASSISTANT)})
        if sources != "assistant":
            facts.update({f.key: f for f in self.extract(user_text, speaker=Speaker.USER)})
        return tuple(facts.values())


def _facts(reader: _Reader, prose: str, speaker: Speaker) -> Iterator[Fact]:
    prose = _without_speech(reader, prose)
    for start, end in _sentences(reader, prose):
        sentence = prose[start:end]
        if reader.not_a_fact.search(sentence):
            continue
        if speaker is Speaker.ASSISTANT and reader.self_talk.search(sentence):
            continue
        for clause_start, clause_end in _clauses(reader, sentence):
            fact = _fact(reader, prose, start + clause_start, start + clause_end, speaker)
            if fact is not None:
                yield fact


def _without_speech(reader: _Reader, prose: str) -> str:
    """Blank out quotations in which somebody else says "I"."""

    def blank(match: re.Match[str]) -> str:
        return "\ufffc" * len(match[0]) if reader.speech.match(match[1]) else match[0]

    return _QUOTED.sub(blank, prose)


def _sentences(reader: _Reader, prose: str) -> Iterator[tuple[int, int]]:
    """Return the bounds of every sentence that is no question."""
    start = 0
    for match in _SENTENCE_END.finditer(prose):
        if match[0] == "." and reader.abbreviation.search(
            prose[max(start, match.start() - 8) : match.start()]
        ):
            continue
        if "?" not in match[0] and "？" not in match[0]:
            yield start, match.start()
        start = match.end()
    yield start, len(prose)


def _clauses(reader: _Reader, sentence: str) -> Iterator[tuple[int, int]]:
    start = 0
    for match in reader.boundary.finditer(sentence):
        yield start, match.start()
        start = match.end()
    yield start, len(sentence)


def _fact(reader: _Reader, prose: str, start: int, end: int, speaker: Speaker) -> Fact | None:
    start, end = _trimmed(reader, prose, start, min(end, start + MAX_CLAUSE))
    clause = prose[start:end]
    for pattern in reader.language.patterns:
        match = pattern.compiled.match(clause)
        if match:
            return _checked(reader, pattern, match, start, speaker)
    return None


def _trimmed(reader: _Reader, prose: str, start: int, end: int) -> tuple[int, int]:
    """Move the bounds of a clause past what may stand before and after a statement."""
    for _ in range(_MAX_OPENINGS):
        while start < end and prose[start] in _EDGES and prose[start] not in "*-":
            start += 1
        match = reader.opening.match(prose, start, end)
        if match is None:
            break
        start = match.end()
    while start < end and prose[start] in _EDGES:
        start += 1
    while end > start and prose[end - 1] in _EDGES:
        end -= 1
    tail = reader.closing.search(prose, max(start, end - 40), end)
    return start, tail.start() if tail else end


def _checked(
    reader: _Reader, pattern: Pattern, match: re.Match[str], start: int, speaker: Speaker
) -> Fact | None:
    capture = _BLANKS.sub(" ", match["object"]).strip(_EDGES)
    if len(capture) < MIN_CAPTURE and capture.casefold() not in reader.language.short_names:
        return None
    if reader.no_object.fullmatch(capture):
        return None
    if pattern.category is Category.PATTERN and reader.past.match(capture):
        return None
    if speaker is Speaker.ASSISTANT and reader.self_talk_object[pattern.category].match(capture):
        return None
    content = _BLANKS.sub(" ", match[0]).strip()
    if len(content) > MAX_CONTENT:
        content = content[:MAX_CONTENT].rpartition(" ")[0] or content[:MAX_CONTENT]
    return Fact(
        category=pattern.category,
        type=TYPE_OF[pattern.category],
        key=f"{pattern.category}:{slug(capture)}",
        content=content,
        capture=capture[:MAX_CONTENT],
        polarity=pattern.polarity,
        language=reader.language.name,
        pattern_id=pattern.id,
        speaker=speaker,
        span=(start, start + match.end()),
    )
