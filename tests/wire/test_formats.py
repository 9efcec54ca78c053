"""Request formats: find the human text, place a block, touch nothing else."""

import copy
from typing import Any, Final

import pytest

from omniroute_litellm.injection import render_block, render_line
from omniroute_litellm.placement import BlockForm
from omniroute_litellm.wire.answers import answer_text
from omniroute_litellm.wire.base import WireFormat, newest_human_text
from omniroute_litellm.wire.formats import FORMATS, format_of

BLOCK: Final = render_block([render_line("I prefer tea")])
MARK: Final = "- I prefer tea"
REMINDER: Final = "<system-reminder>Be brief.</system-reminder>"

CHAT, RESPONSES = FORMATS["acompletion"], FORMATS["aresponses"]
MESSAGES, GEMINI = FORMATS["anthropic_messages"], FORMATS["agenerate_content"]

BODIES: Final[list[tuple[WireFormat, dict[str, Any], str | None]]] = [
    (CHAT, {"messages": [{"role": "user", "content": "Hello"}]}, "Hello"),
    (CHAT, {"messages": []}, None),
    (CHAT, {}, None),
    (CHAT, {"messages": [{"role": "user", "content": None}]}, None),
    (CHAT, {"messages": ["nonsense", 7, None, {"role": "user", "content": 5}]}, None),
    (CHAT, {"messages": [{"role": "system", "content": "Be brief"}]}, None),
    (
        CHAT,
        {
            "messages": [
                {"role": "user", "content": "First"},
                {"role": "assistant", "content": None, "tool_calls": [{}]},
                {"role": "tool", "content": "Rain"},
                {"role": "system", "content": "late system text"},
            ]
        },
        "First",
    ),
    (
        CHAT,
        {"messages": [{"role": "user", "content": [{"type": "text", "text": REMINDER}]}]},
        None,
    ),
    (
        MESSAGES,
        {
            "system": [{"type": "text", "text": "You are an agent"}],
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": REMINDER},
                        {
                            "type": "text",
                            "text": "I prefer tabs",
                            "cache_control": {"type": "ephemeral"},
                        },
                    ],
                },
                {"role": "system", "content": "machine text"},
            ],
        },
        "I prefer tabs",
    ),
    (
        MESSAGES,
        {
            "messages": [
                {"role": "user", "content": "Look at a.py"},
                {"role": "assistant", "content": [{"type": "tool_use", "id": "1"}]},
                {
                    "role": "user",
                    "content": [{"type": "tool_result", "content": [{"text": "I prefer x"}]}],
                },
            ]
        },
        "Look at a.py",
    ),
    (RESPONSES, {"input": "Hello"}, "Hello"),
    (RESPONSES, {"input": [{"role": "user", "content": "Hi"}]}, "Hi"),
    (
        RESPONSES,
        {
            "input": [
                {"type": "message", "role": "developer", "content": "rules"},
                {
                    "type": "message",
                    "role": "user",
                    "content": [
                        {
                            "type": "input_text",
                            "text": "<environment_context>x</environment_context>",
                        }
                    ],
                },
                {
                    "type": "message",
                    "role": "user",
                    "content": [{"type": "input_text", "text": "What does a.py do?"}],
                },
                {"type": "function_call_output", "output": "I prefer x"},
            ]
        },
        "What does a.py do?",
    ),
    (GEMINI, {"contents": [{"role": "user", "parts": [{"text": "Hello"}]}]}, "Hello"),
    (GEMINI, {"contents": [{"parts": [{"text": "Hello"}]}]}, "Hello"),
    (GEMINI, {"contents": [{"role": "model", "parts": [{"text": "Hi"}]}]}, None),
    (
        GEMINI,
        {
            "systemInstruction": {"parts": [{"text": "Be brief"}]},
            "contents": [
                {"role": "user", "parts": [{"text": "Hello"}]},
                {"role": "user", "parts": [{"functionResponse": {"name": "x"}}]},
            ],
        },
        "Hello",
    ),
]


@pytest.mark.parametrize(("wire", "body", "text"), BODIES)
def test_the_newest_human_text(wire: WireFormat, body: dict[str, Any], text: str | None) -> None:
    """Machine text, tool results and other roles are passed over, wherever they stand."""
    assert newest_human_text(wire, body) == text


@pytest.mark.parametrize("form", BlockForm)
@pytest.mark.parametrize(("wire", "body", "text"), BODIES)
def test_placing_in_front_touches_nothing(
    wire: WireFormat, body: dict[str, Any], text: str | None, form: BlockForm
) -> None:
    """The block is found afterwards, once; the given body stays as it was."""
    before = copy.deepcopy(body)
    assert not wire.contains(body, BLOCK)
    placed = {**body, **wire.place_leading(body, BLOCK, form)}
    assert body == before
    assert wire.contains(placed, BLOCK)
    assert str(placed).count(MARK) == 1
    assert newest_human_text(wire, placed) == text


@pytest.mark.parametrize(("wire", "body", "text"), [case for case in BODIES if case[2]])
def test_placing_behind_stays_in_the_item(
    wire: WireFormat, body: dict[str, Any], text: str
) -> None:
    """The block follows the human text inside of its item; items keep number and order."""
    before = copy.deepcopy(body)
    at = max(n for n, item in enumerate(wire.items(body)) if wire.prose(item))
    placed = {**body, **wire.place_behind(body, {at: BLOCK})}
    assert body == before
    assert wire.contains(placed, BLOCK)
    items, given = wire.items(placed), wire.items(body)
    assert len(items) == len(given)
    assert [item for n, item in enumerate(items) if n != at] == [
        item for n, item in enumerate(given) if n != at
    ]
    changed = str(items[at])
    assert changed.index(text) < changed.index(MARK)
    assert newest_human_text(wire, placed) == text


def test_chat_roles() -> None:
    """A system message, a user message, or merged into the first system message."""
    user = {"role": "user", "content": "Hi"}
    system = {"role": "system", "content": "Be brief"}
    body = {"messages": [system, user]}

    def placed(form: BlockForm, given: dict[str, Any] = body) -> Any:
        return CHAT.place_leading(given, BLOCK, form)["messages"]

    assert placed(BlockForm.SYSTEM) == [{"role": "system", "content": BLOCK}, system, user]
    assert placed(BlockForm.USER) == [{"role": "user", "content": BLOCK}, system, user]
    assert placed(BlockForm.MERGED) == [
        {"role": "system", "content": f"{BLOCK}\n\nBe brief"},
        user,
    ]
    assert placed(BlockForm.MERGED, {"messages": [user]})[0] == {"role": "system", "content": BLOCK}
    parts = {"role": "developer", "content": [{"type": "text", "text": "Be brief"}]}
    (merged,) = placed(BlockForm.MERGED, {"messages": [parts]})
    assert merged["content"][0] == {"type": "text", "text": BLOCK}
    assert merged["content"][1:] == parts["content"]


def test_messages_system_text() -> None:
    """Anthropic's system text may be missing, a string, or blocks."""
    place = MESSAGES.place_leading
    assert place({}, BLOCK, BlockForm.SYSTEM) == {"system": BLOCK}
    assert place({"system": "Brief"}, BLOCK, BlockForm.SYSTEM) == {"system": f"{BLOCK}\n\nBrief"}
    blocks = [{"type": "text", "text": "Brief", "cache_control": {"type": "ephemeral"}}]
    placed = place({"system": blocks}, BLOCK, BlockForm.SYSTEM)
    assert placed == {"system": [{"type": "text", "text": BLOCK}, *blocks]}


def test_responses_conversations_do_not_pile_up() -> None:
    """A stored conversation keeps an input item, so none is added behind its first turn."""
    body = {"input": "Hi", "previous_response_id": "resp_1"}
    assert RESPONSES.place_leading(body, BLOCK, BlockForm.USER) == {}
    assert RESPONSES.place_leading(body, BLOCK, BlockForm.SYSTEM) == {"instructions": BLOCK}
    assert RESPONSES.place_behind({"input": "Hi"}, {0: BLOCK}) == {"input": f"Hi\n\n{BLOCK}"}


def test_gemini_instruction_names() -> None:
    """Both spellings and both shapes of the instruction keep their place."""
    place = GEMINI.place_leading
    part = {"text": BLOCK}
    assert place({}, BLOCK, BlockForm.SYSTEM) == {"systemInstruction": {"parts": [part]}}
    given = {"system_instruction": {"role": "system", "parts": [{"text": "Brief"}]}}
    placed = place(given, BLOCK, BlockForm.SYSTEM)
    assert placed == {"system_instruction": {"role": "system", "parts": [part, {"text": "Brief"}]}}
    placed = place({"systemInstruction": "Brief"}, BLOCK, BlockForm.SYSTEM)
    assert placed == {"systemInstruction": {"parts": [part, {"text": "Brief"}]}}


ANSWERS: Final[list[tuple[Any, str]]] = [
    ({"choices": [{"message": {"content": "Hi"}}]}, "Hi"),
    ({"choices": [{"message": {"content": [{"type": "text", "text": "Hi"}]}}]}, "Hi"),
    ({"choices": [{"message": {"content": "x", "tool_calls": [{}]}}]}, ""),
    ({"choices": [{"message": {"content": "x", "function_call": {}}}]}, "x"),
    ({"choices": [{"message": {"content": "x", "function_call": {"name": "f"}}}]}, ""),
    ({"choices": []}, ""),
    ({"choices": [{"message": None}]}, ""),
    ({"output": [{"type": "message", "content": [{"text": "Hi"}]}]}, "Hi"),
    ({"output": [{"type": "reasoning", "content": [{"text": "x"}]}]}, ""),
    (
        {
            "output": [
                {"type": "message", "content": [{"text": "x"}]},
                {"type": "function_call"},
            ]
        },
        "",
    ),
    (None, ""),
    ("text", ""),
]


@pytest.mark.parametrize(("response", "text"), ANSWERS)
def test_answers_are_read(response: object, text: str) -> None:
    """The first choice speaks, unless it calls a tool."""
    assert answer_text(response) == text


def test_unknown_calls_have_no_format() -> None:
    """Embeddings, completions and everything new pass untouched."""
    for name in ("aembedding", "atext_completion", "arerank", "pass_through_endpoint", None, 7):
        assert format_of(name) is None
