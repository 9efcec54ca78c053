"""The cache of query vectors, and the vectors of queries."""

import numpy as np
import pytest

from omniroute_litellm.embedding.base import (
    EmbedderUnavailableError,
    Matrix,
    TextRefusedError,
    checked,
)
from omniroute_litellm.embedding.cache import CacheCounts, EmbeddingCache, cache_key
from omniroute_litellm.embedding.queries import CachedQueries
from omniroute_litellm.embedding.remote import RemoteEmbedder
from omniroute_litellm.errors import ContractError
from omniroute_litellm.types import OwnerId
from tests.embedding.models import FakeCalls
from tests.fakes import FakeTimer

ROW = np.ones(2, dtype=np.float32)


def made(*, capacity: int = 2, ttl_s: float = 10) -> tuple[EmbeddingCache, FakeTimer]:
    """Return a small cache and its clock."""
    timer = FakeTimer()
    return EmbeddingCache(capacity=capacity, ttl_s=ttl_s, timer=timer), timer


def test_what_was_used_longest_ago_goes() -> None:
    """A look-up counts as use: recency is true, not the order of arrival."""
    cache, _ = made()
    cache.put("a", ROW)
    cache.put("b", ROW)
    assert cache.get("a") is not None
    cache.put("c", ROW)
    assert cache.get("b") is None
    assert cache.get("a") is not None
    assert cache.counts == CacheCounts(hits=2, misses=1, size=2)


def test_a_vector_ages_out_however_often_it_is_used() -> None:
    """The time to live counts from when it was put."""
    cache, timer = made()
    cache.put("a", ROW)
    timer.now = 9.9
    assert cache.get("a") is not None
    timer.now = 10.0
    assert cache.get("a") is None
    assert cache.counts == CacheCounts(hits=1, misses=1, size=0)


def test_no_capacity_holds_nothing() -> None:
    """Zero turns the cache off."""
    cache, _ = made(capacity=0)
    cache.put("a", ROW)
    assert cache.get("a") is None


@pytest.mark.parametrize(
    "other",
    [("s", "m", 3, "t"), ("s", "m", 2, "T"), ("s", "n", 2, "t"), ("r", "m", 2, "t")],
)
def test_keys_differ_by_all_that_changes_a_vector(other: tuple[str, str, int, str]) -> None:
    """Source, model, dimension and text each make another key."""
    assert cache_key("s", "m", 2, "t") != cache_key(*other)
    assert cache_key("s", "m", 2, "\ud800").startswith("s:m:2:")


def test_a_query_is_embedded_once() -> None:
    """The second question is answered by the cache."""
    calls = FakeCalls()
    cache, _ = made()
    queries = CachedQueries(RemoteEmbedder(calls, "p/m"), cache, dimension=2)
    first = queries.embed("tea", owner=OwnerId("ann"))
    second = queries.embed("tea", owner=OwnerId("bob"))
    np.testing.assert_array_equal(first, second)
    assert [(model, texts, owner) for model, texts, owner, _ in calls.asked] == [
        ("p/m", ["tea"], "ann")
    ]


def test_another_dimension_is_a_reason() -> None:
    """A model that changed behind its name does not reach the index."""
    cache, _ = made()
    queries = CachedQueries(RemoteEmbedder(FakeCalls(), "p/m"), cache, dimension=3)
    with pytest.raises(EmbedderUnavailableError) as caught:
        queries.embed("tea")
    assert (caught.value.reason, cache.counts.size) == ("dimension_changed", 0)


def test_batches_are_of_sixty_four() -> None:
    """Many texts go out in several calls, and come back in their order."""
    calls = FakeCalls()
    found = RemoteEmbedder(calls, "p/m").embed(["x" * (n + 1) for n in range(130)])
    assert [len(texts) for _, texts, _, _ in calls.asked] == [64, 64, 2]
    ratios = found[:, 0] / found[:, 1]
    np.testing.assert_allclose(ratios, np.arange(1, 131), rtol=1e-4)


def test_empty_and_long_texts_are_sent_as_providers_take_them() -> None:
    """No provider takes an empty text, none a megabyte."""
    calls = FakeCalls()
    RemoteEmbedder(calls, "p/m").embed([" ", "x" * 9_000])
    assert [len(text) for text in calls.asked[0][1]] == [1, 8_000]


@pytest.mark.parametrize(
    "answer",
    [
        [[1.0]],
        [],
        [[1.0], [1.0, 2.0]],
        [[float("nan")], [1.0]],
        [[], []],
        [1.0, 2.0],
        [["a"], ["b"]],
        [None, None],
    ],
)
def test_nonsense_is_a_broken_contract(answer: object) -> None:
    """A wrong count, a wrong shape and no numbers are never taken for vectors."""
    with pytest.raises(ContractError):
        RemoteEmbedder(FakeCalls(answer), "p/m").embed(["a", "b"])


def test_errors_of_the_model_pass() -> None:
    """What the proxy says of a call reaches the caller as it is."""
    refused = TextRefusedError("too long")
    with pytest.raises(TextRefusedError):
        RemoteEmbedder(FakeCalls(refused), "p/m").embed(["a"])


def test_rows_are_scaled_to_length_one() -> None:
    """Cosine is a dot product from here on; a row of zeros stays."""
    found: Matrix = checked([[3.0, 4.0], [0.0, 0.0]], count=2)
    np.testing.assert_allclose(found, [[0.6, 0.8], [0, 0]])
