"""Who a request belongs to, and what its headers say."""

import hashlib
from typing import Any

import pytest

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


def test_scopes() -> None:
    """A session scope needs a session; the global one adds the shared owner."""
    ann, one = OwnerId("ann"), SessionId("one")
    assert read_scope(ann, one, "apiKey") == Scope((ann,))
    assert read_scope(ann, one, "session") == Scope((ann,), one)
    assert read_scope(ann, None, "session") is None
    assert read_scope(ann, None, "global") == Scope((ann, GLOBAL_OWNER))
