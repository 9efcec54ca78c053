"""Chat completions: whatever a client sends, its messages stay its own."""

import copy
from collections.abc import Mapping
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omniroute_litellm.injection import render_block, render_line
from omniroute_litellm.placement import BlockForm
from omniroute_litellm.wire.base import newest_human_text
from omniroute_litellm.wire.chat import ChatFormat
from omniroute_litellm.wire.formats import FORMATS

CHAT: Final = ChatFormat()
BLOCK: Final = render_block([render_line("I prefer tea")])

TEXTS: Final = st.text(st.characters(), max_size=30)  # lone surrogates included
JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
PARTS: Final = st.one_of(
    st.fixed_dictionaries({"type": st.just("text"), "text": TEXTS}),
    st.fixed_dictionaries({"type": st.just("image_url"), "image_url": JSON}),
    JSON,
)
MESSAGES: Final = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["system", "developer", "user", "assistant", "tool", "?"]),
        "content": st.none() | TEXTS | st.lists(PARTS, max_size=3),
    },
    optional={"tool_calls": JSON, "name": TEXTS},
)
BODIES: Final = st.fixed_dictionaries(
    {"messages": st.lists(MESSAGES | JSON, max_size=5)}, optional={"tools": JSON}
)
FORMS: Final = st.sampled_from(BlockForm)


@given(BODIES, st.sampled_from([BlockForm.SYSTEM, BlockForm.USER]))
def test_a_message_of_our_own_stands_in_front(body: dict[str, Any], form: BlockForm) -> None:
    """One message is added as the first; the client's follow, as they were."""
    before = copy.deepcopy(body)
    placed: Any = CHAT.place_leading(body, BLOCK, form)["messages"]
    first, *rest = placed
    assert first == {"role": str(form), "content": BLOCK}
    assert rest == before["messages"]
    assert body == before


@given(BODIES)
def test_merging_touches_the_first_system_message_alone(body: dict[str, Any]) -> None:
    """Its text keeps the last word; no second system message comes to stand beside it."""
    messages = body["messages"]
    placed: Any = CHAT.place_leading(body, BLOCK, BlockForm.MERGED)["messages"]
    role = messages[0].get("role") if messages and isinstance(messages[0], dict) else None
    if role not in {"system", "developer"}:
        assert placed == [{"role": "system", "content": BLOCK}, *messages]
        return
    assert placed[1:] == messages[1:]
    given, merged = messages[0], placed[0]
    assert {**merged, "content": None} == {**given, "content": None}
    if isinstance(given["content"], list) and given["content"]:
        assert merged["content"] == [{"type": "text", "text": BLOCK}, *given["content"]]
    elif isinstance(given["content"], str):
        assert merged["content"].startswith(BLOCK)
        assert merged["content"].endswith(given["content"])


@given(BODIES)
def test_a_block_behind_keeps_every_part(body: dict[str, Any]) -> None:
    """At every human turn the block is added behind what was written, and nothing goes."""
    for at, item in enumerate(CHAT.items(body)):
        if CHAT.prose(item) is None:
            continue
        message: Any = item
        placed: Any = CHAT.place_behind(body, {at: BLOCK})["messages"]
        assert placed[:at] + placed[at + 1 :] == body["messages"][:at] + body["messages"][at + 1 :]
        content = placed[at]["content"]
        if isinstance(message["content"], str):
            assert content == f"{message['content']}\n\n{BLOCK}"
        else:
            content.remove({"type": "text", "text": BLOCK})
            assert content == message["content"]


@given(BODIES, FORMS)
def test_a_placed_block_is_known_again(body: dict[str, Any], form: BlockForm) -> None:
    """A bridge that comes by with the placed body does not get a second block."""
    assert CHAT.contains({**body, **CHAT.place_leading(body, BLOCK, form)}, BLOCK)


@given(BODIES, FORMS)
def test_our_block_is_not_what_a_person_said(body: dict[str, Any], form: BlockForm) -> None:
    """The newest human text is the same with and without the block."""
    placed = {**body, **CHAT.place_leading(body, BLOCK, form)}
    assert newest_human_text(CHAT, placed) == newest_human_text(CHAT, body)


@given(st.dictionaries(st.sampled_from(["messages", "input", "system", "contents"]), JSON), FORMS)
def test_no_body_is_an_error(body: Mapping[str, object], form: BlockForm) -> None:
    """Whatever a client sends, in any format, is read and placed into without raising."""
    for wire in FORMATS.values():
        newest_human_text(wire, body)
        wire.preamble(body)
        wire.contains(body, BLOCK)
        wire.place_leading(body, BLOCK, form)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("Which tea?", "Which tea?"),
        ([{"type": "text", "text": "Which tea?"}], "Which tea?"),
        (
            [
                {"type": "text", "text": "First"},
                {"type": "image_url"},
                {"type": "text", "text": "x"},
            ],
            "x",
        ),
        ([{"type": "text", "text": "I mean"}, {"type": "text", "text": "<env>x</env>"}], "I mean"),
        ("```\ncode\n```", None),
        ("> quoted", None),
        ("  \n ", None),
        (BLOCK, None),
        (f"{BLOCK}\n\nWhich tea?", "Which tea?"),
        (None, None),
        ({"text": "no list"}, None),
    ],
)
def test_what_a_person_wrote(content: object, text: str | None) -> None:
    """The last part with words of a person counts; code, quotes, tags and our block do not."""
    assert CHAT.prose({"role": "user", "content": content}) == text


def test_the_newest_person_is_found_behind_machine_turns() -> None:
    """Tool results and answers that follow a person's message do not hide it."""
    body: dict[str, Any] = {
        "messages": [
            {"role": "user", "content": "First"},
            {"role": "user", "content": "Which tea?"},
            {"role": "assistant", "content": "I love jazz", "tool_calls": [{}]},
            {"role": "tool", "content": "I prefer rain"},
        ]
    }
    assert newest_human_text(CHAT, body) == "Which tea?"


def test_tools_stand_before_the_conversation() -> None:
    """The preamble is what a prompt cache sees before the first message."""
    body = {"tools": ["t"], "functions": ["f"], "messages": ["m"]}
    assert CHAT.preamble(body) == [["t"], ["f"]]
