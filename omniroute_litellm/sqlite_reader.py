"""The reads of one retrieval in SQLite: every one bounded to its scope inside the query."""

import functools
import json
import threading
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, TypeVar, cast

from omniroute_litellm import stopwords
from omniroute_litellm.memory_cache import Listed, MemoryCache, OwnerCache
from omniroute_litellm.ranking import TermMatch, best_matches, bm25, term_weights
from omniroute_litellm.sqlite import Connection, Database, Row, Value, quoted, tokenizer
from omniroute_litellm.sqlite_rows import COLUMNS, JOINED, JSON_COLUMNS, memory_of, memory_of_json
from omniroute_litellm.store import Alive, KeywordHit
from omniroute_litellm.types import Memory, MemoryId, Scope, to_iso

T = TypeVar("T")

MAX_QUERY_TERMS: Final = 32
"""Terms of one query that are looked up; longer texts repeat themselves."""

MATCH_DEPTH: Final = 100
"""So many matches are looked at closely: the best by weight of their terms, newest first."""

MAX_HOLDING: Final = 10_000
"""So many memories that hold one term are looked at, the newest; how many there are is counted."""

FULL_STORE_HOLDS: Final = timedelta(minutes=1)
"""How long a store that was too large for a list counts as such: memories age out of it."""

_OWNER: Final = "SELECT number, next_sequence, revision FROM owners WHERE api_key_id = :owner"
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
_READABLE: Final = f"""
SELECT json_group_array(m.pk - :first) FROM memories AS m
WHERE m.pk IN (SELECT :first + value FROM json_each(:numbers)) AND {_ALIVE}
"""
# What there is of one term for one owner is a range of the index. Sequence numbers are shorter
# than keys: half of the text that is to be read.
_HOLDING: Final = """
(SELECT json_group_array(rowid - :first) FROM (
    SELECT rowid FROM memory_fts WHERE memory_fts MATCH :term{0} AND rowid BETWEEN :first AND :last
    ORDER BY rowid DESC LIMIT :most
))
"""
_COUNT: Final = """
SELECT count(*) FROM memory_fts WHERE memory_fts MATCH :term AND rowid BETWEEN :first AND :last
"""
_BY_ID: Final = f"""
SELECT {COLUMNS} FROM {JOINED} WHERE m.id = :id AND m.api_key_id = :owner AND {_ALIVE}
"""
_PK: Final = 17
"""Where COLUMNS holds the integer key."""


@dataclass(frozen=True, slots=True)
class _Owner:
    """One owner of a scope in one snapshot: its range of keys, and what is known of it already.

    ``documents`` is how many memories it ever stored.
    """

    connection: Connection
    values: Mapping[str, Value]
    number: int
    documents: int
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
        with self._owners(scope, alive) as owners:
            for owner in owners:
                if self._is_known_as_full(owner, scope, alive, at_most):
                    return None
                found += self._listed(owner, _FIRST, scope, alive, limit=at_most + 1)
        if len(found) > at_most:
            return None
        return sorted(found, key=lambda memory: memory.created_at)

    def keyword(self, scope: Scope, alive: Alive, *, query: str, limit: int) -> list[KeywordHit]:
        """Return what shares a word with the query, best first.

        Ties go to the newer memory. Document frequencies are counted inside the owners of the
        scope: an index that several owners share would rank by the words of strangers.
        """
        with self._owners(scope, alive) as owners:
            if not owners:
                return []
            terms = query_terms(tokenizer(owners[0].connection)(query))
            if not terms:
                return []
            holding = [_holding(owner, terms) for owner in owners]
            counts = [
                sum(
                    _count(owner, term, len(keys)) for owner, keys in zip(owners, each, strict=True)
                )
                for term, *each in zip(terms, *holding, strict=True)
            ]
            documents = sum(owner.documents for owner in owners)
            weights = term_weights(counts, documents=documents, enough=MATCH_DEPTH)
            matches: dict[int, TermMatch] = {}
            memories: dict[int, Memory] = {}
            for owner, held in zip(owners, holding, strict=True):
                weighed = [(held[at], weight) for at, weight in weights.items()]
                for pk, match in self._readable(owner, scope, alive, weighed):
                    matches[pk], memories[pk] = match
        scores = bm25(matches, terms=len(terms))
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
    def _owners(self, scope: Scope, alive: Alive) -> Generator[list[_Owner]]:
        with self._database.reading() as connection:
            seen: dict[object, list[_Owner]] | None = getattr(self._local, "owners", None)
            found = None if seen is None else seen.get((scope, alive))
            if found is None:
                found = self._look_up(connection, scope, alive)
                if seen is not None:
                    seen[scope, alive] = found
            yield found

    def _look_up(self, connection: Connection, scope: Scope, alive: Alive) -> list[_Owner]:
        if self._generation != self._database.generation:
            self._cache, self._generation = MemoryCache(), self._database.generation
        base = _bounds(scope, alive)
        found: list[_Owner] = []
        for api_key_id in scope.owners:
            for row in connection.execute(_OWNER, {"owner": api_key_id}):
                number, following, revision = cast("tuple[int, int, int]", row)
                keys = {"first": number << 32, "last": (number << 32) | 0xFFFFFFFF}
                values = {**base, **keys, "owner": api_key_id}
                known = self._cache.of(number, revision)
                found.append(_Owner(connection, values, number, following - 1, known))
        return found

    def _newest_of(self, sql: str, scope: Scope, alive: Alive, *, limit: int) -> list[Memory]:
        with self._owners(scope, alive) as owners:
            found = [
                memory
                for owner in owners
                for memory in self._listed(owner, sql, scope, alive, limit=limit)
            ]
        return sorted(found, key=lambda memory: memory.updated_at, reverse=True)[:limit]

    def _listed(
        self, owner: _Owner, sql: str, scope: Scope, alive: Alive, *, limit: int
    ) -> list[Memory]:
        """Return the readable memories of one list, by the keys of the last time if they hold."""
        name = _list_name(sql, scope, alive, limit)
        known = owner.known.lists.get(name)
        if known is not None and known.documents == owner.documents:
            memories = self._memories(owner, known.keys)
            found = [memories[pk] for pk in known.keys if alive.has(memories[pk], scope.session)]
            if len(found) == len(known.keys):
                return found
        values = {**owner.values, "limit": limit}
        keys = cast("list[int]", _json_of(owner.connection, _LISTED.format(list=sql), values))
        owner.known.lists[name] = Listed(keys, owner.documents, alive.now)
        memories = self._memories(owner, keys)
        return [memories[pk] for pk in keys]

    def _is_known_as_full(self, owner: _Owner, scope: Scope, alive: Alive, at_most: int) -> bool:
        known = owner.known.lists.get(_list_name(_FIRST, scope, alive, at_most + 1))
        return (
            known is not None
            and len(known.keys) > at_most
            and timedelta(0) <= alive.now - known.read_at < FULL_STORE_HOLDS
        )

    def _readable(
        self,
        owner: _Owner,
        scope: Scope,
        alive: Alive,
        weighed: Sequence[tuple[Sequence[int], float]],
    ) -> Iterable[tuple[int, tuple[TermMatch, Memory]]]:
        """Return the best matches of one owner that may be read.

        First the best of all are looked at, and what may not be read is left out. Should that
        have cost places, the rest is asked for what may be read: slower, and never short.
        """
        best = _keyed(owner, best_matches(weighed, depth=MATCH_DEPTH))
        memories = self._alive(owner, scope, alive, best)
        if len(best) == MATCH_DEPTH and len(memories) < MATCH_DEPTH:
            may = _readable_of(owner, {number for numbers, _ in weighed for number in numbers})
            fit = [
                ([each for each in numbers if each in may], weight) for numbers, weight in weighed
            ]
            best = _keyed(owner, best_matches(fit, depth=MATCH_DEPTH))
            memories = self._alive(owner, scope, alive, best)
        return [
            (pk, (TermMatch(weight, terms, len(memories[pk].content)), memories[pk]))
            for pk, (weight, terms) in best.items()
            if pk in memories
        ]

    def _alive(
        self, owner: _Owner, scope: Scope, alive: Alive, pks: Iterable[int]
    ) -> dict[int, Memory]:
        found = self._memories(owner, list(pks))
        return {pk: each for pk, each in found.items() if alive.has(each, scope.session)}

    def _memories(self, owner: _Owner, pks: Sequence[int]) -> dict[int, Memory]:
        """Return the memories of some keys of an owner, whether they may be read or not."""
        held = owner.known.memories
        found = {pk: held[pk] for pk in pks if pk in held}
        missing = [pk for pk in pks if pk not in found]
        if missing:
            values: dict[str, Value] = {"pks": json.dumps(missing)}
            rows = cast("list[list[object]]", _json_of(owner.connection, _BY_PKS, values))
            read = {cast("int", row[_PK]): memory_of_json(row) for row in rows}
            self._cache.add(owner.number, owner.known, read)
            found |= read
        return found


def query_terms(words: Sequence[str]) -> list[str]:
    """Return the words of a query worth looking up: no stop words, each once, the last 32.

    The end of a long message is where its question stands.
    """
    unique = dict.fromkeys(word for word in words if word not in stopwords.ENGLISH)
    return list(unique)[-MAX_QUERY_TERMS:]


def _holding(owner: _Owner, terms: Sequence[str]) -> list[list[int]]:
    """Return the sequence numbers of the memories that hold each term, the newest first."""
    named: dict[str, Value] = {f"term{at}": quoted(term) for at, term in enumerate(terms)}
    values = {**owner.values, **named, "most": MAX_HOLDING}
    row = _row(owner.connection, _searching(len(terms)), values)
    return [json.loads(str(numbers)) for numbers in row]


def _keyed(owner: _Owner, best: Mapping[int, T]) -> dict[int, T]:
    """Return what is named by sequence number by key instead."""
    first = cast("int", owner.values["first"])
    return {first + number: found for number, found in best.items()}


def _readable_of(owner: _Owner, numbers: Iterable[int]) -> frozenset[int]:
    """Return those of some sequence numbers whose memories may be read."""
    values = {**owner.values, "numbers": json.dumps(list(numbers))}
    return frozenset(cast("list[int]", _json_of(owner.connection, _READABLE, values)))


def _count(owner: _Owner, term: str, seen: int) -> int:
    """Return how many memories of an owner hold a term of which so many were seen."""
    if seen < MAX_HOLDING:
        return seen
    values = {**owner.values, "term": quoted(term)}
    return cast("int", _row(owner.connection, _COUNT, values)[0])


@functools.cache
def _searching(terms: int) -> str:
    return "SELECT " + ", ".join(_HOLDING.format(at) for at in range(terms))


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
