"""One thread's work for a request: what is used when it is late, and what is remembered."""

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import pytest

from omniroute_litellm.errors import BackendUnavailableError
from omniroute_litellm.health import Health
from omniroute_litellm.identity import Identity
from omniroute_litellm.injection import HEADING
from omniroute_litellm.ledger import Ledger
from omniroute_litellm.live_settings import LiveSettings
from omniroute_litellm.lookup import Lookup
from omniroute_litellm.placement import BlockForm, Deployment
from omniroute_litellm.recall import Arrival, Patience, Recall
from omniroute_litellm.receipt import Outcome
from omniroute_litellm.refusals import ENOUGH_ELSEWHERE, KEEP, Refusals
from omniroute_litellm.replay import Replay
from omniroute_litellm.request_state import RequestState
from omniroute_litellm.retrieval import RetrievalRequest, Retriever
from omniroute_litellm.sqlite import Database
from omniroute_litellm.sqlite_store import SqliteMemoryStore
from omniroute_litellm.tokens import estimate_tokens
from omniroute_litellm.trace import RetrievalTrace
from omniroute_litellm.types import MemoryDraft, MemorySource, MemoryType, OwnerId
from omniroute_litellm.vectors.base import Vector, VectorTier
from omniroute_litellm.wire.chat import ChatFormat
from tests.fakes import FakeClock, ListIndex

ANN: Final = OwnerId("a" * 64)
GPT: Final = Deployment("openai", "gpt-4o")
O1: Final = Deployment("openai", "o1-mini")
LEFT: Final = Deployment("openai", "gpt-4o", host="left", group="pair")
RIGHT: Final = Deployment("openai", "gpt-4o", host="right", group="pair")
CHAT: Final = ChatFormat()
FIRST: Final = {"role": "user", "content": "Which tea?"}
ANSWER: Final = {"role": "assistant", "content": "Sencha."}
SECOND: Final = {"role": "user", "content": "And which cake?"}
TAIL: Final = {"OMNIROUTE_MEMORY_INJECTION_PLACEMENT": "tail"}


class HungEmbedder:
    """Embeds nothing until it is let go."""

    is_slow = True

    def __init__(self) -> None:
        self.let_go = threading.Event()

    def embed(self, text: str, *, owner: OwnerId | None = None) -> Vector:
        """Wait, then fail."""
        self.let_go.wait(30)
        message = "hung"
        raise BackendUnavailableError(message, reason="embedding_down")


class SlowAfterFirst(Retriever):
    """Answers once and hangs from then on, until it is let go."""

    def __init__(self, inner: Retriever) -> None:
        self.inner = inner
        self.calls = 0
        self.let_go = threading.Event()

    def retrieve(
        self, request: RetrievalRequest, *, keep: Callable[[RetrievalTrace], None] | None = None
    ) -> RetrievalTrace:
        """Retrieve, late from the second time on."""
        self.calls += 1
        if self.calls > 1:
            self.let_go.wait(30)
        return self.inner.retrieve(request)


class Desk:
    """A recall over a real store and ledger."""

    def __init__(self, database: Database, **environ: str) -> None:
        self.clock = FakeClock()
        self.database = database
        self.store = SqliteMemoryStore(database, clock=self.clock)
        self.ledger = Ledger(database, clock=self.clock)
        self.refusals = Refusals(database, clock=self.clock)
        self.health = Health(clock=self.clock)
        self.executor = ThreadPoolExecutor(2)
        values = {"OMNIROUTE_MEMORY_ENABLED": "true", **environ}
        self.settings = LiveSettings(database, environ=values, clock=self.clock)
        self.settings.refresh()
        self.retriever: Retriever = Retriever(self.store, clock=self.clock)

    def know(self, *contents: str) -> None:
        """Store memories."""
        for content in contents:
            self.store.upsert(
                MemoryDraft(ANN, MemoryType.SEMANTIC, content, content, MemorySource.MANUAL),
                actor="test",
            )

    def recall(self, *, deadline_s: float = 30) -> Recall:
        """Return a request path."""
        return Recall(
            Lookup(self.retriever, Replay(self.ledger, self.store, clock=self.clock)),
            self.settings,
            self.health,
            patience=lambda: Patience(self.executor, deadline_s),
            remember=self.ledger.put,
            refusals=self.refusals,
            clock=self.clock,
        )

    async def ask(
        self,
        *messages: dict[str, str],
        deadline_s: float = 30,
        deployment: Deployment = GPT,
        state: RequestState | None = None,
    ) -> tuple[RequestState, list[dict[str, Any]]]:
        """Send a conversation; return its state and what goes out."""
        recall = self.recall(deadline_s=deadline_s)
        state = state or recall.identify(Arrival("c", "gpt", Identity(key=ANN), {}, None))
        body: dict[str, Any] = {"messages": list(messages)}
        placed = await recall.place(state, CHAT, body, deployment)
        sent: dict[str, Any] = {**body, **(placed or {})}
        return state, sent["messages"]


@pytest.fixture
def make_desk(database: Database) -> Iterator[Callable[..., Desk]]:
    """Hand out a maker of desks."""
    made: list[Desk] = []

    def make(**environ: str) -> Desk:
        made.append(Desk(database, **environ))
        return made[-1]

    yield make
    for desk in made:
        desk.executor.shutdown(wait=True)


async def test_what_the_words_found_is_used_when_the_vectors_are_late(
    make_desk: Callable[..., Desk],
) -> None:
    """A hung embedder costs the vectors, not the memories."""
    desk = make_desk(OMNIROUTE_MEMORY_STRATEGY="semantic")
    desk.know("I drink green tea", "I own a bicycle")
    embedder = HungEmbedder()
    tier = VectorTier(ListIndex(), embedder)
    desk.retriever = Retriever(desk.store, clock=desk.clock, vectors=lambda: tier)
    state, sent = await desk.ask(FIRST, deadline_s=0.3)
    embedder.let_go.set()
    assert "green tea" in sent[0]["content"]
    assert "bicycle" not in sent[0]["content"]
    receipt = state.receipt()
    assert (receipt.outcome, receipt.reason) == (Outcome.DEGRADED, "deadline")
    assert (receipt.injected, receipt.tier) == (1, "keyword")
    assert desk.health.counters["memory.retrieval.deadline"] == 1


async def test_what_a_conversation_carries_stays_when_retrieval_is_late(
    make_desk: Callable[..., Desk],
) -> None:
    """The block of an earlier turn is repeated, so that the cached prompt stays valid."""
    desk = make_desk(**TAIL)
    desk.know("I drink green tea")
    slow = SlowAfterFirst(desk.retriever)
    desk.retriever = slow
    _, before = await desk.ask(FIRST)
    state, sent = await desk.ask(FIRST, ANSWER, SECOND, deadline_s=0.2)
    slow.let_go.set()
    assert sent[:1] == before
    assert sent[2] == SECOND
    assert (state.outcome, state.reason) == (Outcome.DEGRADED, "deadline")
    assert state.receipt().tier == "replay"
    loop = {"role": "tool", "content": "x"}
    _, after = await desk.ask(FIRST, ANSWER, SECOND, ANSWER, loop)
    assert after[:3] == sent


async def test_a_tool_loop_asks_for_nothing(make_desk: Callable[..., Desk]) -> None:
    """The newest turn keeps what it got, whatever was learned since."""
    desk = make_desk(**TAIL)
    desk.know("I drink green tea")
    _, before = await desk.ask(FIRST)
    desk.know("I love jazz")
    state, sent = await desk.ask(FIRST, ANSWER)
    assert sent[:1] == before
    assert state.trace is None
    receipt = state.receipt()
    assert (receipt.outcome, receipt.injected, receipt.tier) == (Outcome.INJECTED, 1, "replay")


async def test_the_same_turn_again_keeps_its_bytes(make_desk: Callable[..., Desk]) -> None:
    """A client that retries gets what it got, unless more is known by now."""
    desk = make_desk(**TAIL)
    desk.know("I drink green tea")
    _, before = await desk.ask(FIRST)
    _, again = await desk.ask(FIRST)
    assert again == before
    desk.know("I love jazz")
    _, more = await desk.ask(FIRST)
    assert "jazz" in more[0]["content"]


async def test_no_room_is_left_for_more(make_desk: Callable[..., Desk]) -> None:
    """At twice the budget nothing new is added, and nothing is searched for."""
    desk = make_desk(**TAIL, OMNIROUTE_MEMORY_MAX_TOKENS="20")
    desk.know("I drink green tea every morning before work")
    await desk.ask(FIRST)
    desk.know("I love jazz")
    state, sent = await desk.ask(FIRST, ANSWER, SECOND)
    assert HEADING in sent[0]["content"]
    assert sent[2] == SECOND
    assert state.trace is None


TOPICS: Final = ("jazz", "chess", "sailing", "cooking", "tennis", "painting")


def budget(tokens: int) -> dict[str, str]:
    """Return the variables for blocks behind turns under a budget, with what is relevant alone."""
    return {
        **TAIL,
        "OMNIROUTE_MEMORY_MAX_TOKENS": str(tokens),
        "OMNIROUTE_MEMORY_STRATEGY": "semantic",
    }


async def chat(
    desk: Desk, turns: int, *, earlier: Sequence[dict[str, str]] = ()
) -> list[dict[str, str]]:
    """Ask about a topic in each turn of a conversation, and return it as the client has it."""
    messages = list(earlier)
    for topic in TOPICS[len(messages) // 2 :][:turns]:
        messages.append({"role": "user", "content": f"What about {topic}?"})
        await desk.ask(*messages)
        messages.append(ANSWER)
    desk.ledger.flush()
    return messages


def know_topics(desk: Desk) -> None:
    """Store a memory of some length for each topic."""
    desk.know(*(f"I enjoy {topic} {'with friends of mine ' * 4}" for topic in TOPICS))


def blocks_of(messages: Sequence[dict[str, Any]]) -> list[str]:
    """Return the block behind each message, empty where there is none."""
    return [
        HEADING + text[1] if len(text := str(each["content"]).split(HEADING)) > 1 else ""
        for each in messages
    ]


def tokens_of(messages: Sequence[dict[str, Any]]) -> int:
    """Return what the blocks in a request cost."""
    return sum(map(estimate_tokens, blocks_of(messages)))


@pytest.mark.parametrize("tokens", [1, 10, 17, 20, 30, 50, 80, 120])
async def test_a_conversation_stays_within_twice_the_budget(
    make_desk: Callable[..., Desk], tokens: int
) -> None:
    """Whatever the budget, all blocks of a request together cost at most twice as much."""
    desk = make_desk(**budget(tokens))
    know_topics(desk)
    desk.know("ox", "jz", "ab jazz")
    messages: list[dict[str, str]] = []
    for topic in TOPICS:
        messages.append({"role": "user", "content": f"What about {topic}, ox and jz?"})
        _, sent = await desk.ask(*messages)
        assert tokens_of(sent) <= 2 * tokens
        messages.append(ANSWER)


async def test_a_lower_budget_leaves_out_the_newest_blocks(
    make_desk: Callable[..., Desk],
) -> None:
    """The oldest stay as they were, so that the cached prompt holds; nothing new is added."""
    desk = make_desk(**budget(150))
    know_topics(desk)
    messages = await chat(desk, 4)
    _, before = await desk.ask(*messages)
    assert len(list(filter(None, blocks_of(before)))) >= 3
    lower = make_desk(**budget(75))
    question = {"role": "user", "content": f"What about {TOPICS[4]}?"}
    state, sent = await lower.ask(*messages, question)
    assert 0 < tokens_of(sent) <= 150
    assert state.trace is None
    carried = blocks_of(sent)
    kept = len(list(filter(None, carried)))
    assert carried[: 2 * kept] == blocks_of(before)[: 2 * kept]
    assert not any(carried[2 * kept :])
    _, again = await lower.ask(*messages, question, ANSWER, {"role": "user", "content": "And now?"})
    assert again[: len(sent)] == sent


async def test_a_block_beyond_the_limit_is_passed_over(make_desk: Callable[..., Desk]) -> None:
    """A first block that alone costs more than the limit is left out, and others take its room."""
    desk = make_desk(**budget(400))
    desk.know(*(f"I enjoy jazz {number} {'with friends ' * 8}" for number in range(12)))
    desk.know("I play chess")
    messages = await chat(desk, 1)
    lower = make_desk(**budget(60))
    question = {"role": "user", "content": "What about chess?"}
    _, sent = await lower.ask(*messages, question)
    assert blocks_of(sent)[0] == ""
    assert "I play chess" in blocks_of(sent)[2]
    assert tokens_of(sent) <= 120
    _, again = await lower.ask(*messages, question, ANSWER, {"role": "user", "content": "And?"})
    assert again[: len(sent)] == sent


async def test_the_newest_block_counts_as_well(make_desk: Callable[..., Desk]) -> None:
    """A tool loop whose own block does not fit any more goes on without it."""
    desk = make_desk(**budget(150))
    know_topics(desk)
    messages = await chat(desk, 3)
    loop = [*messages, {"role": "tool", "content": "x"}]
    _, before = await desk.ask(*loop)
    assert blocks_of(before)[4]
    lower = make_desk(**budget(75))
    _, sent = await lower.ask(*loop)
    assert tokens_of(sent) <= 150
    assert blocks_of(sent)[0] == blocks_of(before)[0]
    assert not blocks_of(sent)[4]


async def test_an_edited_history_makes_room(make_desk: Callable[..., Desk]) -> None:
    """Blocks behind turns that the client took back count no more."""
    desk = make_desk(**budget(75))
    know_topics(desk)
    messages = await chat(desk, 4)
    question = {"role": "user", "content": f"What about {TOPICS[5]}?"}
    full, _ = await desk.ask(*messages, question)
    assert full.trace is None
    _, sent = await desk.ask(*messages[:2], question)
    assert TOPICS[5] in blocks_of(sent)[2]
    assert tokens_of(sent) <= 150


async def test_a_memory_that_ran_out_is_not_repeated(make_desk: Callable[..., Desk]) -> None:
    """What retention or expiry took away is in no later request."""
    desk = make_desk(**TAIL, OMNIROUTE_MEMORY_RETENTION_DAYS="1")
    desk.know("I drink green tea")
    await desk.ask(FIRST)
    desk.clock.move(hours=23)
    _, still = await desk.ask(FIRST, ANSWER, SECOND)
    assert HEADING in still[0]["content"]
    desk.clock.move(hours=2)
    _, gone = await desk.ask(FIRST, ANSWER, SECOND, ANSWER)
    assert HEADING not in str(gone)


async def test_a_refused_attempt_goes_out_as_it_came(make_desk: Callable[..., Desk]) -> None:
    """The repeat to the same deployment carries nothing, a fallback to another does."""
    desk = make_desk()
    desk.know("I drink green tea")
    recall = desk.recall()
    state, sent = await desk.ask(FIRST)
    assert HEADING in sent[0]["content"]
    assert recall.refused(state, is_for_form=True)
    _, sent = await desk.ask(FIRST, state=state)
    assert sent == [FIRST]
    assert not recall.refused(state, is_for_form=True)
    assert (state.receipt().outcome, state.receipt().reason) == (Outcome.DEGRADED, "refused")
    _, sent = await desk.ask(FIRST, state=state, deployment=O1)
    assert HEADING in sent[0]["content"]
    assert state.receipt().outcome is Outcome.INJECTED
    assert recall.lesson(state) is None
    await desk.ask(FIRST, state=state)
    assert recall.lesson(state) == ("openai/gpt-4o", BlockForm.SYSTEM)
    assert recall.lesson(state) is None


async def test_the_repeat_carries_nothing_wherever_it_lands(
    make_desk: Callable[..., Desk],
) -> None:
    """Every deployment of the group that refused gets the request as it came, another group's not.

    LiteLLM repeats a refused request on another deployment of the group where there is one.
    """
    desk = make_desk()
    desk.know("I drink green tea")
    state, _ = await desk.ask(FIRST, deployment=LEFT)
    assert desk.recall().refused(state, is_for_form=True)
    _, sent = await desk.ask(FIRST, state=state, deployment=RIGHT)
    assert sent == [FIRST]
    assert not desk.recall().refused(state, is_for_form=True)
    assert state.receipt().reason == "refused"
    _, sent = await desk.ask(FIRST, state=state, deployment=replace(O1, group="spare"))
    assert HEADING in sent[0]["content"]


async def refused_on_the_left(desk: Desk) -> tuple[str, str] | None:
    """Let a request be refused by one deployment and pass on another; return what that teaches."""
    state, _ = await desk.ask(FIRST, deployment=LEFT)
    assert desk.recall().refused(state, is_for_form=True)
    await desk.ask(FIRST, state=state, deployment=RIGHT)
    return desk.recall().lesson(state)


async def test_what_passed_elsewhere_is_weaker_evidence(make_desk: Callable[..., Desk]) -> None:
    """The form is remembered for who refused it, once enough requests passed on another server."""
    desk = make_desk()
    desk.know("I drink green tea")
    found = [await refused_on_the_left(desk) for _ in range(ENOUGH_ELSEWHERE)]
    assert found == [None] * (ENOUGH_ELSEWHERE - 1) + [(LEFT.name, BlockForm.SYSTEM)]


async def test_memory_that_passed_clears_a_suspicion(make_desk: Callable[..., Desk]) -> None:
    """A server that takes memory in a form refused the others for another reason."""
    desk = make_desk()
    desk.know("I drink green tea")
    for _ in range(ENOUGH_ELSEWHERE - 1):
        await refused_on_the_left(desk)
    state, sent = await desk.ask(FIRST, deployment=LEFT)
    assert HEADING in sent[0]["content"]
    assert desk.recall().lesson(state) is None
    assert await refused_on_the_left(desk) is None


async def test_a_repeat_that_passed_in_another_group_teaches_nothing(
    make_desk: Callable[..., Desk],
) -> None:
    """Refused without memory as well and answered by a fallback: the form was not the reason."""
    desk = make_desk()
    desk.know("I drink green tea")
    for _ in range(ENOUGH_ELSEWHERE + 1):
        state, _ = await desk.ask(FIRST, deployment=LEFT)
        assert desk.recall().refused(state, is_for_form=True)
        await desk.ask(FIRST, state=state, deployment=RIGHT)
        await desk.ask(FIRST, state=state, deployment=replace(O1, group="spare"))
        assert desk.recall().lesson(state) is None


async def test_what_was_learned_decides_the_form(make_desk: Callable[..., Desk]) -> None:
    """Each refused form gives way to the next, at last to none."""
    desk = make_desk()
    desk.know("I drink green tea")
    roles: list[str] = []
    for form in (BlockForm.SYSTEM, BlockForm.MERGED, BlockForm.USER):
        _, sent = await desk.ask(FIRST)
        roles.append(sent[0]["role"])
        desk.refusals.learn(GPT.name, form)
    assert roles == ["system", "system", "user"]
    state, sent = await desk.ask(FIRST)
    assert sent == [FIRST]
    assert state.receipt().reason == "deployment_refuses"


async def test_a_refused_tail_leads(make_desk: Callable[..., Desk]) -> None:
    """All blocks of a conversation go in front where none may stand behind a turn."""
    desk = make_desk(**TAIL)
    desk.know("I drink green tea")
    await desk.ask(FIRST)
    desk.know("I love jazz")
    desk.refusals.learn(GPT.name, "tail")
    _, sent = await desk.ask(FIRST, ANSWER, SECOND)
    assert sent[1:] == [FIRST, ANSWER, SECOND]
    assert "green tea" in sent[0]["content"]
    assert "jazz" in sent[0]["content"]


def test_refusals_are_shared_and_pass(database: Database) -> None:
    """Another process knows them after a refresh; after a month they are tried anew."""
    clock = FakeClock()
    mine, other = Refusals(database, clock=clock), Refusals(database, clock=clock)
    mine.learn("openai/x", "system")
    mine.learn("openai/x", "user")
    assert mine.of("openai/x") == {"system", "user"}
    assert other.of("openai/x") == frozenset()
    other.refresh()
    assert other.of("openai/x") == {"system", "user"}
    assert set(other.all()) == {"openai/x"}
    other.forget("openai/x")
    mine.refresh()
    assert mine.of("openai/x") == frozenset()
    mine.learn("openai/x", "system")
    clock.move(days=KEEP / timedelta(days=1) + 1)
    mine.purge()
    mine.refresh()
    assert mine.all() == {}


async def test_a_cancelled_look_up_remembers_nothing(make_desk: Callable[..., Desk]) -> None:
    """A client that hangs up leaves no turn behind."""
    desk = make_desk(**TAIL)
    slow = SlowAfterFirst(desk.retriever)
    slow.calls = 1
    desk.retriever = slow
    task = asyncio.create_task(desk.ask(FIRST))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    slow.let_go.set()
    assert not desk.ledger.has_news
