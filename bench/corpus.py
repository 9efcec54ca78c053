"""Varied memories and questions from word lists: the same ones for the same seed."""

import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from omniroute_litellm.extraction.keys import slug
from omniroute_litellm.extraction.patterns import TYPE_OF
from omniroute_litellm.paths import DATABASE_NAME
from omniroute_litellm.sqlite import Database
from omniroute_litellm.sqlite_store import SqliteMemoryStore
from omniroute_litellm.types import Category, MemoryDraft, MemorySource, OwnerId

SPAN: Final = timedelta(days=20)
"""Over how long the memories were learned: inside of the default retention."""

TOOLS: Final = (
    "python postgres docker kubernetes typescript redis kafka terraform grafana rust sqlite nginx "
    "ansible pytest webpack elixir clickhouse rabbitmq svelte prometheus haskell duckdb podman "
    "caddy vault pandas scala mongodb jenkins vim emacs celery airflow graphql protobuf envoy "
    "consul nomad zig julia"
).split()
TASKS: Final = (
    "deployments reports backups reviews migrations invoices tests releases dashboards alerts "
    "surveys onboarding payroll translations recipes budgets travel workouts photos newsletters "
    "contracts audits interviews lectures inventory shipping moderation forecasts repairs permits "
    "refunds podcasts prototypes wireframes benchmarks playlists gardening exams grants menus"
).split()
PLACES: Final = (
    "berlin lisbon kyoto oslo toronto nairobi lima austin dublin seoul prague quito tallinn perth "
    "naples geneva bergen accra hanoi bogota krakow malmo porto zagreb leeds osaka basel turin "
    "riga ghent"
).split()
PEOPLE: Final = (
    "anna bruno chen dalia emeka farid greta hugo ines jonas keiko lars mei nadia omar priya quinn "
    "rosa sven tara ulrich vera wanda xavier yusuf zoe"
).split()
QUALITIES: Final = (
    "short quiet fast printed weekly colourful verbose minimal annotated encrypted handwritten "
    "automatic nightly bilingual cheap reversible signed interactive plain layered"
).split()
PREFERENCES: Final = (
    "I prefer {tool} over {other} for {quality} {task}",
    "I like {quality} {task} from the {place} office",
    "my favourite tool for {task} is {tool}",
    "I don't like {quality} {task} with {tool}",
    "I love working with {person} on {task} in {place}",
    "I hate it when {tool} breaks the {task}",
)
DECISIONS: Final = (
    "I decided to use {tool} for the {task} of the {place} team",
    "I will move the {task} from {other} to {tool} together with {person}",
    "I chose {place} for the {quality} {task}",
    "we agreed that {person} owns {task} and {tool}",
    "I settled on {quality} {task} because {other} was too slow for {person}",
)
HABITS: Final = (
    "I usually check the {task} with {person} before lunch",
    "I always run {tool} after the {quality} {task}",
    "every Friday I visit {place} for {task}",
    "I never ship {task} without {tool}",
)
QUESTIONS: Final = (
    "Which tool should I take for the {task} in {place}?",
    "How do I set up {tool} for {quality} {task}? Please keep it short and name the pitfalls.",
    "Can you draft a message to {person} about the {task}?",
    "What is the difference between {tool} and {other} when the {task} have to be {quality}?",
    "Plan my trip to {place} with {person}: two days, some time for {task}.",
    "The {task} failed again after the last change to {tool}. The log says that a connection was "
    "refused twice and that the third try timed out. What should I look at first, and how do I "
    "tell {person} in {place} what happened without sounding alarmed?",
    "Why would anybody run {tool} at night?",
    "Translate this into plain words: {quality} {task} depend on {other}.",
)
_TEMPLATES: Final = (
    (Category.PREFERENCE, PREFERENCES),
    (Category.DECISION, DECISIONS),
    (Category.PATTERN, HABITS),
)
_ANSWERED: Final = "Noted. Anything else?"


def sentences(count: int, *, seed: int) -> Iterator[tuple[Category, str]]:
    """Yield varied sentences of each category that extraction knows."""
    draw = random.Random(seed)
    for _ in range(count):
        category, templates = draw.choice(_TEMPLATES)
        yield category, _filled(draw.choice(templates), draw)


def questions(count: int, *, seed: int) -> list[str]:
    """Return questions over the words of the memories."""
    draw = random.Random(f"questions {seed}")
    return [_filled(draw.choice(QUESTIONS), draw) for _ in range(count)]


def conversation(question: str) -> list[dict[str, str]]:
    """Put a question behind an earlier turn, as a client sends it."""
    return [
        {"role": "system", "content": "You are a helpful assistant. Answer briefly."},
        {"role": "user", "content": "Hello, are you there?"},
        {"role": "assistant", "content": _ANSWERED},
        {"role": "user", "content": question},
    ]


def fill(data_directory: Path, *, owner: OwnerId, memories: int, seed: int) -> None:
    """Store so many memories of one owner, learned one after the other until now."""
    started = datetime.now(UTC) - SPAN
    moments = (started + SPAN * number / memories for number in range(memories))
    database = Database(data_directory / DATABASE_NAME)
    store = SqliteMemoryStore(database, clock=lambda: next(moments))
    try:
        with database.writing() as connection:
            for number, (category, text) in enumerate(sentences(memories, seed=seed)):
                draft = _draft(owner, category, text, number=number)
                store.upsert_within(connection, draft, actor="extraction")
    finally:
        database.close()


def _draft(owner: OwnerId, category: Category, text: str, *, number: int) -> MemoryDraft:
    return MemoryDraft(
        owner=owner,
        type=TYPE_OF[category],
        key=f"{category}:{slug(f'{number} {text}')}",  # the number keeps each in its own slot
        content=text,
        source=MemorySource.USER_MESSAGE,
        metadata={"category": category, "language": "en", "requestId": f"request-{number}"},
    )


def _filled(template: str, draw: random.Random) -> str:
    return template.format(
        tool=_drawn(TOOLS, draw),
        other=_drawn(TOOLS, draw),
        task=_drawn(TASKS, draw),
        place=_drawn(PLACES, draw),
        person=_drawn(PEOPLE, draw).title(),
        quality=_drawn(QUALITIES, draw),
    )


def _drawn(words: Sequence[str], draw: random.Random) -> str:
    """Draw a word; the n-th is n times rarer than the first, as words are (Zipf's law)."""
    return draw.choices(words, [1 / rank for rank in range(1, len(words) + 1)])[0]
