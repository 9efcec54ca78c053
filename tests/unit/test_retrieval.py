"""The one retrieval: what it takes, in which order, what it drops, and what it tells."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final

import pytest

from omniroute_litellm.errors import BackendUnavailableError
from omniroute_litellm.retrieval import RetrievalRequest, Retriever
from omniroute_litellm.sqlite import Database
from omniroute_litellm.sqlite_store import SqliteMemoryStore
from omniroute_litellm.trace import Drop, RetrievalTrace
from omniroute_litellm.types import Memory, MemoryStatus, SessionId
from omniroute_litellm.vectors.base import VectorTier
from tests.fakes import FakeClock, ListIndex, TopicEmbedder
from tests.unit.fakes import (
    BOB,
    FakeTimer,
    alive_at,
    draft,
    put,
    scope_of,
)

ASKED: Final = RetrievalRequest(
    scope=scope_of(),
    query="Which trumpet shall I buy?",
    strategy="hybrid",
    max_tokens=2_000,
    profile_max_tokens=0,
    retention=timedelta(days=30),
)
TOPICS: Final = ("drink", "music", "code")
ONE: Final = SessionId("one")


@pytest.fixture
def retriever(store: SqliteMemoryStore, clock: FakeClock) -> Retriever:
    """Hand out a retrieval without vectors."""
    return Retriever(store, clock=clock)


def with_vectors(
    store: SqliteMemoryStore,
    clock: FakeClock,
    *,
    embedder: TopicEmbedder | None = None,
    index: ListIndex | None = None,
) -> Retriever:
    """Return a retrieval with a vector tier over everything that is stored."""
    topics = TopicEmbedder(*TOPICS)
    index, embedder = index or ListIndex(), embedder or TopicEmbedder(*TOPICS)
    for memory in store.newest(scope_of(), alive_at(clock()), limit=100):
        index.add(memory, topics.embed(memory.content))
    return Retriever(store, clock=clock, vectors=lambda: VectorTier(index, embedder))


def keys(memories: Sequence[Memory]) -> list[str]:
    """Return the keys in rank order."""
    return [memory.key for memory in memories]


def dropped(trace: RetrievalTrace) -> dict[str, Drop]:
    """Return why each candidate was dropped."""
    return {entry.memory.key: entry.dropped for entry in trace.candidates if entry.dropped}


class TestRecent:
    """Newest first."""

    def test_newest_first(self, store: SqliteMemoryStore, retriever: Retriever) -> None:
        """The newest memory leads, whatever was asked."""
        for key in ("a", "b", "c"):
            put(store, draft(key))
        trace = retriever.retrieve(replace(ASKED, strategy="recent"))
        assert keys(trace.injected) == ["c", "b", "a"]

    def test_names_its_tier(self, store: SqliteMemoryStore, retriever: Retriever) -> None:
        """The trace tells that words played no part."""
        put(store)
        assert retriever.retrieve(replace(ASKED, strategy="recent")).tier == "newest"

    def test_at_most_a_hundred(self, store: SqliteMemoryStore, retriever: Retriever) -> None:
        """Older ones than a hundred are not considered."""
        for number in range(101):
            put(store, draft(f"k{number}"))
        assert len(retriever.retrieve(replace(ASKED, strategy="recent")).candidates) == 100


class TestSemantic:
    """Only what is relevant."""

    def test_finds_by_word(self, store: SqliteMemoryStore, retriever: Retriever) -> None:
        """Without vectors words decide."""
        put(store, draft("a", "plays the trumpet"))
        put(store, draft("b", "drinks tea"))
        trace = retriever.retrieve(replace(ASKED, strategy="semantic"))
        assert (keys(trace.injected), trace.tier) == (["a"], "keyword")

    def test_adds_no_profile(self, store: SqliteMemoryStore, retriever: Retriever) -> None:
        """A profile plays no part, a small store neither."""
        put(store, draft("preference:tea", "drinks tea", pinned=True))
        request = replace(ASKED, strategy="semantic", profile_max_tokens=400)
        assert retriever.retrieve(request).candidates == ()

    def test_no_words_find_nothing(self, store: SqliteMemoryStore, retriever: Retriever) -> None:
        """A question of stop words is no error."""
        put(store)
        trace = retriever.retrieve(replace(ASKED, strategy="semantic", query="what is the of"))
        assert (trace.candidates, trace.degraded, trace.tokens) == ((), None, 0)

    def test_weak_match_is_dropped(self, store: SqliteMemoryStore, retriever: Retriever) -> None:
        """What covers less than a tenth of the question is dropped with its reason."""
        put(store, draft("a", "blue"))
        words = "blue " + " ".join(f"unknown{number}" for number in range(20))
        trace = retriever.retrieve(replace(ASKED, strategy="semantic", query=words))
        assert dropped(trace) == {"a": Drop.BELOW_FLOOR}

    @pytest.mark.parametrize(
        ("count", "query"),
        [
            (1, "Which trumpet mouthpiece fits beginners?"),
            (2, "Which trumpet shall I buy?"),
            (12, "trumpet lessons"),
        ],
    )
    def test_topic_of_all_memories_is_found(
        self, store: SqliteMemoryStore, retriever: Retriever, count: int, query: str
    ) -> None:
        """A word that every memory holds is still found beside words that none holds."""
        for number in range(count):
            put(store, draft(f"k{number}", f"trumpet number {number}"))
        trace = retriever.retrieve(replace(ASKED, strategy="semantic", query=query))
        assert trace.injected

    def test_end_of_a_long_question_counts(
        self, store: SqliteMemoryStore, retriever: Retriever
    ) -> None:
        """Of a long text the end is looked up."""
        put(store, draft("a", "plays the trumpet"))
        query = "the " * 5_000 + "trumpet"
        assert keys(retriever.retrieve(replace(ASKED, query=query)).injected) == ["a"]


class TestHybrid:
    """Relevant, then the profile; all of it where all fits."""

    def test_small_store_comes_whole(self, store: SqliteMemoryStore, retriever: Retriever) -> None:
        """Where everything fits nothing is missed, oldest first."""
        put(store, draft("a", "drinks tea"))
        put(store, draft("b", "likes jazz"))
        trace = retriever.retrieve(replace(ASKED, profile_max_tokens=400))
        assert (keys(trace.injected), trace.tier) == (["a", "b"], "all")

    def test_small_store_keeps_its_order(
        self, store: SqliteMemoryStore, retriever: Retriever
    ) -> None:
        """The block does not change with the question."""
        put(store, draft("a", "drinks tea"))
        put(store, draft("b", "plays the trumpet"))
        one = retriever.retrieve(replace(ASKED, profile_max_tokens=400))
        two = retriever.retrieve(replace(ASKED, profile_max_tokens=400, query="tea"))
        assert one.lines == two.lines

    def test_whole_store_stays_within_max_tokens(
        self, store: SqliteMemoryStore, retriever: Retriever
    ) -> None:
        """A store that fits the profile but not the request is searched."""
        put(store, draft("a", "drinks a lot of green tea"))
        put(store, draft("b", "plays the trumpet"))
        trace = retriever.retrieve(replace(ASKED, profile_max_tokens=400, max_tokens=6))
        assert keys(trace.injected) == ["b"]

    def test_profile_follows_the_relevant(
        self, store: SqliteMemoryStore, retriever: Retriever
    ) -> None:
        """What is relevant leads, the profile follows."""
        put(store, draft("preference:tea", "drinks tea"))
        fill(store)
        put(store, draft("decision:b", "bought a trumpet"))
        trace = retriever.retrieve(replace(ASKED, profile_max_tokens=20))
        assert keys(trace.injected)[:2] == ["decision:b", "preference:tea"]

    def test_both_tiers_are_named(self, store: SqliteMemoryStore, retriever: Retriever) -> None:
        """The trace names each tier that contributed."""
        put(store, draft("preference:tea", "drinks tea"))
        fill(store)
        put(store, draft("decision:b", "bought a trumpet"))
        assert retriever.retrieve(replace(ASKED, profile_max_tokens=20)).tier == "keyword+profile"

    def test_nothing_comes_twice(self, store: SqliteMemoryStore, retriever: Retriever) -> None:
        """What is relevant and profile comes once, with both ranks."""
        put(store, draft("preference:trumpet", "likes the trumpet"))
        fill(store)
        trace = retriever.retrieve(replace(ASKED, profile_max_tokens=20))
        entries = [e for e in trace.candidates if e.memory.key == "preference:trumpet"]
        assert [set(entry.ranks) for entry in entries] == [{"keyword", "profile"}]

    def test_profile_keeps_the_newest(self, store: SqliteMemoryStore, retriever: Retriever) -> None:
        """Of a profile that does not fit the newest stay, rendered oldest first."""
        for number in range(4):
            put(store, draft(f"preference:{number}", f"likes number {number}"))
        trace = retriever.retrieve(replace(ASKED, profile_max_tokens=10))
        assert keys(trace.injected) == ["preference:2", "preference:3"]
        assert set(dropped(trace).values()) == {Drop.OVER_PROFILE_BUDGET}

    def test_weak_match_may_come_by_profile(
        self, store: SqliteMemoryStore, retriever: Retriever
    ) -> None:
        """A memory below the floor still comes when the profile holds it."""
        put(store, draft("preference:a", "blue"))
        fill(store)
        words = "blue " + " ".join(f"unknown{number}" for number in range(20))
        trace = retriever.retrieve(replace(ASKED, query=words, profile_max_tokens=20))
        assert keys(trace.injected) == ["preference:a"]
        assert [e.memory.key for e in trace.candidates].count("preference:a") == 1


def fill(store: SqliteMemoryStore) -> None:
    """Store enough for the whole store not to fit a small profile."""
    for number in range(12):
        put(store, draft(f"decision:{number}", f"decided on number {number}"))


class TestScope:
    """What is never a candidate."""

    def test_foreign(self, store: SqliteMemoryStore, retriever: Retriever) -> None:
        """A stranger's memory is never considered."""
        put(store, draft("a", "plays the trumpet", owner=BOB))
        assert retriever.retrieve(ASKED).candidates == ()

    def test_other_session(self, store: SqliteMemoryStore, retriever: Retriever) -> None:
        """In the scope of a session other sessions are never considered."""
        put(store, draft("a", "plays the trumpet"))
        put(store, draft("b", "sold a trumpet", session_id=ONE))
        trace = retriever.retrieve(replace(ASKED, scope=scope_of(session=ONE)))
        assert [entry.memory.key for entry in trace.candidates] == ["b"]

    def test_quarantined(self, store: SqliteMemoryStore, retriever: Retriever) -> None:
        """What waits for approval is never considered."""
        put(store, draft("a", "plays the trumpet", status=MemoryStatus.QUARANTINED))
        assert retriever.retrieve(ASKED).candidates == ()

    def test_past_retention(
        self, store: SqliteMemoryStore, retriever: Retriever, clock: FakeClock
    ) -> None:
        """What was said too long ago is never considered."""
        put(store, draft("a", "plays the trumpet"))
        clock.move(days=31)
        assert retriever.retrieve(ASKED).candidates == ()


class TestBudget:
    """What fits."""

    def test_drops_what_does_not_fit(self, store: SqliteMemoryStore, retriever: Retriever) -> None:
        """What is over the budget is dropped with its reason."""
        put(store, draft("a", "trumpet one"))
        put(store, draft("b", "trumpet two"))
        trace = retriever.retrieve(replace(ASKED, query="trumpet", max_tokens=4))
        assert (keys(trace.injected), dropped(trace)) == (["b"], {"a": Drop.OVER_BUDGET})

    def test_cuts_the_only_hit(self, store: SqliteMemoryStore, retriever: Retriever) -> None:
        """A hit that alone is too long is cut between words."""
        put(store, draft("a", "trumpet lessons every other week"))
        trace = retriever.retrieve(replace(ASKED, max_tokens=5))
        assert trace.lines == ("- trumpet lessons",)

    @pytest.mark.parametrize("budget", [1, 3, 7, 20, 2_000])
    def test_tokens_stay_within(
        self, store: SqliteMemoryStore, retriever: Retriever, budget: int
    ) -> None:
        """The tokens of a trace never exceed its budget."""
        for number in range(6):
            put(store, draft(f"k{number}", f"trumpet number {number}"))
        request = replace(ASKED, query="trumpet", max_tokens=budget)
        assert 0 < retriever.retrieve(request).tokens <= budget

    def test_blank_costs_nothing(self, store: SqliteMemoryStore, retriever: Retriever) -> None:
        """A memory without a visible character is dropped, and told so."""
        put(store, draft("trumpet", "\u200b\u200b"))
        trace = retriever.retrieve(ASKED)
        assert (trace.lines, dropped(trace)) == ((), {"trumpet": Drop.BLANK})

    def test_a_candidate_is_injected_or_dropped(
        self, store: SqliteMemoryStore, retriever: Retriever
    ) -> None:
        """There is one line for each candidate that was not dropped."""
        for number in range(6):
            put(store, draft(f"k{number}", f"trumpet number {number}"))
        trace = retriever.retrieve(replace(ASKED, query="trumpet", max_tokens=17))
        assert len(trace.lines) == len(trace.injected) == 6 - len(dropped(trace))


class TestVectors:
    """The vector tier."""

    def test_joins_the_words(self, store: SqliteMemoryStore, clock: FakeClock) -> None:
        """What is near in meaning comes beside what shares a word."""
        put(store, draft("a", "plays the trumpet"))
        put(store, draft("b", "loves music"))
        request = replace(ASKED, query="music for trumpet")
        trace = with_vectors(store, clock).retrieve(request)
        assert (set(keys(trace.injected)), trace.tier) == ({"a", "b"}, "keyword+vector")

    def test_ranks_are_fused(self, store: SqliteMemoryStore, clock: FakeClock) -> None:
        """What stands in both lists leads with the sum of both."""
        put(store, draft("both", "trumpet music"))
        put(store, draft("word", "trumpet"))
        request = replace(ASKED, query="trumpet music", fusion="rrf")
        trace = with_vectors(store, clock).retrieve(request)
        first = trace.candidates[0]
        assert (first.memory.key, first.ranks) == ("both", {"keyword": 1, "vector": 1})
        assert first.scores["fused"] == pytest.approx(2 / 61)

    def test_scores_are_fused(self, store: SqliteMemoryStore, clock: FakeClock) -> None:
        """Half for the words, half for the meaning: the best of both has all of it."""
        put(store, draft("both", "trumpet music"))
        put(store, draft("word", "trumpet"))
        put(store, draft("near", "music in the evening"))
        trace = with_vectors(store, clock).retrieve(replace(ASKED, query="trumpet music"))
        fused = {entry.memory.key: entry.scores["fused"] for entry in trace.candidates}
        assert fused["both"] == pytest.approx(1)
        assert 0 < fused["word"] < 0.5 < fused["near"] < 1

    def test_embeds_once(self, store: SqliteMemoryStore, clock: FakeClock) -> None:
        """One retrieval embeds its question once."""
        put(store, draft("a", "loves music"))
        embedder = TopicEmbedder(*TOPICS)
        with_vectors(store, clock, embedder=embedder).retrieve(ASKED)
        assert embedder.calls == 1

    def test_failed_embedder_is_named(self, store: SqliteMemoryStore, clock: FakeClock) -> None:
        """A model that cannot answer is told, and words answer alone."""
        put(store, draft("a", "plays the trumpet"))
        embedder = TopicEmbedder(*TOPICS, is_down=True)
        trace = with_vectors(store, clock, embedder=embedder).retrieve(ASKED)
        assert (keys(trace.injected), trace.degraded) == (["a"], "embedding_down")

    def test_failed_index_is_named(self, store: SqliteMemoryStore, clock: FakeClock) -> None:
        """An index that cannot answer is told, and words answer alone."""
        put(store, draft("a", "plays the trumpet"))
        index = ListIndex(fault="vector_down")
        trace = with_vectors(store, clock, index=index).retrieve(ASKED)
        assert (keys(trace.injected), trace.degraded) == (["a"], "vector_down")

    def test_mute_index_counts_as_failed(self, store: SqliteMemoryStore, clock: FakeClock) -> None:
        """An empty answer although there are vectors is a failure."""
        put(store, draft("a", "loves music"))
        trace = with_vectors(store, clock, index=ListIndex(is_mute=True)).retrieve(ASKED)
        assert trace.degraded == "vector_empty"

    def test_empty_index_is_fine(self, store: SqliteMemoryStore, clock: FakeClock) -> None:
        """An empty answer without vectors is an answer."""
        trace = with_vectors(store, clock).retrieve(replace(ASKED, strategy="semantic"))
        assert [(outcome.tier, outcome.answered) for outcome in trace.tiers] == [
            ("keyword", True),
            ("vector", True),
        ]

    def test_stale_vector_is_ignored(self, store: SqliteMemoryStore, clock: FakeClock) -> None:
        """A vector of a memory that may not be read brings nothing back."""
        memory = put(store, draft("a", "loves music", expires_at=clock() + timedelta(hours=1)))
        retriever = with_vectors(store, clock)
        clock.move(hours=2)
        trace = retriever.retrieve(replace(ASKED, query="music"))
        assert memory.id not in {entry.memory.id for entry in trace.candidates}

    def test_whole_store_asks_no_vectors(self, store: SqliteMemoryStore, clock: FakeClock) -> None:
        """Where everything fits no model is asked."""
        put(store, draft("a", "loves music"))
        embedder = TopicEmbedder(*TOPICS)
        retriever = with_vectors(store, clock, embedder=embedder)
        retriever.retrieve(replace(ASKED, profile_max_tokens=400))
        assert embedder.calls == 0


class TestTrace:
    """What a retrieval tells."""

    def test_lost_store_raises(self, retriever: Retriever, database: Database) -> None:
        """A store that cannot be read is told, rather than nothing found."""
        database.close()
        with pytest.raises(BackendUnavailableError):
            retriever.retrieve(ASKED)

    def test_json_holds_no_content(self, store: SqliteMemoryStore, retriever: Retriever) -> None:
        """Neither memories nor the question stand in the rendered trace."""
        put(store, draft("secretkey", "plays the trumpet"))
        told = repr(retriever.retrieve(ASKED).to_json())
        assert not any(word in told for word in ("trumpet", "secretkey", "ann"))

    def test_same_question_same_answer(
        self, store: SqliteMemoryStore, retriever: Retriever
    ) -> None:
        """Asking twice gives the same lines: retrieving changes nothing."""
        for number in range(6):
            put(store, draft(f"k{number}", "plays the trumpet"))
        assert retriever.retrieve(ASKED).lines == retriever.retrieve(ASKED).lines

    def test_time_is_the_timers(self, store: SqliteMemoryStore, clock: FakeClock) -> None:
        """The time that is told is that of the timer."""
        assert Retriever(store, clock=clock, timer=FakeTimer()).retrieve(ASKED).ms == 0
