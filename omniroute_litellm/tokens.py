"""Token estimates and cuts that stay below them."""

from typing import Final

CHARACTERS_PER_TOKEN: Final = 4
"""The estimate that OmniRoute uses: one token per four characters, rounded up."""


def estimate_tokens(text: str) -> int:
    """Estimate how many tokens a text costs, without a tokenizer."""
    return -(-len(text) // CHARACTERS_PER_TOKEN)


def cut_to_tokens(text: str, max_tokens: int) -> str:
    """Cut a text at the last word boundary whose estimate still fits.

    A single word longer than the budget is cut inside, also behind a bullet: a boundary with no
    letter or digit before it is none. The result of a budget below one token is empty.
    """
    if estimate_tokens(text) <= max_tokens:
        return text
    head = text[: max(0, max_tokens * CHARACTERS_PER_TOKEN)]
    if not head or text[len(head)].isspace():
        return head.rstrip()
    at_word = head.rpartition(" ")[0].rstrip()
    return at_word if any(char.isalnum() for char in at_word) else head
