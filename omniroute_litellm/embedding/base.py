"""The seam of every embedding model."""

from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from omniroute_litellm.errors import BackendUnavailableError, ContractError, OmniRouteError
from omniroute_litellm.types import OwnerId

Matrix = NDArray[np.float32]
"""One row a text, of unit length; a text that says nothing to the model is a row of zeros."""

Row = NDArray[np.float32]
"""One row of a matrix."""

MAX_TEXT_CHARACTERS: Final = 8_000
"""So much of a text is read: the longest memory, and more than any local model looks at."""


class EmbedderUnavailableError(BackendUnavailableError):
    """A model cannot answer. ``hint`` says in one line how to mend that.

    ``is_passing``: the same call may work in a moment without anybody doing anything.
    """

    def __init__(self, message: str, *, reason: str, hint: str, is_passing: bool = False) -> None:
        super().__init__(message, reason=reason)
        self.hint = hint
        self.is_passing = is_passing


class TextRefusedError(OmniRouteError):
    """A model refuses what it was given, and would again; other texts may still pass."""


class Embedder(Protocol):
    """Turns texts into vectors that are near where the texts mean the same.

    Does not cache, does not store, does not retry. ``is_slow`` tells whether an answer takes
    longer than looking words up: then a request waits longer for it.
    """

    @property
    def source(self) -> str:
        """Which kind of source: ``static``, ``transformers`` or ``remote``."""
        ...

    @property
    def model(self) -> str:
        """The model, as part of a signature: another one makes other vectors."""
        ...

    @property
    def is_slow(self) -> bool:
        """Whether an answer takes milliseconds rather than a fraction of one."""
        ...

    @property
    def batch_size(self) -> int:
        """How many texts a call takes best."""
        ...

    def embed(self, texts: Sequence[str], *, owner: OwnerId | None = None) -> Matrix:
        """Return one row a text. ``owner`` is who a paid call is charged to.

        Raises EmbedderUnavailableError, TextRefusedError, and ContractError when the model's
        answer is none.
        """
        ...

    def embed_query(self, text: str, *, owner: OwnerId | None = None) -> Row:
        """Return the vector to search with: some models read a question unlike a statement.

        Raises what ``embed`` raises.
        """
        ...


def checked(rows: ArrayLike, *, count: int) -> Matrix:
    """Return a model's answer as rows of unit length; raise ContractError when it is not one."""
    try:
        found = np.asarray(rows, dtype=np.float32)
    except (TypeError, ValueError) as error:
        message = f"expected {count} vectors of one length, got something else"
        raise ContractError(message) from error
    if found.ndim != 2 or found.shape[0] != count or found.shape[1] == 0:
        message = f"expected {count} vectors of one length, got an array of {found.shape}"
        raise ContractError(message)
    if not np.isfinite(found).all():
        message = "expected finite numbers in every vector"
        raise ContractError(message)
    return unit_rows(found)


def unit_rows(rows: Matrix) -> Matrix:
    """Scale every row to length one; rows of zeros stay."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    scaled = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
    return np.ascontiguousarray(scaled, dtype=np.float32)
