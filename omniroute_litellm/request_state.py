"""What is known of one request on its way through the proxy."""

import asyncio
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, auto

from omniroute_litellm.identity import MemoryMode
from omniroute_litellm.injection import render_block
from omniroute_litellm.placement import BlockForm, Placement
from omniroute_litellm.receipt import Outcome, Receipt
from omniroute_litellm.settings import Settings
from omniroute_litellm.tokens import estimate_tokens
from omniroute_litellm.trace import RetrievalTrace, memory_ids
from omniroute_litellm.types import MemoryId, OwnerId, SessionId, TraceId


class Delivery(Enum):
    """How much of the answer has reached the client. What is not streamed counts as whole."""

    WHOLE = auto()
    UNDER_WAY = auto()
    CUT_OFF = auto()


@dataclass(frozen=True, slots=True)
class TurnBlock:
    """A block and the turn that it stands behind, counted from the end, the newest being 0.

    ``is_repeated``: an earlier request of the conversation carried it there already.
    """

    ordinal: int
    text: str
    memory_ids: tuple[MemoryId, ...]
    is_repeated: bool = False


@dataclass(slots=True)
class RequestState:
    """One request: who it is for, what it may do, and what memory did so far.

    ``settings`` are those at its start, so that a change in between cannot tear a request apart.
    ``outcome`` and ``reason`` hold what is certain so far.

    Memory: ``placement`` is where it is to stand; ``blocks`` is empty until something was found,
    then one that leads, or one for each turn that has memory behind it.

    ``call_id`` is LiteLLM's, to be shown: a client may set it, so it identifies nothing.

    The last attempt: ``attempt`` names the deployment and ``group`` the router's group it is of,
    ``placed`` and ``form`` say how memory went into it, ``left_out`` why it did not. ``refused``
    maps each deployment that refused this request to the form that it refused, ``refused_in`` each
    group to the deployment that did, ``retry_policies`` is what LiteLLM asks whether to repeat.

    The answer: ``answer`` waits while a stream is under way, since only its end tells whether all
    of it was delivered.
    """

    id: TraceId
    call_id: str
    model: str
    owner: OwnerId | None
    session: SessionId | None
    mode: MemoryMode
    settings: Settings
    started_at: datetime
    outcome: Outcome = Outcome.NONE
    reason: str = ""
    human_text: str | None = None
    trace: RetrievalTrace | None = None
    placement: Placement = Placement.LEADING
    blocks: tuple[TurnBlock, ...] = ()
    form: BlockForm | None = None
    placed: Placement | None = None
    retry_policies: dict[str, object] | None = None
    attempt: str = ""
    group: str = ""
    left_out: str = ""
    refused: dict[str, str] = field(default_factory=dict[str, str])
    refused_in: dict[str, str] = field(default_factory=dict[str, str])
    delivery: Delivery = Delivery.WHOLE
    answer: str | None = None
    is_resent: bool = False
    is_recalled: bool = False
    is_captured: bool = False
    is_recorded: bool = False
    is_concluded: bool = False
    recall_lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def is_live(self) -> bool:
        """Whether memory has anything to do with this request."""
        return self.owner is not None

    def fail(self, outcome: Outcome, reason: str) -> None:
        """Note what kept memory from doing its part."""
        self.outcome, self.reason = outcome, reason

    def keep(self, trace: RetrievalTrace, block: str | None = None) -> None:
        """Take over what a retrieval found, to lead the request; ``block`` is it rendered."""
        if block is None:
            block = render_block(trace.lines)
        found = (TurnBlock(0, block, tuple(memory_ids(trace))),) if block else ()
        self.carry(found, trace, placement=Placement.LEADING)

    def carry(
        self,
        blocks: tuple[TurnBlock, ...],
        trace: RetrievalTrace | None,
        *,
        placement: Placement,
    ) -> None:
        """Take over all that the request is to carry; ``trace`` None when nothing was searched."""
        self.trace, self.blocks, self.placement = trace, blocks, placement
        if trace is not None and trace.degraded:
            self.fail(Outcome.DEGRADED, trace.degraded)

    def receipt(self) -> Receipt:
        """Sum up for the caller. The block counts only once it was placed."""
        trace, is_placed = self.trace, self.form is not None
        placed = self.blocks if is_placed else ()
        memories = {memory for block in placed for memory in block.memory_ids}
        tier = trace.tier if trace is not None and is_placed else "none"
        outcome, reason = self.outcome, self.reason
        if outcome is Outcome.NONE and is_placed:
            outcome = Outcome.INJECTED
        elif outcome is Outcome.NONE and self.left_out:
            outcome, reason = Outcome.DEGRADED, self.left_out
        return Receipt(
            outcome=outcome,
            reason=reason,
            injected=len(memories),
            tokens=sum(estimate_tokens(block.text) for block in placed),
            tier="replay" if placed and tier == "none" else tier,
            ms=trace.ms if trace else 0.0,
            trace=self.id if self.is_live else None,
        )


class RequestStates:
    """Finds the state of the request under way.

    A context variable is the only carrier. It reaches every hook of a request, also the one that
    LiteLLM's logging worker runs, and no client can set it. A call id would not do: LiteLLM takes
    it from the header ``x-litellm-call-id``, so that two requests may have the same. Nor would a
    key in the request's own data: LiteLLM sends those to the provider.
    """

    def __init__(self) -> None:
        self._current: ContextVar[RequestState | None] = ContextVar(
            "omniroute_request", default=None
        )

    def begin(self, state: RequestState | None) -> None:
        """Make a state the current one; None clears what an earlier request left behind."""
        self._current.set(state)

    def find(self) -> RequestState | None:
        """Return the state of this context."""
        return self._current.get()
