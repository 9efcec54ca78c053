"""Persistent memory for every model behind a LiteLLM proxy."""

from typing import Final

__version__: Final = "0.1.0"
