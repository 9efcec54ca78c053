"""Who may use the console and the API: keys, cookies, and the one-time link."""

import hashlib
import hmac
import logging
import secrets
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol, cast

from itsdangerous import BadSignature, URLSafeTimedSerializer

from omniroute_litellm.errors import ForbiddenError, ThrottledError, UnauthenticatedError
from omniroute_litellm.identity import Identity, resolve_owner
from omniroute_litellm.live_settings import LiveSettings
from omniroute_litellm.sqlite import Database
from omniroute_litellm.types import OwnerId

logger = logging.getLogger(__name__)

SESSION_S: Final = 12 * 3_600
MAX_FAILURES: Final = 10
FAILURE_WINDOW_S: Final = 300.0
_MAX_CLIENTS: Final = 10_000
_SEED_NAME: Final = "cookie_seed"
_ADD_SEED: Final = """
INSERT INTO installation (name, value) VALUES (:name, :value) ON CONFLICT (name) DO NOTHING
"""
_SEED: Final = "SELECT value FROM installation WHERE name = :name"


class KeyAuthority(Protocol):
    """Knows keys: LiteLLM inside of a proxy, one configured key when the console runs alone."""

    async def identify(self, key: str) -> Identity:
        """Return who a key belongs to; raise UnauthenticatedError for any other text."""
        ...

    def secret(self) -> str | None:
        """Return the administrator's secret that cookies depend on, None when there is none."""
        ...


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks. ``owner`` is whose memories a caller without the admin role may use.

    ``name`` stands in the history as the author of changes; it never holds a key.
    """

    is_admin: bool
    owner: OwnerId | None
    name: str


ADMIN: Final = Principal(is_admin=True, owner=None, name="admin")


class SignIn:
    """Turns keys into principals and admin keys into cookies.

    Cookies are signed with a key derived from the administrator's secret, so a rotated secret
    ends every session; without such a secret from a seed in the database, which all processes
    share. They expire after 12 hours. Ten failures of one client in five minutes lock it out for
    the rest of them.
    """

    def __init__(
        self,
        authority: KeyAuthority,
        settings: LiveSettings,
        database: Database,
        *,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self._authority = authority
        self._settings = settings
        self._database = database
        self._timer = timer
        self._lock = threading.Lock()
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()
        self._link_token: str | None = None

    async def by_key(self, key: str) -> Principal:
        """Return the principal of a key; raise UnauthenticatedError for a wrong one.

        Programs are not throttled here: the proxy beside us answers as many tries, and one
        caller's wrong key must not lock out those who share its address.
        """
        identity = await self._authority.identify(key)
        if identity.is_admin:
            return ADMIN
        owner = resolve_owner(identity, self._settings.current.values.owner_field)
        if owner is None:
            message = "this key belongs to nobody whose memories could be shown"
            raise ForbiddenError(message)
        short = hashlib.sha256(owner.encode()).hexdigest()[:8]
        return Principal(is_admin=False, owner=owner, name=f"key:{short}")

    async def cookie_for(self, key: str, *, client: str) -> str:
        """Return a new session cookie for an admin key.

        Raises UnauthenticatedError for a wrong key, ForbiddenError for one of another role, and
        ThrottledError after too many wrong ones from the same client.
        """
        self._require_patience(client)
        # Counted before the answer is known: tries that run at once must not all pass first.
        self._note_try(client)
        try:
            principal = await self.by_key(key)
        except UnauthenticatedError:
            logger.warning("console.sign_in.refused")
            raise
        self._forgive_try(client)
        if not principal.is_admin:
            message = "the console needs the key of a proxy admin"
            raise ForbiddenError(message)
        return self._new_cookie()

    def by_cookie(self, cookie: str) -> Principal:
        """Return the principal of a session cookie; raise UnauthenticatedError else."""
        try:
            given = cookie.encode("utf-8", "replace")
            content = cast("object", self._signer().loads(given, max_age=SESSION_S))
        except BadSignature as error:
            message = "the session has ended; sign in again"
            raise UnauthenticatedError(message) from error
        if (
            not isinstance(content, dict)
            or cast("dict[str, object]", content).get("role") != "admin"
        ):
            message = "the session is of another kind; sign in again"
            raise UnauthenticatedError(message)
        return ADMIN

    def new_link_token(self) -> str:
        """Make the token of a one-time sign-in link; an earlier one ends."""
        self._link_token = secrets.token_urlsafe(32)
        return self._link_token

    def cookie_for_link(self, token: str, *, client: str) -> str:
        """Redeem a one-time link, once; raise UnauthenticatedError for any other token."""
        self._require_patience(client)
        given = token.encode("utf-8", "replace")
        with self._lock:
            expected, self._link_token = self._link_token, None
            if expected is None or not hmac.compare_digest(expected.encode(), given):
                self._link_token = expected
                expected = None
        if expected is None:
            self._note_try(client)
            logger.warning("console.sign_in.refused")
            message = "the sign-in link was used already or is not from this start"
            raise UnauthenticatedError(message)
        return self._new_cookie()

    def _new_cookie(self) -> str:
        content = {"role": "admin", "id": secrets.token_urlsafe(12)}
        return str(self._signer().dumps(content))

    def _signer(self) -> URLSafeTimedSerializer:
        secret = self._authority.secret() or self._seed()
        key = hmac.digest(secret.encode("utf-8", "replace"), b"omniroute console cookie", "sha256")
        return URLSafeTimedSerializer(key, salt="omniroute.session")

    def _seed(self) -> str:
        values = {"name": _SEED_NAME, "value": secrets.token_urlsafe(32)}
        with self._database.writing() as connection:
            connection.execute(_ADD_SEED, values)
            return str(connection.execute(_SEED, {"name": _SEED_NAME}).fetchall()[0][0])

    def _require_patience(self, client: str) -> None:
        with self._lock:
            recent = self._failures.get(client)
            while recent and self._timer() - recent[0] > FAILURE_WINDOW_S:
                recent.popleft()
            if recent and len(recent) >= MAX_FAILURES:
                wait_s = FAILURE_WINDOW_S - (self._timer() - recent[0])
                message = "too many wrong keys; try again later"
                raise ThrottledError(message, retry_after_s=max(1, round(wait_s)))

    def _note_try(self, client: str) -> None:
        with self._lock:
            self._failures.setdefault(client, deque(maxlen=MAX_FAILURES)).append(self._timer())
            self._failures.move_to_end(client)
            while len(self._failures) > _MAX_CLIENTS:
                self._failures.popitem(last=False)

    def _forgive_try(self, client: str) -> None:
        with self._lock:
            tries = self._failures.get(client)
            if tries:
                tries.pop()


class AdminKeyAuthority:
    """Knows one key, or none: then only the one-time link lets anybody in."""

    def __init__(self, admin_key: str | None) -> None:
        self._admin_key = admin_key or None
        self._secret = admin_key or secrets.token_urlsafe(32)

    async def identify(self, key: str) -> Identity:
        """Return the admin for the configured key, compared in constant time."""
        expected = self._admin_key
        given = key.encode("utf-8", "replace")
        if expected is None or not hmac.compare_digest(expected.encode("utf-8", "replace"), given):
            message = "the key is not valid here"
            raise UnauthenticatedError(message)
        return Identity(is_admin=True)

    def secret(self) -> str | None:
        """Return the configured key, else a random one: then sessions end with the process."""
        return self._secret
