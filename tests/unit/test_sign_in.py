"""Who may use the console: keys, cookies, the one-time link, and patience."""

import asyncio
import hmac
import time
from typing import Final

import pytest
from itsdangerous import TimestampSigner, URLSafeTimedSerializer

from omniroute_litellm.errors import ForbiddenError, ThrottledError, UnauthenticatedError
from omniroute_litellm.identity import Identity
from omniroute_litellm.live_settings import LiveSettings
from omniroute_litellm.sign_in import (
    ADMIN,
    FAILURE_WINDOW_S,
    MAX_FAILURES,
    SESSION_S,
    AdminKeyAuthority,
    SignIn,
)
from omniroute_litellm.sqlite import Database
from tests.fakes import FakeClock
from tests.unit.fakes import FakeAuthority, FakeTimer

HASH: Final = "0123456789abcdef" * 4
HERE: Final = "10.0.0.1"


class AgedSigner(TimestampSigner):
    """Signs as of the last moment at which a session still lasted, and some seconds before."""

    def get_timestamp(self) -> int:
        """Return a moment of the past."""
        return int(time.time()) - SESSION_S - 5


@pytest.fixture
def authority() -> FakeAuthority:
    """Hand out an authority that knows an admin, a user and a key without anybody."""
    return FakeAuthority(
        {"sk-admin": Identity(is_admin=True), "sk-ann": Identity(key=HASH), "sk-void": Identity()}
    )


@pytest.fixture
def timer() -> FakeTimer:
    """Hand out seconds that stand still."""
    return FakeTimer()


@pytest.fixture
def sign_in(authority: FakeAuthority, database: Database, timer: FakeTimer) -> SignIn:
    """Hand out the sign-in of one process."""
    return made(authority, database, timer)


def made(authority: FakeAuthority, database: Database, timer: FakeTimer | None = None) -> SignIn:
    """Return the sign-in of another process on the same file."""
    settings = LiveSettings(database, environ={}, clock=FakeClock())
    return SignIn(authority, settings, database, timer=timer or FakeTimer())


def forged(secret: str, content: object, signer: type[TimestampSigner] = TimestampSigner) -> str:
    """Sign a cookie as somebody would who knows the secret and the recipe."""
    key = hmac.digest(secret.encode(), b"omniroute console cookie", "sha256")
    made_by = URLSafeTimedSerializer(key, salt="omniroute.session", signer=signer)
    return str(made_by.dumps(content))


async def fail_often(sign_in: SignIn, times: int, *, client: str = HERE) -> None:
    """Try a wrong key several times."""
    for _ in range(times):
        with pytest.raises(UnauthenticatedError):
            await sign_in.cookie_for("sk-wrong", client=client)


class TestKey:
    """Keys of programs."""

    async def test_admin_key(self, sign_in: SignIn) -> None:
        """An admin's key is the admin."""
        assert await sign_in.by_key("sk-admin") == ADMIN

    async def test_user_key(self, sign_in: SignIn) -> None:
        """A user's key is its owner, without the admin's role."""
        found = await sign_in.by_key("sk-ann")
        assert (found.is_admin, found.owner) == (False, HASH)

    async def test_name_holds_no_key(self, sign_in: SignIn) -> None:
        """The name that stands in the history tells neither key nor hash."""
        name = (await sign_in.by_key("sk-ann")).name
        assert "sk-ann" not in name
        assert HASH[:8] not in name

    async def test_wrong_key(self, sign_in: SignIn) -> None:
        """A wrong key is nobody."""
        with pytest.raises(UnauthenticatedError):
            await sign_in.by_key("sk-wrong")

    async def test_key_without_owner(self, sign_in: SignIn) -> None:
        """A key that belongs to nobody has nothing to see."""
        with pytest.raises(ForbiddenError):
            await sign_in.by_key("sk-void")


class TestCookie:
    """Sessions of the console."""

    async def test_admin_gets_in(self, sign_in: SignIn) -> None:
        """The cookie of an admin's key is the admin."""
        cookie = await sign_in.cookie_for("sk-admin", client=HERE)
        assert sign_in.by_cookie(cookie) == ADMIN

    async def test_user_stays_out(self, sign_in: SignIn) -> None:
        """A user's key gets no cookie."""
        with pytest.raises(ForbiddenError):
            await sign_in.cookie_for("sk-ann", client=HERE)

    async def test_cookies_differ(self, sign_in: SignIn) -> None:
        """Two sessions are two cookies."""
        cookies = {await sign_in.cookie_for("sk-admin", client=HERE) for _ in range(2)}
        assert len(cookies) == 2

    async def test_cookie_holds_no_key(self, sign_in: SignIn) -> None:
        """Neither key nor secret stands in a cookie."""
        cookie = await sign_in.cookie_for("sk-admin", client=HERE)
        assert "sk-admin" not in cookie
        assert "s3cret" not in cookie

    async def test_other_process_knows_it(
        self, sign_in: SignIn, authority: FakeAuthority, database: Database
    ) -> None:
        """A cookie of one worker is good in the next."""
        cookie = await sign_in.cookie_for("sk-admin", client=HERE)
        assert made(authority, database).by_cookie(cookie) == ADMIN

    async def test_other_process_knows_it_without_secret(self, database: Database) -> None:
        """Without an admin's secret the workers share a seed in the file."""
        authority = FakeAuthority({"sk-admin": Identity(is_admin=True)}, signing=None)
        cookie = await made(authority, database).cookie_for("sk-admin", client=HERE)
        assert made(authority, database).by_cookie(cookie) == ADMIN

    async def test_rotated_secret_ends_it(self, sign_in: SignIn, authority: FakeAuthority) -> None:
        """With another secret every session ends."""
        cookie = await sign_in.cookie_for("sk-admin", client=HERE)
        authority.signing = "another"
        with pytest.raises(UnauthenticatedError):
            sign_in.by_cookie(cookie)

    def test_recipe_is_known(self, sign_in: SignIn) -> None:
        """The forgeries of these tests are well made: with the right content one gets in."""
        assert sign_in.by_cookie(forged("s3cret", {"role": "admin"})) == ADMIN

    def test_expired(self, sign_in: SignIn) -> None:
        """After twelve hours a session ends."""
        cookie = forged("s3cret", {"role": "admin"}, AgedSigner)
        with pytest.raises(UnauthenticatedError):
            sign_in.by_cookie(cookie)

    @pytest.mark.parametrize("content", [{"role": "user"}, {}, [], "admin", None, 1])
    def test_other_content(self, sign_in: SignIn, content: object) -> None:
        """A signed content of another kind is no session."""
        with pytest.raises(UnauthenticatedError):
            sign_in.by_cookie(forged("s3cret", content))

    @pytest.mark.parametrize("secret", ["", "other", "s3cret "])
    def test_other_secret(self, sign_in: SignIn, secret: str) -> None:
        """A content that was signed with another secret is no session."""
        with pytest.raises(UnauthenticatedError):
            sign_in.by_cookie(forged(secret, {"role": "admin"}))

    @pytest.mark.parametrize("cookie", ["", ".", "...", "a.b.c", "\u00e9", "x" * 10_000, "\0"])
    def test_garbage(self, sign_in: SignIn, cookie: str) -> None:
        """A text that nobody signed is no session."""
        with pytest.raises(UnauthenticatedError):
            sign_in.by_cookie(cookie)

    async def test_changed(self, sign_in: SignIn) -> None:
        """A cookie with one character changed is no session."""
        cookie = await sign_in.cookie_for("sk-admin", client=HERE)
        changed = ("f" if cookie[0] == "e" else "e") + cookie[1:]
        with pytest.raises(UnauthenticatedError):
            sign_in.by_cookie(changed)


class TestLink:
    """The one-time link."""

    def test_opens(self, sign_in: SignIn) -> None:
        """The link of this start lets in."""
        cookie = sign_in.cookie_for_link(sign_in.new_link_token(), client=HERE)
        assert sign_in.by_cookie(cookie) == ADMIN

    def test_opens_once(self, sign_in: SignIn) -> None:
        """A link that was used is used up."""
        token = sign_in.new_link_token()
        sign_in.cookie_for_link(token, client=HERE)
        with pytest.raises(UnauthenticatedError):
            sign_in.cookie_for_link(token, client=HERE)

    def test_new_link_ends_the_old(self, sign_in: SignIn) -> None:
        """Only the newest link lets in."""
        old = sign_in.new_link_token()
        sign_in.new_link_token()
        with pytest.raises(UnauthenticatedError):
            sign_in.cookie_for_link(old, client=HERE)

    def test_wrong_try_leaves_the_link(self, sign_in: SignIn) -> None:
        """A stranger's guess does not use the link up."""
        token = sign_in.new_link_token()
        with pytest.raises(UnauthenticatedError):
            sign_in.cookie_for_link("guess", client="10.9.9.9")
        assert sign_in.cookie_for_link(token, client=HERE)

    @pytest.mark.parametrize("token", ["", "None", "x"])
    def test_without_link_nothing_opens(self, sign_in: SignIn, token: str) -> None:
        """Before a link was made no token lets in."""
        with pytest.raises(UnauthenticatedError):
            sign_in.cookie_for_link(token, client=HERE)


class TestPatience:
    """Too many wrong tries."""

    async def test_last_try_counts(self, sign_in: SignIn) -> None:
        """After nine wrong keys the right one still lets in."""
        await fail_often(sign_in, MAX_FAILURES - 1)
        assert await sign_in.cookie_for("sk-admin", client=HERE)

    async def test_tenth_failure_locks(self, sign_in: SignIn) -> None:
        """After ten wrong keys not even the right one lets in."""
        await fail_often(sign_in, MAX_FAILURES)
        with pytest.raises(ThrottledError):
            await sign_in.cookie_for("sk-admin", client=HERE)

    async def test_locked_asks_nobody(self, sign_in: SignIn, authority: FakeAuthority) -> None:
        """A locked client's keys are not even looked up."""
        await fail_often(sign_in, MAX_FAILURES)
        with pytest.raises(ThrottledError):
            await sign_in.cookie_for("sk-wrong", client=HERE)
        assert authority.asked == MAX_FAILURES

    async def test_tells_how_long(self, sign_in: SignIn, timer: FakeTimer) -> None:
        """A locked client is told when its next try counts."""
        await fail_often(sign_in, MAX_FAILURES)
        timer.now += 100
        with pytest.raises(ThrottledError) as caught:
            await sign_in.cookie_for("sk-admin", client=HERE)
        assert caught.value.retry_after_s == FAILURE_WINDOW_S - 100

    async def test_lock_ends(self, sign_in: SignIn, timer: FakeTimer) -> None:
        """After five minutes the right key lets in again."""
        await fail_often(sign_in, MAX_FAILURES)
        timer.now += FAILURE_WINDOW_S + 1
        assert await sign_in.cookie_for("sk-admin", client=HERE)

    async def test_others_are_free(self, sign_in: SignIn) -> None:
        """One client's failures lock nobody else out."""
        await fail_often(sign_in, MAX_FAILURES, client="10.9.9.9")
        assert await sign_in.cookie_for("sk-admin", client=HERE)

    async def test_link_is_locked_too(self, sign_in: SignIn) -> None:
        """Wrong keys and wrong links count together."""
        token = sign_in.new_link_token()
        await fail_often(sign_in, MAX_FAILURES)
        with pytest.raises(ThrottledError):
            sign_in.cookie_for_link(token, client=HERE)

    async def test_programs_are_not_locked(self, sign_in: SignIn) -> None:
        """A key of a program is answered, whatever failed in the console."""
        await fail_often(sign_in, MAX_FAILURES)
        assert await sign_in.by_key("sk-admin") == ADMIN

    async def test_tries_at_once_count(self, sign_in: SignIn, authority: FakeAuthority) -> None:
        """Who tries a hundred keys at once gets no more answers than one after another."""
        tries = [sign_in.cookie_for(f"sk-{number}", client=HERE) for number in range(100)]
        await asyncio.gather(*tries, return_exceptions=True)
        assert authority.asked <= MAX_FAILURES


class TestAdminKeyAuthority:
    """The console alone."""

    async def test_knows_its_key(self) -> None:
        """The configured key is the admin's."""
        assert (await AdminKeyAuthority("k3y").identify("k3y")).is_admin

    @pytest.mark.parametrize("key", ["", "k3", "k3y ", "K3Y", "\ud800"])
    async def test_knows_no_other(self, key: str) -> None:
        """Any other text is nobody's."""
        with pytest.raises(UnauthenticatedError):
            await AdminKeyAuthority("k3y").identify(key)

    @pytest.mark.parametrize("configured", [None, ""])
    async def test_without_key_knows_none(self, configured: str | None) -> None:
        """Without a configured key not even the empty one lets in."""
        with pytest.raises(UnauthenticatedError):
            await AdminKeyAuthority(configured).identify("")

    def test_secret_without_key_is_random(self) -> None:
        """Without a configured key each process has a secret of its own."""
        assert AdminKeyAuthority(None).secret() != AdminKeyAuthority(None).secret()
