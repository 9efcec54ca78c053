"""Request formats: whose words stand where, and where a block goes."""

import copy
from typing import Any, Final

import pytest

from omniroute_litellm.placement import BlockForm
from omniroute_litellm.wire.answers import answer_text
from omniroute_litellm.wire.base import WireFormat, newest_human_text
from omniroute_litellm.wire.chat import ChatFormat
from omniroute_litellm.wire.formats import FORMATS, format_of
from omniroute_litellm.wire.gemini import GeminiFormat
from omniroute_litellm.wire.messages import MessagesFormat
from omniroute_litellm.wire.responses import ResponsesFormat

Body = dict[str, Any]

BLOCK: Final = "Memory context:\nBackground.\n- I prefer green tea"
CHAT: Final = ChatFormat()
MESSAGES: Final = MessagesFormat()
RESPONSES: Final = ResponsesFormat()
GEMINI: Final = GeminiFormat()
IMAGE: Final = {"type": "image_url", "image_url": {"url": "data:,"}}


def user(content: object) -> Body:
    """Return a user message."""
    return {"role": "user", "content": content}


SAID: Final[dict[str, tuple[WireFormat, Body]]] = {
    "chat": (CHAT, {"messages": [user("Hello")]}),
    "chat parts": (CHAT, {"messages": [user([{"type": "text", "text": "Hello"}, IMAGE])]}),
    "messages": (MESSAGES, {"messages": [user("Hello")], "system": "Own"}),
    "messages parts": (
        MESSAGES,
        {"messages": [user([{"type": "text", "text": "Hello"}])], "system": [{"text": "Own"}]},
    ),
    "responses text": (RESPONSES, {"input": "Hello", "instructions": "Own"}),
    "responses items": (RESPONSES, {"input": [user([{"type": "input_text", "text": "Hello"}])]}),
    "gemini": (
        GEMINI,
        {
            "contents": [{"role": "user", "parts": [{"text": "Hello"}]}],
            "systemInstruction": {"parts": [{"text": "Own"}]},
        },
    ),
    "gemini without role": (GEMINI, {"contents": [{"parts": [{"text": "Hello"}]}]}),
}
EVERY_BODY: Final = pytest.mark.parametrize(("wire", "body"), SAID.values(), ids=SAID.keys())
EVERY_FORM: Final = pytest.mark.parametrize("form", BlockForm)
NOBODY: Final[dict[str, tuple[WireFormat, Body]]] = {
    "chat empty": (CHAT, {}),
    "chat no list": (CHAT, {"messages": "Hello"}),
    "chat system": (CHAT, {"messages": [{"role": "system", "content": "Be brief"}]}),
    "chat developer": (CHAT, {"messages": [{"role": "developer", "content": "Be brief"}]}),
    "chat assistant": (CHAT, {"messages": [{"role": "assistant", "content": "Hi"}]}),
    "chat tool": (CHAT, {"messages": [{"role": "tool", "content": "42"}]}),
    "chat nonsense": (CHAT, {"messages": [None, 1, "x", [], {}]}),
    "chat image": (CHAT, {"messages": [user([IMAGE])]}),
    "chat null": (CHAT, {"messages": [user(None)]}),
    "chat code": (CHAT, {"messages": [user("```\nx = 1\n```")]}),
    "messages tool result": (
        MESSAGES,
        {"messages": [user([{"type": "tool_result", "content": "42"}])]},
    ),
    "messages system": (MESSAGES, {"system": "Be brief", "messages": []}),
    "responses output": (
        RESPONSES,
        {"input": [{"type": "function_call_output", "role": "user", "content": "42"}]},
    ),
    "responses instructions": (RESPONSES, {"instructions": "Be brief"}),
    "gemini model": (GEMINI, {"contents": [{"role": "model", "parts": [{"text": "Hi"}]}]}),
    "gemini call": (
        GEMINI,
        {"contents": [{"role": "user", "parts": [{"functionResponse": {"name": "f"}}]}]},
    ),
}


class TestProse:
    """What a person wrote."""

    @EVERY_BODY
    def test_is_found(self, wire: WireFormat, body: Body) -> None:
        """The person's words are found in every shape."""
        assert newest_human_text(wire, body) == "Hello"

    @pytest.mark.parametrize(("wire", "body"), NOBODY.values(), ids=NOBODY.keys())
    def test_nobody_spoke(self, wire: WireFormat, body: Body) -> None:
        """What another role said, a tool returned or nobody spoke is not human."""
        assert newest_human_text(wire, body) is None

    def test_newest_counts(self) -> None:
        """Of several turns the last one of the person counts."""
        body = {"messages": [user("One"), user("Two"), {"role": "assistant", "content": "Three"}]}
        assert newest_human_text(CHAT, body) == "Two"

    def test_turn_of_tool_results_is_passed_over(self) -> None:
        """In a loop of tools the turn before it counts."""
        result = user([{"type": "tool_result", "content": "42"}])
        assert newest_human_text(MESSAGES, {"messages": [user("One"), result]}) == "One"

    def test_last_part_counts(self) -> None:
        """Of several texts in one turn the last one with prose counts."""
        parts = [{"type": "text", "text": text} for text in ("One", "Two", "```\nx\n```")]
        assert newest_human_text(CHAT, {"messages": [user(parts)]}) == "Two"

    def test_tagged_sections_are_gone(self) -> None:
        """What a client put between tags is not human."""
        text = "<system-reminder>Be careful</system-reminder>Hello"
        assert newest_human_text(CHAT, {"messages": [user(text)]}) == "Hello"


class TestLeading:
    """A block in front."""

    @EVERY_FORM
    @EVERY_BODY
    def test_stands_there(self, wire: WireFormat, body: Body, form: BlockForm) -> None:
        """What was placed is found again."""
        placed = {**body, **wire.place_leading(body, BLOCK, form)}
        assert (wire.contains(body, BLOCK), wire.contains(placed, BLOCK)) == (False, True)

    @EVERY_FORM
    @EVERY_BODY
    def test_input_is_untouched(self, wire: WireFormat, body: Body, form: BlockForm) -> None:
        """The client's body stays as it was."""
        before = copy.deepcopy(body)
        wire.place_leading(body, BLOCK, form)
        assert body == before

    @EVERY_FORM
    @EVERY_BODY
    def test_conversation_stays(self, wire: WireFormat, body: Body, form: BlockForm) -> None:
        """Every item that the client sent is still there, at the end and in its order."""
        placed = {**body, **wire.place_leading(body, BLOCK, form)}
        items = list(wire.items(body))
        assert list(wire.items(placed))[-len(items) :] == items

    @EVERY_FORM
    @EVERY_BODY
    def test_own_instruction_stays(self, wire: WireFormat, body: Body, form: BlockForm) -> None:
        """The application's own instruction stands behind the block."""
        placed = repr({**body, **wire.place_leading(body, BLOCK, form)})
        assert placed.count("Own") == repr(body).count("Own")

    def test_chat_system(self) -> None:
        """The block is a system message before all others."""
        fields = CHAT.place_leading(SAID["chat"][1], BLOCK, BlockForm.SYSTEM)
        assert fields == {"messages": [{"role": "system", "content": BLOCK}, user("Hello")]}

    def test_chat_user(self) -> None:
        """Where no system role is taken the block is a user message."""
        fields = CHAT.place_leading(SAID["chat"][1], BLOCK, BlockForm.USER)
        assert fields == {"messages": [user(BLOCK), user("Hello")]}

    @pytest.mark.parametrize("role", ["system", "developer"])
    def test_chat_merged(self, role: str) -> None:
        """A strict model's one system message holds both, its own text last."""
        body = {"messages": [{"role": role, "content": "Own", "name": "app"}, user("Hello")]}
        fields = CHAT.place_leading(body, BLOCK, BlockForm.MERGED)
        first = {"role": role, "content": f"{BLOCK}\n\nOwn", "name": "app"}
        assert fields == {"messages": [first, user("Hello")]}

    def test_chat_merged_parts(self) -> None:
        """A system message of parts gets one more in front."""
        own = {"type": "text", "text": "Own", "cache_control": {"type": "ephemeral"}}
        body = {"messages": [{"role": "system", "content": [own]}]}
        fields = CHAT.place_leading(body, BLOCK, BlockForm.MERGED)
        parts = [{"type": "text", "text": BLOCK}, own]
        assert fields == {"messages": [{"role": "system", "content": parts}]}

    def test_chat_merged_without_system(self) -> None:
        """Without a system message the block is one."""
        fields = CHAT.place_leading(SAID["chat"][1], BLOCK, BlockForm.MERGED)
        assert fields == {"messages": [{"role": "system", "content": BLOCK}, user("Hello")]}

    @pytest.mark.parametrize(
        ("given", "placed"),
        [
            (None, BLOCK),
            ("", BLOCK),
            ("Own", f"{BLOCK}\n\nOwn"),
            ([{"text": "Own"}], [{"type": "text", "text": BLOCK}, {"text": "Own"}]),
        ],
    )
    def test_messages_system(self, given: object, placed: object) -> None:
        """The system text of a body gets the block in front, in its own shape."""
        fields = MESSAGES.place_leading({"system": given}, BLOCK, BlockForm.SYSTEM)
        assert fields == {"system": placed}

    def test_responses_instructions(self) -> None:
        """The instructions get the block in front; the input is not even named."""
        fields = RESPONSES.place_leading(SAID["responses text"][1], BLOCK, BlockForm.SYSTEM)
        assert fields == {"instructions": f"{BLOCK}\n\nOwn"}

    def test_responses_user(self) -> None:
        """Where no system role is taken the block is an item in front of the text."""
        fields = RESPONSES.place_leading({"input": "Hello"}, BLOCK, BlockForm.USER)
        items = [{"type": "message", **user(text)} for text in (BLOCK, "Hello")]
        assert fields == {"input": items}

    def test_responses_do_not_pile_up(self) -> None:
        """A conversation that the provider keeps has the block since its first turn."""
        body = {"input": "Hello", "previous_response_id": "resp_1"}
        assert RESPONSES.place_leading(body, BLOCK, BlockForm.USER) == {}

    @pytest.mark.parametrize("name", ["systemInstruction", "system_instruction"])
    def test_gemini_keeps_the_name(self, name: str) -> None:
        """The instruction stays under the name that the client used."""
        body = {name: {"parts": [{"text": "Own"}], "role": "system"}}
        fields = GEMINI.place_leading(body, BLOCK, BlockForm.SYSTEM)
        assert fields == {name: {"parts": [{"text": BLOCK}, {"text": "Own"}], "role": "system"}}

    @pytest.mark.parametrize(
        "instruction",
        [{"parts": [{"text": "Own"}]}, {"parts": {"text": "Own"}}, "Own"],
        ids=["parts", "one part", "text"],
    )
    def test_gemini_instruction_survives(self, instruction: object) -> None:
        """The application's instruction survives in every shape that clients send."""
        body = {"systemInstruction": instruction, "contents": [{"parts": [{"text": "Hello"}]}]}
        assert "Own" in repr(GEMINI.place_leading(body, BLOCK, BlockForm.SYSTEM))

    def test_gemini_user(self) -> None:
        """Where no system role is taken the block is a content in front."""
        fields = GEMINI.place_leading({"contents": []}, BLOCK, BlockForm.USER)
        assert fields == {"contents": [{"role": "user", "parts": [{"text": BLOCK}]}]}


class TestBehind:
    """A block behind what a person wrote."""

    @EVERY_BODY
    def test_stands_there(self, wire: WireFormat, body: Body) -> None:
        """What was placed is found again, and no item came with it."""
        placed = {**body, **wire.place_behind(body, {0: BLOCK})}
        assert wire.contains(placed, BLOCK)
        assert len(wire.items(placed)) == len(wire.items(body))

    @EVERY_BODY
    def test_input_is_untouched(self, wire: WireFormat, body: Body) -> None:
        """The client's body stays as it was."""
        before = copy.deepcopy(body)
        wire.place_behind(body, {0: BLOCK})
        assert body == before

    @EVERY_BODY
    def test_words_come_first(self, wire: WireFormat, body: Body) -> None:
        """The person's words stand before the block."""
        placed = repr(wire.place_behind(body, {0: BLOCK}))
        assert 0 <= placed.index("Hello") < placed.index("Memory context")

    @EVERY_BODY
    def test_nothing_to_place(self, wire: WireFormat, body: Body) -> None:
        """Without a block the conversation is the same."""
        placed = {**body, **wire.place_behind(body, {})}
        assert placed == body

    def test_text_stays_text(self) -> None:
        """A string stays a string: some servers take nothing else."""
        fields = CHAT.place_behind({"messages": [user("Hello")]}, {0: BLOCK})
        assert fields == {"messages": [user(f"Hello\n\n{BLOCK}")]}

    def test_responses_text_stays_text(self) -> None:
        """An input that is a text stays one."""
        assert RESPONSES.place_behind({"input": "Hello"}, {0: BLOCK}) == {
            "input": f"Hello\n\n{BLOCK}"
        }

    def test_part_stands_at_the_end(self) -> None:
        """The block is the last part, whatever carries a cache mark: marks wander."""
        hello = {"type": "text", "text": "Hello"}
        fields = CHAT.place_behind({"messages": [user([hello, IMAGE])]}, {0: BLOCK})
        part = {"type": "text", "text": BLOCK}
        assert fields == {"messages": [user([hello, IMAGE, part])]}

    def test_a_text_of_messages_becomes_parts(self) -> None:
        """Where clients turn a text into a list to mark it, both look the same with a block."""
        hello = {"type": "text", "text": "Hello"}
        as_text = MESSAGES.place_behind({"messages": [user("Hello")]}, {0: BLOCK})
        assert as_text == MESSAGES.place_behind({"messages": [user([hello])]}, {0: BLOCK})

    def test_several_turns(self) -> None:
        """Each block goes into its own turn; the others stay."""
        answer = {"role": "assistant", "content": "Hi"}
        body = {"messages": [user("One"), answer, user("Two")]}
        fields = CHAT.place_behind(body, {0: "A", 2: "B"})
        assert fields == {"messages": [user("One\n\nA"), answer, user("Two\n\nB")]}


class TestContains:
    """Finding a block."""

    @pytest.mark.parametrize(
        ("wire", "body"),
        [
            (CHAT, {"messages": [{"role": "system", "content": f"{BLOCK}\n\nOwn"}]}),
            (CHAT, {"messages": [user([{"type": "text", "text": BLOCK}])]}),
            (MESSAGES, {"system": [{"type": "text", "text": BLOCK}]}),
            (MESSAGES, {"system": "", "messages": [user(BLOCK)]}),
            (RESPONSES, {"instructions": BLOCK}),
            (RESPONSES, {"input": [user(BLOCK)]}),
            (GEMINI, {"systemInstruction": {"parts": [{"text": BLOCK}]}}),
            (GEMINI, {"system_instruction": {"parts": [{"text": BLOCK}]}}),
        ],
    )
    def test_wherever_it_stands(self, wire: WireFormat, body: Body) -> None:
        """A block is found in instructions and in turns."""
        assert wire.contains(body, BLOCK)

    @pytest.mark.parametrize("wire", FORMATS.values(), ids=FORMATS.keys())
    @pytest.mark.parametrize(
        "body", [{}, {"messages": None, "input": 1, "contents": [None], "system": {}}]
    )
    def test_nonsense_holds_none(self, wire: WireFormat, body: Body) -> None:
        """A body of the wrong shape holds no block, and is no error."""
        assert not wire.contains(body, BLOCK)

    def test_another_block_is_another(self) -> None:
        """A block of other memories is not this one."""
        body = {"messages": [{"role": "system", "content": "Memory context:\n- other"}]}
        assert not CHAT.contains(body, BLOCK)


class TestPreamble:
    """What stands before the conversation."""

    @pytest.mark.parametrize(
        ("wire", "body"),
        [
            (CHAT, {"tools": ["T"]}),
            (MESSAGES, {"tools": ["T"], "system": "S"}),
            (RESPONSES, {"instructions": "S", "tools": ["T"]}),
            (GEMINI, {"systemInstruction": "S", "tools": ["T"]}),
        ],
    )
    def test_names_tools_and_instructions(self, wire: WireFormat, body: Body) -> None:
        """Tools and instructions are part of it."""
        told = repr(wire.preamble(body))
        assert all(repr(value) in told for value in body.values())


class TestFormats:
    """Choosing a format."""

    @pytest.mark.parametrize("call_type", FORMATS)
    def test_known(self, call_type: str) -> None:
        """A call type that is listed has its format."""
        assert format_of(call_type) is FORMATS[call_type]

    @pytest.mark.parametrize("call_type", ["", "aembedding", None, 1, "ACOMPLETION"])
    def test_unknown(self, call_type: object) -> None:
        """Any other call passes untouched."""
        assert format_of(call_type) is None


ANSWERS: Final[list[tuple[object, str]]] = [
    ({"choices": [{"message": {"content": "Hi"}}]}, "Hi"),
    ({"choices": [{"message": {"content": [{"text": "A"}, {"text": "B"}]}}]}, "A\nB"),
    ({"choices": [{"message": {"content": None}}]}, ""),
    ({"choices": [{"message": {"content": "Hi", "tool_calls": [{}]}}]}, ""),
    ({"choices": [{"message": {"content": "Hi", "function_call": {"name": "f"}}}]}, ""),
    ({"choices": []}, ""),
    ({"output": [{"type": "message", "content": [{"text": "Hi"}]}]}, "Hi"),
    ({"output": [{"type": "reasoning", "content": [{"text": "Hm"}]}]}, ""),
    (
        {
            "output": [
                {"type": "message", "content": [{"text": "Hi"}]},
                {"type": "function_call"},
            ]
        },
        "",
    ),
    ({}, ""),
    (None, ""),
    ("text", ""),
]


class TestAnswer:
    """What the model said."""

    @pytest.mark.parametrize(("response", "text"), ANSWERS)
    def test_is_read(self, response: object, text: str) -> None:
        """The prose of an answer is read; one with tool calls has none."""
        assert answer_text(response) == text
