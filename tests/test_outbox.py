"""The outbox: durable, leased, stored exactly once."""

import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from typing import Final

import pytest

from omniroute_litellm import outbox as outbox_module
from omniroute_litellm.errors import BackendUnavailableError
from omniroute_litellm.outbox import KEEP, LEASE, MAX_ATTEMPTS, Outbox
from omniroute_litellm.sqlite import Connection, Database
from omniroute_litellm.types import Exchange, OwnerId, to_iso
from tests.fakes import FakeClock


@pytest.fixture
def one(database: Database, clock: FakeClock) -> Outbox:
    """Hand out the outbox of one worker."""
    return Outbox(database, clock=clock, worker="one")


@pytest.fixture
def other(database: Database, clock: FakeClock) -> Outbox:
    """Hand out the same outbox as another worker sees it."""
    return Outbox(database, clock=clock, worker="other")


def exchange(clock: FakeClock, request_id: str = "r1") -> Exchange:
    """Return an exchange of Ann's."""
    return Exchange(request_id, OwnerId("ann"), None, "I prefer tea", "", "gpt", clock())


CRASH: Final = """
import os, pathlib, sys
from omniroute_litellm.outbox import Outbox
from omniroute_litellm.sqlite import Database
from omniroute_litellm.types import from_iso
now = from_iso(sys.argv[2])
outbox = Outbox(Database(pathlib.Path(sys.argv[1])), clock=lambda: now, worker="crash")
(claimed,) = outbox.claim(limit=1)
outbox.settle(claimed, lambda connection: os._exit(9))
"""


def nothing(connection: Connection) -> None:
    """Store no facts."""


def test_an_exchange_is_kept_once(one: Outbox, clock: FakeClock) -> None:
    """The same request captured twice waits once."""
    one.add(exchange(clock))
    one.add(exchange(clock))
    assert one.state().waiting == 1


@pytest.mark.parametrize(
    ("is_first_heard", "is_resent", "waiting"),
    [(True, True, 1), (True, False, 2), (False, True, 1)],
    ids=["tool loop", "said again", "never heard"],
)
def test_a_history_that_is_sent_again_is_no_restatement(
    one: Outbox,
    other: Outbox,
    clock: FakeClock,
    is_first_heard: bool,
    is_resent: bool,
    waiting: int,
) -> None:
    """The words of a turn under way are read once; saying them anew counts."""
    if is_first_heard:
        one.add(exchange(clock))
    other.add(replace(exchange(clock, "r2"), is_resent=is_resent))
    assert one.state().waiting == waiting


def test_the_answer_to_a_resent_turn_is_read(one: Outbox, clock: FakeClock) -> None:
    """Only the words that were heard are left out."""
    one.add(exchange(clock))
    one.claim(limit=1)
    one.add(replace(exchange(clock, "r2"), answer_text="I chose jazz.", is_resent=True))
    (claimed,) = one.claim(limit=1)
    assert (claimed.exchange.user_text, claimed.exchange.answer_text) == ("", "I chose jazz.")


def test_what_was_heard_is_forgotten_in_time(one: Outbox, clock: FakeClock) -> None:
    """After a week nobody resends a history; until then the purge of exchanges changes nothing."""
    one.add(exchange(clock))
    clock.move(days=2)
    one.purge()
    again = replace(exchange(clock, "r2"), is_resent=True)
    one.add(again)
    assert one.state().waiting == 0
    clock.move(days=8)
    one.purge()
    one.add(again)
    assert one.state().waiting == 1


def test_a_claim_returns_what_was_added(one: Outbox, clock: FakeClock) -> None:
    """A claimed exchange is whole."""
    added = exchange(clock)
    one.add(added)
    (claimed,) = one.claim(limit=5)
    assert claimed.exchange == added


def test_claims_come_in_order(one: Outbox, clock: FakeClock) -> None:
    """The oldest exchange is worked on first."""
    for name in ("a", "b", "c"):
        one.add(exchange(clock, name))
    assert [claimed.exchange.request_id for claimed in one.claim(limit=2)] == ["a", "b"]


def test_two_workers_never_hold_the_same(one: Outbox, other: Outbox, clock: FakeClock) -> None:
    """A leased exchange is not given to anybody else, until the lease ends."""
    one.add(exchange(clock))
    assert one.claim(limit=1)
    assert other.claim(limit=1) == []
    clock.move(seconds=LEASE.total_seconds() + 1)
    assert other.claim(limit=1)


def test_facts_and_removal_are_one(one: Outbox, clock: FakeClock) -> None:
    """When storing the facts fails, the exchange stays."""
    one.add(exchange(clock))
    (claimed,) = one.claim(limit=1)

    def fail(connection: Connection) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        one.settle(claimed, fail)
    assert one.state().waiting == 1
    assert one.settle(claimed, nothing)
    assert one.state().waiting == 0


def test_a_lost_lease_stores_nothing(one: Outbox, other: Outbox, clock: FakeClock) -> None:
    """A worker that slept over its lease does not store beside the one that took over."""
    one.add(exchange(clock))
    (claimed,) = one.claim(limit=1)
    clock.move(seconds=LEASE.total_seconds() + 1)
    (taken,) = other.claim(limit=1)
    stored: list[str] = []
    assert not one.settle(claimed, lambda connection: stored.append("one"))
    assert other.settle(taken, lambda connection: stored.append("other"))
    assert not other.settle(taken, lambda connection: stored.append("again"))
    assert stored == ["other"]


def test_a_poisoned_exchange_is_set_aside(one: Outbox, clock: FakeClock) -> None:
    """After five tries an exchange is not tried again, and stays visible."""
    one.add(exchange(clock, "poison"))
    for _ in range(MAX_ATTEMPTS):
        (claimed,) = one.claim(limit=1)
        one.fail(claimed, error="ValueError")
        assert one.claim(limit=1) == []
        clock.move(seconds=LEASE.total_seconds() + 1)
    assert one.claim(limit=1) == []
    state = one.state()
    assert (state.waiting, state.set_aside) == (0, 1)
    one.add(exchange(clock, "good"))
    assert one.claim(limit=1)[0].exchange.request_id == "good"


def test_a_lease_given_back_was_no_try(one: Outbox, other: Outbox, clock: FakeClock) -> None:
    """It is free at once, for everybody, and as often as the store fails."""
    one.add(exchange(clock))
    (claimed,) = one.claim(limit=1)
    for _ in range(MAX_ATTEMPTS + 1):
        one.give_back(claimed)
        (claimed,) = one.claim(limit=1)
    one.give_back(claimed)
    assert other.claim(limit=1)
    one.give_back(claimed)
    assert one.claim(limit=1) == [], "the lease is the other's now"


def test_a_crashed_process_leaves_its_exchange(
    database: Database, one: Outbox, clock: FakeClock
) -> None:
    """What a process had leased when it was killed comes again after the lease, whole."""
    added = exchange(clock)
    one.add(added)
    crash = [sys.executable, "-c", CRASH, str(database.path), to_iso(clock())]
    assert subprocess.run(crash, check=False).returncode == 9
    assert one.claim(limit=1) == []
    clock.move(seconds=LEASE.total_seconds() + 1)
    (claimed,) = one.claim(limit=1)
    assert claimed.exchange == added


def test_released_leases_are_free_at_once(one: Outbox, other: Outbox, clock: FakeClock) -> None:
    """A worker that stops gives back what it held, and only that."""
    one.add(exchange(clock))
    one.claim(limit=1)
    other.release()
    assert other.claim(limit=1) == []
    one.release()
    assert other.claim(limit=1)


def test_old_exchanges_are_purged(one: Outbox, clock: FakeClock) -> None:
    """Nothing waits longer than a day."""
    one.add(exchange(clock))
    assert one.purge() == 0
    clock.move(seconds=(KEEP + timedelta(seconds=1)).total_seconds())
    assert one.purge() == 1
    assert one.state().oldest is None


def test_a_full_outbox_refuses(
    one: Outbox, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At capacity a new exchange is refused with its reason; the waiting ones stay."""
    monkeypatch.setattr(outbox_module, "CAPACITY", 2)
    one.add(exchange(clock, "a"))
    one.add(exchange(clock, "b"))
    with pytest.raises(BackendUnavailableError) as caught:
        one.add(exchange(clock, "c"))
    assert caught.value.reason == "outbox_full"
    assert one.state().waiting == 2
