"""Turns are named by what led to them, and by nothing that a client changes on the way."""

from collections.abc import Sequence
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omniroute_litellm import conversation
from omniroute_litellm.conversation import (
    CACHEABLE_BYTES,
    Conversation,
    place_behind_turns,
    read_conversation,
)
from omniroute_litellm.types import OwnerId, Scope, SessionId
from omniroute_litellm.wire.chat import ChatFormat
from omniroute_litellm.wire.gemini import GeminiFormat
from omniroute_litellm.wire.messages import MessagesFormat
from omniroute_litellm.wire.responses import ResponsesFormat

CHAT: Final = ChatFormat()
MINE: Final = Scope((OwnerId("a" * 64),))
MARK: Final[dict[str, Any]] = {"cache_control": {"type": "ephemeral"}}
ANSWER: Final[dict[str, object]] = {"role": "assistant", "content": "Yes."}
CALL: Final[dict[str, object]] = {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}
RESULT: Final[dict[str, object]] = {"role": "tool", "tool_call_id": "1", "content": "Rain."}


def user(content: object) -> dict[str, object]:
    """Return a user message."""
    return {"role": "user", "content": content}


def read(*messages: dict[str, object], scope: Scope = MINE, **fields: object) -> Conversation:
    """Read a chat."""
    return read_conversation(CHAT, {"messages": list(messages), **fields}, scope)


def names(*messages: dict[str, object], scope: Scope = MINE) -> list[str]:
    """Return the names of a chat's turns."""
    return [turn.name for turn in read(*messages, scope=scope).turns]


TEXTS: Final = st.text(min_size=1).filter(lambda text: any(map(str.isalnum, text)))


@given(st.lists(TEXTS, min_size=1, max_size=5), st.integers(0, 4))
def test_a_turn_keeps_its_name_while_the_chat_grows(texts: Sequence[str], cut: int) -> None:
    """The names of a longer conversation begin with those of every shorter one."""
    messages = [message for text in texts for message in (user(f"a{text}"), ANSWER)]
    whole = names(*messages)
    part = names(*messages[: 2 * min(cut, len(texts))])
    assert whole[: len(part)] == part
    assert len(set(whole)) == len(texts)


@pytest.mark.parametrize(
    "other",
    [
        user([{"type": "text", "text": "Hello"}]),
        user([{"type": "text", "text": "Hello", **MARK}]),
        {**user("Hello"), **MARK},
    ],
)
def test_marks_and_lists_of_one_text_change_no_name(other: dict[str, object]) -> None:
    """Clients mark the newest message and unmark it later."""
    assert names(other, ANSWER, user("Go on")) == names(user("Hello"), ANSWER, user("Go on"))


@pytest.mark.parametrize(
    "others",
    [
        [user("Hello!")],
        [{"role": "system", "content": "x"}, user("Hello")],
        [user([{"type": "text", "text": "Hello"}, {"type": "image_url", "image_url": "data:,"}])],
    ],
)
def test_other_words_make_other_names(others: list[dict[str, object]]) -> None:
    """Any other content or history is another turn."""
    assert not set(names(*others)) & set(names(user("Hello")))


@pytest.mark.parametrize(
    "scope",
    [
        Scope((OwnerId("b" * 64),)),
        Scope(MINE.owners, SessionId("s")),
        Scope((*MINE.owners, OwnerId("global"))),
    ],
)
def test_a_name_is_of_one_scope(scope: Scope) -> None:
    """The same words in another owner's, session's or wider scope are another turn."""
    assert names(user("Hello"), scope=scope) != names(user("Hello"))


def test_turns_are_counted_from_the_end() -> None:
    """Items without words of the user do not count; machine-made ones behind the newest do."""
    reminder = user("<system-reminder>Mind the gap.</system-reminder>")
    found = read(user("One"), ANSWER, user("Two"), CALL, RESULT, reminder)
    assert [turn.ordinal for turn in found.turns] == [2, 1]
    assert found.newest == found.turns[-1]
    assert found.history == found.turns[:-1]


@pytest.mark.parametrize(
    ("messages", "is_answered"),
    [
        ([user("One")], False),
        ([user("One"), {"role": "system", "content": "Mind the gap."}], False),
        ([user("One"), user("<b-c>x</b-c>")], False),
        ([user("One"), CALL, RESULT], True),
        ([user("One"), ANSWER], True),
        ([ANSWER], True),
    ],
)
def test_a_tool_loop_is_told_from_a_new_turn(
    messages: list[dict[str, object]], is_answered: bool
) -> None:
    """What the model or a tool said behind the newest turn shows that it is under way."""
    assert read(*messages).is_answered is is_answered
    assert conversation.is_answered(CHAT, {"messages": messages}) is is_answered


@pytest.mark.parametrize("nobody", [[], [ANSWER], [user("<b-c>x</b-c>")]])
def test_without_a_person_there_is_no_turn(nobody: list[dict[str, object]]) -> None:
    """Machine-made messages alone are no conversation."""
    found = read(*nobody)
    assert found.turns == ()
    assert found.newest is None


def test_what_may_be_cached() -> None:
    """A mark anywhere, or enough bytes in all: system text, tools and history count."""
    long = "x" * CACHEABLE_BYTES

    def cacheable(message: dict[str, object], **fields: object) -> bool:
        return conversation.is_cacheable(CHAT, {"messages": [message], **fields})

    assert not cacheable(user("Hello"))
    assert cacheable(user(long))
    assert cacheable(user("Hello"), tools=[{"description": long}])
    assert cacheable(user([{"type": "text", "text": "Hello", **MARK}]))
    assert cacheable(user("Hello"), tools=[MARK])
    half = "ж" * (CACHEABLE_BYTES // 2)
    assert cacheable(user(half))


def test_hostile_bodies_have_names_as_well() -> None:
    """Lone surrogates and odd shapes are read like anything else."""
    assert len(names(user("a\ud800"), {"role": "user"}, user(7), user("b"))) == 2
    odd: dict[str, object] = {"messages": ["text", None, 3, user("Hello")]}
    assert len(read_conversation(CHAT, odd, MINE).turns) == 1


def test_blocks_go_behind_turns_that_are_there() -> None:
    """A bridge may have dropped a turn: what is left gets its block."""
    body = {"messages": [user("One"), ANSWER, user("Two")]}
    fields = place_behind_turns(CHAT, body, {0: "A", 1: "B", 9: "C"})
    assert fields == {"messages": [user("One\n\nB"), ANSWER, user("Two\n\nA")]}
    assert place_behind_turns(CHAT, body, {9: "C"}) is None
    assert place_behind_turns(CHAT, body, {}) is None


@pytest.mark.parametrize(
    ("wire", "body"),
    [
        (MessagesFormat(), {"messages": [user("Hello")], "system": "s"}),
        (ResponsesFormat(), {"input": "Hello"}),
        (ResponsesFormat(), {"input": [{"type": "message", **user("Hello")}]}),
        (GeminiFormat(), {"contents": [{"role": "user", "parts": [{"text": "Hello"}]}]}),
        (GeminiFormat(), {"contents": {"parts": {"text": "Hello"}}}),
    ],
)
def test_every_format_has_turns(wire: Any, body: dict[str, Any]) -> None:
    """A text of the user is a turn, and a request that holds it all is not continued."""
    (turn,) = read_conversation(wire, body, MINE).turns
    assert turn.ordinal == 0
    assert not wire.is_continued(body)


@pytest.mark.parametrize("field", ["previous_response_id", "conversation"])
def test_a_continued_response_is_known(field: str) -> None:
    """The provider keeps the earlier turns of these."""
    assert ResponsesFormat().is_continued({"input": "Hello", field: "x"})
