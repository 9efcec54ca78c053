"""Who a request belongs to, and what its headers ask."""

import hashlib
from typing import Final

import pytest
from hypothesis import given
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
from omniroute_litellm.types import GLOBAL_OWNER, OwnerId, Scope, SessionId

HASH: Final = "0123456789abcdef" * 4
OWNER_FIELDS: Final[tuple[OwnerField, ...]] = ("api_key", "user", "end_user", "team")
TEXTS: Final = st.none() | st.text(st.characters(codec="utf-8"), max_size=70)
IDENTITIES: Final = st.builds(
    Identity, key=TEXTS, user=TEXTS, end_user=TEXTS, team=TEXTS, is_admin=st.booleans()
)


def sha(text: str) -> str:
    """Return the digest that stands for a plain key."""
    return hashlib.sha256(text.encode()).hexdigest()


class TestOwner:
    """Whose memories a caller uses."""

    def test_hashed_key_is_the_owner(self) -> None:
        """LiteLLM's token stands for its key."""
        assert resolve_owner(Identity(key=HASH), "api_key") == HASH

    def test_plain_key_is_hashed(self) -> None:
        """A plain key of custom authentication never becomes an owner as it is."""
        assert resolve_owner(Identity(key="sk-plain"), "api_key") == sha("sk-plain")

    def test_uppercase_digest_is_hashed(self) -> None:
        """Only LiteLLM's own form counts as a token."""
        assert resolve_owner(Identity(key=HASH.upper()), "api_key") == sha(HASH.upper())

    def test_master_key_has_its_owner(self) -> None:
        """The constant in place of the master key is its owner."""
        found = resolve_owner(Identity(key=MASTER_KEY_TOKEN, is_admin=True), "api_key")
        assert found == MASTER_KEY_TOKEN

    def test_master_token_of_others_is_a_plain_key(self) -> None:
        """Who sends the constant as a key does not become the administrator."""
        found = resolve_owner(Identity(key=MASTER_KEY_TOKEN), "api_key")
        assert found == sha(MASTER_KEY_TOKEN)

    def test_user_stands_in_for_a_missing_key(self) -> None:
        """Who came by a web login has no key, but a name."""
        assert resolve_owner(Identity(user="ann"), "api_key") == "user:ann"

    @pytest.mark.parametrize(
        ("field", "owner"),
        [
            ("user", "user:ann"),
            ("team", "team:red"),
            ("end_user", f"{HASH}:end_user:eve"),
        ],
    )
    def test_field_chooses(self, field: OwnerField, owner: str) -> None:
        """The setting chooses which part of the identity counts."""
        identity = Identity(key=HASH, user="ann", team="red", end_user="eve")
        assert resolve_owner(identity, field) == owner

    @pytest.mark.parametrize("field", ["user", "team", "end_user"])
    @pytest.mark.parametrize("missing", [None, ""])
    def test_missing_part_is_nobody(self, field: OwnerField, missing: str | None) -> None:
        """A request without the chosen part has no memories, rather than the key's."""
        identity = Identity(key=HASH, user=missing, team=missing, end_user=missing)
        assert resolve_owner(identity, field) is None

    def test_end_user_without_key_is_nobody(self) -> None:
        """An end user counts inside of a key only."""
        assert resolve_owner(Identity(end_user="eve"), "end_user") is None

    def test_end_users_of_two_keys_stay_apart(self) -> None:
        """The same name behind two keys is two people."""
        owners = {
            resolve_owner(Identity(key=key, end_user="eve"), "end_user") for key in ("a", "b")
        }
        assert len(owners) == 2

    @pytest.mark.parametrize("field", OWNER_FIELDS)
    @given(identity=IDENTITIES)
    def test_nobody_is_the_shared_owner(self, field: OwnerField, identity: Identity) -> None:
        """No identity whatsoever owns the shared memories."""
        assert resolve_owner(identity, field) != GLOBAL_OWNER

    @pytest.mark.parametrize("field", OWNER_FIELDS)
    @given(identity=IDENTITIES)
    def test_owner_is_never_empty(self, field: OwnerField, identity: Identity) -> None:
        """An owner is a name or nobody."""
        assert resolve_owner(identity, field) != ""


class TestScope:
    """What an owner may read."""

    def test_key_scope_reads_all_sessions(self) -> None:
        """The scope of a key is not bounded to a session."""
        assert read_scope(OwnerId("a"), SessionId("s"), "apiKey") == Scope((OwnerId("a"),))

    def test_session_scope_reads_its_session(self) -> None:
        """The scope of a session is the owner's and that session's."""
        found = read_scope(OwnerId("a"), SessionId("s"), "session")
        assert found == Scope((OwnerId("a"),), SessionId("s"))

    def test_session_scope_without_session_reads_nothing(self) -> None:
        """Without a session there is nothing to read, rather than everything."""
        assert read_scope(OwnerId("a"), None, "session") is None

    def test_global_scope_adds_the_shared(self) -> None:
        """The global scope is the owner's and the shared memories."""
        found = read_scope(OwnerId("a"), None, "global")
        assert found == Scope((OwnerId("a"), GLOBAL_OWNER))


class TestMode:
    """What the headers ask."""

    def test_no_header_is_on(self) -> None:
        """Who asks nothing gets both directions."""
        assert memory_mode({}) is MemoryMode.ON

    @pytest.mark.parametrize("value", ["true", "1", "yes", "TRUE", " Yes "])
    def test_opt_out(self, value: str) -> None:
        """Three words opt out, in any case."""
        assert memory_mode({"x-omniroute-no-memory": value}) is MemoryMode.OFF

    @pytest.mark.parametrize("value", ["", "false", "0", "no"])
    def test_no_opt_out(self, value: str) -> None:
        """Other words do not opt out."""
        assert memory_mode({"x-omniroute-no-memory": value}) is MemoryMode.ON

    @pytest.mark.parametrize("mode", MemoryMode)
    def test_mode_by_name(self, mode: MemoryMode) -> None:
        """Each mode has its name, in any case."""
        assert memory_mode({"x-omniroute-memory": f" {mode.upper()} "}) is mode

    @pytest.mark.parametrize("value", ["", "none", "readwrite"])
    def test_unknown_mode_is_off(self, value: str) -> None:
        """Who sends an unknown word wants less memory, not more."""
        assert memory_mode({"x-omniroute-memory": value}) is MemoryMode.OFF

    def test_opt_out_beats_mode(self) -> None:
        """Of two headers that disagree the careful one holds."""
        headers = {"x-omniroute-no-memory": "1", "x-omniroute-memory": "on"}
        assert memory_mode(headers) is MemoryMode.OFF

    @pytest.mark.parametrize(
        ("mode", "reads", "writes"),
        [("on", True, True), ("read", True, False), ("write", False, True), ("off", False, False)],
    )
    def test_directions(self, mode: str, reads: bool, writes: bool) -> None:
        """Each mode allows its directions."""
        found = MemoryMode(mode)
        assert (found.may_read, found.may_write) == (reads, writes)


class TestSession:
    """Which session a request belongs to."""

    def test_ours_first(self) -> None:
        """Our header beats LiteLLM's session and those of coding agents."""
        headers = {"x-omniroute-session-id": "ours", "session-id": "agent"}
        assert session_of(headers, "litellm") == "ours"

    def test_litellm_second(self) -> None:
        """LiteLLM's session beats what a coding agent sends by itself."""
        assert session_of({"session-id": "agent"}, None, "litellm") == "litellm"

    def test_agent_last(self) -> None:
        """What a coding agent sends counts when nothing else is there."""
        assert session_of({"x-claude-code-session-id": "agent"}, None) == "agent"

    @pytest.mark.parametrize("value", ["", "   ", "\n", "\u200b"])
    def test_invisible_is_none(self, value: str) -> None:
        """A session id without a visible character is none."""
        assert session_of({"x-omniroute-session-id": value}) is None

    @pytest.mark.parametrize("value", [1, b"bytes", ["list"], {}])
    def test_other_types_are_none(self, value: object) -> None:
        """Only a text is a session id."""
        assert session_of({}, value) is None

    @given(st.text(max_size=400))
    def test_any_text_is_bounded(self, text: str) -> None:
        """Whatever is sent, a session id is at most 256 printable characters."""
        found = session_of({"x-omniroute-session-id": text})
        assert found is None or (0 < len(found) <= 256 and found.isprintable())
