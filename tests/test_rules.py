"""The pure rules: text, tokens, ranking, the block, forms, receipts."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omniroute_litellm.injection import FRAMING, HEADING, render_block, render_line
from omniroute_litellm.placement import BlockForm, Deployment, block_form
from omniroute_litellm.ranking import RRF_K, fit_budget, fuse_ranks
from omniroute_litellm.receipt import Outcome, Receipt
from omniroute_litellm.text import one_line, storable
from omniroute_litellm.tokens import cut_to_tokens, estimate_tokens
from omniroute_litellm.types import TraceId, from_iso, to_iso, utc_now
from tests.fakes import bm25_of

ANY_TEXT = st.text(st.characters())  # lone surrogates included
LISTS = st.lists(st.lists(st.integers(0, 30), unique=True, max_size=25), max_size=3)


@given(ANY_TEXT)
def test_storable_text_is_storable(text: str) -> None:
    """Any text becomes one that encodes, holds no control character, and stays as it is then."""
    kept = storable(text)
    kept.encode("utf-8")
    assert "\0" not in kept
    assert "\r" not in kept
    assert storable(kept) == kept


@given(ANY_TEXT)
def test_one_line_is_one_visible_line(text: str) -> None:
    """Any text becomes one line without hidden characters."""
    line = one_line(text)
    assert len(line.splitlines()) <= 1
    assert line == line.strip()
    assert not set(line) & set("\u200b\u202e\u2066\ufeff\x00\x1b")


@given(st.text(), st.integers(0, 50))
def test_cuts_fit(text: str, tokens: int) -> None:
    """A cut text is a beginning of the whole and costs no more than allowed."""
    cut = cut_to_tokens(text, tokens)
    assert text.startswith(cut)
    assert estimate_tokens(cut) <= tokens


def test_cuts_fall_between_words() -> None:
    """A cut ends at a word where there is one, inside of it where there is not."""
    assert cut_to_tokens("one two three", 2) == "one two"
    assert cut_to_tokens("one twothree", 2) == "one"
    assert cut_to_tokens("x" * 100, 2) == "x" * 8
    assert cut_to_tokens("one two", 2) == "one two"


@given(LISTS)
def test_fusion_is_a_union(lists: list[list[int]]) -> None:
    """Everything that stands in a list stands once in the result, with scores that only fall."""
    fused = fuse_ranks(lists, depth=20)
    items = [item for item, _ in fused]
    assert sorted(items) == sorted({item for ranked in lists for item in ranked})
    scores = [score for _, score in fused]
    assert scores == sorted(scores, reverse=True)


@given(LISTS)
def test_fusion_knows_no_order_of_lists(lists: list[list[int]]) -> None:
    """The lists have equal weights: turned around, each item has the same score."""
    forward, backward = dict(fuse_ranks(lists, depth=20)), dict(fuse_ranks(lists[::-1], depth=20))
    assert forward.keys() == backward.keys()
    assert all(math.isclose(forward[item], backward[item]) for item in forward)


def test_fusion_is_reciprocal_rank() -> None:
    """The score is the sum of 1 / (60 + rank); what lies deeper follows with none."""
    fused = fuse_ranks([["a", "b", "deep"], ["b"]], depth=2)
    assert fused == [
        ("b", pytest.approx(1 / (RRF_K + 2) + 1 / (RRF_K + 1))),
        ("a", pytest.approx(1 / (RRF_K + 1))),
        ("deep", 0.0),
    ]


@given(st.lists(st.text(min_size=1), max_size=20), st.integers(0, 100))
def test_the_budget_keeps_a_prefix(lines: list[str], budget: int) -> None:
    """What is kept is the longest prefix that fits, and never nothing when something could."""
    kept = fit_budget(lines, max_tokens=budget)
    assert [line.position for line in kept] == list(range(len(kept)))
    assert sum(line.tokens for line in kept) <= budget
    assert bool(kept) == bool(lines and budget)
    if kept and len(kept) < len(lines) and kept[-1].text == lines[len(kept) - 1]:
        used = sum(line.tokens for line in kept)
        assert used + estimate_tokens(lines[len(kept)]) > budget


def test_rare_words_weigh_more() -> None:
    """A document that holds the rare word beats one that holds the common one."""
    scores = bm25_of({"rare": [1], "common": [1, 2, 3]}, {1: 10, 2: 10, 3: 10}, documents=10)
    assert scores[1].score > scores[2].score > 0
    assert scores[1].coverage == pytest.approx(1)
    assert scores[2].coverage == pytest.approx(0.5)


def test_shorter_documents_win() -> None:
    """Of two documents with the same word the shorter one is more about it."""
    scores = bm25_of({"word": [1, 2]}, {1: 10, 2: 100}, documents=5)
    assert scores[1].score > scores[2].score
    assert bm25_of({}, {}, documents=0) == {}


@given(st.lists(ANY_TEXT, max_size=5))
def test_a_memory_cannot_leave_its_line(contents: list[str]) -> None:
    """Whatever memories hold, the block has one heading, one framing, and one line for each."""
    block = render_block([render_line(content) for content in contents])
    visible = [content for content in contents if one_line(content)]
    if not visible:
        assert block == ""
        return
    lines = block.split("\n")
    assert lines[:2] == [HEADING, FRAMING]
    assert len(lines) == 2 + len(visible)
    assert all(line.startswith("- ") for line in lines[2:])
    assert len(block.splitlines()) == len(lines)


@pytest.mark.parametrize(
    ("provider", "model", "form"),
    [
        ("openai", "gpt-4o", BlockForm.SYSTEM),
        ("openai", "o1", BlockForm.USER),
        ("openai", "o1-mini", BlockForm.USER),
        ("openai", "o1-mini-2024-09-12", BlockForm.USER),
        ("openai", "o1-preview", BlockForm.USER),
        ("azure", "o1-2024-12-17", BlockForm.USER),
        ("openai", "o3", BlockForm.SYSTEM),
        ("openai", "glm-4.6", BlockForm.USER),
        ("openrouter", "z-ai/glm-4.5-air", BlockForm.USER),
        ("zai", "anything", BlockForm.USER),
        ("ZAI", "anything", BlockForm.USER),
        ("qianfan", "x", BlockForm.USER),
        ("anthropic", "claude-sonnet-4-5", BlockForm.SYSTEM),
        ("custom", "unknown", BlockForm.SYSTEM),
        ("openai", "my-o1-clone", BlockForm.SYSTEM),
    ],
)
def test_the_form_follows_provider_and_model(provider: str, model: str, form: BlockForm) -> None:
    """Listed providers and models get a user message, unknown ones a system message."""
    assert block_form(Deployment(provider, model)) is form


def test_what_is_known_of_a_deployment_counts() -> None:
    """A base model, LiteLLM's own knowledge and the two settings decide as well."""
    assert block_form(Deployment("azure", "prod", base_model="o1-mini")) is BlockForm.USER
    assert block_form(Deployment("x", "y", takes_system=False)) is BlockForm.USER
    assert block_form(Deployment("x", "y", takes_system=True)) is BlockForm.SYSTEM
    assert block_form(Deployment("vllm", "y"), no_system=["VLLM"]) is BlockForm.USER
    assert block_form(Deployment("x", "org/y"), no_system=["y"]) is BlockForm.USER
    assert block_form(Deployment("x", "org/y"), strict_system=["org/y"]) is BlockForm.MERGED
    both = block_form(Deployment("x", "y"), no_system=["y"], strict_system=["y"])
    assert both is BlockForm.USER


@given(ANY_TEXT, ANY_TEXT, ANY_TEXT)
def test_receipts_are_safe_headers(reason: str, tier: str, trace: str) -> None:
    """Whatever stands in a receipt, its headers are short ASCII without line breaks."""
    receipt = Receipt(Outcome.ERROR, reason=reason, tier=tier, trace=TraceId(trace), ms=1.26)
    headers = receipt.headers()
    assert headers["x-omniroute-memory"] == "error"
    assert headers["x-omniroute-memory-ms"] in {"1.3", "1.2"}
    for value in headers.values():
        assert value.isascii()
        assert value.isprintable()
        assert len(value) <= 80


def test_moments_sort_as_text() -> None:
    """Rendered moments have microseconds and a fixed width; reading gives the moment back."""
    now = utc_now()
    assert from_iso(to_iso(now)) == now
    assert len(to_iso(now)) == 27
    assert from_iso("2026-01-01T00:00:00").tzinfo is not None
