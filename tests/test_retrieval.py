"""The one retrieval, over a real store."""

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omniroute_litellm.embedding.base import TextRefusedError
from omniroute_litellm.errors import BackendUnavailableError, ContractError
from omniroute_litellm.retrieval import RetrievalRequest, Retriever
from omniroute_litellm.sqlite_store import SqliteMemoryStore
from omniroute_litellm.store import Alive, MemoryQuery
from omniroute_litellm.trace import Drop, RetrievalTrace
from omniroute_litellm.types import (
    Memory,
    MemoryDraft,
    MemorySource,
    MemoryStatus,
    MemoryType,
    OwnerId,
    Scope,
    SessionId,
)
from omniroute_litellm.vectors.base import NoTier, VectorTier
from tests.fakes import FakeClock, ListIndex, TopicEmbedder

ANN: Final = OwnerId("ann")
BOB: Final = OwnerId("bob")


def put(store: SqliteMemoryStore, key: str, content: str, **more: Any) -> Memory:
    """Store one memory of Ann's."""
    values: dict[str, Any] = {
        "owner": ANN,
        "type": MemoryType.FACTUAL,
        "source": MemorySource.USER_MESSAGE,
        **more,
    }
    return store.upsert(MemoryDraft(key=key, content=content, **values), actor="test").memory


def find(
    store: SqliteMemoryStore,
    clock: FakeClock,
    query: str,
    *,
    vectors: VectorTier | None = None,
    **more: Any,
) -> RetrievalTrace:
    """Retrieve for Ann."""
    values: dict[str, Any] = {
        "scope": Scope((ANN,)),
        "strategy": "semantic",
        "max_tokens": 2_000,
        "profile_max_tokens": 0,
        "retention": timedelta(days=30),
        **more,
    }
    retriever = Retriever(store, clock=clock, vectors=lambda: vectors or NoTier())
    return retriever.retrieve(RetrievalRequest(query=query, **values))


def keys(trace: RetrievalTrace) -> list[str]:
    """Return the keys of what was injected, in order."""
    return [memory.key for memory in trace.injected]


def test_words_find_memories(store: SqliteMemoryStore, clock: FakeClock) -> None:
    """A shared word, stemmed, finds; a stop word does not."""
    put(store, "decision:postgres", "I chose Postgres for billing")
    put(store, "preference:tea", "I prefer tea")
    trace = find(store, clock, "What do we use for the bills and why do I prefer so?")
    assert "decision:postgres" in keys(trace)
    assert keys(find(store, clock, "what is it that you do for me?")) == []


def test_recent_is_newest_first(store: SqliteMemoryStore, clock: FakeClock) -> None:
    """``recent`` asks nothing of the query; a restatement makes new."""
    for name in ("a", "b", "c"):
        put(store, name, f"I like {name}{name}{name}")
    put(store, "a", "I like aaa")
    assert keys(find(store, clock, "", strategy="recent")) == ["a", "c", "b"]


def test_a_small_store_comes_whole(store: SqliteMemoryStore, clock: FakeClock) -> None:
    """Under ``hybrid`` everything comes when it fits the profile, oldest first."""
    put(store, "decision:x", "I chose Svelte")
    put(store, "preference:y", "I prefer tea")
    trace = find(store, clock, "unrelated", strategy="hybrid", profile_max_tokens=400)
    assert keys(trace) == ["decision:x", "preference:y"]
    assert trace.tier == "all"
    again = find(store, clock, "other words", strategy="hybrid", profile_max_tokens=400)
    assert again.lines == trace.lines


def test_hybrid_adds_the_profile(store: SqliteMemoryStore, clock: FakeClock) -> None:
    """What the words find comes first, then preferences and habits, each once, in stable order."""
    for number in range(30):
        put(store, f"decision:n{number}", f"I chose thing number{number} for part{number}")
    put(store, "preference:dark", "I prefer dark mode")
    put(store, "pattern:lint", "I always lint")
    put(store, "decision:pin", "I chose the pinned one", pinned=True)
    trace = find(store, clock, "number7 dark", strategy="hybrid", profile_max_tokens=60)
    assert set(keys(trace)[:2]) == {"decision:n7", "preference:dark"}
    assert keys(trace)[2:] == ["pattern:lint", "decision:pin"]
    assert trace.tier == "keyword+profile"


def test_the_profile_keeps_the_newest(store: SqliteMemoryStore, clock: FakeClock) -> None:
    """When not all preferences fit, the older ones are dropped with that reason."""
    for number in range(30):
        put(store, f"preference:n{number}", f"I prefer thing number{number}")
    trace = find(store, clock, "zzz", strategy="hybrid", profile_max_tokens=20)
    assert keys(trace) == ["preference:n28", "preference:n29"]
    assert {entry.dropped for entry in trace.candidates[2:]} == {Drop.OVER_PROFILE_BUDGET}


def test_the_budget_drops_with_a_reason(store: SqliteMemoryStore, clock: FakeClock) -> None:
    """What does not fit stays in the trace; one memory is always given, cut if need be."""
    put(store, "a", "tea " * 50)
    put(store, "b", "tea " * 60)
    trace = find(store, clock, "tea", max_tokens=10)
    assert len(trace.injected) == 1
    assert trace.tokens <= 10
    assert [entry.dropped for entry in trace.candidates] == [None, Drop.OVER_BUDGET]
    assert trace.lines[0].endswith("tea")


def test_a_blank_memory_is_not_counted(store: SqliteMemoryStore, clock: FakeClock) -> None:
    """What folds to nothing is dropped with that reason, not reported as injected."""
    put(store, "blank", "\u200b\ufe0f")
    put(store, "tea", "I prefer tea")
    trace = find(store, clock, "", strategy="recent")
    assert keys(trace) == ["tea"]
    assert len(trace.lines) == 1
    assert trace.candidates[1].dropped is Drop.BLANK


def test_a_text_without_spaces_is_cut_inside(store: SqliteMemoryStore, clock: FakeClock) -> None:
    """A language without spaces loses its end to a small budget, not everything."""
    put(store, "zh", "我喜欢喝茶" * 20)
    trace = find(store, clock, "", strategy="recent", max_tokens=5)
    assert trace.lines == ("- " + ("我喜欢喝茶" * 20)[:18],)


def test_weak_matches_are_dropped(store: SqliteMemoryStore, clock: FakeClock) -> None:
    """A memory that covers next to nothing of a long question is no match."""
    put(store, "a", "I love rain")
    rare = " ".join(f"unknown{number}" for number in range(20))
    trace = find(store, clock, f"{rare} rain")
    assert trace.injected == ()
    assert trace.candidates[0].dropped is Drop.BELOW_FLOOR


def test_what_is_not_alive_is_never_a_candidate(store: SqliteMemoryStore, clock: FakeClock) -> None:
    """Expired, aged, inactive and foreign memories do not appear, pinned ones do not age."""
    put(store, "old", "tea one")
    put(store, "oldpinned", "tea two", pinned=True)
    clock.move(days=31)
    put(store, "expired", "tea three", expires_at=clock() - timedelta(days=1))
    put(store, "archived", "tea four", status=MemoryStatus.ARCHIVED)
    put(store, "foreign", "tea five", owner=BOB)
    put(store, "alive", "tea six")
    for strategy in ("recent", "semantic", "hybrid"):
        trace = find(store, clock, "tea", strategy=strategy, profile_max_tokens=400)
        found = {entry.memory.key for entry in trace.candidates}
        assert found == {"oldpinned", "alive"}, strategy


def test_a_session_scope_reads_its_session(store: SqliteMemoryStore, clock: FakeClock) -> None:
    """Memories of other sessions do not appear."""
    put(store, "a", "tea one", session_id=SessionId("one"))
    put(store, "b", "tea two", session_id=SessionId("two"))
    scope = Scope((ANN,), SessionId("one"))
    assert keys(find(store, clock, "tea", scope=scope)) == ["a"]


def test_a_global_scope_reads_two_owners(store: SqliteMemoryStore, clock: FakeClock) -> None:
    """Shared memories join the owner's."""
    put(store, "a", "tea one")
    put(store, "b", "tea two", owner=OwnerId("global"))
    put(store, "c", "tea three", owner=BOB)
    scope = Scope((ANN, OwnerId("global")))
    assert set(keys(find(store, clock, "tea", scope=scope))) == {"a", "b"}
    trace = find(store, clock, "x", scope=scope, strategy="hybrid", profile_max_tokens=400)
    assert keys(trace) == ["a", "b"]


@given(owners=st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=8), query=st.text())
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_owners_never_meet(
    store: SqliteMemoryStore, clock: FakeClock, owners: list[str], query: str
) -> None:
    """Through every read, whatever is asked, nobody sees a foreign row."""
    for number, owner in enumerate(owners):
        put(store, f"preference:{number}", f"tea {query[:50]} x", owner=OwnerId(owner))
    alive = Alive(clock(), clock() - timedelta(days=30))
    for owner in ("a", "b", "c", "nobody"):
        scope = Scope((OwnerId(owner),))
        every = [memory.id for memory in store.page(MemoryQuery(limit=200)).memories]
        seen = [
            *store.newest(scope, alive, limit=100),
            *store.profile(scope, alive, limit=100),
            *(store.all_if_few(scope, alive, at_most=1_000) or []),
            *(hit.memory for hit in store.keyword(scope, alive, query=f"tea {query}", limit=100)),
            *store.by_ids(scope, alive, every).values(),
        ]
        assert {memory.owner for memory in seen} <= {owner}


@given(query=st.text(st.characters()))
@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_text_is_a_query(store: SqliteMemoryStore, clock: FakeClock, query: str) -> None:
    """No text is a syntax error, not even half a character."""
    put(store, "a", "I prefer tea")
    find(store, clock, query)
    find(store, clock, f'tea {query}" OR NEAR(')


def test_strangers_do_not_change_the_ranking(store: SqliteMemoryStore, clock: FakeClock) -> None:
    """Word frequencies are the owner's own: other owners' words change no score."""
    put(store, "a", "green tea")
    put(store, "b", "black coffee")
    before = find(store, clock, "green coffee").to_json()["candidates"]
    for number in range(200):
        put(store, f"k{number}", f"green thing {number}", owner=BOB)
    assert find(store, clock, "green coffee").to_json()["candidates"] == before


def indexed(store: SqliteMemoryStore, index: ListIndex, *memories: Memory) -> VectorTier:
    """Return a tier over an index that holds these memories."""
    embedder = TopicEmbedder()
    for memory in memories:
        index.add(memory, embedder.embed(memory.content))
    return VectorTier(index, embedder)


def test_vectors_join_the_words(store: SqliteMemoryStore, clock: FakeClock) -> None:
    """What both lists hold comes first; what one of them holds follows."""
    tea = put(store, "a", "I drink tea")
    jazz = put(store, "b", "I hear jazz")
    green = put(store, "c", "green leaves")
    tier = indexed(store, ListIndex(), tea, jazz, green)
    trace = find(store, clock, "tea green", vectors=tier, strategy="hybrid")
    assert keys(trace)[0] == "a"
    assert set(keys(trace)) == {"a", "c"}
    assert trace.candidates[0].ranks == {"keyword": 1, "vector": 1}
    assert trace.tier == "keyword+vector"
    assert trace.degraded is None


def test_the_semantic_strategy_goes_by_meaning(store: SqliteMemoryStore, clock: FakeClock) -> None:
    """Words alone bring nothing in while vectors answer."""
    tea = put(store, "a", "I drink tea")
    put(store, "c", "green leaves")
    trace = find(store, clock, "tea green", vectors=indexed(store, ListIndex(), tea))
    assert keys(trace) == ["a"]


def test_a_missing_tier_is_named(store: SqliteMemoryStore, clock: FakeClock) -> None:
    """While there is no index the words answer; that nobody wants one is no fault."""
    put(store, "a", "I drink tea")
    for reason in ("index_building", None):
        retriever = Retriever(store, clock=clock, vectors=partial(NoTier, reason))
        trace = retriever.retrieve(
            RetrievalRequest(Scope((ANN,)), "tea", "hybrid", 2_000, 0, timedelta(days=30))
        )
        assert (keys(trace), trace.degraded) == (["a"], reason)


class Rerank:
    """Turns the order round, or fails."""

    def __init__(self, fault: Exception | None = None) -> None:
        self.fault = fault
        self.asked: list[tuple[str, list[str], str]] = []

    def __call__(
        self, query: str, documents: Sequence[str], *, owner: OwnerId
    ) -> list[tuple[int, float]]:
        """Put the last one first."""
        self.asked.append((query, list(documents), owner))
        if self.fault is not None:
            raise self.fault
        return [(at, 1.0 / (n + 1)) for n, at in enumerate(reversed(range(len(documents))))]


def reranked(store: SqliteMemoryStore, clock: FakeClock, rerank: Rerank) -> RetrievalTrace:
    """Retrieve with a rerank model."""
    retriever = Retriever(store, clock=clock, rerank=lambda: rerank)
    return retriever.retrieve(
        RetrievalRequest(Scope((ANN,)), "green tea", "hybrid", 2_000, 0, timedelta(days=30))
    )


def test_a_rerank_model_has_the_last_word(store: SqliteMemoryStore, clock: FakeClock) -> None:
    """What was found goes to the model once, in the owner's name; its order is taken."""
    put(store, "both", "green tea")
    put(store, "one", "tea")
    rerank = Rerank()
    trace = reranked(store, clock, rerank)
    assert keys(trace) == ["one", "both"]
    assert rerank.asked == [("green tea", ["green tea", "tea"], ANN)]
    assert trace.candidates[0].ranks == {"keyword": 2, "rerank": 1}


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (BackendUnavailableError("away", reason="remote_timeout"), "remote_timeout"),
        (TextRefusedError("too long"), "rerank_refused"),
        (ContractError("no order"), "rerank_refused"),
    ],
)
def test_a_failing_rerank_model_changes_nothing(
    store: SqliteMemoryStore, clock: FakeClock, fault: Exception, reason: str
) -> None:
    """The order stays, and the trace says why."""
    put(store, "both", "green tea")
    put(store, "one", "tea")
    trace = reranked(store, clock, Rerank(fault))
    assert (keys(trace), trace.degraded) == (["both", "one"], reason)


def test_a_failing_tier_is_named(store: SqliteMemoryStore, clock: FakeClock) -> None:
    """Without the model the words answer, and the trace says why."""
    tea = put(store, "a", "I drink tea")
    tier = VectorTier(indexed(store, ListIndex(), tea).index, TopicEmbedder(is_down=True))
    trace = find(store, clock, "tea", vectors=tier)
    assert keys(trace) == ["a"]
    assert trace.degraded == "embedding_down"


def test_a_mute_index_counts_as_failed(store: SqliteMemoryStore, clock: FakeClock) -> None:
    """An empty answer although the owner has vectors is a fault, not a result."""
    tea = put(store, "a", "I drink tea")
    trace = find(store, clock, "tea", vectors=indexed(store, ListIndex(is_mute=True), tea))
    assert trace.degraded == "vector_empty"
    assert keys(trace) == ["a"]


def test_the_trace_holds_no_content(store: SqliteMemoryStore, clock: FakeClock) -> None:
    """What is recorded of a retrieval shows ids and numbers, not what somebody said."""
    put(store, "a", "I drink tea")
    assert "tea" not in str(find(store, clock, "tea").to_json())
