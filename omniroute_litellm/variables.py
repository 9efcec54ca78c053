"""What only the environment sets: OmniRoute's ``MEMORY_*`` variables, read once at start."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

Quantization = Literal["none", "int8"]

DEFAULT_TRANSFORMERS_MODEL: Final = "Xenova/all-MiniLM-L6-v2"
DEADLINE_MS: Final = 150
SLOW_DEADLINE_MS: Final = 600
"""While a query's vector comes from a remote model or a transformer."""
RERANK_DEADLINE_MS: Final = 1_500
_MAX_DIGITS: Final = 9


@dataclass(frozen=True, slots=True)
class Variables:
    """The variables of one process. ``problems`` are one-line texts; those values are defaults.

    ``deadline_ms`` is None while nobody set one: then it follows from what a request has to wait
    for.
    """

    deadline_ms: int | None
    rrf_k: int
    vec_top_k: int
    cache_max: int
    cache_ttl_ms: int
    quantization: Quantization
    static_model: str
    transformers_model: str
    model_directory: Path
    problems: tuple[str, ...] = ()


def read_variables(environ: Mapping[str, str], *, data_directory: Path) -> Variables:
    """Read the variables; nonsense is a problem and leaves the default in place."""
    problems: list[str] = []

    def number(name: str, default: int | None, *, least: int) -> int | None:
        text = environ.get(name, "").strip()
        if not text:
            return default
        if text.isdecimal() and len(text) <= _MAX_DIGITS and int(text) >= least:
            return int(text)
        problems.append(
            f"{name}: expected a whole number from {least}, got {text!r}; using "
            f"{'the default' if default is None else default}"
        )
        return default

    def text(name: str, default: str) -> str:
        return environ.get(name, "").strip() or default

    quantization: Quantization = "none"
    wanted = text("MEMORY_VEC_QUANTIZATION", "none").lower()
    if wanted == "int8":
        quantization = "int8"
    elif wanted != "none":
        problems.append(f"MEMORY_VEC_QUANTIZATION: expected none or int8, got {wanted!r}")
    directory = text("MEMORY_STATIC_CACHE_DIR", "")
    return Variables(
        deadline_ms=number("MEMORY_DEADLINE_MS", None, least=1),
        rrf_k=number("MEMORY_RRF_K", 60, least=1) or 60,
        vec_top_k=number("MEMORY_VEC_TOP_K", 20, least=1) or 20,
        cache_max=number("MEMORY_EMBEDDING_CACHE_MAX", 1_000, least=0) or 0,
        cache_ttl_ms=number("MEMORY_EMBEDDING_CACHE_TTL_MS", 300_000, least=0) or 0,
        quantization=quantization,
        static_model=text("MEMORY_STATIC_MODEL", ""),
        transformers_model=text("MEMORY_TRANSFORMERS_MODEL", DEFAULT_TRANSFORMERS_MODEL),
        model_directory=Path(directory).expanduser()
        if directory
        else data_directory / "embeddings",
        problems=tuple(problems),
    )
