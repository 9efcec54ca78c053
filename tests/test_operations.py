"""Health, sign-in, records, workers, and the round trip."""

from typing import Final

import pytest

from omniroute_litellm import sign_in as sign_in_module
from omniroute_litellm import trace_log as trace_log_module
from omniroute_litellm.errors import (
    BackendUnavailableError,
    ForbiddenError,
    ThrottledError,
    UnauthenticatedError,
)
from omniroute_litellm.health import LOG_AGAIN_AFTER, Health
from omniroute_litellm.identity import Identity, MemoryMode
from omniroute_litellm.live_settings import LiveSettings
from omniroute_litellm.placement import BlockForm
from omniroute_litellm.probe import PROBE_OWNER, StoreProbe
from omniroute_litellm.receipt import Outcome
from omniroute_litellm.request_state import RequestState
from omniroute_litellm.settings import Settings
from omniroute_litellm.sign_in import FAILURE_WINDOW_S, MAX_FAILURES, AdminKeyAuthority, SignIn
from omniroute_litellm.sqlite import Database
from omniroute_litellm.sqlite_store import SqliteMemoryStore
from omniroute_litellm.trace_log import TraceLog
from omniroute_litellm.types import OwnerId, TraceId
from omniroute_litellm.workers import GONE_AFTER, Workers
from tests.fakes import FakeClock

LOCKED: Final = BackendUnavailableError("database_locked: held\nby x", reason="database_locked")


def state(clock: FakeClock, number: int = 1, *, owner: str | None = "ann") -> RequestState:
    """Return the state of a finished request."""
    return RequestState(
        id=TraceId(f"t{number}"),
        call_id=f"c{number}",
        model="gpt",
        owner=OwnerId(owner) if owner else None,
        session=None,
        mode=MemoryMode.ON,
        settings=Settings(),
        started_at=clock(),
    )


def test_a_fault_is_logged_when_it_is_news(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The first time, when its reason changes, once a minute, and when it ends."""
    health = Health(clock=clock)
    for _ in range(5):
        health.failed("memory.capture", LOCKED)
    assert len(caplog.records) == 1
    assert "\n" not in caplog.records[0].getMessage()
    health.failed("memory.capture", BackendUnavailableError("full", reason="database_full"))
    assert len(caplog.records) == 2
    clock.move(seconds=LOG_AGAIN_AFTER.total_seconds() + 1)
    health.failed("memory.capture", BackendUnavailableError("full", reason="database_full"))
    assert len(caplog.records) == 3
    health.succeeded("memory.capture")
    health.succeeded("memory.capture")
    assert len(caplog.records) == 4
    assert health.faults == []
    assert [fault.reason for fault in health.recent] == ["database_full", "database_locked"]
    assert health.counters["memory.capture.failed"] == 7


def test_an_unforeseen_error_keeps_its_stack(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A defect of ours is logged with where it happened."""
    health = Health(clock=clock)
    health.failed("memory.hook.x", ZeroDivisionError())
    assert health.fault("other", "memory.hook.x") is not None
    assert health.faults[0].reason == "internal_error"
    assert health.faults[0].message == "ZeroDivisionError"
    assert caplog.records[0].exc_info


class OneUser:
    """An authority that knows an admin and a user, and whose secret can be rotated."""

    def __init__(self) -> None:
        self.key_of_admin: str | None = "sk-admin"

    async def identify(self, key: str) -> Identity:
        """Return who a key belongs to."""
        if key == "sk-admin":
            return Identity(is_admin=True)
        if key == "sk-user":
            return Identity(key="a" * 64)
        if key == "sk-nobody":
            return Identity()
        message = "no"
        raise UnauthenticatedError(message)

    def secret(self) -> str | None:
        """Return the admin's secret."""
        return self.key_of_admin


class Timer:
    """A monotonic clock that is moved by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def timer() -> Timer:
    """Hand out a timer."""
    return Timer()


@pytest.fixture
def authority() -> OneUser:
    """Hand out an authority."""
    return OneUser()


@pytest.fixture
def sign_in(authority: OneUser, database: Database, clock: FakeClock, timer: Timer) -> SignIn:
    """Hand out the sign-in over an empty database."""
    settings = LiveSettings(database, environ={}, clock=clock)
    return SignIn(authority, settings, database, timer=timer)


async def test_keys_become_principals(sign_in: SignIn) -> None:
    """An admin is an admin, a user its owner, and nobody is refused."""
    assert (await sign_in.by_key("sk-admin")).is_admin
    user = await sign_in.by_key("sk-user")
    assert (user.is_admin, user.owner) == (False, "a" * 64)
    assert "a" * 8 not in user.name
    with pytest.raises(ForbiddenError):
        await sign_in.by_key("sk-nobody")
    with pytest.raises(UnauthenticatedError):
        await sign_in.by_key("wrong")


async def test_only_admins_get_a_cookie(sign_in: SignIn) -> None:
    """The console is for admins."""
    assert sign_in.by_cookie(await sign_in.cookie_for("sk-admin", client="x")).is_admin
    with pytest.raises(ForbiddenError):
        await sign_in.cookie_for("sk-user", client="x")


async def test_a_rotated_secret_ends_sessions(sign_in: SignIn, authority: OneUser) -> None:
    """A cookie from before the rotation is void; without a secret the database's seed signs."""
    cookie = await sign_in.cookie_for("sk-admin", client="x")
    authority.key_of_admin = "sk-other"
    with pytest.raises(UnauthenticatedError):
        sign_in.by_cookie(cookie)
    authority.key_of_admin = None
    cookie = await sign_in.cookie_for("sk-admin", client="x")
    assert sign_in.by_cookie(cookie).is_admin


async def test_sessions_expire(sign_in: SignIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """An old cookie is void."""
    cookie = await sign_in.cookie_for("sk-admin", client="x")
    monkeypatch.setattr(sign_in_module, "SESSION_S", -1)
    with pytest.raises(UnauthenticatedError, match="ended"):
        sign_in.by_cookie(cookie)


async def test_failures_lock_one_client_for_a_while(sign_in: SignIn, timer: Timer) -> None:
    """Ten wrong keys lock the client that sent them, and nobody else; then it may try again."""
    for _ in range(MAX_FAILURES):
        with pytest.raises(UnauthenticatedError):
            await sign_in.cookie_for("wrong", client="one")
    with pytest.raises(ThrottledError) as caught:
        await sign_in.cookie_for("sk-admin", client="one")
    assert 0 < caught.value.retry_after_s <= FAILURE_WINDOW_S
    with pytest.raises(ThrottledError):
        sign_in.cookie_for_link("x", client="one")
    assert await sign_in.cookie_for("sk-admin", client="other")
    timer.now += FAILURE_WINDOW_S + 1
    assert await sign_in.cookie_for("sk-admin", client="one")


async def test_many_clients_are_not_remembered_forever(
    sign_in: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list of failures is bounded."""
    monkeypatch.setattr(sign_in_module, "_MAX_CLIENTS", 3)
    for number in range(10):
        with pytest.raises(UnauthenticatedError):
            await sign_in.cookie_for("wrong", client=str(number))
    assert await sign_in.cookie_for("sk-admin", client="0")


def test_a_link_is_redeemed_once(sign_in: SignIn) -> None:
    """A wrong token does not use it up, a right one does; a new link ends the old one."""
    with pytest.raises(UnauthenticatedError):
        sign_in.cookie_for_link("", client="x")
    old, token = sign_in.new_link_token(), sign_in.new_link_token()
    for wrong in (old, "", token + "x", "ü"):
        with pytest.raises(UnauthenticatedError):
            sign_in.cookie_for_link(wrong, client="x")
    assert sign_in.by_cookie(sign_in.cookie_for_link(token, client="x")).is_admin
    with pytest.raises(UnauthenticatedError):
        sign_in.cookie_for_link(token, client="x")


async def test_without_a_key_no_key_opens() -> None:
    """An authority without a key refuses everything, the empty text included."""
    for key in ("", "x", "None"):
        with pytest.raises(UnauthenticatedError):
            await AdminKeyAuthority(None).identify(key)
    assert AdminKeyAuthority(None).secret() != AdminKeyAuthority(None).secret()


@pytest.fixture
def traces(database: Database, clock: FakeClock) -> TraceLog:
    """Hand out an empty record of requests."""
    store = SqliteMemoryStore(database, clock=clock)
    return TraceLog(database, clock=clock, count_uses=store.count_uses_within)


def test_requests_are_recorded_once(traces: TraceLog, clock: FakeClock) -> None:
    """A request is written once; one without an owner not at all."""
    finished = state(clock)
    traces.record(finished)
    traces.record(finished)
    traces.record(state(clock, 2, owner=None))
    assert traces.flush() == 1
    assert traces.flush() == 0
    assert traces.hit_rate(None).retrieved == 0


def test_old_records_go(traces: TraceLog, clock: FakeClock) -> None:
    """After their days records are purged."""
    traces.record(state(clock))
    traces.flush()
    assert traces.purge(days=1) == 0
    clock.move(days=2)
    assert traces.purge(days=1) == 1


def test_a_full_buffer_drops_the_oldest(
    database: Database, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While nothing can be written, memory stays bounded and the loss is counted."""
    monkeypatch.setattr(trace_log_module, "MAX_BUFFERED", 2)
    store = SqliteMemoryStore(database, clock=clock)
    log = TraceLog(database, clock=clock, count_uses=store.count_uses_within)
    for number in range(3):
        log.record(state(clock, number))
    assert log.dropped == 1
    assert log.flush() == 2


def test_a_failed_flush_keeps_its_records(
    traces: TraceLog, database: Database, clock: FakeClock
) -> None:
    """What could not be written is written later."""
    traces.record(state(clock))
    with database.writing() as connection:
        connection.execute("ALTER TABLE traces RENAME TO away")
    with pytest.raises(Exception, match="traces"):
        traces.flush()
    with database.writing() as connection:
        connection.execute("ALTER TABLE away RENAME TO traces")
    assert traces.flush() == 1


def test_workers_come_and_go(database: Database, clock: FakeClock) -> None:
    """A process is live while it is seen, and until it leaves."""
    one = Workers(database, clock=clock, worker="one")
    other = Workers(database, clock=clock, worker="other")
    one.beat()
    other.beat()
    assert [worker.id for worker in one.live()] == ["one", "other"]
    other.leave()
    assert [worker.id for worker in one.live()] == ["one"]
    clock.move(seconds=GONE_AFTER.total_seconds() + 1)
    assert one.live() == []
    other.beat()
    assert [worker.id for worker in one.live()] == ["other"]


def test_the_probe_leaves_nothing(database: Database, clock: FakeClock) -> None:
    """A round trip works, and no row, history or owner of it is to be seen."""
    store = SqliteMemoryStore(database, clock=clock)
    result = StoreProbe(store, clock=clock).run()
    assert result.working
    assert store.totals(PROBE_OWNER).total == 0
    assert store.owners() == []


def test_the_probe_notices_a_lost_index(database: Database, clock: FakeClock) -> None:
    """A keyword index that finds nothing is not healthy."""
    with database.writing() as connection:
        connection.execute("DROP TRIGGER memories_fts_insert")
        connection.execute("DROP TRIGGER memories_fts_delete")
    result = StoreProbe(SqliteMemoryStore(database, clock=clock), clock=clock).run()
    assert not result.working
    assert result.reason == "keyword_lost"


def test_a_receipt_counts_what_was_placed(clock: FakeClock) -> None:
    """Before a block stands in the request the receipt claims nothing."""
    request = state(clock)
    assert request.receipt().outcome is Outcome.NONE
    request.form = BlockForm.SYSTEM
    assert request.receipt().outcome is Outcome.INJECTED
    request.fail(Outcome.ERROR, "database_full")
    assert request.receipt().headers()["x-omniroute-memory-reason"] == "database_full"
