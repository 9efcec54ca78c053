"""Vectors by a local ONNX model: states of loading, and a model that is made here."""

import builtins
import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from omniroute_litellm.embedding.base import EmbedderUnavailableError
from omniroute_litellm.embedding.transformers import TransformersEmbedder
from tests.embedding.models import WORDS, tokenizer_json

WAIT_S = 60.0


def refusal(embedder: TransformersEmbedder) -> EmbedderUnavailableError:
    """Return why a model does not answer once it had its time to load."""
    assert embedder.wait(WAIT_S) is False
    with pytest.raises(EmbedderUnavailableError) as caught:
        embedder.embed(["tea"])
    return caught.value


def test_an_unknown_name_is_a_reason(tmp_path: Path) -> None:
    """A name that is neither a folder nor a known model says what would be one."""
    error = refusal(TransformersEmbedder("nobody/nothing", cache=tmp_path))
    assert error.reason == "model_missing"
    assert "MEMORY_TRANSFORMERS_MODEL" in error.hint


@pytest.mark.filterwarnings("ignore")
def test_a_model_that_was_not_downloaded_is_a_reason(tmp_path: Path) -> None:
    """Nothing is fetched; the hint is the command that does it."""
    error = refusal(TransformersEmbedder("Xenova/all-MiniLM-L6-v2", cache=tmp_path))
    assert error.reason == "model_missing"
    assert "fastembed.TextEmbedding('sentence-transformers/all-MiniLM-L6-v2'" in error.hint


def test_a_folder_without_a_model_is_a_reason(tmp_path: Path) -> None:
    """The hint names the files that are looked for."""
    error = refusal(TransformersEmbedder(str(tmp_path), cache=tmp_path))
    assert error.reason == "model_missing"
    assert "model.onnx" in error.hint


def test_a_missing_extra_is_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without fastembed the hint is the command that installs it."""
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "fastembed":
            message = "no module named fastembed"
            raise ImportError(message)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    error = refusal(TransformersEmbedder("x", cache=tmp_path))
    assert (error.reason, "[transformers]" in error.hint) == ("extra_missing", True)


class SlowToOpen(TransformersEmbedder):
    """A model whose loading waits for a sign."""

    def __init__(self, cache: Path, sign: threading.Event) -> None:
        super().__init__("slow", cache=cache)
        self._sign = sign

    def _open(self) -> Any:
        assert self._sign.wait(WAIT_S)
        return FakeModel()


class FakeModel:
    """Answers in one dimension."""

    def embed(self, texts: list[str], **_: object) -> list[list[float]]:
        """Return a vector a text."""
        return [[1.0] for _ in texts]

    def query_embed(self, text: str, **_: object) -> list[list[float]]:
        """Return the vector of a question, which is another one."""
        return [[-1.0]]


def test_a_call_never_waits_for_loading(tmp_path: Path) -> None:
    """While the model loads the tier says so; then it answers."""
    sign = threading.Event()
    embedder = SlowToOpen(tmp_path, sign)
    with pytest.raises(EmbedderUnavailableError) as caught:
        embedder.embed(["tea"])
    assert (caught.value.reason, caught.value.is_passing) == ("model_loading", True)
    sign.set()
    assert embedder.wait(WAIT_S)
    np.testing.assert_array_equal(embedder.embed(["tea", ""]), [[1.0], [1.0]])
    np.testing.assert_array_equal(embedder.embed_query("tea"), [-1.0])


def onnx_folder(folder: Path) -> Path:
    """Write an ONNX model that gives each token its row of a table."""
    import onnx

    helper, kinds = onnx.helper, onnx.TensorProto
    table = np.eye(len(WORDS), dtype=np.float32)
    names = ("input_ids", "attention_mask")
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "input_ids"], ["last_hidden_state"])],
        "tiny",
        [helper.make_tensor_value_info(name, kinds.INT64, ["n", "t"]) for name in names],
        [helper.make_tensor_value_info("last_hidden_state", kinds.FLOAT, ["n", "t", len(WORDS)])],
        [onnx.numpy_helper.from_array(table, "table")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    folder.mkdir()
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer_json()))
    (folder / "config.json").write_text(json.dumps({"pad_token_id": 0}))
    config = {"model_max_length": 64, "pad_token": "[UNK]"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "special_tokens_map.json").write_text(json.dumps({"unk_token": "[UNK]"}))
    return folder


def test_a_folder_with_an_onnx_model_answers(tmp_path: Path) -> None:
    """Any local export works: the mean of its token vectors, of unit length."""
    embedder = TransformersEmbedder(str(onnx_folder(tmp_path / "m")), cache=tmp_path)
    assert embedder.wait(WAIT_S), embedder.embed(["tea"])
    found = embedder.embed(["tea", "jazz jazz tea tea"])
    np.testing.assert_array_equal(embedder.embed_query("tea"), found[0])
    np.testing.assert_allclose(found[0], [0, 1, 0, 0, 0], atol=1e-6)
    np.testing.assert_allclose(found[1], [0, 2**-0.5, 0, 2**-0.5, 0], atol=1e-6)
    again = TransformersEmbedder(str(tmp_path / "m"), cache=tmp_path)
    assert again.wait(WAIT_S)
