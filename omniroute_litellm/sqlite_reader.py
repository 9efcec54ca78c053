"""The reads of one retrieval in SQLite: every one bounded to its scope inside the query."""

from collections.abc import Sequence
from typing import Final, cast

from omniroute_litellm import stopwords
from omniroute_litellm.ranking import KeywordScore, bm25
from omniroute_litellm.sqlite import Connection, Database, Value, quoted, tokenizer
from omniroute_litellm.sqlite_rows import COLUMNS, JOINED, memory_of
from omniroute_litellm.store import Alive, KeywordHit
from omniroute_litellm.types import Memory, MemoryId, Scope, to_iso

MAX_QUERY_TERMS: Final = 32
"""Terms of one query that are looked up; longer texts repeat themselves."""

_OWNER_NUMBER: Final = "SELECT number FROM owners WHERE api_key_id = :owner"
_ALIVE: Final = """
m.status = 'active'
AND (m.expires_at IS NULL OR m.expires_at > :now)
AND (m.pinned OR m.last_seen_at >= :since)
AND (:session IS NULL OR m.session_id = :session)
"""
_IN_RANGE: Final = f"m.pk BETWEEN :first AND :last AND {_ALIVE}"
_NEWEST: Final = f"""
SELECT {COLUMNS} FROM {JOINED} WHERE m.api_key_id = :owner AND {_ALIVE}
ORDER BY m.updated_at DESC LIMIT :limit
"""
_PROFILE: Final = f"""
SELECT {COLUMNS} FROM {JOINED} WHERE m.api_key_id = :owner AND m.is_profile AND {_ALIVE}
ORDER BY m.updated_at DESC LIMIT :limit
"""
_FIRST: Final = f"SELECT {COLUMNS} FROM {JOINED} WHERE {_IN_RANGE} ORDER BY m.pk LIMIT :limit"
_COUNT: Final = f"SELECT count(*) FROM memories AS m WHERE {_IN_RANGE}"
_POSTINGS: Final = f"""
SELECT m.pk, length(m.content) FROM memory_fts AS f JOIN memories AS m ON m.pk = f.rowid
WHERE f.memory_fts MATCH :match AND f.rowid BETWEEN :first AND :last AND {_ALIVE}
"""
_BY_ID: Final = f"""
SELECT {COLUMNS} FROM {JOINED} WHERE m.id = :id AND m.api_key_id = :owner AND {_ALIVE}
"""
_BY_PK: Final = f"SELECT {COLUMNS} FROM {JOINED} WHERE m.pk = :pk"

_Range = tuple[int, int]


class SqliteMemoryReader:
    """The MemoryReader of one host."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def newest(self, scope: Scope, alive: Alive, *, limit: int) -> list[Memory]:
        """Return active memories, newest first."""
        return self._newest_of(_NEWEST, scope, alive, limit=limit)

    def profile(self, scope: Scope, alive: Alive, *, limit: int) -> list[Memory]:
        """Return pinned memories, preferences, habits and identity, newest first."""
        return self._newest_of(_PROFILE, scope, alive, limit=limit)

    def all_if_few(self, scope: Scope, alive: Alive, *, at_most: int) -> list[Memory] | None:
        """Return every memory, oldest first, or None when there are more than ``at_most``."""
        found: list[Memory] = []
        with self._database.reading() as connection:
            for first, last in _ranges(connection, scope):
                limit = at_most - len(found) + 1
                values = {**_alive(scope, alive), "first": first, "last": last, "limit": limit}
                found.extend(memory_of(row) for row in connection.execute(_FIRST, values))
                if len(found) > at_most:
                    return None
        return sorted(found, key=lambda memory: memory.created_at)

    def keyword(self, scope: Scope, alive: Alive, *, query: str, limit: int) -> list[KeywordHit]:
        """Return what shares a word with the query, best first.

        Ties go to the newer memory. Document frequencies are counted inside the scope: an index
        that several owners share would rank by the words of strangers.
        """
        with self._database.reading() as connection:
            terms = query_terms(tokenizer(connection)(query))
            ranges = _ranges(connection, scope)
            if not terms or not ranges:
                return []
            base = _alive(scope, alive)
            documents = 0
            postings: dict[str, list[int]] = {term: [] for term in terms}
            lengths: dict[int, int] = {}
            for first, last in ranges:
                bounds = {**base, "first": first, "last": last}
                documents += cast("int", connection.execute(_COUNT, bounds).fetchall()[0][0])
                for term in terms:
                    rows = connection.execute(_POSTINGS, {**bounds, "match": quoted(term)})
                    for row in rows:
                        pk, length = cast("tuple[int, int]", row)
                        postings[term].append(pk)
                        lengths[pk] = length
            scores = bm25(postings, lengths, documents=documents)
            return _best(connection, scores, limit)

    def by_ids(
        self, scope: Scope, alive: Alive, memory_ids: Sequence[MemoryId]
    ) -> dict[MemoryId, Memory]:
        """Return those of the given memories that the scope may read."""
        found: dict[MemoryId, Memory] = {}
        with self._database.reading() as connection:
            for owner in scope.owners:
                base = {**_alive(scope, alive), "owner": owner}
                for memory_id in memory_ids:
                    for row in connection.execute(_BY_ID, {**base, "id": memory_id}):
                        found[memory_id] = memory_of(row)
        return found

    def _newest_of(self, sql: str, scope: Scope, alive: Alive, *, limit: int) -> list[Memory]:
        base = {**_alive(scope, alive), "limit": limit}
        with self._database.reading() as connection:
            found = [
                memory_of(row)
                for owner in scope.owners
                for row in connection.execute(sql, {**base, "owner": owner})
            ]
        return sorted(found, key=lambda memory: memory.updated_at, reverse=True)[:limit]


def query_terms(words: Sequence[str]) -> list[str]:
    """Return the words of a query worth looking up: no stop words, each once, the last 32.

    The end of a long message is where its question stands.
    """
    unique = dict.fromkeys(word for word in words if word not in stopwords.ENGLISH)
    return list(unique)[-MAX_QUERY_TERMS:]


def _ranges(connection: Connection, scope: Scope) -> list[_Range]:
    found: list[_Range] = []
    for owner in scope.owners:
        for row in connection.execute(_OWNER_NUMBER, {"owner": owner}):
            number = cast("int", row[0])
            found.append((number << 32, (number << 32) | 0xFFFFFFFF))
    return found


def _alive(scope: Scope, alive: Alive) -> dict[str, Value]:
    return {"now": to_iso(alive.now), "since": to_iso(alive.since), "session": scope.session}


def _best(connection: Connection, scores: dict[int, KeywordScore], limit: int) -> list[KeywordHit]:
    # Newest first among equals: keys grow with time inside of an owner.
    order = sorted(scores, key=lambda pk: (-scores[pk].score, -pk))[:limit]
    hits: list[KeywordHit] = []
    for pk in order:
        memory = memory_of(connection.execute(_BY_PK, {"pk": pk}).fetchall()[0])
        hits.append(KeywordHit(memory, scores[pk].score, scores[pk].coverage))
    return hits
