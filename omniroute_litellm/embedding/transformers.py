"""Vectors by a local ONNX model through fastembed; it loads in the background."""

import hashlib
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from omniroute_litellm.embedding.base import (
    MAX_TEXT_CHARACTERS,
    EmbedderUnavailableError,
    Matrix,
    Row,
    checked,
)
from omniroute_litellm.types import OwnerId

ALIASES: Final = {"xenova/all-minilm-l6-v2": "sentence-transformers/all-MiniLM-L6-v2"}
"""OmniRoute names models by another hub account than fastembed does; the weights are the same."""
_MODEL_FILES: Final = (
    "model.onnx",
    "model_int8.onnx",
    "model_quantized.onnx",
    "onnx/model.onnx",
    "onnx/model_int8.onnx",
    "onnx/model_quantized.onnx",
)


class TransformersEmbedder:
    """A model that fastembed runs: one of its own by name, or any folder with an ONNX export.

    Nothing is downloaded. The first call starts a thread that loads the model and fails with the
    reason ``model_loading`` until that is done: seconds must not be spent inside of a request.
    """

    source = "transformers"
    is_slow = True
    batch_size = 64

    def __init__(self, model: str, *, cache: Path, threads: int = 1) -> None:
        self.model = model
        self._cache = cache
        self._threads = threads
        self._lock = threading.Lock()
        self._loader: threading.Thread | None = None
        self._loaded: Any = None
        self._fault: EmbedderUnavailableError | None = None

    def embed(self, texts: Sequence[str], *, owner: OwnerId | None = None) -> Matrix:
        """Return one row a text."""
        cut = [text[:MAX_TEXT_CHARACTERS] or "-" for text in texts]
        found: Iterable[Any] = self._model().embed(cut, batch_size=self.batch_size)
        return checked(list(found), count=len(texts))

    def embed_query(self, text: str, *, owner: OwnerId | None = None) -> Row:
        """Return the row of a question, marked as one where the model wants that."""
        found: Iterable[Any] = self._model().query_embed(text[:MAX_TEXT_CHARACTERS] or "-")
        return checked(list(found), count=1)[0]

    def _model(self) -> Any:
        """Return the model once it is loaded; raise EmbedderUnavailableError until then."""
        self._begin_loading()
        if self._fault is not None:
            raise self._fault
        if self._loaded is None:
            message = f"the model {self.model} is being loaded"
            hint = "wait: it answers by itself when it is ready"
            raise EmbedderUnavailableError(
                message, reason="model_loading", hint=hint, is_passing=True
            )
        return self._loaded

    def wait(self, timeout_s: float) -> bool:
        """Wait for the model to be loaded; tell whether it answers now."""
        self._begin_loading()
        loader = self._loader
        if loader is not None:
            loader.join(timeout_s)
        return self._loaded is not None

    def _begin_loading(self) -> None:
        if self._loader is not None:
            return
        with self._lock:
            if self._loader is None:
                self._loader = threading.Thread(
                    target=self._load, name="omniroute-model", daemon=True
                )
                self._loader.start()

    def _load(self) -> None:
        try:
            self._loaded = self._open()
        except EmbedderUnavailableError as error:
            self._fault = error
        except Exception as error:
            # A loader thread: whatever a foreign model file raises is this model's state.
            message = f"cannot load {self.model}: {' '.join(str(error).split())}"
            hint = f"put the model's files into {self._cache}, or name a folder that holds them"
            self._fault = EmbedderUnavailableError(message, reason="model_broken", hint=hint)

    def _open(self) -> Any:
        try:
            import fastembed  # an extra; its import takes seconds
        except ImportError as error:
            message = "the package fastembed is not installed"
            hint = 'pip install "omniroute-litellm[transformers]"'
            raise EmbedderUnavailableError(message, reason="extra_missing", hint=hint) from error
        folder = Path(self.model).expanduser()
        if folder.is_dir():
            return _open_folder(fastembed, folder, threads=self._threads)
        named = ALIASES.get(self.model.lower(), self.model)
        known = {
            str(each["model"]).lower() for each in fastembed.TextEmbedding.list_supported_models()
        }
        if named.lower() not in known:
            message = f"there is no folder {self.model}, and fastembed knows no model of that name"
            hint = "set MEMORY_TRANSFORMERS_MODEL to a folder, or to a model that fastembed lists"
            raise EmbedderUnavailableError(message, reason="model_missing", hint=hint)
        try:
            return fastembed.TextEmbedding(
                named, cache_dir=str(self._cache), threads=self._threads, local_files_only=True
            )
        except (OSError, ValueError) as error:
            message = f"the files of {named} are not in {self._cache}"
            hint = (
                f'download them once, with access to the network: python -c "import fastembed; '
                f"fastembed.TextEmbedding('{named}', cache_dir='{self._cache}')\""
            )
            raise EmbedderUnavailableError(message, reason="model_missing", hint=hint) from error


def _open_folder(fastembed: Any, folder: Path, *, threads: int) -> Any:
    """Open an ONNX export as fastembed's own models are opened: mean of tokens, unit length."""
    from fastembed.common.model_description import ModelSource, PoolingType

    file = next((name for name in _MODEL_FILES if (folder / name).exists()), None)
    if file is None:
        message = f"there is no ONNX model in {folder}"
        hint = f"the folder needs one of {', '.join(_MODEL_FILES)}, and the tokenizer's files"
        raise EmbedderUnavailableError(message, reason="model_missing", hint=hint)
    digest = hashlib.sha256(f"{folder.resolve()}\0{file}".encode()).hexdigest()
    name = f"omniroute/{digest[:16]}"
    listed = {str(each["model"]) for each in fastembed.TextEmbedding.list_supported_models()}
    if name not in listed:
        fastembed.TextEmbedding.add_custom_model(
            model=name,
            pooling=PoolingType.MEAN,
            normalization=True,
            sources=ModelSource(url="file://local"),
            dim=1,  # of its own lists alone: the real one is measured
            model_file=file,
        )
    return fastembed.TextEmbedding(
        name, specific_model_path=str(folder), threads=threads, local_files_only=True
    )
