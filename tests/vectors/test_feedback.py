"""What the first memories say of the query, and the centre that cosines are seen from."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from omniroute_litellm.embedding.base import unit_rows
from omniroute_litellm.types import MemoryId
from omniroute_litellm.vectors.base import Nearest
from omniroute_litellm.vectors.centre import FEW, SHARE, centre_of
from omniroute_litellm.vectors.feedback import FIRST, QUERY_SHARE, with_feedback

SEEDS = st.integers(0, 2**32 - 1)


def nearest_of(query: np.ndarray, rows: np.ndarray) -> Nearest:
    """Return the answer of an index that holds these rows."""
    cosines = {MemoryId(str(at)): float(cosine) for at, cosine in enumerate(rows @ query)}
    return Nearest([], cosines, rows, 0.0, len(rows))


@given(SEEDS, st.integers(1, 20), st.data())
def test_feedback_is_the_cosine_of_a_moved_query(
    seed: int, count: int, data: st.DataObject
) -> None:
    """It is what a search with the moved query would say, without making one."""
    generator = np.random.default_rng(seed)
    rows = unit_rows(generator.normal(size=(count + 1, 8)).astype(np.float32))
    query, rows = rows[0], rows[1:]
    first = data.draw(st.permutations(range(count)))
    found = with_feedback(nearest_of(query, rows), [MemoryId(str(at)) for at in first])
    moved = QUERY_SHARE * query + (1 - QUERY_SHARE) * rows[first[:FIRST]].mean(axis=0)
    np.testing.assert_allclose(
        list(found.values()), rows @ moved / np.linalg.norm(moved), atol=1e-4
    )


def test_without_a_vector_nothing_is_said() -> None:
    """Memories that no vector is known of move nothing."""
    nearest = nearest_of(np.array([1, 0], np.float32), np.array([[0.6, 0.8]], np.float32))
    assert with_feedback(nearest, [MemoryId("unknown")]) == nearest.cosines


def test_a_memory_draws_its_like_along() -> None:
    """What is like the best comes nearer, though the query says nothing of it."""
    rows = np.array([[0.8, 0.6, 0], [0, 1, 0], [0, 0, 1]], np.float32)
    nearest = nearest_of(np.array([1, 0, 0], np.float32), rows)
    found = with_feedback(nearest, [MemoryId("0")])
    assert found[MemoryId("1")] > nearest.cosines[MemoryId("1")]
    assert found[MemoryId("2")] == 0


@given(SEEDS, st.integers(1, 30))
def test_what_is_seen_from_the_centre_has_unit_length(seed: int, count: int) -> None:
    """Every row is a direction; distances are those to the centre."""
    generator = np.random.default_rng(seed)
    rows = unit_rows(generator.normal(size=(count, 6)).astype(np.float32))
    centre = centre_of(rows.sum(axis=0), count)
    np.testing.assert_allclose(centre.point, SHARE * rows.sum(axis=0) / (count + FEW), atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(centre.seen(rows), axis=1), 1, atol=1e-4)
    expected = np.linalg.norm(rows - centre.point, axis=1)
    np.testing.assert_allclose(centre.distances(rows), expected, atol=1e-4)


def test_a_text_that_says_nothing_is_seen_nowhere() -> None:
    """A row of zeros stays one, and is infinitely far."""
    rows = np.array([[0, 0], [1, 0]], np.float32)
    centre = centre_of(rows.sum(axis=0), 2)
    assert centre.seen(rows)[0].tolist() == [0, 0]
    assert centre.distances(rows)[0] == np.inf
