"""The reads of one retrieval in SQLite: every one bounded to its scope inside the query."""

import json
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, TypeVar, cast

from omniroute_litellm import stopwords
from omniroute_litellm.census import MAX_HELD, Census, closed_at
from omniroute_litellm.memory_cache import Listed, MemoryCache, OwnerCache
from omniroute_litellm.ranking import TermMatch, best_matches, bm25, term_weights
from omniroute_litellm.sqlite import Connection, Database, Row, Value, tokenizer
from omniroute_litellm.sqlite_rows import COLUMNS, JOINED, JSON_COLUMNS, memory_of, memory_of_json
from omniroute_litellm.sqlite_terms import OwnerTerms, all_holding
from omniroute_litellm.store import Alive, KeywordHit
from omniroute_litellm.types import Memory, MemoryId, Scope, from_iso, to_iso

T = TypeVar("T")

MAX_QUERY_TERMS: Final = 32
"""Terms of one query that are looked up; longer texts repeat themselves."""

MATCH_DEPTH: Final = 100
"""So many matches are looked at closely: the best by weight of their terms, newest first."""

FULL_STORE_HOLDS: Final = timedelta(minutes=1)
"""How long a store that was too large for a list counts as such: memories age out of it."""

_OWNER: Final = """
SELECT number, next_sequence, revision, vector_revision FROM owners WHERE api_key_id = :owner
"""
_ALIVE: Final = """
m.status = 'active'
AND (m.expires_at IS NULL OR m.expires_at > :now)
AND (m.pinned OR m.last_seen_at >= :since)
AND (:session IS NULL OR m.session_id = :session)
"""
_NEWEST: Final = f"""
SELECT m.pk FROM memories AS m WHERE m.api_key_id = :owner AND {_ALIVE}
ORDER BY m.updated_at DESC LIMIT :limit
"""
_PROFILE: Final = f"""
SELECT m.pk FROM memories AS m WHERE m.api_key_id = :owner AND m.is_profile AND {_ALIVE}
ORDER BY m.updated_at DESC LIMIT :limit
"""
_FIRST: Final = f"""
SELECT m.pk FROM memories AS m WHERE m.pk BETWEEN :first AND :last AND {_ALIVE}
ORDER BY m.pk LIMIT :limit
"""
# Lists come as one row of JSON: the driver gives up the interpreter's lock at each row, and beside
# a busy thread it waits for the lock longer than the search takes.
_LISTED: Final = "SELECT json_group_array(pk) FROM ({list})"
_BY_PKS: Final = f"""
SELECT json_group_array(json_array({JSON_COLUMNS})) FROM {JOINED}
WHERE m.pk IN (SELECT value FROM json_each(:pks))
"""
_CENSUS: Final = f"""
SELECT json_array(count(*) FILTER (WHERE is_alive), min(expires_at) FILTER (WHERE is_alive),
    min(last_seen_at) FILTER (WHERE is_alive AND NOT pinned),
    json_group_array(number) FILTER (WHERE NOT is_alive))
FROM (
    SELECT m.pk - :first AS number, m.expires_at, m.last_seen_at, m.pinned,
        ({_ALIVE}) IS TRUE AS is_alive
    FROM memories AS m WHERE m.pk BETWEEN :first + :after + 1 AND :last
)
"""
_BY_ID: Final = f"""
SELECT {COLUMNS} FROM {JOINED} WHERE m.id = :id AND m.api_key_id = :owner AND {_ALIVE}
"""
_KEYS: Final = """
SELECT id, pk FROM memories
WHERE api_key_id = :owner AND id IN (SELECT value FROM json_each(:ids))
"""
READABLE: Final = f"SELECT m.pk FROM memories AS m WHERE m.pk BETWEEN :first AND :last AND {_ALIVE}"
"""The keys that a scope may read, for searches of other tables that are joined by key."""
_PK: Final = 17
"""Where COLUMNS holds the integer key."""


@dataclass(frozen=True, slots=True)
class OwnerView:
    """One owner of a scope in one snapshot: its range of keys, and what is known of it already.

    ``documents`` is how many memories it ever stored; ``vector_revision`` changes whenever a
    vector that was read before may be wrong.
    """

    connection: Connection
    values: Mapping[str, Value]
    number: int
    documents: int
    vector_revision: int
    known: OwnerCache


class SqliteMemoryReader:
    """The MemoryReader of one host."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._cache = MemoryCache()
        self._generation = database.generation
        self._local = threading.local()

    @contextmanager
    def snapshot(self) -> Generator[None]:
        """Let all reads of this thread see the store at one moment."""
        with self._database.reading():
            self._local.owners = {}
            try:
                yield
            finally:
                self._local.owners = None

    def newest(self, scope: Scope, alive: Alive, *, limit: int) -> list[Memory]:
        """Return active memories, newest first."""
        return self._newest_of(_NEWEST, scope, alive, limit=limit)

    def profile(self, scope: Scope, alive: Alive, *, limit: int) -> list[Memory]:
        """Return pinned memories, preferences, habits and identity, newest first."""
        return self._newest_of(_PROFILE, scope, alive, limit=limit)

    def all_if_few(self, scope: Scope, alive: Alive, *, at_most: int) -> list[Memory] | None:
        """Return every memory, oldest first, or None when there are more than ``at_most``."""
        found: list[Memory] = []
        with self.owner_views(scope, alive) as owners:
            for owner in owners:
                if self._is_known_as_full(owner, scope, alive, at_most):
                    return None
                found += self._listed(owner, _FIRST, scope, alive, limit=at_most + 1)
        if len(found) > at_most:
            return None
        return sorted(found, key=lambda memory: memory.created_at)

    def keyword(self, scope: Scope, alive: Alive, *, query: str, limit: int) -> list[KeywordHit]:
        """Return what shares a word with the query, best first.

        Ties go to the newer memory. Document frequencies are counted over what the scope may
        read: an index that several owners share would rank by the words of strangers, and what
        was replaced or has expired by words that nobody stands by any more.
        """
        with self.owner_views(scope, alive) as owners:
            if not owners:
                return []
            terms = query_terms(tokenizer(owners[0].connection)(query))
            if not terms:
                return []
            censuses = [census_of(owner, scope, alive) for owner in owners]
            ranges = [
                OwnerTerms(owner.connection, owner.values, owner.documents, census)
                for owner, census in zip(owners, censuses, strict=True)
            ]
            holding = all_holding(ranges, terms, is_ascii=query.isascii())
            counts = [sum(held.count for held in each) for each in zip(*holding, strict=True)]
            documents = sum(census.readable for census in censuses)
            weights = term_weights(counts, documents=documents, enough=MATCH_DEPTH)
            matches: dict[int, TermMatch] = {}
            memories: dict[int, Memory] = {}
            for owner, held in zip(owners, holding, strict=True):
                weighed = [(held[at].numbers, weight) for at, weight in weights.items()]
                best = _keyed(owner, best_matches(weighed, depth=MATCH_DEPTH))
                found = self.memories_of(owner, list(best))
                memories |= found
                for pk, memory in found.items():
                    matches[pk] = TermMatch(*best[pk], len(memory.content))
        scores = bm25(matches, terms=max(map(len, holding)))
        # Newest first among equals: keys grow with time inside of an owner.
        order = sorted(scores, key=lambda pk: (-scores[pk].score, -pk))[:limit]
        return [KeywordHit(memories[pk], scores[pk].score, scores[pk].coverage) for pk in order]

    def by_ids(
        self, scope: Scope, alive: Alive, memory_ids: Sequence[MemoryId]
    ) -> dict[MemoryId, Memory]:
        """Return those of the given memories that the scope may read."""
        found: dict[MemoryId, Memory] = {}
        with self._database.reading() as connection:
            for owner in scope.owners:
                base = {**_bounds(scope, alive), "owner": owner}
                for memory_id in memory_ids:
                    for row in connection.execute(_BY_ID, {**base, "id": memory_id}):
                        found[memory_id] = memory_of(row)
        return found

    @contextmanager
    def owner_views(self, scope: Scope, alive: Alive) -> Generator[list[OwnerView]]:
        """Lend the owners of a scope that ever stored something, all in one snapshot."""
        with self._database.reading() as connection:
            seen: dict[object, list[OwnerView]] | None = getattr(self._local, "owners", None)
            found = None if seen is None else seen.get((scope, alive))
            if found is None:
                found = self._look_up(connection, scope, alive)
                if seen is not None:
                    seen[scope, alive] = found
            yield found

    def _look_up(self, connection: Connection, scope: Scope, alive: Alive) -> list[OwnerView]:
        if self._generation != self._database.generation:
            self._cache, self._generation = MemoryCache(), self._database.generation
        base = _bounds(scope, alive)
        found: list[OwnerView] = []
        for api_key_id in scope.owners:
            for row in connection.execute(_OWNER, {"owner": api_key_id}):
                number, following, revision, vectors = cast("tuple[int, int, int, int]", row)
                keys = {"first": number << 32, "last": (number << 32) | 0xFFFFFFFF}
                values = {**base, **keys, "owner": api_key_id}
                known = self._cache.of(number, revision)
                found.append(OwnerView(connection, values, number, following - 1, vectors, known))
        return found

    def _newest_of(self, sql: str, scope: Scope, alive: Alive, *, limit: int) -> list[Memory]:
        with self.owner_views(scope, alive) as owners:
            found = [
                memory
                for owner in owners
                for memory in self._listed(owner, sql, scope, alive, limit=limit)
            ]
        return sorted(found, key=lambda memory: memory.updated_at, reverse=True)[:limit]

    def _listed(
        self, owner: OwnerView, sql: str, scope: Scope, alive: Alive, *, limit: int
    ) -> list[Memory]:
        """Return the readable memories of one list, by the keys of the last time if they hold."""
        name = _list_name(sql, scope, alive, limit)
        known = owner.known.lists.get(name)
        if known is not None and known.documents == owner.documents:
            memories = self.memories_of(owner, known.keys)
            found = [memories[pk] for pk in known.keys if alive.has(memories[pk], scope.session)]
            if len(found) == len(known.keys):
                return found
        values = {**owner.values, "limit": limit}
        keys = cast("list[int]", _json_of(owner.connection, _LISTED.format(list=sql), values))
        owner.known.lists[name] = Listed(keys, owner.documents, alive.now)
        memories = self.memories_of(owner, keys)
        return [memories[pk] for pk in keys]

    def _is_known_as_full(self, owner: OwnerView, scope: Scope, alive: Alive, at_most: int) -> bool:
        known = owner.known.lists.get(_list_name(_FIRST, scope, alive, at_most + 1))
        return (
            known is not None
            and len(known.keys) > at_most
            and timedelta(0) <= alive.now - known.read_at < FULL_STORE_HOLDS
        )

    def memories_of(self, owner: OwnerView, pks: Sequence[int]) -> dict[int, Memory]:
        """Return the memories of some keys of an owner, whether they may be read or not."""
        held = owner.known.memories
        found = {pk: held[pk] for pk in pks if pk in held}
        missing = [pk for pk in pks if pk not in found]
        if missing:
            values: dict[str, Value] = {"pks": json.dumps(missing)}
            rows = cast("list[list[object]]", _json_of(owner.connection, _BY_PKS, values))
            read = {cast("int", row[_PK]): memory_of_json(row) for row in rows}
            self._cache.add(owner.number, owner.known, read)
            owner.known.keys.update((memory.id, pk) for pk, memory in read.items())
            found |= read
        return found

    def keys_of(self, owner: OwnerView, memory_ids: Sequence[MemoryId]) -> dict[MemoryId, int]:
        """Return the keys of those memories that are an owner's."""
        known = owner.known.keys
        found = {each: known[each] for each in memory_ids if each in known}
        missing = [each for each in memory_ids if each not in found]
        if missing:
            values = {**owner.values, "ids": json.dumps(missing)}
            for memory_id, pk in owner.connection.execute(_KEYS, values):
                found[MemoryId(str(memory_id))] = cast("int", pk)
        return found


def query_terms(words: Sequence[str]) -> list[str]:
    """Return the words of a query worth looking up: no stop words, each once, the last 32.

    The end of a long message is where its question stands.
    """
    unique = dict.fromkeys(word for word in words if word not in stopwords.ENGLISH)
    return list(unique)[-MAX_QUERY_TERMS:]


def _keyed(owner: OwnerView, best: Mapping[int, T]) -> dict[int, T]:
    """Return what is named by sequence number by key instead."""
    first = cast("int", owner.values["first"])
    return {first + number: found for number, found in best.items()}


def census_of(owner: OwnerView, scope: Scope, alive: Alive) -> Census:
    """Return which memories may be read: of what is known already only the new are looked at."""
    held, name = owner.known.censuses, (scope.session, alive.now - alive.since)
    known = held.get(name)
    if known is not None and not known.covers(alive.now):
        known = None
    if known is not None and known.documents >= owner.documents:
        return known
    values = {**owner.values, "after": known.documents if known is not None else 0}
    row = cast(
        "tuple[int, str | None, str | None, list[int]]", _json_of(owner.connection, _CENSUS, values)
    )
    readable, expires_at, last_seen_at, closed = row
    ends = [from_iso(expires_at)] if expires_at else []
    if last_seen_at:
        ends.append(from_iso(last_seen_at) + (alive.now - alive.since))
    fresh = Census(owner.documents, readable, closed_at(closed), alive.now, min(ends, default=None))
    found = fresh if known is None else known.joined(fresh)
    if len(held) >= MAX_HELD:
        held.clear()
    held[name] = found
    return found


def _bounds(scope: Scope, alive: Alive) -> dict[str, Value]:
    return {"now": to_iso(alive.now), "since": to_iso(alive.since), "session": scope.session}


def _list_name(
    sql: str, scope: Scope, alive: Alive, limit: int
) -> tuple[str, str | None, timedelta, int]:
    return sql, scope.session, alive.now - alive.since, limit


def _json_of(connection: Connection, sql: str, values: Mapping[str, Value]) -> object:
    return json.loads(str(_row(connection, sql, values)[0]))


def _row(connection: Connection, sql: str, values: Mapping[str, Value]) -> Row:
    """Return the one row of a statement, without asking whether there is another."""
    cursor = connection.execute(sql, values)
    row = next(iter(cursor))
    cursor.close()
    return row
