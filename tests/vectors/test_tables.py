"""Tables are built beside the one that answers and swapped; work is leased and settled."""

import apsw
import numpy as np
import pytest

from omniroute_litellm.sqlite import Database
from omniroute_litellm.store import MemoryChange, MemoryQuery
from omniroute_litellm.types import MemoryId
from omniroute_litellm.vectors.tables import MAX_ATTEMPTS, Spec, Tables, VectorTable
from omniroute_litellm.vectors.work import LEASE, WorkCounts
from tests.fakes import FakeClock
from tests.unit.fakes import ANN
from tests.vectors.building import TOPICS, Bench, vectors_of


@pytest.fixture
def bench(database: Database, clock: FakeClock) -> Bench:
    """Hand out an empty store."""
    return Bench(database, clock)


def vec_tables(database: Database) -> list[str]:
    """Return the vec0 tables of a database."""
    with database.reading() as connection:
        rows = connection.execute(
            "SELECT name FROM sqlite_master WHERE sql LIKE 'CREATE VIRTUAL TABLE memory_vec%'"
        ).fetchall()
    return [str(row[0]) for row in rows]


def unindexed(bench: Bench) -> set[str]:
    """Return the keys of memories that are marked as without a vector."""
    return {m.key for m in bench.store.page(MemoryQuery(limit=200)).memories if m.needs_reindex}


class TestBuilding:
    """From nothing to a table that answers."""

    def test_everything_is_queued_and_swapped_in(self, bench: Bench) -> None:
        """A table answers once every memory has its vector there."""
        for number in range(7):
            bench.put(f"k{number}", "tea")
        table = bench.begin()
        assert bench.work.counts(table) == WorkCounts(waiting=7, failed=0)
        building = bench.tables.read().building
        assert building is not None
        assert not bench.tables.activate(building)
        assert bench.fill(table) == 7
        assert bench.tables.activate(building)
        tables = bench.tables.read()
        assert tables.building is None
        assert tables.meta["active_dim"] == str(len(TOPICS))
        assert tables.meta["embedding_signature"] == "fake:topics:4"
        assert (tables.meta["vec_loaded"], "last_reset_at" in tables.meta) == ("true", True)
        assert unindexed(bench) == set()

    def test_a_table_is_not_swapped_in_before_all_was_looked_at(self, bench: Bench) -> None:
        """An empty queue means nothing while memories were not queued yet."""
        bench.put("a", "tea")
        table = bench.tables.begin(bench.spec, 4)
        assert not bench.tables.activate(table)

    def test_beginning_twice_is_beginning_once(self, bench: Bench, database: Database) -> None:
        """Several processes that want the same table get the same one."""
        one = bench.tables.begin(bench.spec, 4)
        two = bench.tables.begin(bench.spec, 4)
        assert (one.number, vec_tables(database)) == (two.number, [one.name])

    def test_another_kind_is_built_beside(self, bench: Bench, database: Database) -> None:
        """The table that answers stays until the new one is whole; then it is gone."""
        bench.put("a", "tea")
        old = bench.build()
        new = bench.tables.begin(Spec("fake", "other", "none"), 2)
        assert vec_tables(database) == [old.name, new.name]
        assert bench.found("tea") == ["a"]
        while bench.tables.queue_some(new, limit=10):
            pass
        claimed = bench.work.claim(new, limit=10)
        bench.work.settle(new, claimed, vectors_of(["tea"])[:, :2])
        building = bench.tables.read().building
        assert building is not None
        assert bench.tables.activate(building)
        assert vec_tables(database) == [new.name]
        assert bench.active.signature == "fake:other:2"

    def test_a_third_kind_replaces_the_second(self, bench: Bench, database: Database) -> None:
        """A build that nobody wants any more leaves nothing behind."""
        bench.put("a", "tea")
        old = bench.build()
        bench.tables.begin(Spec("fake", "other", "none"), 2)
        third = bench.tables.begin(Spec("fake", "third", "int8"), 8)
        assert vec_tables(database) == [old.name, third.name]
        assert third.signature == "fake:third:8:int8"

    def test_force_builds_the_same_kind_anew(self, bench: Bench) -> None:
        """All vectors are made again beside those that answer."""
        bench.put("a", "tea")
        old = bench.build()
        assert bench.tables.begin(bench.spec, 4).number == old.number
        new = bench.tables.begin(bench.spec, 4, is_forced=True)
        assert new.number != old.number
        assert bench.tables.begin(bench.spec, 4, is_forced=True).number == new.number

    def test_cancelling_is_remembered(self, bench: Bench, database: Database) -> None:
        """What was cancelled is not begun again by itself, until somebody asks for it."""
        bench.put("a", "tea")
        bench.begin()
        assert bench.tables.cancel()
        assert not bench.tables.cancel()
        tables = bench.tables.read()
        assert vec_tables(database) == []
        assert bench.tables.is_cancelled(tables, bench.spec)
        assert not bench.tables.is_cancelled(tables, Spec("fake", "topics", "int8"))
        bench.tables.begin(bench.spec, 4)
        assert not bench.tables.is_cancelled(bench.tables.read(), bench.spec)

    def test_giving_up_never_drops_what_answers(self, bench: Bench, database: Database) -> None:
        """A process with an old view cannot take the active table away."""
        bench.put("a", "tea")
        seen_before = bench.begin()
        bench.fill(seen_before)
        building = bench.tables.read().building
        assert building is not None
        bench.tables.activate(building)
        bench.tables.give_up(seen_before)
        assert vec_tables(database) == [seen_before.name]

    def test_nothing_at_all(self, bench: Bench) -> None:
        """A new installation has no table."""
        assert bench.tables.read() == Tables(None, None, {})

    def test_signatures_hold_what_changes_meaning(self, bench: Bench) -> None:
        """Source, model, dimension and quantization."""
        assert bench.spec.is_comparable(Spec("fake", "topics", "int8"))
        assert not bench.spec.is_comparable(Spec("remote", "topics", "none"))


class TestWork:
    """The queue of a table."""

    def test_two_workers_never_hold_one_memory(self, bench: Bench, database: Database) -> None:
        """What one has leased the other passes over."""
        for number in range(5):
            bench.put(f"k{number}", "tea")
        table = bench.begin()
        other = Bench(database, bench.clock, worker="two")
        mine = {each.pk for each in bench.work.claim(table, limit=3)}
        theirs = {each.pk for each in other.work.claim(table, limit=3)}
        assert (len(mine), len(theirs), mine & theirs) == (3, 2, set())

    def test_a_dead_workers_lease_ends(self, bench: Bench, database: Database) -> None:
        """What a killed process had leased is taken over; its late answer is not stored."""
        bench.put("a", "tea")
        table = bench.begin()
        late = bench.work.claim(table, limit=1)
        other = Bench(database, bench.clock, worker="two")
        bench.clock.move(seconds=LEASE.total_seconds() + 1)
        taken = other.work.claim(table, limit=1)
        assert [each.pk for each in taken] == [each.pk for each in late]
        assert bench.work.settle(table, late, vectors_of(["tea"])) == 0
        assert other.work.settle(table, taken, vectors_of(["tea"])) == 1

    def test_what_changed_meanwhile_is_not_settled(self, bench: Bench) -> None:
        """An edit while the model was asked leaves the memory in the queue."""
        memory = bench.put("a", "tea")
        table = bench.begin()
        claimed = bench.work.claim(table, limit=1)
        change = MemoryChange({"content": "jazz"})
        bench.store.update(memory.id, change, owner=ANN, actor="test")
        assert bench.work.settle(table, claimed, vectors_of(["tea"])) == 0
        assert [each.text for each in bench.work.claim(table, limit=1)] == ["jazz"]

    def test_a_failed_memory_comes_later_each_time(self, bench: Bench) -> None:
        """Five failures set it aside; others pass it; a reindex tries it again."""
        bench.put("bad", "tea")
        table = bench.begin()
        for attempt in range(MAX_ATTEMPTS):
            (claimed,) = bench.work.claim(table, limit=10)
            assert claimed.attempts == attempt + 1
            bench.work.fail(table, claimed, error="refused")
            assert bench.work.claim(table, limit=10) == []
            bench.clock.move(hours=1)
        assert bench.work.claim(table, limit=10) == []
        assert bench.work.counts(table) == WorkCounts(waiting=0, failed=1)
        (aside,) = bench.work.set_aside(table, limit=10)
        assert (aside.attempts, aside.error) == (MAX_ATTEMPTS, "refused")
        bench.put("good", "dog")
        assert bench.fill(table) == 1
        building = bench.tables.read().building
        assert building is not None
        assert bench.tables.activate(building)
        assert unindexed(bench) == {"bad"}
        bench.tables.look_again()
        assert bench.fill(bench.active) == 1
        assert unindexed(bench) == set()

    def test_what_is_given_back_costs_no_try(self, bench: Bench) -> None:
        """A model that is away is no fault of a memory."""
        bench.put("a", "tea")
        table = bench.begin()
        for _ in range(2 * MAX_ATTEMPTS):
            (claimed,) = bench.work.claim(table, limit=1)
            assert claimed.attempts == 1
            bench.work.give_back()

    def test_a_deleted_memory_leaves_the_queue(self, bench: Bench) -> None:
        """What was never embedded and is gone needs no vector."""
        memory = bench.put("a", "tea")
        table = bench.begin()
        bench.store.delete(memory.id, owner=ANN, actor="test")
        assert bench.work.claim(table, limit=1) == []
        assert bench.work.counts(table) == WorkCounts(0, 0)

    def test_a_table_that_is_gone_takes_nothing(self, bench: Bench) -> None:
        """An answer that comes after a swap is dropped without an error."""
        bench.put("a", "tea")
        table = bench.begin()
        claimed = bench.work.claim(table, limit=1)
        bench.tables.cancel()
        assert bench.work.settle(table, claimed, vectors_of(["tea"])) == 0
        bench.work.queue(table, [claimed[0].pk])
        assert bench.work.counts(table) == WorkCounts(0, 0)
        assert not bench.tables.queue_some(table, limit=1)

    def test_a_second_look_queues_what_has_no_vector(
        self, bench: Bench, database: Database
    ) -> None:
        """A vector that was lost is made again by a reindex."""
        for key in ("a", "b", "c"):
            bench.put(key, "tea")
        table = bench.build()
        with database.writing() as connection:
            connection.execute(f"DELETE FROM {table.name} WHERE pk & 0xFFFFFFFF = 2")
        bench.tables.look_again()
        while bench.tables.queue_some(bench.active, limit=2):
            pass
        assert bench.work.counts(table).waiting == 1
        assert bench.fill(table) == 1

    def test_restatements_make_no_work(self, bench: Bench) -> None:
        """The same words again need no new vector."""
        bench.put("a", "tea")
        table = bench.build()
        bench.put("a", "tea")
        bench.store.count_access([MemoryId("x")], at=bench.clock())
        assert bench.work.counts(table) == WorkCounts(0, 0)


def test_a_failed_settle_loses_nothing(bench: Bench, database: Database, clock: FakeClock) -> None:
    """A batch whose vectors do not fit the table is rolled back whole: all of it comes again."""
    for key in ("a", "b"):
        bench.put(key, "tea")
    table = bench.begin()
    claimed = bench.work.claim(table, limit=2)
    with pytest.raises(apsw.SQLError):
        bench.work.settle(table, claimed, np.ones((2, 3), dtype=np.float32))
    clock.move(seconds=LEASE.total_seconds() + 1)
    assert bench.fill(table) == 2


def test_number_names_the_table(bench: Bench) -> None:
    """Names come from numbers alone: nothing of a model's name reaches SQL."""
    hostile = Spec("fake", 'x"; DROP TABLE memories; --', "none")
    table: VectorTable = bench.tables.begin(hostile, 4)
    assert table.name == f"memory_vec_{table.number}"
    bench.put("a", "tea")
