"""What a conversation carries already: found again so that it can be repeated byte by byte."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from omniroute_litellm.conversation import Conversation, Turn
from omniroute_litellm.ledger import Ledger, Placed, content_digest
from omniroute_litellm.request_state import TurnBlock
from omniroute_litellm.store import Alive, MemoryReader
from omniroute_litellm.tokens import estimate_tokens
from omniroute_litellm.types import Clock, Memory, MemoryId, OwnerId, Scope


@dataclass(frozen=True, slots=True)
class Carried:
    """What is known of a conversation's turns.

    ``blocks`` stand behind earlier turns, ``newest`` is what the newest turn got before, None
    when it was not seen yet.
    """

    blocks: tuple[TurnBlock, ...] = ()
    newest: Placed | None = None

    @property
    def memory_ids(self) -> frozenset[MemoryId]:
        """The memories behind earlier turns."""
        return frozenset(memory for block in self.blocks for memory in block.memory_ids)

    @property
    def tokens(self) -> int:
        """The estimated tokens of the blocks behind earlier turns."""
        return sum(estimate_tokens(block.text) for block in self.blocks)


class Replay:
    """Finds the blocks of earlier requests that still hold. Synchronous, one read each.

    A block that names a memory which was deleted, edited, set aside, has expired or is outside of
    the scope now is not repeated.
    """

    def __init__(self, ledger: Ledger, reader: MemoryReader, *, clock: Clock) -> None:
        self._ledger = ledger
        self._reader = reader
        self._clock = clock

    def carried(
        self,
        conversation: Conversation,
        *,
        owner: OwnerId,
        scope: Scope,
        retention: timedelta,
        max_tokens: int,
    ) -> Carried:
        """Return what the turns carry, the oldest first, at most so many tokens of it.

        Raises BackendUnavailableError.
        """
        if conversation.newest is None:
            return Carried()
        found = self._ledger.find(owner, [turn.name for turn in conversation.turns])
        now = self._clock()
        alive = Alive(now, now - retention)
        readable = self._reader.by_ids(scope, alive, _memory_ids(found.values()))
        true = {turn: placed for turn, placed in found.items() if placed.is_true_to(readable)}
        return Carried(
            blocks=_within(conversation.history, true, max_tokens),
            newest=true.get(conversation.newest.name),
        )


def placed_now(turn: Turn, owner: OwnerId, block: str, memories: Sequence[Memory]) -> Placed:
    """Return what is to be remembered of a turn."""
    contents = {memory.id: content_digest(memory.content) for memory in memories}
    return Placed(turn.name, owner, block, contents)


def _memory_ids(placed: Iterable[Placed]) -> list[MemoryId]:
    return list(dict.fromkeys(memory for entry in placed for memory in entry.memories))


def _within(
    history: Sequence[Turn], placed: Mapping[str, Placed], max_tokens: int
) -> tuple[TurnBlock, ...]:
    """Keep the oldest blocks that fit: what they stand in front of stays as it was, too."""
    kept: list[TurnBlock] = []
    for turn in history:
        entry = placed.get(turn.name)
        if entry is None or not entry.block:
            continue
        max_tokens -= estimate_tokens(entry.block)
        if max_tokens < 0 and kept:  # the first is within a budget of its own
            break
        kept.append(TurnBlock(turn.ordinal, entry.block, tuple(entry.memories), is_repeated=True))
    return tuple(kept)
