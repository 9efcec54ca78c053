"""What went wrong lately: counted, logged once, shown."""

import logging

import pytest

from omniroute_litellm.errors import BackendUnavailableError
from omniroute_litellm.health import Health
from tests.fakes import FakeClock

FULL = BackendUnavailableError("the disk\nis full", reason="database_full")
LOCKED = BackendUnavailableError("in use", reason="database_locked")


@pytest.fixture
def health(clock: FakeClock) -> Health:
    """Hand out a health without events."""
    return Health(clock=clock)


def test_counts(health: Health) -> None:
    """Events are counted by name."""
    health.count("a")
    health.count("a", by=2)
    assert health.counters == {"a": 3}


def test_counters_are_a_copy(health: Health) -> None:
    """What was read does not change afterwards."""
    before = health.counters
    health.count("a")
    assert before == {}


def test_fault_has_reason(health: Health) -> None:
    """A backend's own reason is the fault's."""
    assert health.failed("write", FULL).reason == "database_full"


def test_fault_has_one_line(health: Health) -> None:
    """A message is folded to one line."""
    assert health.failed("write", FULL).message == "the disk is full"


def test_unforeseen_is_internal(health: Health) -> None:
    """Any other error is one of ours, named by its kind when it says nothing."""
    fault = health.failed("write", ZeroDivisionError())
    assert (fault.reason, fault.message) == ("internal_error", "ZeroDivisionError")


def test_failures_are_counted(health: Health) -> None:
    """Each failure counts, for the fault and for the counter."""
    health.failed("write", FULL)
    assert health.failed("write", FULL).count == 2
    assert health.counters == {"write.failed": 2}


def test_fault_keeps_its_beginning(health: Health, clock: FakeClock) -> None:
    """A fault tells since when it lasts, and when it was seen last."""
    first = health.failed("write", FULL)
    clock.move(minutes=5)
    last = health.failed("write", FULL)
    assert (last.since, last.last > first.last) == (first.since, True)


def test_other_reason_is_another_fault(health: Health) -> None:
    """A fault begins anew when its reason changes."""
    health.failed("write", FULL)
    assert health.failed("write", LOCKED).count == 1


def test_recovery_ends_the_fault(health: Health) -> None:
    """What works again is no fault any more."""
    health.failed("write", FULL)
    health.succeeded("write")
    assert health.faults == []


def test_recovery_of_one_leaves_others(health: Health) -> None:
    """Each operation recovers by itself."""
    health.failed("write", FULL)
    health.failed("read", FULL)
    health.succeeded("write")
    assert [fault.operation for fault in health.faults] == ["read"]


def test_recovered_fault_stays_in_recent(health: Health) -> None:
    """What went wrong lately is shown although it is over, newest first."""
    health.failed("write", FULL)
    health.succeeded("write")
    health.failed("read", LOCKED)
    assert [fault.operation for fault in health.recent] == ["read", "write"]


def test_recent_is_bounded(health: Health) -> None:
    """Of many faults the last twenty are kept."""
    for number in range(30):
        health.failed(f"op{number}", FULL)
    assert [fault.operation for fault in health.recent][:: len(health.recent) - 1] == [
        "op29",
        "op10",
    ]


def test_fault_of_first_named(health: Health) -> None:
    """Of several operations the first that fails is told."""
    health.failed("b", FULL)
    health.failed("c", FULL)
    found = health.fault("a", "b", "c")
    assert found is not None
    assert found.operation == "b"


def test_no_fault_is_none(health: Health) -> None:
    """While all is well there is none."""
    assert health.fault("a") is None


@pytest.mark.parametrize(("minutes", "lines"), [(0, 1), (0.5, 1), (1, 2)])
def test_lasting_fault_is_logged_once_a_minute(
    health: Health,
    clock: FakeClock,
    caplog: pytest.LogCaptureFixture,
    minutes: float,
    lines: int,
) -> None:
    """A fault that lasts is logged again after a minute, not before."""
    health.failed("write", FULL)
    clock.move(minutes=minutes)
    health.failed("write", FULL)
    assert len(caplog.records) == lines


def test_new_reason_is_logged_at_once(health: Health, caplog: pytest.LogCaptureFixture) -> None:
    """A fault of another reason is news."""
    health.failed("write", FULL)
    health.failed("write", LOCKED)
    assert [record.levelno for record in caplog.records] == [logging.ERROR, logging.ERROR]


def test_known_fault_has_no_stack(health: Health, caplog: pytest.LogCaptureFixture) -> None:
    """A full disk is one line."""
    health.failed("write", FULL)
    assert caplog.records[0].exc_info is None


def test_defect_has_its_stack(health: Health, caplog: pytest.LogCaptureFixture) -> None:
    """An unforeseen error is logged with where it came from."""
    health.failed("write", ZeroDivisionError("x"))
    assert caplog.records[0].exc_info is not None


def test_recovery_is_logged(health: Health, caplog: pytest.LogCaptureFixture) -> None:
    """The end of a fault is logged with its count."""
    health.failed("write", FULL)
    health.failed("write", FULL)
    health.succeeded("write")
    assert caplog.messages[-1] == "write.recovered after 2 failures"
