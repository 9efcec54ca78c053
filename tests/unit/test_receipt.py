"""What a response says about memory."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omniroute_litellm.receipt import Outcome, Receipt
from omniroute_litellm.types import TraceId


def test_all_headers() -> None:
    """A receipt has a header for each thing that it says."""
    receipt = Receipt(Outcome.INJECTED, "", 2, 30, "keyword+profile", 1.25, TraceId("t-1"))
    assert receipt.headers() == {
        "x-omniroute-memory": "injected",
        "x-omniroute-memory-injected": "2",
        "x-omniroute-memory-tokens": "30",
        "x-omniroute-memory-tier": "keyword+profile",
        "x-omniroute-memory-ms": "1.2",
        "x-omniroute-memory-trace": "t-1",
    }


def test_reason_has_its_header() -> None:
    """A reason is told."""
    headers = Receipt(Outcome.ERROR, "database_full").headers()
    assert headers["x-omniroute-memory-reason"] == "database_full"


@pytest.mark.parametrize("name", ["x-omniroute-memory-reason", "x-omniroute-memory-trace"])
def test_missing_parts_have_none(name: str) -> None:
    """What there is not has no header."""
    assert name not in Receipt(Outcome.NONE).headers()


@given(reason=st.text(), tier=st.text(), trace=st.text())
def test_headers_are_short_ascii(reason: str, tier: str, trace: str) -> None:
    """Whatever a receipt holds, no header breaks the response."""
    headers = Receipt(Outcome.NONE, reason, tier=tier, trace=TraceId(trace)).headers()
    for value in headers.values():
        assert value.isascii()
        assert value == "" or value.isprintable()
        assert len(value) <= 80


@pytest.mark.parametrize("outcome", Outcome)
def test_outcome_is_one_word(outcome: Outcome) -> None:
    """Each outcome is told by its own word."""
    assert Receipt(outcome).headers()["x-omniroute-memory"] == outcome.value
