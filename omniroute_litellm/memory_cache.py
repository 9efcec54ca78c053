"""Memories that were read before, held as long as the database says that none was changed."""

import threading
from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from omniroute_litellm.census import Census
from omniroute_litellm.types import Memory, MemoryId

MAX_MEMORIES: Final = 8_192
"""Some 15 MB: what one busy owner's questions come back to, or a hundred owners' profiles."""


@dataclass(frozen=True, slots=True)
class Listed:
    """The keys of one list of an owner, as it was read when ``documents`` were ever stored."""

    keys: Sequence[int]
    documents: int
    read_at: datetime


@dataclass(slots=True)
class OwnerCache:
    """What was read of one owner at one revision, by integer key; lists by what was asked.

    How often a memory was used is not part of a revision: that count may lag behind.
    """

    revision: int
    memories: dict[int, Memory] = field(default_factory=dict[int, Memory])
    keys: dict[MemoryId, int] = field(default_factory=dict[MemoryId, int])
    lists: dict[Hashable, Listed] = field(default_factory=dict[Hashable, Listed])
    censuses: dict[Hashable, Census] = field(default_factory=dict[Hashable, Census])


class MemoryCache:
    """The owners that were asked about last. Safe for several threads.

    Every process has its own. None can be wrong for another's change: the revision is read in the
    same snapshot of the database as the question it answers.
    """

    def __init__(self, *, capacity: int = MAX_MEMORIES) -> None:
        self._capacity = capacity
        self._lock = threading.Lock()
        self._owners: OrderedDict[int, OwnerCache] = OrderedDict()
        self._held = 0

    def of(self, owner: int, revision: int) -> OwnerCache:
        """Return what is known of an owner at a revision; an older one than known stays apart."""
        with self._lock:
            known = self._owners.get(owner)
            if known is not None and known.revision == revision:
                self._owners.move_to_end(owner)
                return known
            fresh = OwnerCache(revision)
            if known is None or known.revision < revision:
                self._drop(owner)
                self._owners[owner] = fresh
            return fresh

    def add(self, owner: int, cache: OwnerCache, memories: Mapping[int, Memory]) -> None:
        """Keep what was read; what was asked about longest ago goes to make room."""
        with self._lock:
            if self._owners.get(owner) is not cache:
                return
            before = len(cache.memories)
            cache.memories.update(memories)
            self._held += len(cache.memories) - before
            while self._held > self._capacity:
                self._drop(next(iter(self._owners)))

    def _drop(self, owner: int) -> None:
        gone = self._owners.pop(owner, None)
        if gone is not None:
            self._held -= len(gone.memories)
