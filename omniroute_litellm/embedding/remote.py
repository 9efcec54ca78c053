"""Vectors by any embedding model that the proxy can call."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from omniroute_litellm.embedding.base import MAX_TEXT_CHARACTERS, Matrix, Row, checked
from omniroute_litellm.model_calls import ModelCalls
from omniroute_litellm.types import OwnerId

QUERY_TIMEOUT_S: Final = 5.0
"""A query that took longer than its request waited still fills the cache for the next one."""
BATCH_TIMEOUT_S: Final = 60.0


class RemoteEmbedder:
    """A model behind the proxy, in batches of 64. What a call costs is the owner's."""

    source = "remote"
    is_slow = True
    batch_size = 64

    def __init__(self, calls: ModelCalls, model: str) -> None:
        self.model = model
        self._calls = calls

    def embed(self, texts: Sequence[str], *, owner: OwnerId | None = None) -> Matrix:
        """Return one row a text; an empty one is sent as a dash, which every provider takes."""
        timeout_s = QUERY_TIMEOUT_S if len(texts) == 1 else BATCH_TIMEOUT_S
        found: list[Matrix] = []
        for start in range(0, len(texts), self.batch_size):
            batch = [
                text[:MAX_TEXT_CHARACTERS].strip() or "-"
                for text in texts[start : start + self.batch_size]
            ]
            rows = self._calls.embed(self.model, batch, owner=owner, timeout_s=timeout_s)
            found.append(checked(rows, count=len(batch)))
        return np.concatenate(found)

    def embed_query(self, text: str, *, owner: OwnerId | None = None) -> Row:
        """Return the row of one text: providers are not told what it is for."""
        return self.embed([text], owner=owner)[0]
