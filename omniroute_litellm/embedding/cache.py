"""Vectors of texts that were asked about lately."""

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from omniroute_litellm.embedding.base import Row


@dataclass(frozen=True, slots=True)
class CacheCounts:
    """How often a text was found, how often not, and how many are held."""

    hits: int
    misses: int
    size: int


class EmbeddingCache:
    """The last ``capacity`` queries, each for ``ttl_s``; what was used longest ago goes first.

    Keyed by ``source:model:dimension:sha256(text)``: no text is held, and a new model starts
    empty. Safe for several threads; one for all callers of a process.
    """

    def __init__(
        self, *, capacity: int, ttl_s: float, timer: Callable[[], float] = time.monotonic
    ) -> None:
        self._capacity = capacity
        self._ttl_s = ttl_s
        self._timer = timer
        self._lock = threading.Lock()
        self._rows: OrderedDict[str, tuple[float, Row]] = OrderedDict()
        self._hits = 0
        self._misses = 0

    def get(self, key: str) -> Row | None:
        """Return a vector, and count whether it was there."""
        with self._lock:
            found = self._rows.get(key)
            if found is not None and self._timer() - found[0] < self._ttl_s:
                self._rows.move_to_end(key)
                self._hits += 1
                return found[1]
            self._rows.pop(key, None)
            self._misses += 1
            return None

    def put(self, key: str, row: Row) -> None:
        """Hold a vector."""
        with self._lock:
            self._rows[key] = (self._timer(), row)
            self._rows.move_to_end(key)
            while len(self._rows) > self._capacity:
                self._rows.popitem(last=False)

    @property
    def counts(self) -> CacheCounts:
        """The counters since the process started."""
        with self._lock:
            return CacheCounts(self._hits, self._misses, len(self._rows))


def cache_key(source: str, model: str, dimension: int, text: str) -> str:
    """Return the key of a text for a model."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{source}:{model}:{dimension}:{digest}"
