"""Search: one contract for owners in memory and owners in the database, whole numbers and int8."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omniroute_litellm.embedding.base import unit_rows
from omniroute_litellm.sqlite import Database
from omniroute_litellm.store import MemoryChange
from omniroute_litellm.types import MemoryStatus, OwnerId, Scope, SessionId
from omniroute_litellm.variables import Quantization
from omniroute_litellm.vectors.centre import FEW, SHARE
from omniroute_litellm.vectors.matrices import Matrices, OwnerVectors
from tests.fakes import FakeClock
from tests.unit.fakes import ANN, BOB, alive_at, scope_of
from tests.vectors.building import TOPICS, Bench, query, vectors_of

KINDS: Final[Mapping[str, tuple[int, Quantization]]] = {
    "matrix": (20_000, "none"),
    "vec0": (0, "none"),
    "matrix-int8": (20_000, "int8"),
    "vec0-int8": (0, "int8"),
}


@pytest.fixture(params=KINDS)
def bench(request: pytest.FixtureRequest, database: Database, clock: FakeClock) -> Bench:
    """Hand out a store whose owners are searched in one of four ways."""
    limit, quantization = KINDS[request.param]
    return Bench(database, clock, matrix_up_to=limit, quantization=quantization)


def test_near_comes_before_far(bench: Bench) -> None:
    """The nearest memory leads, with its cosine as it is seen from the centre of them all."""
    bench.put("both", "tea and jazz")
    bench.put("tea", "tea")
    bench.put("dog", "dog")
    bench.build()
    nearest = bench.search("tea")
    assert [memory.key for memory in nearest.memories] == ["tea", "both", "dog"]
    rows = vectors_of(["tea", "tea and jazz", "dog"])
    centre = SHARE * rows.sum(axis=0) / (3 + FEW)
    seen = unit_rows(rows - centre)
    cosines = seen @ unit_rows(query("tea")[None, :] - centre)[0]
    assert list(nearest.cosines.values()) == pytest.approx(cosines.tolist(), abs=0.01)
    np.testing.assert_allclose(nearest.rows, seen, atol=0.01)
    assert nearest.mean == pytest.approx(np.maximum(cosines, 0).mean(), abs=0.01)
    assert nearest.expected == 3


def test_the_newest_of_equals_leads(bench: Bench) -> None:
    """Memories of the same words come newest first."""
    for number in range(5):
        bench.put(f"k{number}", "tea")
    bench.build()
    assert bench.found("tea", limit=3) == ["k4", "k3", "k2"]


def test_others_are_compared_by_name(bench: Bench) -> None:
    """A memory that is not among the nearest still says how near it is; strangers do not."""
    far = bench.put("far", "dog dog dog tea")
    bench.put("near", "tea")
    stranger = bench.put("foreign", "tea", BOB)
    bench.build()
    nearest = bench.search("tea", limit=1, also=[far, stranger])
    assert [memory.key for memory in nearest.memories] == ["near"]
    assert list(nearest.cosines) == [nearest.memories[0].id, far.id]
    assert len(nearest.rows) == 2
    everything = bench.search("tea")
    assert nearest.cosines == pytest.approx(everything.cosines)


def test_nobody_sees_a_foreign_memory(bench: Bench) -> None:
    """A small owner gets its own, however many nearer ones others have."""
    bench.put("mine", "tea and jazz and code and dog")
    for number in range(30):
        bench.put(f"k{number}", "tea", BOB)
    bench.build()
    nearest = bench.search("tea", limit=5)
    assert [memory.key for memory in nearest.memories] == ["mine"]
    assert list(nearest.cosines.values()) == pytest.approx([nearest.mean])
    assert bench.search("tea", scope=scope_of(OwnerId("nobody"))).expected == 0


def test_a_global_scope_reads_two_owners(bench: Bench) -> None:
    """Shared memories join the owner's, in one order."""
    bench.put("a", "tea and dog")
    bench.put("b", "tea", BOB)
    bench.build()
    assert bench.found("tea", scope=Scope((ANN, BOB))) == ["b", "a"]


@pytest.mark.parametrize("spare", [0, 80])
def test_what_may_not_be_read_takes_no_place(bench: Bench, spare: int) -> None:
    """Expired, aged, inactive and other sessions' memories are no hits, and crowd nobody out."""
    for number in range(3 + spare):
        bench.put(f"old{number}", "tea")
    pinned = bench.put("pinned", "tea and jazz", pinned=True)
    bench.clock.move(days=31)
    bench.put("expired", "tea", expires_at=bench.clock() - timedelta(days=1))
    bench.put("archived", "tea", status=MemoryStatus.ARCHIVED)
    bench.put("alive", "tea and dog", session_id=SessionId("one"))
    bench.build()
    assert set(bench.found("tea", limit=2)) == {"pinned", "alive"}
    assert bench.search("tea").expected == 2
    one = Scope((ANN,), SessionId("one"))
    assert bench.found("tea", scope=one, limit=2) == ["alive"]
    assert pinned.key in bench.found("jazz")


def test_an_edit_is_not_found_by_its_old_words(bench: Bench) -> None:
    """From the edit on the old vector answers nothing, though nobody made the new one yet."""
    memory = bench.put("a", "tea")
    bench.put("b", "dog")
    table = bench.build()
    assert bench.found("tea") == ["a"]
    change = MemoryChange({"content": "jazz"})
    bench.store.update(memory.id, change, owner=ANN, actor="test")
    assert bench.found("tea") == []
    assert bench.search("tea").expected == 1
    assert bench.fill(table) == 1
    assert bench.found("tea") == []
    assert bench.found("jazz") == ["a"]


def test_a_deleted_memory_is_gone_at_once(bench: Bench) -> None:
    """So is its vector, when the worker comes by; undo brings both back."""
    memory = bench.put("a", "tea")
    bench.put("b", "tea and dog")
    table = bench.build()
    assert bench.found("tea") == ["a", "b"]
    bench.store.delete(memory.id, owner=ANN, actor="test")
    assert bench.found("tea") == ["b"]
    bench.fill(table)
    assert bench.found("tea") == ["b"]
    bench.store.undo(memory.id, owner=ANN, actor="test")
    assert bench.found("tea") == ["b"]
    bench.fill(table)
    assert bench.found("tea") == ["a", "b"]


def test_a_new_memory_joins_what_is_held(bench: Bench) -> None:
    """The next search finds what was embedded since, and what waited then."""
    bench.put("a", "tea")
    table = bench.build()
    assert bench.found("tea") == ["a"]
    bench.put("b", "tea")
    bench.put("c", "tea")
    assert bench.found("tea") == ["a"]
    claimed = bench.work.claim(table, limit=2)
    bench.work.settle(table, claimed[1:], np.array([[1, 0, 0, 0]], dtype=np.float32))
    assert bench.found("tea") == ["c", "a"]
    bench.work.give_back()
    bench.fill(table)
    assert bench.found("tea") == ["c", "b", "a"]


def test_a_lost_vector_is_noticed(bench: Bench, database: Database) -> None:
    """A memory whose vector vanished is told to the worker, which makes it again."""
    bench.put("a", "tea")
    bench.put("b", "tea")
    table = bench.build()
    with database.writing() as connection:
        connection.execute(f"DELETE FROM {table.name}")
        connection.execute("UPDATE owners SET vector_revision = vector_revision + 1")
    nearest = bench.search("tea")
    assert (list(nearest.memories), nearest.expected) == ([], 2)
    if bench.missed:
        bench.work.queue(table, bench.missed)
        assert bench.fill(table) == 2
        assert bench.found("tea") == ["b", "a"]


def test_a_text_that_says_nothing_is_not_in_the_way(bench: Bench) -> None:
    """A memory without a word that the model knows crowds nobody out; such a query finds none."""
    for number in range(5):
        bench.put(f"empty{number}", "?")
    bench.put("tea", "tea")
    bench.build()
    assert bench.found("tea", limit=1) == ["tea"]
    nothing = bench.search("?")
    assert (list(nothing.memories), nothing.expected) == ([], 0)


def test_recall_does_not_change_with_a_thousand_strangers(bench: Bench) -> None:
    """What an owner finds, and by which score, is the same among 1,000 other owners."""
    for number in range(20):
        bench.put(f"k{number}", "tea " * (number % 4) + "dog " * (number % 3) + "code")
    table = bench.build()
    before = bench.search("tea and dog", limit=7)
    for number in range(1_000):
        bench.put("k", "tea and dog", OwnerId(f"stranger{number}"))
    bench.fill(table)
    after = bench.search("tea and dog", limit=7)
    assert after.memories == before.memories
    assert (after.cosines, after.mean) == (before.cosines, before.mean)
    np.testing.assert_array_equal(after.rows, before.rows)


@given(
    texts=st.lists(st.sampled_from(["tea", "jazz dog", "tea code", "dog", "code"]), max_size=12),
    asked=st.sampled_from(TOPICS),
    limit=st.integers(1, 5),
)
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@pytest.mark.parametrize("quantization", ["none", "int8"])
def test_both_ways_agree(
    database: Database,
    clock: FakeClock,
    texts: list[str],
    asked: str,
    limit: int,
    quantization: Quantization,
) -> None:
    """An owner in memory and the same one in the database give the same answer."""
    owner = OwnerId(f"{quantization}{clock()}")
    small = Bench(database, clock, quantization=quantization)
    large = Bench(database, clock, quantization=quantization, matrix_up_to=0)
    for number, text in enumerate(texts):
        small.put(f"k{number}", text, owner)
    table = small.begin()
    small.fill(table)
    if not table.is_active:
        building = small.tables.read().building
        assert building is not None
        small.tables.activate(building)
    scope, alive = scope_of(owner), alive_at(clock())
    one = small.search(asked, scope=scope, alive=alive, limit=limit)
    two = large.search(asked, scope=scope, alive=alive, limit=limit)
    # Which of several equally near ones comes within the limit is the rounding's.
    assert sorted(one.cosines.values()) == pytest.approx(sorted(two.cosines.values()), abs=0.001)
    for memory_id in one.cosines.keys() & two.cosines.keys():
        assert one.cosines[memory_id] == pytest.approx(two.cosines[memory_id], abs=0.001)
    assert one.mean == pytest.approx(two.mean, abs=0.001)
    assert one.expected == two.expected == len(texts)


class TestMatrices:
    """What is held in memory."""

    def test_the_longest_unasked_goes(self) -> None:
        """Beyond the bound the owner that was asked about longest ago is let go."""
        matrices = Matrices(max_bytes=64 * 4 * 4 * 2)
        first = matrices.of(1, 1, revision=0, dimension=4)
        second = matrices.of(1, 2, revision=0, dimension=4)
        assert matrices.of(1, 1, revision=0, dimension=4) is first
        matrices.of(1, 3, revision=0, dimension=4)
        matrices.trim()
        assert matrices.of(1, 1, revision=0, dimension=4) is first
        assert matrices.of(1, 2, revision=0, dimension=4) is not second

    def test_an_older_revision_stays_apart(self) -> None:
        """A reader in an older snapshot does not spoil what newer ones hold."""
        matrices = Matrices()
        new = matrices.of(1, 1, revision=2, dimension=4)
        assert matrices.of(1, 1, revision=1, dimension=4) is not new
        assert matrices.of(1, 1, revision=2, dimension=4) is new
        matrices.keep_only([2])
        assert matrices.of(1, 1, revision=2, dimension=4) is not new

    def test_rows_that_were_given_stay(self) -> None:
        """Growing does not change what a reader works on."""
        held = OwnerVectors(0, 1)
        rows = np.arange(200, dtype=np.float32).reshape(200, 1)
        before, _ = held.upto(3, frozenset(), lambda wanted: (wanted, rows[wanted]))
        held.upto(150, frozenset(), lambda wanted: (wanted, rows[wanted]))
        assert before.numbers.tolist() == [1, 2, 3]
        assert before.rows[:, 0].tolist() == [1, 2, 3]
