"""Read a text sentence by sentence and clause by clause, and yield the facts it states."""

import re
from collections.abc import Iterator, Sequence
from typing import Final, Literal

from omniroute_litellm.extraction import screens
from omniroute_litellm.extraction.english import ENGLISH
from omniroute_litellm.extraction.keys import slug
from omniroute_litellm.extraction.patterns import TYPE_OF, Language, Pattern
from omniroute_litellm.extraction.screens import MIN_CAPTURE, Drop, Screen
from omniroute_litellm.extraction.sources import HOLE, spoken_prose
from omniroute_litellm.types import Fact, Speaker

MAX_CONTENT: Final = 500
MAX_CLAUSE: Final = 2_000
"""A longer clause is no sentence that somebody said; what follows its start is not read."""
_MAX_OPENINGS: Final = 4

_SENTENCE_END: Final = re.compile(r"""[.!?…]{1,10}["'”’)\]]{0,3}(?=\s|$)|[。！？]|\n""")
_QUOTED: Final = re.compile(r"""(?<!\w)["“„«]([^"“”„«»\n]{1,1000})["”“»](?!\w)""")
_EMPHASIS: Final = re.compile(r"(?<![\w*])(\*{1,3})(?=\S)([^*\n]{0,500}[^\s*])\1(?![\w*])")
_BEFORE: Final = f" \t\r\n\f\v*_.,;:!?…()]{HOLE}"
"""Never part of a statement in front of it; an opening quotation mark is no such thing."""
_BEHIND: Final = " \t\r\n\f\v*_.,;:!?…([“‘„«"
_OPENER_OF: Final = {
    ")": "(",
    "]": "[",
    "”": "“",
    "“": "„",
    "’": "‘",
    "»": "«",
    '"': ' "',
    "'": " '",
}
_BLANKS: Final = re.compile(r"\s+")
_LOOSE_COMMA: Final = re.compile(r"\s+(?=[,;])")

Sources = Literal["both", "user", "assistant"]
DEFAULT_LANGUAGES: Final = (ENGLISH,)
DEFAULT_SCREENS: Final[tuple[Screen, ...]] = (screens.whole, screens.named)


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
        self._languages = tuple(languages)
        self._checks = tuple(checks)

    def extract(self, text: str, *, speaker: Speaker) -> tuple[Fact, ...]:
        """Return the facts of one speaker's text, one a key: the newest wording holds.

        ``span`` counts from the start of the last 64 KiB of a longer text.
        """
        prose = spoken_prose(text)
        facts: dict[str, Fact] = {}
        for language in self._languages:
            for fact in _facts(language, prose, speaker):
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


def _facts(language: Language, prose: str, speaker: Speaker) -> Iterator[Fact]:
    prose = _own_words(language, prose)
    for start, end in _sentences(language, prose):
        sentence = prose[start:end]
        if sentence.isspace() or language.not_a_fact.search(sentence):
            continue
        if speaker is Speaker.ASSISTANT and language.self_talk.search(sentence):
            continue
        for clause_start, clause_end in _clauses(language, sentence):
            fact = _fact(language, prose, start + clause_start, start + clause_end, speaker)
            if fact is not None:
                yield fact


def _own_words(language: Language, prose: str) -> str:
    """Blank out a text given to be worked on, quotations that say "I", and marks of emphasis."""

    def unquoted(match: re.Match[str]) -> str:
        return HOLE * len(match[0]) if language.first_person.search(match[1]) else match[0]

    def plain(match: re.Match[str]) -> str:
        marks = " " * len(match[1])
        return f"{marks}{match[2]}{marks}"

    dictation = language.dictation.search(prose)
    if dictation:
        prose = prose[: dictation.end()]
    return _EMPHASIS.sub(plain, _QUOTED.sub(unquoted, prose))


def _sentences(language: Language, prose: str) -> Iterator[tuple[int, int]]:
    """Return the bounds of every sentence that is no question."""
    start = 0
    for match in _SENTENCE_END.finditer(prose):
        if match[0] == "." and _is_abbreviated(language, prose, start, match):
            continue
        if "?" not in match[0] and "？" not in match[0]:
            yield start, match.start()
        start = match.end()
    yield start, len(prose)


def _is_abbreviated(language: Language, prose: str, start: int, dot: re.Match[str]) -> bool:
    if not language.abbreviation.search(prose[max(start, dot.start() - 8) : dot.start()]):
        return False
    return not language.first_person.match(prose[dot.end() : dot.end() + 8].lstrip())


def _clauses(language: Language, sentence: str) -> Iterator[tuple[int, int]]:
    start = 0
    for match in language.boundary.finditer(sentence):
        if language.fronted.fullmatch(sentence, start, match.start()):
            continue
        yield start, match.start()
        start = match.end()
    yield start, len(sentence)


def _fact(language: Language, prose: str, start: int, end: int, speaker: Speaker) -> Fact | None:
    start, end = _trimmed(language, prose, start, min(end, start + MAX_CLAUSE))
    clause = prose[start:end]
    for pattern in language.patterns:
        match = pattern.expression.match(clause)
        if match:
            return _checked(language, pattern, match, start, speaker)
    return None


def _trimmed(language: Language, prose: str, start: int, end: int) -> tuple[int, int]:
    """Move the bounds of a clause past what may stand before and after a statement."""
    for _ in range(_MAX_OPENINGS):
        while start < end and prose[start] in _BEFORE and prose[start] != "*":
            start += 1
        match = language.opening.match(prose, start, end)
        if match is None:
            break
        start = match.end()
    while start < end and prose[start] in _BEFORE:
        start += 1
    end = _without_stops(prose, start, end)
    tail = language.closing.search(prose, max(start, end - 40), end)
    return start, _without_stops(prose, start, tail.start()) if tail else end


def _without_stops(prose: str, start: int, end: int) -> int:
    """Return where a clause ends without its stops and brackets that nothing in it opened."""
    while end > start:
        last = prose[end - 1]
        opener = _OPENER_OF.get(last)
        if last not in _BEHIND and (opener is None or prose.find(opener, start, end - 1) >= 0):
            break
        end -= 1
    return end


def _checked(
    language: Language, pattern: Pattern, match: re.Match[str], start: int, speaker: Speaker
) -> Fact | None:
    capture = _tidy(match["object"])
    if len(capture) < MIN_CAPTURE and capture.casefold() not in language.short_names:
        return None
    if language.no_object.fullmatch(capture):
        return None
    if speaker is Speaker.ASSISTANT and language.self_talk_object[pattern.category].match(capture):
        return None
    content = _tidy(match[0])
    if len(content) > MAX_CONTENT:
        content = content[:MAX_CONTENT].rpartition(" ")[0] or content[:MAX_CONTENT]
    return Fact(
        category=pattern.category,
        type=TYPE_OF[pattern.category],
        key=f"{pattern.category}:{slug(capture)}",
        content=content,
        capture=capture[:MAX_CONTENT],
        polarity=pattern.polarity,
        language=language.name,
        pattern_id=pattern.id,
        speaker=speaker,
        span=(start, start + match.end()),
    )


def _tidy(text: str) -> str:
    return _BLANKS.sub(" ", _LOOSE_COMMA.sub("", text)).strip()
