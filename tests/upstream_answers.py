"""What the fake providers answer, one pair of functions for each wire format."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4
from zlib import crc32

Json = dict[str, Any]  # bodies of four providers, as they are on the wire

NO_FACT: Final = "Noted. Anything else?"
EMBEDDING_WIDTH: Final = 32


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the model makes once, as soon as a request offers that tool."""

    name: str
    arguments: str

    def is_due(self, body: Json) -> bool:
        """Tell whether the request offers the tool and holds no tool result yet."""
        offers = (tool.get("function") or tool for tool in body.get("tools") or ())
        return self.name in {offer.get("name") for offer in offers} and not _has_tool_result(body)


@dataclass(frozen=True, slots=True)
class Answer:
    """What every model says until the next change."""

    text: str = NO_FACT
    tool: ToolCall | None = None

    def call_for(self, body: Json) -> ToolCall | None:
        """Return the tool call that answers this request, if any."""
        return self.tool if self.tool and self.tool.is_due(body) else None


@dataclass(frozen=True, slots=True)
class Dialect:
    """One provider's way to answer whole and in pieces."""

    whole: Callable[[Json, Answer], Json]
    events: Callable[[Json, Answer], list[Json]]
    frame: Callable[[Json], str]
    end: str


def _has_tool_result(body: Json) -> bool:
    return any(_is_tool_result(turn) for turn in _turns(body))


def _turns(body: Json) -> list[Json]:
    turns: list[Json] | str = body.get("messages") or body.get("input") or []
    return [] if isinstance(turns, str) else turns


def _is_tool_result(turn: Json) -> bool:
    if turn.get("role") == "tool" or turn.get("type") == "function_call_output":
        return True
    content: list[Json] | str | None = turn.get("content")
    return isinstance(content, list) and any(part["type"] == "tool_result" for part in content)


def _pieces(text: str) -> list[str]:
    return re.findall(r"\S+\s*|\s+", text)


def _id(prefix: str) -> str:
    return f"{prefix}{uuid4().hex[:12]}"


def _data_frame(event: Json) -> str:
    return f"data: {json.dumps(event)}\n\n"


def _named_frame(event: Json) -> str:
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"


# OpenAI chat completions


def _chat_usage() -> Json:
    return {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}


def _chat_message(body: Json, answer: Answer) -> tuple[Json, str]:
    call = answer.call_for(body)
    if call is None:
        return {"role": "assistant", "content": answer.text}, "stop"
    function = {"name": call.name, "arguments": call.arguments}
    tool_call = {"id": _id("call_"), "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [tool_call]}, "tool_calls"


def chat(body: Json, answer: Answer) -> Json:
    """Answer a chat completion with as many choices as were asked for."""
    message, reason = _chat_message(body, answer)
    return {
        "id": _id("chatcmpl-"),
        "object": "chat.completion",
        "created": 1,
        "model": body.get("model"),
        "choices": [
            {"index": index, "message": message, "finish_reason": reason}
            for index in range(body.get("n") or 1)
        ],
        "usage": _chat_usage(),
    }


def chat_events(body: Json, answer: Answer) -> list[Json]:
    """Answer a chat completion word by word, choices interleaved."""
    message, reason = _chat_message(body, answer)
    frame: Json = {
        "id": _id("chatcmpl-"),
        "object": "chat.completion.chunk",
        "created": 1,
        "model": body.get("model"),
    }
    deltas: list[Json] = [{"role": "assistant", "content": ""}]
    if reason == "stop":
        deltas += [{"content": piece} for piece in _pieces(answer.text)]
    else:
        deltas += [{"tool_calls": [{"index": 0, **message["tool_calls"][0]}]}]
    steps: list[tuple[Json, str | None]] = [*((delta, None) for delta in deltas), ({}, reason)]
    events = [
        {**frame, "choices": [{"index": index, "delta": delta, "finish_reason": finish}]}
        for delta, finish in steps
        for index in range(body.get("n") or 1)
    ]
    options: Json = body.get("stream_options") or {}
    if options.get("include_usage"):
        events.append({**frame, "choices": [], "usage": _chat_usage()})
    return events


# OpenAI responses


def _response(body: Json, identity: str, status: str, output: list[Json]) -> Json:
    return {
        "id": identity,
        "object": "response",
        "created_at": 1,
        "status": status,
        "model": body.get("model"),
        "output": output,
        "instructions": body.get("instructions"),
        "tools": body.get("tools") or [],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "top_p": 1.0,
        "metadata": {},
        "error": None,
        "incomplete_details": None,
        "text": {"format": {"type": "text"}},
        "usage": {
            "input_tokens": 10,
            "output_tokens": 5,
            "total_tokens": 15,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        },
    }


def _response_item(body: Json, answer: Answer) -> Json:
    call = answer.call_for(body)
    if call is None:
        part: Json = {"type": "output_text", "text": answer.text, "annotations": []}
        return {
            "type": "message",
            "id": _id("msg_"),
            "status": "completed",
            "role": "assistant",
            "content": [part],
        }
    return {
        "type": "function_call",
        "id": _id("fc_"),
        "call_id": _id("call_"),
        "status": "completed",
        "name": call.name,
        "arguments": call.arguments,
    }


def response(body: Json, answer: Answer) -> Json:
    """Answer a response request."""
    return _response(body, _id("resp_"), "completed", [_response_item(body, answer)])


def response_events(body: Json, answer: Answer) -> list[Json]:
    """Answer a response request as the documented sequence of events."""
    identity = _id("resp_")
    item = _response_item(body, answer)
    at: Json = {"item_id": item["id"], "output_index": 0, "content_index": 0}
    events: list[Json] = [
        {"type": "response.created", "response": _response(body, identity, "in_progress", [])},
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": {**item, "status": "in_progress"},
        },
    ]
    if item["type"] == "message":
        empty: Json = {"type": "output_text", "text": "", "annotations": []}
        events += [
            {"type": "response.content_part.added", **at, "part": empty},
            *(
                {"type": "response.output_text.delta", **at, "delta": piece}
                for piece in _pieces(answer.text)
            ),
            {"type": "response.output_text.done", **at, "text": answer.text},
            {"type": "response.content_part.done", **at, "part": item["content"][0]},
        ]
    events += [
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {
            "type": "response.completed",
            "response": _response(body, identity, "completed", [item]),
        },
    ]
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


# Anthropic messages


def _message(body: Json, content: list[Json], stop_reason: str | None) -> Json:
    return {
        "id": _id("msg_"),
        "type": "message",
        "role": "assistant",
        "model": body.get("model"),
        "content": content,
        "stop_reason": stop_reason,
        "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 5},
    }


def message(body: Json, answer: Answer) -> Json:
    """Answer an Anthropic message."""
    call = answer.call_for(body)
    if call is None:
        return _message(body, [{"type": "text", "text": answer.text}], "end_turn")
    block: Json = {"type": "tool_use", "id": _id("toolu_"), "name": call.name}
    return _message(body, [{**block, "input": json.loads(call.arguments)}], "tool_use")


def message_events(body: Json, answer: Answer) -> list[Json]:
    """Answer an Anthropic message as its documented sequence of events."""
    whole = message(body, answer)
    block: Json = whole["content"][0]
    if block["type"] == "text":
        start: Json = {"type": "text", "text": ""}
        deltas: list[Json] = [
            {"type": "text_delta", "text": piece} for piece in _pieces(answer.text)
        ]
    else:
        start = {**block, "input": {}}
        deltas = [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
    stop: Json = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    return [
        {"type": "message_start", "message": {**whole, "content": [], "stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": start},
        *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 5}},
        {"type": "message_stop"},
    ]


# Gemini


def _candidate(text: str, **finish: str) -> Json:
    content: Json = {"role": "model", "parts": [{"text": text}]}
    return {"candidates": [{"content": content, "index": 0, **finish}]}


def gemini(_body: Json, answer: Answer) -> Json:
    """Answer generateContent."""
    usage = {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}
    return {**_candidate(answer.text, finishReason="STOP"), "usageMetadata": usage}


def gemini_events(body: Json, answer: Answer) -> list[Json]:
    """Answer streamGenerateContent."""
    *pieces, last = _pieces(answer.text) or [""]
    return [*map(_candidate, pieces), gemini(body, Answer(last))]


CHAT: Final = Dialect(chat, chat_events, _data_frame, end="data: [DONE]\n\n")
RESPONSES: Final = Dialect(response, response_events, _named_frame, end="")
MESSAGES: Final = Dialect(message, message_events, _named_frame, end="")
GEMINI: Final = Dialect(gemini, gemini_events, _data_frame, end="")


# Embeddings and rerank


def _axis_counts(text: str) -> list[float]:
    """Count words on hashed axes, so that texts sharing words are near each other."""
    counts = [0.0] * EMBEDDING_WIDTH
    for word in re.findall(r"\w+", text.casefold()) or [""]:
        counts[crc32(word.encode()) % EMBEDDING_WIDTH] += 1.0
    return counts


def embeddings(body: Json) -> Json:
    """Embed each text by its words."""
    given: list[str] | str = body["input"]
    texts = [given] if isinstance(given, str) else given
    return {
        "object": "list",
        "model": body.get("model"),
        "data": [
            {"object": "embedding", "index": index, "embedding": _axis_counts(text)}
            for index, text in enumerate(texts)
        ],
        "usage": {"prompt_tokens": 1, "total_tokens": 1},
    }


def rerank(body: Json) -> Json:
    """Rank documents last to first, so that a reranked order shows."""
    count = len(body.get("documents") or ())
    return {
        "id": _id("rerank-"),
        "results": [
            {"index": index, "relevance_score": (index + 1) / count}
            for index in reversed(range(count))
        ],
        "meta": {"billed_units": {"search_units": 1}},
    }
