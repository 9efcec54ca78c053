"""The providers' own client libraries talk through the proxy and notice nothing but memory."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import anthropic
import openai
import pytest
from anthropic.types import MessageParam, ToolParam, ToolResultBlockParam
from google import genai
from google.genai import errors
from google.genai import types as gemini
from openai.types.chat import (
    ChatCompletionFunctionToolParam,
    ChatCompletionMessageFunctionToolCallParam,
    ChatCompletionMessageParam,
)
from openai.types.chat.chat_completion_message_function_tool_call_param import Function
from openai.types.responses import (
    FunctionToolParam,
    ResponseFunctionToolCallParam,
    ResponseInputParam,
)

from tests.proxy.chatting import blocks_in, memories, say, wait_idle, wait_learned
from tests.proxy.process import Proxy
from tests.upstream import Upstream
from tests.upstream_answers import ToolCall

pytestmark = pytest.mark.proxy

STATEMENT: Final = "I prefer TypeScript. Which tool reads a file?"
QUESTION: Final = "And which language should it be written in?"
LEARNED_KEY: Final = "preference:typescript"
ANSWER: Final = "The one with the shortest name."
MAX_TOKENS: Final = 64

TOOL: Final = "read_file"
ARGUMENTS: Final = {"path": "a.py"}
RESULT: Final = "print('word')"
SCHEMA: Final[dict[str, object]] = {
    "type": "object",
    "properties": {"path": {"type": "string"}},
    "required": ["path"],
    "additionalProperties": False,
}
STREAMED: Final = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


@dataclass(frozen=True, slots=True)
class Reply:
    """What a library made of an answer."""

    text: str
    headers: Mapping[str, str]


class GeminiModels(Protocol):
    """What is used of the Google library, whose own types name an image library we lack."""

    def generate_content(
        self, *, model: str, contents: list[gemini.Content]
    ) -> gemini.GenerateContentResponse: ...

    def generate_content_stream(
        self, *, model: str, contents: list[gemini.Content]
    ) -> Iterator[gemini.GenerateContentResponse]: ...


@dataclass(frozen=True, slots=True)
class Sdk:
    """One library's way to send the sentences of a person, the earlier ones as history."""

    name: str
    ask: Callable[[Proxy, str, list[str], bool], Reply]


def openai_client(proxy: Proxy, key: str) -> openai.OpenAI:
    """Return an OpenAI client that fails at once instead of retrying."""
    return openai.OpenAI(base_url=f"{proxy.url}/v1", api_key=key, max_retries=0)


def anthropic_client(proxy: Proxy, key: str) -> anthropic.Anthropic:
    """Return an Anthropic client that fails at once instead of retrying."""
    return anthropic.Anthropic(base_url=proxy.url, api_key=key, max_retries=0)


def gemini_client(proxy: Proxy, key: str) -> genai.Client:
    """Return a Google client: its key travels as `x-goog-api-key`.

    LiteLLM serves `/v1beta/models/...`; the library's own choice is `/v1`.
    """
    options = gemini.HttpOptions(base_url=proxy.url, api_version="v1beta")
    return genai.Client(api_key=key, http_options=options)


def gemini_models(client: genai.Client) -> GeminiModels:
    """Return the part of a Google client that generates, under the types used here."""
    return client.models


def ask_openai_chat(proxy: Proxy, key: str, texts: list[str], stream: bool) -> Reply:
    """Ask with the OpenAI library's chat completions."""
    messages: list[ChatCompletionMessageParam] = []
    for text in texts[:-1]:
        messages.append({"role": "user", "content": text})
        messages.append({"role": "assistant", "content": ANSWER})
    messages.append({"role": "user", "content": texts[-1]})
    with openai_client(proxy, key) as client:
        completions = client.chat.completions.with_raw_response
        if not stream:
            whole = completions.create(model="gpt", messages=messages)
            return Reply(whole.parse().choices[0].message.content or "", whole.headers)
        raw = completions.create(model="gpt", messages=messages, stream=True)
        with raw.parse() as chunks:
            choices = [choice for chunk in chunks for choice in chunk.choices]
        assert choices[-1].finish_reason == "stop"
        return Reply("".join(choice.delta.content or "" for choice in choices), raw.headers)


def ask_openai_responses(proxy: Proxy, key: str, texts: list[str], stream: bool) -> Reply:
    """Ask with the OpenAI library's responses."""
    items: ResponseInputParam = []
    for text in texts[:-1]:
        items.append({"role": "user", "content": text})
        items.append({"role": "assistant", "content": ANSWER})
    items.append({"role": "user", "content": texts[-1]})
    with openai_client(proxy, key) as client:
        responses = client.responses.with_raw_response
        if not stream:
            whole = responses.create(model="gpt", input=items)
            return Reply(whole.parse().output_text, whole.headers)
        raw = responses.create(model="gpt", input=items, stream=True)
        with raw.parse() as stream_of_events:
            events = list(stream_of_events)
        assert events[-1].type == "response.completed"
        deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
        assert events[-1].response.output_text == "".join(deltas)
        return Reply("".join(deltas), raw.headers)


def ask_anthropic(proxy: Proxy, key: str, texts: list[str], stream: bool) -> Reply:
    """Ask with the Anthropic library."""
    messages: list[MessageParam] = []
    for text in texts[:-1]:
        messages.append({"role": "user", "content": text})
        messages.append({"role": "assistant", "content": ANSWER})
    messages.append({"role": "user", "content": texts[-1]})
    with anthropic_client(proxy, key) as client:
        if not stream:
            whole = client.messages.with_raw_response.create(
                model="claude", max_tokens=MAX_TOKENS, messages=messages
            )
            (block,) = whole.parse().content
            assert block.type == "text"
            return Reply(block.text, whole.headers)
        with client.messages.stream(
            model="claude", max_tokens=MAX_TOKENS, messages=messages
        ) as events:
            assert events.get_final_message().stop_reason == "end_turn"
            return Reply(events.get_final_text(), events.response.headers)


def ask_gemini(proxy: Proxy, key: str, texts: list[str], stream: bool) -> Reply:
    """Ask with the Google library."""
    contents: list[gemini.Content] = []
    for text in texts[:-1]:
        contents += [gemini.UserContent(text), gemini.ModelContent(ANSWER)]
    contents.append(gemini.UserContent(texts[-1]))
    with gemini_client(proxy, key) as client:
        models = gemini_models(client)
        if stream:
            chunks = list(models.generate_content_stream(model="gemini-2.5", contents=contents))
        else:
            chunks = [models.generate_content(model="gemini-2.5", contents=contents)]
    response = chunks[0].sdk_http_response
    assert response is not None
    return Reply("".join(chunk.text or "" for chunk in chunks), response.headers or {})


SDKS: Final = (
    Sdk("openai-chat", ask_openai_chat),
    Sdk("openai-responses", ask_openai_responses),
    Sdk("anthropic", ask_anthropic),
    Sdk("google-genai", ask_gemini),
)


@STREAMED
@pytest.mark.parametrize("sdk", SDKS, ids=lambda sdk: sdk.name)
def test_a_library_is_remembered(
    proxy: Proxy, upstream: Upstream, user_key: str, sdk: Sdk, stream: bool
) -> None:
    """Said once, resent as history: one memory, one block, a receipt, the answer as it was."""
    upstream.set_answer(ANSWER)
    assert sdk.ask(proxy, user_key, [STATEMENT], stream).text == ANSWER
    (learned,) = wait_learned(proxy, user_key, 1)
    assert learned["key"] == LEARNED_KEY
    upstream.clear()
    reply = sdk.ask(proxy, user_key, [STATEMENT, QUESTION], stream)
    (record,) = upstream.records()
    assert reply.text == ANSWER
    assert blocks_in(record.body) == 1
    assert reply.headers["x-omniroute-memory"] == "injected"
    assert reply.headers["x-omniroute-memory-injected"] == "1"
    wait_idle(proxy)
    assert [memory["id"] for memory in memories(proxy, user_key)] == [learned["id"]]


def call_chat_tool(proxy: Proxy, key: str, stream: bool) -> tuple[str, str]:
    """Let the OpenAI chat library answer a call; return the call's arguments and the last text."""
    tools: list[ChatCompletionFunctionToolParam] = [
        {"type": "function", "function": {"name": TOOL, "parameters": SCHEMA, "strict": True}}
    ]
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": STATEMENT}]
    with openai_client(proxy, key) as client:
        if stream:
            with client.chat.completions.stream(
                model="gpt", messages=messages, tools=tools
            ) as events:
                first = events.get_final_completion().choices[0].message
        else:
            whole = client.chat.completions.create(model="gpt", messages=messages, tools=tools)
            first = whole.choices[0].message
        (call,) = first.tool_calls or []
        assert call.type == "function"
        function: Function = {"name": call.function.name, "arguments": call.function.arguments}
        made: ChatCompletionMessageFunctionToolCallParam = {
            "id": call.id,
            "type": "function",
            "function": function,
        }
        messages.append({"role": "assistant", "tool_calls": [made]})
        messages.append({"role": "tool", "tool_call_id": call.id, "content": RESULT})
        last = client.chat.completions.create(model="gpt", messages=messages, tools=tools)
    return call.function.arguments, last.choices[0].message.content or ""


def call_responses_tool(proxy: Proxy, key: str, stream: bool) -> tuple[str, str]:
    """Let the OpenAI responses library answer a call."""
    tools: list[FunctionToolParam] = [
        {"type": "function", "name": TOOL, "parameters": SCHEMA, "strict": True}
    ]
    items: ResponseInputParam = [{"role": "user", "content": STATEMENT}]
    with openai_client(proxy, key) as client:
        if stream:
            with client.responses.stream(model="gpt", input=items, tools=tools) as events:
                first = events.get_final_response()
        else:
            first = client.responses.create(model="gpt", input=items, tools=tools)
        (call,) = first.output
        assert call.type == "function_call"
        made: ResponseFunctionToolCallParam = {
            "type": "function_call",
            "call_id": call.call_id,
            "name": call.name,
            "arguments": call.arguments,
        }
        items.append(made)
        items.append({"type": "function_call_output", "call_id": call.call_id, "output": RESULT})
        last = client.responses.create(model="gpt", input=items, tools=tools)
    return call.arguments, last.output_text


def call_anthropic_tool(proxy: Proxy, key: str, stream: bool) -> tuple[str, str]:
    """Let the Anthropic library answer a call."""
    tools: list[ToolParam] = [{"name": TOOL, "input_schema": SCHEMA}]
    messages: list[MessageParam] = [{"role": "user", "content": STATEMENT}]
    with anthropic_client(proxy, key) as client:
        if stream:
            with client.messages.stream(
                model="claude", max_tokens=MAX_TOKENS, messages=messages, tools=tools
            ) as events:
                first = events.get_final_message()
        else:
            first = client.messages.create(
                model="claude", max_tokens=MAX_TOKENS, messages=messages, tools=tools
            )
        assert first.stop_reason == "tool_use"
        (call,) = first.content
        assert call.type == "tool_use"
        made: ToolResultBlockParam = {
            "type": "tool_result",
            "tool_use_id": call.id,
            "content": RESULT,
        }
        messages.append({"role": "assistant", "content": first.content})
        messages.append({"role": "user", "content": [made]})
        last = client.messages.create(
            model="claude", max_tokens=MAX_TOKENS, messages=messages, tools=tools
        )
    (said,) = last.content
    assert said.type == "text"
    return json.dumps(call.input), said.text


@STREAMED
@pytest.mark.parametrize(
    "call_tool",
    [call_chat_tool, call_responses_tool, call_anthropic_tool],
    ids=["openai-chat", "openai-responses", "anthropic"],
)
def test_a_tool_round_trip_is_whole(
    proxy: Proxy,
    upstream: Upstream,
    user_key: str,
    call_tool: Callable[[Proxy, str, bool], tuple[str, str]],
    stream: bool,
) -> None:
    """Call and result pass, both requests carry one block, and the sentence is learned once."""
    say(proxy, user_key, STATEMENT)
    (learned,) = wait_learned(proxy, user_key, 1)
    upstream.clear()
    upstream.set_answer(ANSWER, tool=ToolCall(TOOL, json.dumps(ARGUMENTS)))
    arguments, text = call_tool(proxy, user_key, stream)
    assert json.loads(arguments) == ARGUMENTS
    assert text == ANSWER
    assert [blocks_in(record.body) for record in upstream.records()] == [1, 1]
    wait_idle(proxy)
    assert [memory["id"] for memory in memories(proxy, user_key)] == [learned["id"]]


def test_the_google_key_is_checked(proxy: Proxy, upstream: Upstream) -> None:
    """`x-goog-api-key` is LiteLLM's key like any other: a wrong one reaches no model."""
    with gemini_client(proxy, "sk-nobody") as client:
        models = gemini_models(client)
        with pytest.raises(errors.ClientError) as refused:
            models.generate_content(model="gemini-2.5", contents=[gemini.UserContent(STATEMENT)])
    assert refused.value.code == 401
    assert upstream.records() == []
