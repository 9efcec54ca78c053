"""What a response says about memory."""

import pytest

from omniroute_litellm.receipt import Outcome, Receipt
from omniroute_litellm.types import TraceId

NAMES = {
    "x-omniroute-memory",
    "x-omniroute-memory-injected",
    "x-omniroute-memory-tokens",
    "x-omniroute-memory-tier",
    "x-omniroute-memory-ms",
}


def test_the_least_receipt_has_no_trace_and_no_reason() -> None:
    """A request that memory had nothing to do with names no record."""
    assert Receipt(Outcome.OFF).headers().keys() == NAMES


def test_a_full_receipt_has_every_header() -> None:
    """Outcome, counts, tiers, time, record and reason each have their header."""
    receipt = Receipt(Outcome.DEGRADED, "deadline", 3, 57, "keyword+profile", 12.34, TraceId("t-1"))
    assert receipt.headers() == {
        "x-omniroute-memory": "degraded",
        "x-omniroute-memory-injected": "3",
        "x-omniroute-memory-tokens": "57",
        "x-omniroute-memory-tier": "keyword+profile",
        "x-omniroute-memory-ms": "12.3",
        "x-omniroute-memory-trace": "t-1",
        "x-omniroute-memory-reason": "deadline",
    }


@pytest.mark.parametrize("text", ["a\r\nset-cookie: b", "a b", "ü", "\x00", "🍵"])
def test_a_reason_cannot_write_headers(text: str) -> None:
    """What is no letter, digit or mark of a code becomes an underscore."""
    reason = Receipt(Outcome.ERROR, text).headers()["x-omniroute-memory-reason"]
    assert set(reason) <= set("abcdefghijklmnopqrstuvwxyz_:-")
