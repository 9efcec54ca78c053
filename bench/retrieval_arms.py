"""A store filled with labelled memories, asked through the product's own retrieval."""

import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from bench.retrieval_data import Collection, Track
from omniroute_litellm.engine import Engine
from omniroute_litellm.live_settings import LiveSettings
from omniroute_litellm.paths import DATABASE_NAME
from omniroute_litellm.retrieval import RetrievalRequest, Retriever
from omniroute_litellm.settings import Fusion, Strategy
from omniroute_litellm.sqlite import Database
from omniroute_litellm.sqlite_store import SqliteMemoryStore
from omniroute_litellm.trace import RetrievalTrace
from omniroute_litellm.types import (
    MemoryDraft,
    MemoryId,
    MemorySource,
    MemoryType,
    OwnerId,
    Scope,
)
from omniroute_litellm.variables import read_variables
from omniroute_litellm.vectors.base import NoTier

LARGEST_BUDGET: Final = 16_000
_LOAD_TIMEOUT_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to search: a name, what the embedding source is (none: words alone), and how."""

    name: str
    source: str | None
    strategy: Strategy = "hybrid"
    fusion: Fusion = "score"


@dataclass(frozen=True, slots=True)
class Loaded:
    """A filled store: which memory each label became, by collection, and what asks it."""

    labels: dict[str, dict[MemoryId, str]]
    retriever: Retriever

    def ask(self, collection: Collection, query: str, arm: Arm) -> RetrievalTrace:
        """Search a collection; the profile set, which is no answer to a query, is left out."""
        request = RetrievalRequest(
            scope=Scope((owner_of(collection),)),
            query=query,
            strategy=arm.strategy,
            max_tokens=LARGEST_BUDGET,
            profile_max_tokens=0,
            retention=timedelta(days=3_650),
            fusion=arm.fusion,
        )
        return self.retriever.retrieve(request)


def owner_of(collection: Collection) -> OwnerId:
    """Return the owner that a collection's memories are stored for."""
    return OwnerId(f"bench-{collection.name}")


@contextmanager
def loaded(folder: Path, tracks: Sequence[Track], source: str | None) -> Generator[Loaded]:
    """Store every collection as an owner of its own and wait until each memory has its vector.

    ``source`` is an embedding source of the settings, None for words alone.
    """
    database = Database(folder / DATABASE_NAME)
    moment = datetime(2026, 1, 1, tzinfo=UTC)

    def clock() -> datetime:
        return moment

    store = SqliteMemoryStore(database, clock=clock)
    labels: dict[str, dict[MemoryId, str]] = {}
    for collection in (each for track in tracks for each in track.collections):
        labels[collection.name] = _stored(database, store, collection)
    settings = LiveSettings(database, environ={}, clock=clock)
    # No clock of the index may stand still: it tells how long a lease lasts.
    engine = Engine(
        database,
        store,
        settings,
        read_variables({}, data_directory=folder),
        None,
        clock=lambda: datetime.now(UTC),
        worker="bench",
    )
    if source is not None:
        settings.change({"embeddingSource": source, "transformersEnabled": source != "static"})
        _fill(engine)
    try:
        yield Loaded(
            labels,
            Retriever(
                store,
                clock=clock,
                vectors=engine.semantic.tier if source is not None else NoTier,
            ),
        )
    finally:
        database.close()


def _stored(
    database: Database, store: SqliteMemoryStore, collection: Collection
) -> dict[MemoryId, str]:
    found: dict[MemoryId, str] = {}
    with database.writing() as connection:
        for label, text in collection.memories.items():
            draft = MemoryDraft(
                owner=owner_of(collection),
                type=MemoryType.FACTUAL,
                key=f"bench:{label}",
                content=text,
                source=MemorySource.IMPORT,
            )
            stored = store.upsert_within(connection, draft, actor="bench")
            found[stored.memory.id] = label
    return found


def _fill(engine: Engine) -> None:
    ends = time.monotonic() + _LOAD_TIMEOUT_S
    while True:
        if engine.indexer.step():
            continue
        if not isinstance(engine.semantic.refresh().tier, NoTier):
            return
        if time.monotonic() > ends:
            reason = engine.semantic.current.choice.reason
            message = f"no vectors after {_LOAD_TIMEOUT_S:.0f} s: {reason}"
            raise RuntimeError(message)
        time.sleep(0.1)
