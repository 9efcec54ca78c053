"""The state of one request, and how hooks find it."""

import asyncio
import contextvars

from omniroute_litellm.identity import MemoryMode
from omniroute_litellm.placement import BlockForm
from omniroute_litellm.receipt import Outcome
from omniroute_litellm.request_state import RequestState, RequestStates
from omniroute_litellm.settings import Settings
from omniroute_litellm.tokens import estimate_tokens
from omniroute_litellm.types import OwnerId, TraceId
from tests.fakes import FakeClock
from tests.test_trace import KEPT, answered, failed, trace


def state(name: str = "a", *, owner: str | None = "ann") -> RequestState:
    """Return the state of a request that just came in."""
    return RequestState(
        id=TraceId(f"trace-{name}"),
        call_id=f"call-{name}",
        model="gpt",
        owner=OwnerId(owner) if owner else None,
        session=None,
        mode=MemoryMode.ON,
        settings=Settings(),
        started_at=FakeClock()(),
    )


def test_a_failed_tier_degrades_a_request_that_was_helped() -> None:
    """The words answered, the vectors did not: memories are counted, the reason is named."""
    request = state()
    request.keep(trace(KEPT, tiers=(answered("keyword"), failed("vector", "embedding_down"))))
    request.form = BlockForm.SYSTEM
    receipt = request.receipt()
    assert (receipt.outcome, receipt.reason) == (Outcome.DEGRADED, "embedding_down")
    assert (receipt.injected, receipt.tier) == (1, "keyword")


def test_tokens_are_those_of_the_whole_block() -> None:
    """Heading and framing are billed as well, so they count."""
    request = state()
    request.keep(trace(KEPT))
    request.form = BlockForm.SYSTEM
    assert request.receipt().tokens == estimate_tokens(request.blocks[0].text)


def test_what_was_found_and_not_placed_is_not_injected() -> None:
    """A request that never reached a deployment carried no memory."""
    request = state()
    request.keep(trace(KEPT, tiers=(answered("keyword"),)))
    receipt = request.receipt()
    assert (receipt.outcome, receipt.injected, receipt.tokens) == (Outcome.NONE, 0, 0)


def test_a_request_without_owner_names_no_record() -> None:
    """Nothing is recorded of it, so its receipt has no trace."""
    assert state(owner=None).receipt().trace is None
    assert state().receipt().trace == "trace-a"


async def test_requests_side_by_side_do_not_mix() -> None:
    """Under one call id each task finds its own state, also in the tasks that it starts."""
    states = RequestStates()
    barrier = asyncio.Barrier(2)

    async def request(name: str, owner: str) -> RequestState | None:
        begun = state(name, owner=owner)
        begun.call_id = "chosen-by-the-client"
        states.begin(begun)
        await barrier.wait()
        return await asyncio.create_task(find())

    async def find() -> RequestState | None:
        return states.find()

    found = await asyncio.gather(request("a", "ann"), request("b", "bob"))
    assert [(each.id, each.owner) for each in found if each] == [
        ("trace-a", "ann"),
        ("trace-b", "bob"),
    ]


async def test_a_logging_worker_finds_the_request_it_logs() -> None:
    """What runs later in a copy of a request's context finds that request, whatever came since."""
    states = RequestStates()
    states.begin(state("a"))
    context = contextvars.copy_context()
    states.begin(state("b"))
    found = context.run(states.find)
    assert found
    assert found.id == "trace-a"


def test_a_request_without_a_state_finds_none() -> None:
    """An embedding under the call id of a chat does not come to the chat's state."""
    states = RequestStates()
    states.begin(state())
    states.begin(None)
    assert states.find() is None
