"""Who a request belongs to, and what its headers say."""

import hashlib
from typing import Any, Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from omniroute_litellm.identity import (
    MASTER_KEY_TOKEN,
    Identity,
    MemoryMode,
    memory_mode,
    read_scope,
    resolve_owner,
    session_of,
)
from omniroute_litellm.settings import OwnerField
from omniroute_litellm.text import storable
from omniroute_litellm.types import GLOBAL_OWNER, OwnerId, Scope, SessionId

HASH = "a" * 64


def sha(text: str) -> str:
    """Return the digest that stands for a plain key."""
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize(
    ("field", "identity", "owner"),
    [
        ("api_key", Identity(key=HASH), HASH),
        ("api_key", Identity(key="sk-plain"), sha("sk-plain")),
        ("api_key", Identity(key=MASTER_KEY_TOKEN, is_admin=True), MASTER_KEY_TOKEN),
        ("api_key", Identity(key=MASTER_KEY_TOKEN), sha(MASTER_KEY_TOKEN)),
        ("api_key", Identity(user="ann"), "user:ann"),
        ("api_key", Identity(), None),
        ("api_key", Identity(key=""), None),
        ("user", Identity(key=HASH, user="ann"), "user:ann"),
        ("user", Identity(key=HASH), None),
        ("team", Identity(key=HASH, team="red"), "team:red"),
        ("team", Identity(key=HASH), None),
        ("end_user", Identity(key=HASH, end_user="bob"), f"{HASH}:end_user:bob"),
        ("end_user", Identity(key=HASH), None),
        ("end_user", Identity(end_user="bob"), None),
    ],
)
def test_the_owner_is_what_was_authenticated(
    field: OwnerField, identity: Identity, owner: str | None
) -> None:
    """Each owner field reads its part of the identity; a missing part means nobody."""
    assert resolve_owner(identity, field) == owner


def test_no_owner_can_be_the_shared_one() -> None:
    """No key resolves to the reserved owner that everybody reads."""
    assert resolve_owner(Identity(key=GLOBAL_OWNER), "api_key") != GLOBAL_OWNER


@pytest.mark.parametrize("value", ["true", "1", "yes", "TRUE", " Yes "])
def test_opting_out_wins(value: str) -> None:
    """The opt-out holds in any case, also against the other header."""
    headers = {"x-omniroute-no-memory": value, "x-omniroute-memory": "on"}
    assert memory_mode(headers) is MemoryMode.OFF


@pytest.mark.parametrize(
    ("value", "mode"),
    [
        ("off", MemoryMode.OFF),
        ("Read", MemoryMode.READ),
        ("WRITE", MemoryMode.WRITE),
        ("on", MemoryMode.ON),
        ("none", MemoryMode.OFF),
        ("", MemoryMode.OFF),
    ],
)
def test_the_mode_header_is_read(value: str, mode: MemoryMode) -> None:
    """Any case counts; an unknown word means less memory, not more."""
    assert memory_mode({"x-omniroute-memory": value}) is mode


@pytest.mark.parametrize("value", ["false", "0", "no", ""])
def test_other_values_do_not_opt_out(value: str) -> None:
    """Only a clear yes opts out."""
    assert memory_mode({"x-omniroute-no-memory": value}) is MemoryMode.ON


def test_modes_allow_their_direction() -> None:
    """Read injects, write learns, on does both, off neither."""
    allowed = {mode: (mode.may_read, mode.may_write) for mode in MemoryMode}
    assert allowed == {
        MemoryMode.ON: (True, True),
        MemoryMode.READ: (True, False),
        MemoryMode.WRITE: (False, True),
        MemoryMode.OFF: (False, False),
    }


@pytest.mark.parametrize(
    ("headers", "fallbacks", "session"),
    [
        ({"x-omniroute-session-id": "ours"}, ("litellm",), "ours"),
        ({"x-claude-code-session-id": "claude"}, ("litellm", "meta"), "litellm"),
        ({"x-claude-code-session-id": "claude"}, (None, 7), "claude"),
        ({"session-id": "codex"}, (None,), "codex"),
        ({"x-omniroute-session-id": " \x00 "}, (None,), None),
        ({"x-omniroute-session-id": "a\nb"}, (), "ab"),
        ({"x-omniroute-session-id": "x" * 300}, (), "x" * 256),
        ({}, (), None),
    ],
)
def test_the_session_ladder(headers: dict[str, str], fallbacks: Any, session: str | None) -> None:
    """Our header first, then LiteLLM's ids, then what clients send; cleaned and bounded."""
    assert session_of(headers, *fallbacks) == session


FIELDS: Final[tuple[OwnerField, ...]] = ("api_key", "user", "end_user", "team")
PARTS = st.one_of(st.none(), st.text(st.characters(), max_size=8))  # lone surrogates included
IDENTITIES = st.builds(Identity, key=PARTS, user=PARTS, end_user=PARTS, team=PARTS)


@given(IDENTITIES, st.sampled_from(FIELDS))
@example(Identity(key=HASH, end_user="\ud800"), "end_user")
def test_owners_can_be_stored(identity: Identity, field: OwnerField) -> None:
    """Whatever a proxy calls its users, the owner is a text that every store takes."""
    owner = resolve_owner(identity, field)
    assert owner is None or storable(owner) == owner


@given(st.text(st.characters(), min_size=1), st.text(st.characters(), min_size=1))
@example("\ud800ann", "ann")
@example("a\x00nn", "ann")
@example("a\r\nb", "a\nb")
def test_different_users_never_share_an_owner(one: str, other: str) -> None:
    """Names that differ in a character that no store takes are still two owners."""
    owners = {resolve_owner(Identity(user=name), "user") for name in (one, other)}
    assert len(owners) == len({one, other})


@given(IDENTITIES, st.sampled_from(FIELDS))
def test_no_key_stands_in_an_owner(identity: Identity, field: OwnerField) -> None:
    """A key in plain text is hashed, whatever the owner is made of."""
    secret = Identity(f"sk-{identity.key}", identity.user, identity.end_user, identity.team)
    assert not (resolve_owner(secret, field) or "").startswith("sk-")


def test_the_shared_owner_is_read_once() -> None:
    """Whoever reads as the shared owner gets each memory once, not twice."""
    assert read_scope(GLOBAL_OWNER, None, "global") == Scope((GLOBAL_OWNER,))


def test_scopes() -> None:
    """A session scope needs a session; the global one adds the shared owner."""
    ann, one = OwnerId("ann"), SessionId("one")
    assert read_scope(ann, one, "apiKey") == Scope((ann,))
    assert read_scope(ann, one, "session") == Scope((ann,), one)
    assert read_scope(ann, None, "session") is None
    assert read_scope(ann, None, "global") == Scope((ann, GLOBAL_OWNER))
