"""Who a request belongs to, and what its headers ask of memory."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from omniroute_litellm.settings import OwnerField, ScopeName
from omniroute_litellm.text import storable
from omniroute_litellm.types import GLOBAL_OWNER, OwnerId, Scope, SessionId

NO_MEMORY_HEADER: Final = "x-omniroute-no-memory"
MODE_HEADER: Final = "x-omniroute-memory"
SESSION_HEADER: Final = "x-omniroute-session-id"
CLIENT_SESSION_HEADERS: Final = (SESSION_HEADER, "x-claude-code-session-id", "session-id")
"""Ours first, then what coding agents send by themselves."""

MASTER_KEY_TOKEN: Final = "litellm_proxy_master_key"  # noqa: S105 - a public constant, no secret
"""The constant that LiteLLM puts in place of a hash when the master key called."""

_HASH: Final = re.compile(r"[0-9a-f]{64}")
_MAX_SESSION_CHARACTERS: Final = 256
_YES: Final = frozenset({"true", "1", "yes"})


@dataclass(frozen=True, slots=True)
class Identity:
    """What LiteLLM authenticated. Any field may be None; nothing here comes from the caller's word.

    ``key`` is LiteLLM's token: a SHA-256 hex digest, the master key's constant, or, with some
    custom authentication, the plain key.
    """

    key: str | None = None
    user: str | None = None
    end_user: str | None = None
    team: str | None = None
    is_admin: bool = False


class MemoryMode(StrEnum):
    """What a request allows: both directions, one, or none."""

    ON = "on"
    READ = "read"
    WRITE = "write"
    OFF = "off"

    @property
    def may_read(self) -> bool:
        """Whether memories may be put into the request."""
        return self in {MemoryMode.ON, MemoryMode.READ}

    @property
    def may_write(self) -> bool:
        """Whether the exchange may be learned from."""
        return self in {MemoryMode.ON, MemoryMode.WRITE}


def resolve_owner(identity: Identity, owner_field: OwnerField) -> OwnerId | None:
    """Return whose memories the caller uses, or None when the needed identity is missing.

    A plain-text key is hashed first, so that no key is ever stored. An end user counts inside of
    its key: two applications that both name ``alice`` stay apart.
    """
    key, user = _key_id(identity), _named("user", identity.user)
    if owner_field == "api_key":
        return OwnerId(key) if key else user
    if owner_field == "user":
        return user
    if owner_field == "team":
        return _named("team", identity.team)
    return _named(f"{key}:end_user", identity.end_user) if key else None


def read_scope(owner: OwnerId, session: SessionId | None, scope: ScopeName) -> Scope | None:
    """Return what the owner may read, or None for a session scope without a session."""
    if scope == "session":
        return Scope((owner,), session) if session else None
    if scope == "global":
        return Scope(tuple(dict.fromkeys((owner, GLOBAL_OWNER))))
    return Scope((owner,))


def memory_mode(headers: Mapping[str, str]) -> MemoryMode:
    """Read the two control headers (names in lower case); the opt-out wins.

    An unknown value of ``x-omniroute-memory`` counts as ``off``: whoever sends one wants less
    memory, not more.
    """
    if headers.get(NO_MEMORY_HEADER, "").strip().casefold() in _YES:
        return MemoryMode.OFF
    asked = headers.get(MODE_HEADER)
    if asked is None:
        return MemoryMode.ON
    try:
        return MemoryMode(asked.strip().casefold())
    except ValueError:
        return MemoryMode.OFF


def session_of(headers: Mapping[str, str], *fallbacks: object) -> SessionId | None:
    """Return the first usable session id: our header, LiteLLM's ids, then clients' headers."""
    ours, *others = CLIENT_SESSION_HEADERS
    candidates = (headers.get(ours), *fallbacks, *(headers.get(name) for name in others))
    for candidate in candidates:
        if isinstance(candidate, str):
            text = "".join(char for char in candidate if char.isprintable()).strip()
            if text:
                return SessionId(text[:_MAX_SESSION_CHARACTERS])
    return None


def _key_id(identity: Identity) -> str | None:
    key = identity.key
    if not key:
        return None
    if _HASH.fullmatch(key) or (key == MASTER_KEY_TOKEN and identity.is_admin):
        return key
    return _hash(key)


def _named(kind: str, name: str | None) -> OwnerId | None:
    """Return the owner of a name. A caller may choose it: what no store takes is hashed."""
    if not name:
        return None
    return OwnerId(f"{kind}:{name if storable(name) == name else _hash(name)}")


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
