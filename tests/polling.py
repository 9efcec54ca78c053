"""Waiting for a condition instead of for a time."""

import time
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

INTERVAL_S: Final = 0.02


def wait_for(probe: Callable[[], T | None], *, timeout_s: float, what: str) -> T:
    """Return the first truthy value of `probe`; raise TimeoutError naming `what` after that."""
    deadline = time.monotonic() + timeout_s
    while True:
        if found := probe():
            return found
        if time.monotonic() > deadline:
            msg = f"{what} did not happen within {timeout_s:g} s"
            raise TimeoutError(msg)
        time.sleep(INTERVAL_S)
