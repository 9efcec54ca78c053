"""How much of each request a provider's prompt cache can reuse, by where memory stands.

Multi-turn chats and tool loops run through the real proxy to a recording provider. The score of a
request is the longest common prefix of its prompt and the prompt of the request before it in the
same conversation, divided by the length of the latter: 1.0 means that everything sent before is
still a valid prefix. A prompt is tools, system text and messages in the order in which providers
cache them.

Arms that are settings of the product (no memory, leading, tail) are what reached the provider. The
others put the block that ``leading`` got for the same request elsewhere: behind the newest human
text alone, in a message of its own at index 0 (OmniRoute's policy), or at the end of the system
text.

    python bench/prefix_cache.py [--turns 20] [--memories 300]
"""

import argparse
import hashlib
import json
import random
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, cast

ROOT: Final = Path(__file__).parents[1]
if __name__ == "__main__":
    # As a script Python looks beside this file alone, not where tests is a package.
    sys.path[0] = str(ROOT)

# ruff: isort: split
from omniroute_litellm.identity import Identity, resolve_owner
from omniroute_litellm.injection import HEADING
from omniroute_litellm.sqlite import Database
from omniroute_litellm.sqlite_store import SqliteMemoryStore
from omniroute_litellm.tokens import estimate_tokens
from omniroute_litellm.types import MemoryDraft, MemorySource, MemoryType, utc_now
from tests.proxy.process import Proxy, ProxySetup
from tests.proxy.talk import FORMATS, Format, Said, Step, Used, ask, items_of
from tests.upstream import Upstream

KEY: Final = "sk-user-bench"
MAX_TOKENS: Final = 2_000
SEED: Final = 20_26
MODELS: Final = {"chat": "gpt", "responses": "gpt", "messages": "claude", "gemini": "gemini-2.5"}
SYSTEM: Final = "You help with a software project. Answer briefly and name the file you mean. " * 60
SUBJECTS: Final = (
    "parser tests release editor database cache logging deploy review branch schema queue "
    "worker index metrics backup editor shell theme font calendar invoice travel garden"
).split()
OBJECTS: Final = (
    "TypeScript Postgres Redis pytest Grafana Terraform Vim Kubernetes SQLite Kafka Rust Elixir "
    "tea jazz hiking chess sourdough linen walnut copper granite cedar amber indigo"
).split()
REAL: Final = {"no memory": None, "leading": "leading", "tail with replay": "tail"}

Json = dict[str, Any]  # request bodies of four formats


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a provider caches of one request, front to back."""

    preamble: str
    items: tuple[str, ...]

    @property
    def text(self) -> str:
        """The whole prompt as one text."""
        return "".join((self.preamble, *self.items))


def statements(count: int) -> Iterator[str]:
    """Return different sentences that name a subject and an object."""
    dice = random.Random(SEED)
    for number in range(count):
        subject, thing = dice.choice(SUBJECTS), dice.choice(OBJECTS)
        yield f"For {subject} number {number} I prefer {thing} over {dice.choice(OBJECTS)}"


def fill(folder: Path, count: int) -> None:
    """Store memories for the key before the proxy starts."""
    database = Database(folder / "omniroute.db")
    store = SqliteMemoryStore(database, clock=utc_now)
    owner = resolve_owner(Identity(key=hashlib.sha256(KEY.encode()).hexdigest()), "api_key")
    if owner is None:
        message = "expected an owner for the key"
        raise ValueError(message)
    for number, content in enumerate(statements(count)):
        draft = MemoryDraft(
            owner, MemoryType.SEMANTIC, f"note:{number}", content, MemorySource.MANUAL
        )
        store.upsert(draft, actor="bench")
    database.close()


def conversations(turns: int) -> dict[str, list[list[Step]]]:
    """Return the growing prefixes of each conversation, as a client sends them.

    Every turn asks about something else, and every fifth tells something new.
    """
    dice = random.Random(SEED + 1)

    def said(number: int) -> Said:
        subject, thing = dice.choice(SUBJECTS), dice.choice(OBJECTS)
        news = f" By the way, I prefer {thing} for {subject} {number}." if number % 5 == 4 else ""
        return Said("user", f"Question {number}: what about {subject} and {thing}?{news}")

    answer = Said("assistant", "That depends on the file. " * 8)
    chat: list[Step] = []
    loop: list[Step] = []
    chats: list[list[Step]] = []
    loops: list[list[Step]] = []
    for number in range(turns):
        chat.append(said(number))
        chats.append(list(chat))
        chat.append(answer)
        if number % 5 == 0:
            if loop:
                loop.append(answer)
            loop.append(said(number))
            loops.append(list(loop))
        loop.append(Used(number, f"value = {number}\n" * 20))
        loops.append(list(loop))
    return {"chat": chats, "tool loop": loops}


def record(
    arm: str | None, upstream: Upstream, talks: Mapping[str, list[list[Step]]], memories: int
) -> dict[tuple[str, str], list[Json]]:
    """Run every conversation in every format through one proxy; return the bodies upstream."""
    found: dict[tuple[str, str], list[Json]] = {}
    env = {
        "OMNIROUTE_MEMORY_ENABLED": str(arm is not None).lower(),
        "OMNIROUTE_MEMORY_INJECTION_PLACEMENT": arm or "auto",
        "OMNIROUTE_MEMORY_MAX_TOKENS": str(MAX_TOKENS),
    }
    setup = ProxySetup(with_plugin=True, env=env)
    for form in FORMATS:
        for kind, steps in talks.items():
            with tempfile.TemporaryDirectory() as folder:
                proxy = Proxy(Path(folder), upstream_url=upstream.url, setup=setup)
                fill(proxy.data_dir, memories)
                with proxy:
                    upstream.clear()
                    for length in steps:
                        ask(proxy, KEY, form, MODELS[form.name], length, system=SYSTEM)
                    found[form.name, kind] = [one.body for one in upstream.records()]
    return found


def prompt_of(body: Json) -> Prompt:
    """Return a body in the order in which providers cache it."""
    names = ("tools", "system", "instructions", "systemInstruction", "system_instruction")
    preamble = json.dumps([body.get(name) for name in names])
    return Prompt(preamble, tuple(json.dumps(item) for item in items_of(body)))


def block_in(body: Json) -> str:
    """Return the block that leads a body, empty when it has none."""
    for text in texts(body):
        if text.startswith(HEADING):
            return text.partition("\n\n")[0]
    return ""


def texts(value: object) -> Iterator[str]:
    """Return every text in a body."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from texts(list(cast("Json", value).values()))
    elif isinstance(value, list):
        for inner in cast("list[object]", value):
            yield from texts(inner)


def elsewhere(arm: str, prompt: Prompt, block: str) -> Prompt:
    """Return a prompt without memory with a block put where an arm puts it."""
    if not block:
        return prompt
    written = json.dumps(block)
    if arm == "OmniRoute":
        return Prompt(written + prompt.preamble, prompt.items)
    if arm == "system-append":
        return Prompt(prompt.preamble + written, prompt.items)
    human = max(at for at, item in enumerate(prompt.items) if "Question " in item)
    items = [item + written if at == human else item for at, item in enumerate(prompt.items)]
    return Prompt(prompt.preamble, tuple(items))


def scores(prompts: Sequence[Prompt]) -> list[float]:
    """Return the share of each prompt that the next one begins with."""
    pairs = pairwise(prompt.text for prompt in prompts)
    return [shared(before, after) / len(before) for before, after in pairs]


def shared(before: str, after: str) -> int:
    """Return how many characters two texts have in common at their start."""
    pairs = zip(before, after, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(before), len(after)))


def resent(prompts: Sequence[Prompt]) -> float:
    """Return how many characters a conversation sends that no cache can serve, per character."""
    whole = sum(len(prompt.text) for prompt in prompts)
    cached = sum(shared(*pair) for pair in pairwise(prompt.text for prompt in prompts))
    return (whole - cached) / whole


def carried(prompt: Prompt) -> int:
    """Return the estimated tokens of memory in a prompt."""
    blocks = [text for item in (prompt.preamble, *prompt.items) for text in texts(json.loads(item))]
    return sum(estimate_tokens(text[text.index(HEADING) :]) for text in blocks if HEADING in text)


def main() -> None:
    """Measure and print one table for each kind of conversation."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--memories", type=int, default=300)
    options = parser.parse_args()
    talks = conversations(options.turns)
    with Upstream() as upstream:
        real = {name: record(arm, upstream, talks, options.memories) for name, arm in REAL.items()}
    for kind in talks:
        print(
            f"\n{kind}: {options.turns} turns, {options.memories} memories, maxTokens {MAX_TOKENS}"
        )
        print(
            f"{'arm':24}{'format':12}{'mean':>8}{'least':>8}{'not cached':>12}{'tokens at end':>15}"
        )
        for form in FORMATS:
            for arm, prompts in arms(real, form, kind).items():
                values = scores(prompts)
                print(
                    f"{arm:24}{form.name:12}{statistics.mean(values):8.3f}{min(values):8.3f}"
                    f"{resent(prompts):12.3f}{carried(prompts[-1]) if arm in REAL else '':>15}"
                )


def arms(
    real: Mapping[str, Mapping[tuple[str, str], list[Json]]], form: Format, kind: str
) -> dict[str, list[Prompt]]:
    """Return the prompts of every arm for one conversation."""
    found = {
        arm: [prompt_of(body) for body in bodies[form.name, kind]] for arm, bodies in real.items()
    }
    blocks = [block_in(body) for body in real["leading"][form.name, kind]]
    for arm in ("tail without replay", "OmniRoute", "system-append"):
        pairs = zip(found["no memory"], blocks, strict=True)
        found[arm] = [elsewhere(arm, prompt, block) for prompt, block in pairs]
    return found


if __name__ == "__main__":
    main()
