"""The state of one request, and how hooks find it."""

import asyncio

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
    """Each task finds its own state, also under a call id that it never saw."""
    states = RequestStates()
    barrier = asyncio.Barrier(2)

    async def request(name: str) -> RequestState | None:
        states.begin(state(name))
        await barrier.wait()
        return await asyncio.create_task(find())

    async def find() -> RequestState | None:
        return states.find("call-of-a-bridge")

    found = await asyncio.gather(request("a"), request("b"))
    assert [each.id for each in found if each] == ["trace-a", "trace-b"]


def test_a_state_without_call_id_is_the_context_s_alone() -> None:
    """An empty call id finds nothing: it would belong to every request that has none."""
    states = RequestStates()
    nameless = state()
    nameless.call_id = ""
    states.begin(nameless)
    assert states.find("") is nameless
    states.begin(None)
    assert states.find("") is None
