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
    when it was not seen yet or what it got is beyond the limit. ``is_full``: a block that is known
    did not fit, so that nothing new may be added.
    """

    blocks: tuple[TurnBlock, ...] = ()
    newest: Placed | None = None
    is_full: bool = False

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

        A block that alone costs more, placed under a larger budget, is passed over. Of the others
        the oldest stay, up to the first that does not fit: what they stand in front of stays as it
        was, so that as much of the cached prompt as can be is used. Every request decides alike,
        since nothing new is added behind a turn that was left out. Raises BackendUnavailableError.
        """
        if conversation.newest is None:
            return Carried()
        found = self._ledger.find(owner, [turn.name for turn in conversation.turns])
        now = self._clock()
        alive = Alive(now, now - retention)
        readable = self._reader.by_ids(scope, alive, _memory_ids(found.values()))
        true = {turn: placed for turn, placed in found.items() if placed.is_true_to(readable)}
        fitting, is_full = _within(conversation.turns, true, max_tokens)
        newest = true.get(conversation.newest.name)
        if newest is not None and newest.block and conversation.newest not in fitting:
            newest = None
        blocks = [
            _repeated(turn, true[turn.name]) for turn in fitting if turn is not conversation.newest
        ]
        return Carried(tuple(blocks), newest, is_full)


def placed_now(turn: Turn, owner: OwnerId, block: str, memories: Sequence[Memory]) -> Placed:
    """Return what is to be remembered of a turn."""
    contents = {memory.id: content_digest(memory.content) for memory in memories}
    return Placed(turn.name, owner, block, contents)


def _memory_ids(placed: Iterable[Placed]) -> list[MemoryId]:
    return list(dict.fromkeys(memory for entry in placed for memory in entry.memories))


def _repeated(turn: Turn, placed: Placed) -> TurnBlock:
    return TurnBlock(turn.ordinal, placed.block, tuple(placed.memories), is_repeated=True)


def _within(
    turns: Sequence[Turn], placed: Mapping[str, Placed], max_tokens: int
) -> tuple[list[Turn], bool]:
    """Return the oldest turns whose blocks fit together, and whether there are more that do not."""
    fitting: list[Turn] = []
    left = max_tokens
    for turn in turns:
        entry = placed.get(turn.name)
        tokens = estimate_tokens(entry.block) if entry is not None else 0
        if not 0 < tokens <= max_tokens:
            continue
        if tokens > left:
            return fitting, True
        left -= tokens
        fitting.append(turn)
    return fitting, False
