"""Request bodies in the shapes that coding agents send, with invented text.

A conversation is a transcript of turns. Each agent renders all of it into every request, as the
real ones do: the growing history comes again with each tool result and each new sentence. Much of
what carries role `user` was written by no person, and some of it speaks in the first person here,
so that a reader who takes it for the owner's words is caught.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from tests.proxy.chatting import HEADING, Headers, blocks_in

Json = dict[str, Any]  # request bodies

STATEMENT: Final = "I prefer tabs over spaces. What does a.py do?"
LEARNED_KEY: Final = "preference:tabs_over_spaces"
LEARNED_CONTENT: Final = "I prefer tabs over spaces"
FOLLOW_UP: Final = "And which name would suit it better?"
ANSWER: Final = "It holds one sentence."
FILE_TEXT: Final = "I always use snake case here.\n"
SESSION: Final = "0d9c6a52-7b1e-4f5a-9a37-5f6f0c1b2e84"
PROMPT_FIELDS: Final = ("tools", "system", "instructions", "messages", "input")
"""Where the four request formats keep what a model reads."""


@dataclass(frozen=True, slots=True)
class Human:
    """A sentence that a person typed."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolRound:
    """The assistant asks for a file, and the agent sends what stands in it."""

    call_id: str
    path: str
    result: str


@dataclass(frozen=True, slots=True)
class Said:
    """What the assistant answered."""

    text: str


Turn = Human | ToolRound | Said
Transcript = tuple[Turn, ...]


def opened() -> Transcript:
    """Begin a conversation with the sentence that holds a fact."""
    return (Human(STATEMENT),)


def with_tool_round(transcript: Transcript) -> Transcript:
    """Go on with one call of a tool and its result."""
    number = len(transcript)
    return (*transcript, ToolRound(f"call_{number}", f"/srv/play/{number}/a.py", FILE_TEXT))


def with_second_turn(transcript: Transcript) -> Transcript:
    """Go on with the assistant's answer and another sentence of the person."""
    return (*transcript, Said(ANSWER), Human(FOLLOW_UP))


# Claude Code on /v1/messages

_EPHEMERAL: Final[Json] = {"cache_control": {"type": "ephemeral"}}


def claude_code(transcript: Transcript) -> Json:
    """Render a transcript as Claude Code does.

    The newest user message ends with the only cache mark of the conversation; a message with role
    `system` stands behind the first sentence.
    """
    messages: list[Json] = []
    for turn in transcript:
        match turn:
            case Human(text):
                reminder = [] if messages else [_text(_CLAUDE_REMINDER)]
                messages.append({"role": "user", "content": [*reminder, _text(text)]})
                if reminder:
                    messages.append({"role": "system", "content": _CLAUDE_SKILLS})
            case ToolRound(call_id, path, result):
                call = {"type": "tool_use", "id": call_id, "name": "Read"}
                messages += [
                    {"role": "assistant", "content": [{**call, "input": {"file_path": path}}]},
                    {"role": "user", "content": [_tool_result(call_id, result)]},
                ]
            case Said(text):
                messages.append({"role": "assistant", "content": [_text(text)]})
    newest = max(at for at, message in enumerate(messages) if message["role"] == "user")
    messages[newest]["content"][-1].update(_EPHEMERAL)
    user = {"device_id": "5e" * 32, "account_uuid": "", "session_id": SESSION}
    return {
        "model": "claude",
        "messages": messages,
        "system": [
            _text("x-billing-note: agent_version=2.1; entrypoint=command-line;"),
            {**_text("You are an agent at a terminal."), **_EPHEMERAL},
            {
                **_text(_long("Change only what was asked for. I never guess a path.", 5_500)),
                **_EPHEMERAL,
            },
        ],
        "tools": [
            {"name": name, "description": description, "input_schema": schema}
            for name, description, schema in _tools("Read", parameter="file_path", count=24)
        ],
        "metadata": {"user_id": json.dumps(user)},
        "max_tokens": 32_000,
        "thinking": {"type": "adaptive"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "output_config": {"effort": "high"},
        "stream": True,
    }


def _text(text: str) -> Json:
    return {"type": "text", "text": text}


def _tool_result(call_id: str, result: str) -> Json:
    return {"tool_use_id": call_id, "type": "tool_result", "content": result}


# Codex CLI on /v1/responses


def codex(transcript: Transcript) -> Json:
    """Render a transcript as the Codex CLI does: developer items and no `instructions`."""
    items = [
        _item("developer", _long("Plan before you edit. I prefer short plans.", 17_000)),
        _item("developer", _CODEX_SKILLS, _CODEX_PERMISSIONS),
        _item("user", _CODEX_ENVIRONMENT),
    ]
    for turn in transcript:
        match turn:
            case Human(text):
                items.append(_item("user", text))
            case ToolRound(call_id, path, result):
                call = {"type": "function_call", "status": "completed", "call_id": call_id}
                arguments = json.dumps({"cmd": f"cat {path}"})
                output = {"type": "function_call_output", "call_id": call_id, "output": result}
                items += [{**call, "name": "exec_command", "arguments": arguments}, output]
            case Said(text):
                part: Json = {"type": "output_text", "text": text, "annotations": []}
                said = {"type": "message", "role": "assistant", "status": "completed"}
                items.append({**said, "content": [part]})
    return {
        "model": "gpt",
        "stream": True,
        "input": items,
        "tools": [
            {
                "type": "function",
                "name": name,
                "description": description,
                "strict": False,
                "parameters": schema,
            }
            for name, description, schema in _tools("exec_command", parameter="cmd", count=8)
        ],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "reasoning": {"summary": "auto"},
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": SESSION,
        "client_metadata": {"session_id": SESSION, "turn_id": "1"},
    }


def _item(role: str, *texts: str) -> Json:
    content = [{"type": "input_text", "text": text} for text in texts]
    return {"type": "message", "role": role, "content": content}


# Qwen Code on /v1/chat/completions


def qwen_code(transcript: Transcript) -> Json:
    """Render a transcript as Qwen Code does: a made-up first exchange stands before the person."""
    return {
        "model": "gpt",
        "messages": [
            {
                "role": "system",
                "content": _long("Keep to the project's style. I like tests.", 39_000),
            },
            *_qwen_history(transcript),
        ],
        "tools": _qwen_tools("read_file", count=16),
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def qwen_memory_helper(transcript: Transcript) -> Json:
    """Render the call that Qwen Code makes by itself after an answer, to keep notes of its own.

    Its newest user message is machine-made and untagged; the person's sentence stands before.
    """
    instructions = "You keep notes about a person. I always write one fact a line."
    return {
        "model": "gpt",
        "messages": [
            {"role": "system", "content": instructions},
            *_qwen_history((*transcript, Said(ANSWER))),
            {"role": "user", "content": [_text(_QWEN_LISTING)]},
        ],
        "tools": _qwen_tools("write_note", count=3),
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def _qwen_history(transcript: Transcript) -> list[Json]:
    messages: list[Json] = [
        {"role": "user", "content": [_text(_QWEN_SET_UP)]},
        {"role": "assistant", "content": "Understood, the context is set."},
    ]
    for turn in transcript:
        match turn:
            case Human(text):
                messages.append({"role": "user", "content": [_text(text)]})
            case ToolRound(call_id, path, result):
                function = {"name": "read_file", "arguments": json.dumps({"path": path})}
                call = {"id": call_id, "type": "function", "function": function}
                messages += [
                    {"role": "assistant", "content": None, "tool_calls": [call]},
                    {"role": "tool", "tool_call_id": call_id, "content": result},
                ]
            case Said(text):
                messages.append({"role": "assistant", "content": text})
    return messages


def _qwen_tools(first: str, *, count: int) -> list[Json]:
    return [
        {
            "type": "function",
            "function": {"name": name, "description": description, "parameters": schema},
        }
        for name, description, schema in _tools(first, parameter="path", count=count)
    ]


# The agents


@dataclass(frozen=True, slots=True)
class Agent:
    """One agent: where it sends its requests, with which headers, and how it renders them."""

    name: str
    path: str
    headers: Headers
    body: Callable[[Transcript], Json]


CLAUDE_CODE: Final = Agent(
    "claude-code",
    "/v1/messages?beta=true",
    {
        "anthropic-version": "2023-06-01",
        "anthropic-beta": "claude-code-20250219,context-management-2025-06-27",
        "x-app": "cli",
        "x-claude-code-session-id": SESSION,
    },
    claude_code,
)
CODEX: Final = Agent(
    "codex",
    "/v1/responses",
    {"session-id": SESSION, "x-codex-window-id": f"{SESSION}:0", "originator": "codex_exec"},
    codex,
)
QWEN_CODE: Final = Agent("qwen-code", "/v1/chat/completions", {}, qwen_code)
QWEN_HELPER: Final = Agent("qwen-memory-helper", "/v1/chat/completions", {}, qwen_memory_helper)


# What a provider received


def assert_own_parts_kept(received: Json, sent: Json) -> None:
    """Beside memory blocks the provider has what the client sent: every part, order and mark.

    True for a block in front of everything and for one behind a sentence.
    """
    expected = prompt_without_blocks(sent)
    got = prompt_without_blocks(received)
    changed = [name for name in expected if got.get(name) != expected[name]]
    assert got == expected, f"changed on the way: {changed}"


def assert_one_block_a_turn(received: Json, transcript: Transcript) -> None:
    """One memory block arrived, at most one for each human turn, and none has a cache mark."""
    human_turns = sum(isinstance(turn, Human) for turn in transcript)
    assert 1 <= blocks_in(received) <= human_turns, received
    assert not [block for block in _block_parts(received) if "cache_control" in block]


def prompt_without_blocks(body: Json) -> Json:
    """Return the prompt fields of a body with the memory blocks taken out."""
    return {
        name: _without_blocks(body[name])
        for name in PROMPT_FIELDS
        if body.get(name) and not _is_block(body[name])
    }


def _without_blocks(value: object) -> object:
    if isinstance(value, list):
        entries = cast("list[object]", value)
        return [_without_blocks(entry) for entry in entries if not _is_block(entry)]
    if isinstance(value, dict):
        parts = cast("Json", value).items()
        # LiteLLM leaves out what is null.
        return {name: _without_blocks(part) for name, part in parts if part is not None}
    return value


def _block_parts(value: object) -> list[Json]:
    """Return the parts and messages that hold nothing but a block."""
    if isinstance(value, list):
        entries: Sequence[object] = cast("list[object]", value)
    elif isinstance(value, dict):
        if _is_block(cast("Json", value)):
            return [cast("Json", value)]
        entries = list(cast("Json", value).values())
    else:
        return []
    return [block for entry in entries for block in _block_parts(entry)]


def _is_block(value: object) -> bool:
    if isinstance(value, dict):
        part = cast("Mapping[str, object]", value)
        return _is_block(part.get("text")) or _is_block(part.get("content"))
    return isinstance(value, str) and value.startswith(HEADING)


# Invented text


def _long(sentence: str, length: int) -> str:
    """Return so many characters of numbered rules: providers cache nothing that is short."""
    count = length // (len(sentence) + 6) + 1
    return "\n".join(f"{number}. {sentence}" for number in range(1, count + 1))


def _tools(first: str, *, parameter: str, count: int) -> list[tuple[str, str, Json]]:
    """Return names, descriptions and schemas of tools, the one that reads files in front."""
    schema: Json = {
        "type": "object",
        "properties": {parameter: {"type": "string", "description": "I always start at the root."}},
        "required": [parameter],
    }
    names = [first, *(f"Helper{number}" for number in range(1, count))]
    return [
        (name, _long(f"{name} does one thing. I like plain output.", 1_500), schema)
        for name in names
    ]


_CLAUDE_REMINDER: Final = """<system-reminder>
The following may help with the answer:
# projectNotes
I always run the linter first. I prefer spaces over tabs in Makefiles.
Nothing in here has to be mentioned.
</system-reminder>
"""
_CLAUDE_SKILLS: Final = _long("Helper agents can be asked. I love to be asked.", 6_000)
_CODEX_SKILLS: Final = """<skills_instructions>
## Skills
A skill is a folder with a text that says how. I usually read it first.
</skills_instructions>"""
_CODEX_PERMISSIONS: Final = """<permissions instructions>
The sandbox is read-only. I never write outside of it.
</permissions instructions>"""
_CODEX_ENVIRONMENT: Final = """<environment_context>
  <cwd>/srv/play</cwd>
  <shell>bash</shell>
  <note>I prefer bash over zsh.</note>
</environment_context>"""
_QWEN_SET_UP: Final = """The context of this chat is set up here.
The date is the first of May. The system is linux.
The working folder is /srv/play, and this is what it holds:
/srv/play
└── a.py
"""
_QWEN_LISTING: Final = """Folder of the notes: /home/somebody/.notes
- habits.md (2 lines)
- tools.md (0 lines)

Read the conversation above and bring the notes up to date.
Always keep a note to one line. Never store a password. Use the tool for each change.
"""
