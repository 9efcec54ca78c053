"""English sentences: what they state, and what they do not."""

from typing import Final

import pytest

from omniroute_litellm.extraction.extractor import Extractor
from omniroute_litellm.types import Category, Speaker

EXTRACTOR: Final = Extractor()

# sentence, key, whether it affirms; the content is the sentence without its full stop.
FACTS: Final = [
    ("I prefer TypeScript.", "preference:typescript", True),
    ("I really prefer dark mode.", "preference:dark_mode", True),
    ("I personally prefer short answers.", "preference:short_answers", True),
    ("I strongly prefer tabs over spaces.", "preference:tabs_over_spaces", True),
    ("We prefer trunk-based development.", "preference:trunk_based_development", True),
    ("I favour Rust for tools.", "preference:rust_for_tools", True),
    ("I like black coffee.", "preference:black_coffee", True),
    ("I love jazz.", "preference:jazz", True),
    ("I really really love jazz.", "preference:jazz", True),
    ("I enjoy hiking in autumn.", "preference:hiking_in_autumn", True),
    ("I also like tea.", "preference:tea", True),
    ("I do like tea.", "preference:tea", True),
    ("I've always preferred paper books.", "preference:paper_books", True),
    ("I am a big fan of Vim.", "preference:vim", True),
    ("I'm a fan of Vim.", "preference:vim", True),
    ("My favorite editor is Vim.", "preference:vim", True),
    ("My favourite colour is green.", "preference:green", True),
    ("My all-time favorite film is Stalker.", "preference:stalker", True),
    ("My favorite programming language is Go.", "preference:go", True),
    ("I don't like Python.", "preference:python", False),
    ("I do not like Python.", "preference:python", False),
    ("I dont like Python.", "preference:python", False),
    ("I don’t like Python.", "preference:python", False),
    ("I don't really like meetings.", "preference:meetings", False),
    ("I really don't like meetings.", "preference:meetings", False),
    ("We don't like surprises.", "preference:surprises", False),
    ("I hate semicolons.", "preference:semicolons", False),
    ("I dislike long meetings.", "preference:long_meetings", False),
    ("I avoid sugar.", "preference:sugar", False),
    ("I try to avoid sugar.", "preference:sugar", False),
    ("I can't stand loud offices.", "preference:loud_offices", False),
    ("I can’t stand loud offices.", "preference:loud_offices", False),
    ("I cannot stand loud offices.", "preference:loud_offices", False),
    ("I prefer Go.", "preference:go", True),
    ("I like C.", "preference:c", True),
    ("I'll use Postgres for this project.", "decision:postgres_for_this_project", True),
    ("I will use Redis.", "decision:redis", True),
    ("I’ll use Redis.", "decision:redis", True),
    ("I'm going to use Kafka.", "decision:kafka", True),
    ("I am going to adopt Terraform.", "decision:terraform", True),
    ("We'll go with Svelte.", "decision:svelte", True),
    ("We will adopt OpenTelemetry.", "decision:opentelemetry", True),
    ("We're going to use Nomad.", "decision:nomad", True),
    ("I'm going with Hetzner.", "decision:hetzner", True),
    ("I'll definitely stick with Django.", "decision:django", True),
    ("I chose Svelte for the frontend.", "decision:svelte_for_the_frontend", True),
    ("I picked Ada as the name.", "decision:ada_as_the_name", True),
    ("We selected Kotlin.", "decision:kotlin", True),
    ("I went with Redis Streams.", "decision:redis_streams", True),
    ("I've chosen Hetzner.", "decision:hetzner", True),
    ("I have picked Hetzner.", "decision:hetzner", True),
    ("We've gone with Stripe.", "decision:stripe", True),
    ("We opted for SQLite.", "decision:sqlite", True),
    ("I settled on FastAPI.", "decision:fastapi", True),
    ("I decided to migrate to Kubernetes.", "decision:migrate_to_kubernetes", True),
    ("I've decided to move to Gdynia.", "decision:move_to_gdynia", True),
    ("We have decided on Postgres.", "decision:postgres", True),
    ("We finally decided on Postgres.", "decision:postgres", True),
    ("I decided against GraphQL.", "decision:graphql", False),
    ("I decided not to use GraphQL.", "decision:use_graphql", False),
    ("I won't use MongoDB.", "decision:mongodb", False),
    ("I will not use MongoDB.", "decision:mongodb", False),
    ("I'm not going to use MongoDB.", "decision:mongodb", False),
    ("I'll never use MongoDB.", "decision:mongodb", False),
    ("I always commit before pushing.", "pattern:commit_before_pushing", True),
    ("I usually deploy on Fridays.", "pattern:deploy_on_fridays", True),
    ("I typically write tests first.", "pattern:write_tests_first", True),
    ("I often work at night.", "pattern:work_at_night", True),
    ("I frequently travel to Berlin.", "pattern:travel_to_berlin", True),
    ("I regularly review old code.", "pattern:review_old_code", True),
    ("We always squash commits.", "pattern:squash_commits", True),
    ("I almost always need coffee.", "pattern:need_coffee", True),
    ("I'm always late.", "pattern:late", True),
    ("I am usually online after nine.", "pattern:online_after_nine", True),
    ("Usually I run the linter first.", "pattern:run_the_linter_first", True),
    ("I never commit to main.", "pattern:commit_to_main", False),
    ("I almost never eat breakfast.", "pattern:eat_breakfast", False),
    ("I'm never online on Sundays.", "pattern:online_on_sundays", False),
    ("I don't usually work on Sundays.", "pattern:work_on_sundays", False),
    ("I tend to overthink.", "pattern:overthink", True),
    ("I tend not to reply at night.", "pattern:reply_at_night", False),
]

# sentence, the contents that it states.
INSIDE: Final[list[tuple[str, list[str]]]] = [
    ("I prefer Next.js 14.2 over Nuxt.", ["I prefer Next.js 14.2 over Nuxt"]),
    ("I always use example.org/x for tests.", ["I always use example.org/x for tests"]),
    ("I enjoy working with e.g. Docker.", ["I enjoy working with e.g. Docker"]),
    ("I prefer tea and I hate coffee.", ["I prefer tea", "I hate coffee"]),
    ("I prefer tea, but I hate coffee!", ["I prefer tea", "I hate coffee"]),
    ("I avoid meat because it makes me sleepy.", ["I avoid meat"]),
    ("I prefer tea, what about you?", []),
    ("I like apples, pears and plums.", ["I like apples, pears and plums"]),
    ("I prefer dark mode, please.", ["I prefer dark mode"]),
    ("Hi! I prefer dark mode, thanks", ["I prefer dark mode"]),
    ("Well, I usually walk; I never drive.", ["I usually walk", "I never drive"]),
    ("By the way, I always cycle to work", ["I always cycle to work"]),
    ("Remember that I prefer aisle seats", ["I prefer aisle seats"]),
    ("- I prefer concise answers", ["I prefer concise answers"]),
    ("1. I prefer concise answers", ["I prefer concise answers"]),
    ("Nice (I love jazz)", ["I love jazz"]),
    ("I prefer “quiet” rooms", ["I prefer “quiet” rooms"]),
    ("No problem.\nI prefer tea\nI hate coffee", ["I prefer tea", "I hate coffee"]),
    ("When I deploy, I always run tests.", ["I always run tests"]),
    ("I   prefer \t dark    mode", ["I prefer dark mode"]),
]

NOT_FACTS: Final = [
    "Do I prefer tabs?",
    "I prefer tabs?",
    "Should I always use tabs?",
    "What do I usually order?",
    "If I prefer tabs, what then.",
    "I'll use Postgres if it scales.",
    "I would prefer tea.",
    "Would I like Vim.",
    "Suppose I always lie.",
    "Imagine I love opera.",
    "Let's say I prefer tea.",
    "Pretend I never sleep.",
    "Maybe I prefer tea.",
    "I used to like tea.",
    "I wish I always won.",
    "He said I prefer tea.",
    "John thinks I like jazz.",
    "She told me I never listen.",
    'She wrote "I love cats".',
    "The docs say “I always win”.",
    "I like it.",
    "I love that.",
    "I don't like this one.",
    "I like them a lot.",
    "I love you.",
    "I always do.",
    "I never said that.",
    "I always wanted a dog.",
    "I never thought of it before.",
    "I usually was late.",
    "You always commit before pushing.",
    "They prefer tea.",
    "My brother prefers tea.",
    "My sister always runs.",
    "I think so.",
    "I have a question about tea.",
    "I am tired.",
    "I want a refund.",
    "I'll be back.",
    "I will let you know.",
    "I chose.",
    "Please prefer tabs.",
    "Always use tabs.",
    "Never commit to main.",
    "`I prefer tabs`",
    "I prefer `tabs` here.",
    "> I prefer tabs",
    "```\nI prefer tabs.\n```",
    "```\nI prefer tabs. never closed",
    "<system-reminder>I prefer tabs.</system-reminder>",
    "<environment_context>\nI prefer tabs.\n</environment_context>",
    "<!-- I prefer tabs. -->",
    "Memory context:\n- I prefer tabs\n- I never sleep",
    "",
    "   ",
    "I",
    "I prefer",
    "I prefer .",
    "I prefer !!!",
]

SELF_TALK: Final = [
    "I'll use the Bash tool.",
    "I'll use the Read tool to look at a.py.",
    "I'm going to use grep to search.",
    "I'll use grep.",
    "I will use a dictionary to count words.",
    "I'll go with the first option.",
    "As an AI I never sleep.",
    "As a language model, I always try to help.",
    "I'm an AI assistant and I never sleep.",
    "I love your idea.",
    "I like how you structured this.",
    "I like that approach.",
    "I always try to be helpful.",
    "I always recommend tests.",
    "I usually suggest a linter.",
    "I enjoy helping with code.",
    "I'm always happy to help.",
]


def contents(text: str, speaker: Speaker = Speaker.USER) -> list[str]:
    """Return what a text states."""
    return [fact.content for fact in EXTRACTOR.extract(text, speaker=speaker)]


@pytest.mark.parametrize(("sentence", "key", "affirms"), FACTS, ids=lambda value: str(value)[:40])
def test_statements_are_facts(sentence: str, key: str, affirms: bool) -> None:
    """A plain statement gives its key, its polarity, and its own words."""
    (fact,) = EXTRACTOR.extract(sentence, speaker=Speaker.USER)
    assert fact.key == key
    assert fact.polarity == ("positive" if affirms else "negative")
    assert fact.content == sentence.rstrip(".")
    assert fact.type == ("episodic" if fact.category is Category.DECISION else "factual")
    assert sentence[slice(*fact.span)] == fact.content
    assert fact.language == "en"


@pytest.mark.parametrize(("text", "stated"), INSIDE, ids=lambda value: str(value)[:40])
def test_clauses_end_where_they_end(text: str, stated: list[str]) -> None:
    """A capture ends with its clause, not at a dot inside of a word."""
    assert contents(text) == stated


@pytest.mark.parametrize("text", NOT_FACTS, ids=lambda text: text[:40])
def test_other_sentences_are_not(text: str) -> None:
    """Questions, conditionals, hearsay, code, quotes and fragments state nothing."""
    assert contents(text) == []


@pytest.mark.parametrize("text", SELF_TALK, ids=lambda text: text[:40])
def test_assistants_speak_of_themselves(text: str) -> None:
    """What an assistant says of itself and of its tools is not remembered."""
    assert contents(text, Speaker.ASSISTANT) == []


@pytest.mark.parametrize("speaker", Speaker)
def test_the_reference_conversation(speaker: Speaker) -> None:
    """Four sentences, four keys, whoever says them."""
    text = (
        "I prefer TypeScript. I'll use Postgres for this project. "
        "I always commit before pushing. I don't like Python."
    )
    assert [fact.key for fact in EXTRACTOR.extract(text, speaker=speaker)] == [
        "preference:typescript",
        "decision:postgres_for_this_project",
        "pattern:commit_before_pushing",
        "preference:python",
    ]
