"""Labelled questions over memories, read from files that are not part of the project.

A file holds either conversations in the format of LoCoMo (Maharana et al., Evaluating Very
Long-Term Conversational Memory of LLM Agents, ACL 2024): each turn of a dialogue is one memory,
each question names the turns that answer it. Or a list of facts with paraphrased questions in
several languages: each fact is one memory, each of its questions asks for it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast


@dataclass(frozen=True, slots=True)
class Question:
    """A question and the names of the memories that answer it."""

    text: str
    answers: frozenset[str]


@dataclass(frozen=True, slots=True)
class Collection:
    """The memories of one owner by name, oldest first, and the questions to them."""

    name: str
    memories: Mapping[str, str]
    questions: Sequence[Question]


@dataclass(frozen=True, slots=True)
class Track:
    """Collections that are reported together: one data set in one language."""

    name: str
    collections: Sequence[Collection]

    @property
    def questions(self) -> int:
        """How many questions there are."""
        return sum(len(each.questions) for each in self.collections)


def read_tracks(path: Path) -> list[Track]:
    """Read a file; raise ValueError for any other format."""
    content = json.loads(path.read_text(encoding="utf-8"))
    rows = cast("list[dict[str, Any]]", content if isinstance(content, list) else [])
    if rows and all("conversation" in row for row in rows):
        return [Track(path.stem, [_dialogue(row) for row in rows])]
    if rows and all("en" in row for row in rows):
        languages = [name[1:] for name in rows[0] if name.startswith("q")]
        return [Track(f"{path.stem} {each}", [_facts(rows, each)]) for each in languages]
    message = f"{path}: expected LoCoMo conversations or facts with questions"
    raise ValueError(message)


def _dialogue(row: Mapping[str, Any]) -> Collection:
    conversation = cast("Mapping[str, Any]", row["conversation"])
    sessions = [name for name in conversation if isinstance(conversation[name], list)]
    memories: dict[str, str] = {}
    for name in sorted(sessions, key=lambda each: int(each.rpartition("_")[2])):
        for turn in cast("list[Mapping[str, str]]", conversation[name]):
            memories[turn["dia_id"]] = f"{turn['speaker']}: {turn['text']}"
    questions = [
        Question(asked["question"], answers)
        for asked in cast("list[Mapping[str, Any]]", row["qa"])
        if (answers := frozenset(memories.keys() & _named(asked["evidence"])))
    ]
    return Collection(str(row["sample_id"]), memories, questions)


def _named(evidence: Sequence[str]) -> set[str]:
    """Return the turns that a question names; some entries hold several, apart by ``;``."""
    return {name.strip() for entry in evidence for name in entry.replace(";", " ").split()}


def _facts(rows: Sequence[Mapping[str, Any]], language: str) -> Collection:
    memories = {str(number): str(row[language]) for number, row in enumerate(rows)}
    questions = [
        Question(text, frozenset({str(number)}))
        for number, row in enumerate(rows)
        for text in cast("list[str]", row[f"q{language}"])
    ]
    return Collection(language, memories, questions)
