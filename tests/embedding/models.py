"""Tiny models, made in the test: a dozen words each."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

WORDS: Final = ("[UNK]", "tea", "coffee", "jazz", "code")


def tokenizer_json() -> dict[str, Any]:
    """Return a tokenizer that knows whole words."""
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": {"type": "Lowercase"},
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": None,
        "decoder": None,
        "model": {
            "type": "WordLevel",
            "vocab": {word: at for at, word in enumerate(WORDS)},
            "unk_token": "[UNK]",
        },
    }


def static_folder(folder: Path, tensors: Mapping[str, NDArray[Any]]) -> Path:
    """Write a folder as model2vec does."""
    folder.mkdir(parents=True)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer_json()))
    names = {"float32": "F32", "float64": "F64", "float16": "F16", "int64": "I64", "int8": "I8"}
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, tensor in tensors.items():
        raw = tensor.tobytes()
        header[name] = {
            "dtype": names[str(tensor.dtype)],
            "shape": list(tensor.shape),
            "data_offsets": [len(data), len(data) + len(raw)],
        }
        data += raw
    head = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(len(head).to_bytes(8, "little") + head + data)
    return folder


class FakeCalls:
    """Stands in for the proxy's models: answers by a table of rows, and keeps what it was asked."""

    def __init__(self, answer: Any = None, *, against: str | None = None) -> None:
        self.answer = answer
        self.against = against
        self.asked: list[tuple[str, list[str], object, float]] = []

    def serve_from(self, loop: asyncio.AbstractEventLoop) -> None:
        """Need no loop."""

    def reason_against(self, model: str) -> str | None:
        """Return what it was made with."""
        return self.against

    def embed(
        self, model: str, texts: Sequence[str], *, owner: object, timeout_s: float
    ) -> Sequence[Sequence[float]]:
        """Return the answer, raise it, or give each text a vector of its length."""
        self.asked.append((model, list(texts), owner, timeout_s))
        if isinstance(self.answer, Exception):
            raise self.answer
        if self.answer is not None:
            return self.answer
        return [[float(len(text)), 1.0] for text in texts]

    def rerank(
        self, model: str, query: str, documents: Sequence[str], *, owner: object, timeout_s: float
    ) -> list[tuple[int, float]]:
        """Turn the order round, or raise the answer."""
        self.asked.append((model, [query, *documents], owner, timeout_s))
        if isinstance(self.answer, Exception):
            raise self.answer
        return [(at, 1.0 / (1 + n)) for n, at in enumerate(reversed(range(len(documents))))]


def rows(*numbers: Sequence[float]) -> NDArray[np.float32]:
    """Return a table of rows."""
    return np.array(numbers, dtype=np.float32)
