"""Vectors by look-up: the mean of a text's token rows. The bundled model needs nothing else."""

import json
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from omniroute_litellm.embedding.base import (
    MAX_TEXT_CHARACTERS,
    EmbedderUnavailableError,
    Matrix,
    Row,
    unit_rows,
)
from omniroute_litellm.stopwords import ENGLISH
from omniroute_litellm.types import OwnerId

BUNDLED: Final = "static256"
MAX_TOKENS: Final = 512
TELLING_SHARE: Final = 0.6
"""How much the words of a question count once more that say what it is about.

Found within ten by scores at 0.5, 0.6 and 0.7, on the data it was chosen on: 69.1, 69.4 and 69.3 %
of three LoCoMo conversations (495 questions), 85.1, 87.4 and 87.4 % of 87 short English questions.
"""
_WORD: Final = re.compile(r"[^\W_]+")
_TYPES: Final = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I8": "<i1"}


@dataclass(frozen=True, slots=True)
class _Table:
    """A row for every token, the rows of special and unknown tokens left out of means.

    ``places`` maps a token to its row where tokens share rows, ``weights`` is what each counts.
    """

    rows: NDArray[Any]
    places: NDArray[np.int64] | None
    weights: NDArray[np.float32] | None
    tokenizer: Any
    unknown: int | None


class StaticEmbedder:
    """A look-up model: the bundled one, or a folder in the format of it or of model2vec.

    Loaded at first use and shared by all threads; the table stays on disk and is mapped.
    """

    source = "static"
    is_slow = False
    batch_size = 256

    def __init__(self, folder: Path | None = None, *, model: str = BUNDLED) -> None:
        self.model = model
        self._folder = folder
        self._lock = threading.Lock()
        self._table: _Table | None = None

    def embed(self, texts: Sequence[str], *, owner: OwnerId | None = None) -> Matrix:
        """Return one row a text; of a long one the first 512 tokens count."""
        table = self._loaded()
        cut = [text[:MAX_TEXT_CHARACTERS] for text in texts]
        encoded = table.tokenizer.encode_batch_fast(cut, add_special_tokens=False)
        rows = np.zeros((len(texts), table.rows.shape[1]), dtype=np.float32)
        for at, tokens in enumerate(encoded):
            known = [token for token in tokens.ids if token != table.unknown][:MAX_TOKENS]
            if known:
                rows[at] = _mean(table, np.asarray(known, dtype=np.int64))
        return unit_rows(rows)

    def embed_query(self, text: str, *, owner: OwnerId | None = None) -> Row:
        """Return the row of a question, in which the words that only ask count for less."""
        whole = text[:MAX_TEXT_CHARACTERS]
        words = _WORD.findall(whole)
        telling = [word for word in words if word.lower() not in ENGLISH]
        if not telling or len(telling) == len(words):
            return self.embed([whole])[0]
        asked, told = self.embed([whole, " ".join(telling)])
        return unit_rows(((1 - TELLING_SHARE) * asked + TELLING_SHARE * told)[None, :])[0]

    def _loaded(self) -> _Table:
        if self._table is None:
            with self._lock:
                if self._table is None:
                    self._table = self._load()
        return self._table

    def _load(self) -> _Table:
        if self._folder is None:
            with resources.as_file(resources.files(__package__ or "") / BUNDLED) as folder:
                return _read(folder)
        if not self._folder.is_dir():
            message = f"there is no folder {self._folder}"
            raise EmbedderUnavailableError(
                message,
                reason="model_missing",
                hint=f"put the files of the model into {self._folder}, or unset the variable "
                "MEMORY_STATIC_MODEL to use the bundled one",
            )
        return _read(self._folder)


def _read(folder: Path) -> _Table:
    try:
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        tokenizer.no_padding()
        tokenizer.no_truncation()
        content = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
        tensors = _tensors(folder)
        rows = tensors["embeddings"]
        _, _ = rows.shape  # anything but a table of rows is refused here
        places, weights = tensors.get("mapping"), tensors.get("weights")
        unknown = cast("Mapping[str, Any]", content.get("model", {})).get("unk_token")
        return _Table(
            rows=rows,
            places=None if places is None else places.astype(np.int64),
            weights=None if weights is None else weights.astype(np.float32),
            tokenizer=tokenizer,
            unknown=tokenizer.token_to_id(unknown) if unknown else None,
        )
    except Exception as error:
        # The readers of foreign files raise whatever their libraries do, bare Exception included.
        message = f"cannot read the model in {folder}: {error}"
        raise EmbedderUnavailableError(
            " ".join(message.split()),
            reason="model_broken",
            hint="the folder needs tokenizer.json, and table.npy or model.safetensors",
        ) from error


def _tensors(folder: Path) -> dict[str, NDArray[Any]]:
    table = folder / "table.npy"
    if table.exists():
        return {"embeddings": np.load(table, mmap_mode="r")}
    return _safetensors(folder / "model.safetensors")


def _safetensors(path: Path) -> dict[str, NDArray[Any]]:
    """Map the tensors of a file: eight bytes of length, a JSON header, then the numbers.

    Source: the format page of the safetensors project.
    """
    with path.open("rb") as opened:
        length = int.from_bytes(opened.read(8), "little")
        header = cast("dict[str, dict[str, Any]]", json.loads(opened.read(length)))
    found: dict[str, NDArray[Any]] = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        found[name] = np.memmap(
            path,
            dtype=_TYPES[entry["dtype"]],
            mode="r",
            offset=8 + length + entry["data_offsets"][0],
            shape=tuple(entry["shape"]),
        )
    return found


def _mean(table: _Table, tokens: NDArray[np.int64]) -> NDArray[np.float32]:
    places = tokens if table.places is None else table.places[tokens]
    rows = table.rows[places].astype(np.float32)
    if table.weights is not None:
        rows = rows * table.weights[tokens][:, None]
    return rows.mean(axis=0)
