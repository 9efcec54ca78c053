"""Vectors by look-up: the bundled model and folders in model2vec's format."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from omniroute_litellm.embedding.base import EmbedderUnavailableError
from omniroute_litellm.embedding.static import StaticEmbedder
from tests.embedding.models import rows, static_folder

BUNDLED = StaticEmbedder()
TABLE = rows([9, 9], [1, 0], [0.8, 0.6], [0, 1], [0, -1])


def test_related_texts_are_nearer_than_others() -> None:
    """The bundled model knows words of one topic that share no letter."""
    asked, near, far = BUNDLED.embed(
        ["What does my dog eat?", "My puppy gets kibble", "We chose Postgres for billing"]
    )
    assert float(asked @ near) > float(asked @ far) + 0.2


@given(texts=st.lists(st.text(max_size=60), max_size=6))
@settings(max_examples=60, deadline=None)
def test_any_text_is_a_unit_row_or_zeros(texts: list[str]) -> None:
    """No text fails; what the model knows nothing of is a row of zeros."""
    lengths = np.linalg.norm(BUNDLED.embed(texts), axis=1)
    assert ((np.abs(lengths - 1) < 1e-5) | (lengths == 0)).all()
    assert len(lengths) == len(texts)


def test_a_text_alone_and_in_a_batch_is_the_same() -> None:
    """Batches change no vector: queries and memories can be compared."""
    texts = ["tea", "I always commit before I push", ""]
    together = BUNDLED.embed(texts)
    alone = np.concatenate([BUNDLED.embed([text]) for text in texts])
    np.testing.assert_array_equal(together, alone)


def test_the_end_of_a_very_long_text_does_not_count() -> None:
    """A megabyte costs no more than what is read of it."""
    text = "tea " * 5_000
    np.testing.assert_array_equal(BUNDLED.embed([text + "jazz"]), BUNDLED.embed([text]))


def test_a_question_goes_by_what_it_is_about() -> None:
    """Words that only ask count for less; a text of nothing else, or without any, is as it is."""
    asked = BUNDLED.embed_query("What is the name of my dog?")
    whole, told = BUNDLED.embed(["What is the name of my dog?", "name dog"])
    assert np.linalg.norm(asked) == pytest.approx(1, abs=1e-5)
    assert float(asked @ told) > float(whole @ told)
    for text in ("What is it?", "dog kibble", "", "\u200b", "你好吗"):
        np.testing.assert_array_equal(BUNDLED.embed_query(text), BUNDLED.embed([text])[0])


def test_threads_share_one_table() -> None:
    """A model that several threads need at once is loaded once and answers all."""
    embedder = StaticEmbedder()
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(embedder.embed, [["green tea"]] * 32))
    assert all(np.array_equal(each, found[0]) for each in found)


@pytest.mark.parametrize("kind", ["float32", "float16", "float64"])
def test_a_model2vec_folder_is_read(tmp_path: Path, kind: str) -> None:
    """Rows of the tokens are averaged, unknown words are left out."""
    embedder = StaticEmbedder(
        static_folder(tmp_path / "m", {"embeddings": TABLE.astype(kind)}), model="tiny"
    )
    found = embedder.embed(["tea", "Tea unheard jazz", "unheard"])
    np.testing.assert_allclose(found, [[1, 0], [2**-0.5, 2**-0.5], [0, 0]], atol=1e-3)


def test_shared_rows_and_weights_are_followed(tmp_path: Path) -> None:
    """Newer folders let tokens share rows and weigh each token."""
    tensors: dict[str, NDArray[Any]] = {
        "embeddings": rows([1, 0], [0, 1]),
        "mapping": np.array([0, 0, 0, 1, 1], dtype=np.int64),
        "weights": np.array([1, 3, 1, 4, 1], dtype=np.float64),
    }
    found = StaticEmbedder(static_folder(tmp_path / "m", tensors)).embed(["tea jazz", "coffee"])
    np.testing.assert_allclose(found, [[0.6, 0.8], [1, 0]], atol=1e-6)


def test_a_missing_folder_says_how_to_mend_it(tmp_path: Path) -> None:
    """The reason is a code, the hint names the folder and the variable."""
    with pytest.raises(EmbedderUnavailableError) as caught:
        StaticEmbedder(tmp_path / "nowhere").embed(["tea"])
    assert caught.value.reason == "model_missing"
    assert str(tmp_path / "nowhere") in caught.value.hint
    assert "MEMORY_STATIC_MODEL" in caught.value.hint


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("model.safetensors", None),
        ("tokenizer.json", b"{"),
        ("tokenizer.json", b"[]"),
        ("model.safetensors", b"\x05" * 64),
        ("model.safetensors", b""),
        ("table.npy", b"no array"),
    ],
)
def test_a_broken_folder_is_a_reason(tmp_path: Path, file: str, content: bytes | None) -> None:
    """Whatever is wrong with the files, the tier is left with a code."""
    folder = static_folder(tmp_path / "m", {"embeddings": TABLE})
    if content is None:
        (folder / file).unlink()
    else:
        (folder / file).write_bytes(content)
    with pytest.raises(EmbedderUnavailableError) as caught:
        StaticEmbedder(folder).embed(["tea"])
    assert caught.value.reason == "model_broken"
    assert "\n" not in str(caught.value)


def test_a_table_of_the_wrong_shape_is_a_reason(tmp_path: Path) -> None:
    """One long row is no table."""
    folder = static_folder(tmp_path / "m", {"embeddings": np.zeros(8, dtype=np.float32)})
    with pytest.raises(EmbedderUnavailableError, match="cannot read"):
        StaticEmbedder(folder).embed(["tea"])
