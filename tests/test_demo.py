"""The model of the demo: it shows what it was given, and nothing that would be learned."""

from omniroute_litellm.demo import DemoModel, reply
from omniroute_litellm.extraction.extractor import Extractor
from omniroute_litellm.injection import render_block, render_line
from omniroute_litellm.types import Speaker

BLOCK = render_block([render_line("I prefer tea"), render_line("I never run")])
MESSAGES = [{"role": "system", "content": BLOCK}, {"role": "user", "content": "Hi"}]


def test_the_block_is_quoted_whole() -> None:
    """Every line of the block stands in the answer, quoted."""
    answer = reply(MESSAGES).splitlines()[1:]
    assert [line.removeprefix("> ") for line in answer] == BLOCK.splitlines()
    assert reply([{"role": "user", "content": None}]) == "No memory came with your message."


def test_the_answer_teaches_nothing() -> None:
    """A quote is no statement: the loop of memory and answer stays closed."""
    assert Extractor().extract(reply(MESSAGES), speaker=Speaker.ASSISTANT) == ()


async def test_streams_say_the_same() -> None:
    """Line by line the answer is the same, and its last piece says so."""
    pieces = [piece async for piece in DemoModel().astreaming(messages=MESSAGES)]
    assert "".join(piece["text"] for piece in pieces) == reply(MESSAGES)
    assert [piece["is_finished"] for piece in pieces] == [False] * (len(pieces) - 1) + [True]
