"""The console's door under hostile texts and many hands at once."""

from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from omniroute_litellm.errors import ThrottledError, UnauthenticatedError
from omniroute_litellm.live_settings import LiveSettings
from omniroute_litellm.sign_in import MAX_FAILURES, SESSION_S, SignIn
from omniroute_litellm.sqlite import Database
from tests.fakes import FakeAuthority, FakeClock, FakeTimer

ANY_TEXT: Final = st.text(st.characters(), max_size=40)  # lone surrogates included
SHARED: Final = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def door(database: Database, authority: FakeAuthority, timer: FakeTimer) -> SignIn:
    """Return the sign-in as one process has it."""
    live = LiveSettings(database, environ={}, clock=FakeClock())
    return SignIn(authority, live, database, timer=timer)


@pytest.fixture
def authority() -> FakeAuthority:
    """Hand out an authority."""
    return FakeAuthority()


@pytest.fixture
def timer() -> FakeTimer:
    """Hand out a timer."""
    return FakeTimer()


@pytest.fixture
def sign_in(database: Database, authority: FakeAuthority, timer: FakeTimer) -> SignIn:
    """Hand out the sign-in over an empty database."""
    return door(database, authority, timer)


@given(cookie=ANY_TEXT)
@example(cookie="\ud800")
@SHARED
def test_no_text_is_a_cookie(sign_in: SignIn, cookie: str) -> None:
    """Whatever a client sends for a cookie is refused, never an error of ours."""
    with pytest.raises(UnauthenticatedError):
        sign_in.by_cookie(cookie)


@pytest.mark.parametrize("at", [0, 10, -1])
async def test_a_changed_cookie_is_void(sign_in: SignIn, at: int) -> None:
    """A cookie with one other character is forged, wherever it stands."""
    cookie = await sign_in.cookie_for("sk-admin", client="x")
    characters = list(cookie)
    characters[at] = "A" if characters[at] != "A" else "B"
    with pytest.raises(UnauthenticatedError):
        sign_in.by_cookie("".join(characters[:-1] if at == -1 else characters))


@pytest.mark.parametrize(("late_s", "is_valid"), [(-60, True), (60, False)])
async def test_a_cookie_lives_twelve_hours(
    sign_in: SignIn, monkeypatch: pytest.MonkeyPatch, late_s: int, is_valid: bool
) -> None:
    """It opens the console until then, and not afterwards."""
    monkeypatch.setattr("time.time", lambda: 1_900_000_000.0)
    cookie = await sign_in.cookie_for("sk-admin", client="x")
    monkeypatch.setattr("time.time", lambda: 1_900_000_000.0 + SESSION_S + late_s)
    if is_valid:
        assert sign_in.by_cookie(cookie).is_admin
        return
    with pytest.raises(UnauthenticatedError):
        sign_in.by_cookie(cookie)


async def test_processes_without_a_secret_share_their_cookies(
    database: Database, authority: FakeAuthority, timer: FakeTimer
) -> None:
    """The seed in the database signs for all of them."""
    authority.admin_secret = None
    one, other = door(database, authority, timer), door(database, authority, timer)
    cookie = await one.cookie_for("sk-admin", client="x")
    assert other.by_cookie(cookie).is_admin


@given(token=ANY_TEXT)
@example(token="\ud800")
@SHARED
def test_no_guess_uses_a_link_up(database: Database, authority: FakeAuthority, token: str) -> None:
    """Whatever is tried, the right token opens the console afterwards."""
    fresh = door(database, authority, FakeTimer())
    right = fresh.new_link_token()
    with pytest.raises(UnauthenticatedError):
        fresh.cookie_for_link(token, client="x")
    assert fresh.cookie_for_link(right, client="x")


def test_a_link_opens_for_one_of_many(sign_in: SignIn) -> None:
    """Of many tries with the right token at the same time exactly one succeeds."""
    token = sign_in.new_link_token()

    def redeem(client: int) -> bool:
        try:
            return bool(sign_in.cookie_for_link(token, client=str(client)))
        except UnauthenticatedError:
            return False

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(redeem, range(16))) == 1


async def test_success_does_not_excuse_failures(sign_in: SignIn) -> None:
    """A client cannot reset its count by a right key in between."""
    for _ in range(MAX_FAILURES):
        with pytest.raises(UnauthenticatedError):
            await sign_in.cookie_for("wrong", client="x")
        if _ == 4:
            await sign_in.cookie_for("sk-admin", client="x")
    with pytest.raises(ThrottledError):
        await sign_in.cookie_for("sk-admin", client="x")
