"""Two workers on one outbox: whatever happens, an exchange is learned from at most once."""

import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from omniroute_litellm.outbox import LEASE, MAX_ATTEMPTS, Claimed, Outbox
from omniroute_litellm.sqlite import Connection, Database
from omniroute_litellm.types import Exchange, OwnerId
from tests.fakes import FakeClock

WORKERS = st.sampled_from(["one", "other"])
LEASE_S = LEASE.total_seconds()


class OutboxMachine(RuleBasedStateMachine):
    """Adds, leases, failures, crashes and late answers in any order."""

    claims = Bundle("claims")

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="omniroute-test-"))
        self.database = Database(self.folder / "omniroute.db")
        self.clock = FakeClock()
        self.outboxes = {
            name: Outbox(self.database, clock=self.clock, worker=name) for name in ("one", "other")
        }
        self.added = 0
        self.stored: list[str] = []

    def teardown(self) -> None:
        """Learn what is left: nothing but what failed too often stays behind."""
        for _ in range(MAX_ATTEMPTS + 1):
            self.clock.move(seconds=LEASE_S + 1)
            for claimed in self.outboxes["one"].claim(limit=100):
                self.settle("one", ("one", claimed))
        state = self.outboxes["one"].state()
        assert state.waiting == 0
        assert len(self.stored) + state.set_aside == self.added
        self.database.close()
        shutil.rmtree(self.folder)

    @rule()
    def add(self) -> None:
        """Capture one more exchange."""
        self.added += 1
        exchange = Exchange(
            f"r{self.added}", OwnerId("ann"), None, "I prefer tea", "", "gpt", self.clock()
        )
        self.outboxes["one"].add(exchange)

    @rule(target=claims, worker=WORKERS)
    def claim(self, worker: str) -> tuple[str, Claimed | None]:
        """Lease the oldest exchange."""
        found = self.outboxes[worker].claim(limit=1)
        return worker, found[0] if found else None

    @rule(claim=claims)
    def answer(self, claim: tuple[str, Claimed | None]) -> None:
        """Settle a claim, however old it is."""
        self.settle(claim[0], claim)

    def settle(self, worker: str, claim: tuple[str, Claimed | None]) -> None:
        """Store the facts of a claim and remember for which request."""
        claimed = claim[1]
        if claimed is None:
            return

        def store(connection: Connection) -> None:
            self.stored.append(claimed.exchange.request_id)

        self.outboxes[worker].settle(claimed, store)

    @rule(claim=claims)
    def fail(self, claim: tuple[str, Claimed | None]) -> None:
        """Fail a claim, however old it is."""
        if claim[1] is not None:
            self.outboxes[claim[0]].fail(claim[1], error="ValueError")

    @rule(claim=claims)
    def give_back(self, claim: tuple[str, Claimed | None]) -> None:
        """Give a claim back, because the store failed."""
        if claim[1] is not None:
            self.outboxes[claim[0]].give_back(claim[1])

    @rule(worker=WORKERS)
    def release(self, worker: str) -> None:
        """Stop a worker cleanly."""
        self.outboxes[worker].release()

    @rule(seconds=st.sampled_from([1, LEASE_S - 1, LEASE_S + 1]))
    def wait(self, seconds: float) -> None:
        """Let time pass: a worker that crashed holds its lease until it ends."""
        self.clock.move(seconds=seconds)

    @invariant()
    def nothing_is_stored_twice(self) -> None:
        """No exchange was settled by both, or by one of them twice."""
        assert len(self.stored) == len(set(self.stored))

    @invariant()
    def nothing_is_lost(self) -> None:
        """What is not stored waits or was set aside."""
        state = self.outboxes["one"].state()
        assert state.waiting + state.set_aside + len(self.stored) == self.added


TestOutboxMachine = OutboxMachine.TestCase
TestOutboxMachine.settings = settings(
    max_examples=40,
    stateful_step_count=25,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
