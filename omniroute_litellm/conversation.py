"""A conversation as a provider's prompt cache sees it: turns named by all that led to them."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

from omniroute_litellm.types import Scope
from omniroute_litellm.wire.base import Body, WireFormat
from omniroute_litellm.wire.parts import as_list, as_mapping

CACHEABLE_BYTES: Final = 4 * 1_024
"""OpenAI and Anthropic cache prompts of 1,024 tokens and more; four bytes count as one."""

_MARK: Final = "cache_control"
_BYSTANDERS: Final = frozenset({"system", "developer"})


@dataclass(frozen=True, slots=True)
class Turn:
    """One item with words of the user. ``ordinal`` counts such items from the end, from 0: what
    bridges between formats add or drop is other items.

    ``name`` is the same for the same words after the same history in the same scope, wherever a
    client sets its cache marks, and differs from every other turn's.
    """

    ordinal: int
    name: str


@dataclass(frozen=True, slots=True)
class Conversation:
    """The turns of a body, oldest first; the newest is the one that a person wrote last.

    ``is_answered``: the model has begun to work on the newest turn, as in a tool loop.
    """

    turns: tuple[Turn, ...]
    is_answered: bool

    @property
    def history(self) -> tuple[Turn, ...]:
        """The turns before the newest."""
        return self.turns[:-1]

    @property
    def newest(self) -> Turn | None:
        """The newest turn of a person, None when nobody said anything."""
        return self.turns[-1] if self.turns else None


def read_conversation(wire: WireFormat, body: Body, scope: Scope) -> Conversation:
    """Read the turns of a body.

    Names are a chain of BLAKE2b hashes over the items, so that a turn is found again in any later
    request of its conversation, and in no other owner's.
    """
    items = wire.items(body)
    newest = next((at for at in range(len(items) - 1, -1, -1) if wire.prose(items[at])), -1)
    chain = hashlib.blake2b(json.dumps([scope.owners, scope.session]).encode(), digest_size=20)
    ordinals = {at: ordinal for ordinal, at in enumerate(newest_first(wire, body))}
    turns: list[Turn] = []
    for position, item in enumerate(items[: newest + 1]):
        chain.update(_encoded(_dumps(_bare(item))))
        if position in ordinals:
            turns.append(Turn(ordinals[position], chain.copy().hexdigest()))
    return Conversation(
        turns=tuple(turns),
        is_answered=any(map(_is_answer, items[newest + 1 :])),
    )


def is_cacheable(wire: WireFormat, body: Body) -> bool:
    """Tell whether a provider may keep what a request holds in its prompt cache."""
    size = 0
    for part in (wire.preamble(body), *wire.items(body)):
        text = _dumps(part)
        size += len(_encoded(text))
        if size >= CACHEABLE_BYTES or _MARK in text:
            return True
    return False


def is_answered(wire: WireFormat, body: Body) -> bool:
    """Tell whether the model has begun to work on what a person said last."""
    for item in reversed(wire.items(body)):
        if wire.prose(item):
            return False
        if _is_answer(item):
            return True
    return False


def newest_first(wire: WireFormat, body: Body) -> Iterator[int]:
    """Return the positions of the items that hold words of the user, the newest first."""
    items = wire.items(body)
    return (at for at in range(len(items) - 1, -1, -1) if wire.has_user_text(items[at]))


def place_behind_turns(
    wire: WireFormat, body: Body, blocks: Mapping[int, str]
) -> dict[str, object] | None:
    """Return the prompt fields with each block behind the turn of its ordinal, None without any."""
    positions = islice(newest_first(wire, body), max(blocks, default=-1) + 1)
    found = {at: blocks[ordinal] for ordinal, at in enumerate(positions) if ordinal in blocks}
    return wire.place_behind(body, found) if found else None


def _is_answer(item: object) -> bool:
    """Whether an item is the model's, or a tool's for it."""
    role = as_mapping(item).get("role")
    return role not in _BYSTANDERS and role != "user"


def _bare(item: object) -> object:
    """Return an item without what clients change from request to request.

    Cache marks wander to the newest turn, and a text becomes a list of one text to carry one.
    """
    fields = {name: value for name, value in as_mapping(item).items() if name != _MARK}
    content = fields.pop("content", None) or fields.pop("parts", None)
    parts = as_list(content) or [content]
    return [fields, [_bare_part(part) for part in parts]]


def _bare_part(part: object) -> object:
    fields = {name: value for name, value in as_mapping(part).items() if name != _MARK}
    if not fields:
        return part
    is_plain = fields.keys() <= {"type", "text"} and isinstance(fields.get("text"), str)
    return fields["text"] if is_plain else fields


def _dumps(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
