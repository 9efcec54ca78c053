"""One thread's work for a request: read what was said, what is carried, and what is known."""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from omniroute_litellm.conversation import (
    Conversation,
    Turn,
    is_answered,
    is_cacheable,
    read_conversation,
)
from omniroute_litellm.identity import read_scope
from omniroute_litellm.injection import FRAMING, HEADING, render_block
from omniroute_litellm.ledger import Placed
from omniroute_litellm.placement import Placement
from omniroute_litellm.replay import Carried, Replay, placed_now
from omniroute_litellm.request_state import RequestState, TurnBlock
from omniroute_litellm.retrieval import RetrievalRequest, Retriever
from omniroute_litellm.tokens import estimate_tokens
from omniroute_litellm.trace import RetrievalTrace
from omniroute_litellm.types import Scope
from omniroute_litellm.wire.base import Body, WireFormat, newest_human_text

_FRAME_TOKENS: Final = estimate_tokens(f"{HEADING}\n{FRAMING}\n")


@dataclass(slots=True)
class Found:
    """What a look-up has found so far: a request that can wait no longer takes it as it is.

    ``turn`` is the newest turn when memory goes behind turns, None when it leads.
    """

    reason: str = ""
    turn: Turn | None = None
    carried: Carried = field(default_factory=Carried)
    trace: RetrievalTrace | None = None
    block: str = ""

    def take(self, trace: RetrievalTrace) -> None:
        """Keep what a retrieval found, rendered here: the event loop has other things to do."""
        self.block = render_block(trace.lines)
        self.trace = trace

    def give(self, state: RequestState) -> Placed | None:
        """Hand the blocks to a request; return what is to be remembered of its newest turn.

        A turn that got nothing is remembered, too: what is learned from it a moment later must
        not change the prompt under the feet of a tool loop.
        """
        turn, trace, carried = self.turn, self.trace, self.carried
        if turn is None or state.owner is None:
            if trace is not None:
                state.keep(trace, self.block)
            return None
        known = carried.newest
        fresh = () if trace is None else trace.injected
        if known is not None and {memory.id for memory in fresh} <= known.memories.keys():
            placed, is_repeated = known, True
        else:
            block = self.block if trace is not None else ""
            placed, is_repeated = placed_now(turn, state.owner, block, fresh), False
        newest = TurnBlock(turn.ordinal, placed.block, tuple(placed.memories), is_repeated)
        blocks = (*carried.blocks, newest) if placed.block else carried.blocks
        state.carry(blocks, trace, placement=Placement.TAIL)
        return None if is_repeated else placed


class Lookup:
    """Does all that a request needs of the store in one thread hop."""

    def __init__(self, retriever: Retriever, replay: Replay) -> None:
        self._retriever = retriever
        self._replay = replay

    def look(self, state: RequestState, wire: WireFormat, body: Body, found: Found) -> None:
        """Fill ``found`` step by step; raise BackendUnavailableError."""
        hear(state, wire, body)
        if not state.human_text or state.owner is None or not is_allowed(state):
            return
        settings = state.settings
        scope = read_scope(state.owner, state.session, settings.scope)
        if scope is None:
            found.reason = "no_session"
            return
        conversation = self._behind_turns(state, wire, body, scope, found)
        max_tokens = settings.max_tokens
        if conversation is not None:
            if conversation.is_answered and found.carried.newest is not None:
                return
            max_tokens = _room(found.carried, max_tokens)
            if max_tokens < 1:
                return
        request = RetrievalRequest(
            scope=scope,
            query=state.human_text,
            strategy=settings.strategy,
            max_tokens=max_tokens,
            profile_max_tokens=settings.profile_max_tokens,
            retention=timedelta(days=settings.retention_days),
            carried=found.carried.memory_ids,
            fusion=settings.fusion,
        )
        found.take(self._retriever.retrieve(request, keep=found.take))

    def _behind_turns(
        self, state: RequestState, wire: WireFormat, body: Body, scope: Scope, found: Found
    ) -> Conversation | None:
        """Return the conversation when memory goes behind its turns, None when it leads.

        Where the provider keeps the history, a block in a turn would be out of reach later.
        """
        settings = state.settings
        if settings.injection_placement == "leading" or wire.is_continued(body):
            return None
        if settings.injection_placement == "auto" and not is_cacheable(wire, body):
            return None
        conversation = read_conversation(wire, body, scope)
        if state.owner is None or conversation.newest is None:
            return None
        carried = self._replay.carried(
            conversation,
            owner=state.owner,
            scope=scope,
            retention=timedelta(days=settings.retention_days),
            max_tokens=2 * settings.max_tokens,
        )
        found.carried, found.turn = carried, conversation.newest
        return conversation


def hear(state: RequestState, wire: WireFormat, body: Body) -> None:
    """Read what a person said last, and whether it was said in an earlier request already."""
    state.is_resent = is_answered(wire, body)
    state.human_text = newest_human_text(wire, body)


def is_allowed(state: RequestState) -> bool:
    """Tell whether memories may be put into a request at all."""
    settings = state.settings
    return settings.injection_enabled and settings.max_tokens > 0 and state.mode.may_read


def _room(carried: Carried, max_tokens: int) -> int:
    """Return what the lines of a new block may cost: all blocks stay within twice the budget.

    The frame counts, too, so that twice a tiny budget has no room for any line. A line of one
    token costs a quarter more with its line break.
    """
    if carried.is_full:
        return 0
    room = 2 * max_tokens - carried.tokens - _FRAME_TOKENS
    return min(max_tokens, room * 4 // 5)
