"""Small stand-ins for what surrounds the code under test."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import numpy as np

from omniroute_litellm.embedding.base import unit_rows
from omniroute_litellm.errors import BackendUnavailableError, UnauthenticatedError
from omniroute_litellm.identity import Identity
from omniroute_litellm.ledger import Ledger, Placed
from omniroute_litellm.lookup import Lookup
from omniroute_litellm.ranking import KeywordScore, TermMatch, bm25, term_weight
from omniroute_litellm.refusals import Refusals
from omniroute_litellm.replay import Replay
from omniroute_litellm.retrieval import RetrievalRequest, Retriever
from omniroute_litellm.sqlite import Database
from omniroute_litellm.sqlite_store import SqliteMemoryStore
from omniroute_litellm.store import Alive
from omniroute_litellm.trace import RetrievalTrace
from omniroute_litellm.types import Clock, Memory, MemoryId, OwnerId, Scope
from omniroute_litellm.vectors.base import Nearest, Vector


class FakeClock:
    """A clock that stands still until it is moved; every reading is a microsecond later."""

    def __init__(self) -> None:
        self._now = datetime(2030, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        self._now += timedelta(microseconds=1)
        return self._now

    def move(self, **by: float) -> None:
        """Let time pass."""
        self._now += timedelta(**by)


class TopicEmbedder:
    """Maps topic words to axes, so that a reader sees which texts are near; counts its calls."""

    source = "fake"
    model = "topics"
    is_slow = False
    batch_size = 4

    def __init__(self, *topics: str, is_down: bool = False, fault: str = "embedding_down") -> None:
        self.topics = topics or ("tea", "jazz", "code")
        self.calls = 0
        self.is_down = is_down
        self._fault = fault

    def embed(self, text: str, *, owner: OwnerId | None = None) -> Vector:
        """Return one coordinate a topic: 1 where its word occurs, scaled to length 1."""
        self.calls += 1
        if self.is_down:
            message = "the model is away"
            raise BackendUnavailableError(message, reason=self._fault)
        return unit_rows(np.array([[topic in text for topic in self.topics]], dtype=np.float32))[0]


class ListIndex:
    """A vector index that holds what it is given and compares by dot product."""

    backend = "list"

    def __init__(self, *, is_mute: bool = False, fault: str | None = None) -> None:
        self._rows: dict[MemoryId, tuple[Memory, Vector]] = {}
        self._is_mute = is_mute
        self._fault = fault

    def add(self, memory: Memory, vector: Vector) -> None:
        """Keep a vector."""
        self._rows[memory.id] = (memory, vector)

    def search(
        self,
        vector: Vector,
        *,
        scope: Scope,
        alive: Alive,
        limit: int,
        also: Sequence[MemoryId] = (),
    ) -> Nearest:
        """Return what shares a topic, in the scope; nothing at all when mute."""
        if self._fault is not None:
            message = "the index is away"
            raise BackendUnavailableError(message, reason=self._fault)
        near = {
            memory_id: (memory, float(vector @ row))
            for memory_id, (memory, row) in self._rows.items()
            if memory.owner in scope.owners and alive.has(memory, scope.session)
        }
        hits = {each: cosine for each, (_, cosine) in near.items() if cosine > 0}
        best = [] if self._is_mute else sorted(hits, key=lambda each: -hits[each])[:limit]
        cosines = {each: near[each][1] for each in dict.fromkeys([*best, *also]) if each in near}
        every = [cosine for _, cosine in near.values()]
        return Nearest(
            [near[each][0] for each in best],
            cosines,
            np.array([self._rows[each][1] for each in cosines]).reshape(-1, len(vector)),
            sum(every) / len(every) if every else 0.0,
            len(every) if self._is_mute else len(hits),
        )


def bm25_of(
    postings: Mapping[str, Sequence[int]], lengths: Mapping[int, int], *, documents: int
) -> dict[int, KeywordScore]:
    """Score documents by which of them hold each term of a query."""
    matches: dict[int, TermMatch] = {}
    for holding in postings.values():
        weight = term_weight(len(holding), documents=documents)
        for document in holding:
            known = matches.get(document, TermMatch(0.0, 0, lengths[document]))
            matches[document] = TermMatch(known.weight + weight, known.terms + 1, known.length)
    return bm25(matches, terms=len(postings))


class FakeTimer:
    """A monotonic clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class FakeAuthority:
    """Knows an admin's key and a user's; the admin's secret can be rotated or taken away."""

    def __init__(self) -> None:
        self.admin_secret: str | None = "sk-admin"

    async def identify(self, key: str) -> Identity:
        """Return who a key belongs to."""
        if key == "sk-admin":
            return Identity(is_admin=True)
        if key == "sk-user":
            return Identity(key="a" * 64)
        message = "the key is not valid here"
        raise UnauthenticatedError(message)

    def secret(self) -> str | None:
        """Return the admin's secret."""
        return self.admin_secret


class FakeRetriever(Retriever):
    """Answers every request with one trace or one error, and keeps what it was asked."""

    def __init__(self, answer: RetrievalTrace | BackendUnavailableError) -> None:
        self.answer = answer
        self.asked: list[RetrievalRequest] = []

    def retrieve(
        self, request: RetrievalRequest, *, keep: Callable[[RetrievalTrace], None] | None = None
    ) -> RetrievalTrace:
        """Return the trace, or raise the error."""
        self.asked.append(request)
        if isinstance(self.answer, BackendUnavailableError):
            raise self.answer
        return self.answer


def lookup_over(retriever: Retriever, database: Database, clock: Clock) -> Lookup:
    """Return a look-up that replays from a database and retrieves by the given retriever."""
    store = SqliteMemoryStore(database, clock=clock)
    return Lookup(retriever, Replay(Ledger(database, clock=clock), store, clock=clock))


def no_refusals(database: Database) -> Refusals:
    """Return refusals of which none is known."""
    return Refusals(database, clock=FakeClock())


def forget(placed: Placed) -> None:
    """Take a placement and keep nothing."""
