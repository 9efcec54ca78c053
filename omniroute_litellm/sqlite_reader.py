"""The reads of one retrieval in SQLite: every one bounded to its scope inside the query."""

import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast

from omniroute_litellm import stopwords
from omniroute_litellm.ranking import KeywordScore, TermMatch, bm25, term_weight
from omniroute_litellm.sqlite import Connection, Database, Value, quoted, tokenizer
from omniroute_litellm.sqlite_rows import COLUMNS, JOINED, JSON_COLUMNS, memory_of, memory_of_json
from omniroute_litellm.store import Alive, KeywordHit
from omniroute_litellm.types import Memory, MemoryId, Scope, to_iso

MAX_QUERY_TERMS: Final = 32
"""Terms of one query that are looked up; longer texts repeat themselves."""

MATCH_DEPTH: Final = 100
"""So many matches are looked at closely: the best by weight of their terms, newest first."""

MANY_DOCUMENTS: Final = 2_000
COMMON_SHARE: Final = 0.05
"""Among many memories a term that more of them hold is left out where rarer ones find enough."""

_OWNER_NUMBER: Final = "SELECT number, next_sequence FROM owners WHERE api_key_id = :owner"
_ALIVE: Final = """
m.status = 'active'
AND (m.expires_at IS NULL OR m.expires_at > :now)
AND (m.pinned OR m.last_seen_at >= :since)
AND (:session IS NULL OR m.session_id = :session)
"""
_IN_RANGE: Final = f"m.pk BETWEEN :first AND :last AND {_ALIVE}"
# Each list comes as one row of JSON: the driver gives up the interpreter's lock at each row, and
# beside a busy thread it waits for the lock longer than the search takes.
_LISTED: Final = f"""
SELECT json_group_array(json_array({JSON_COLUMNS})) FROM {JOINED} WHERE m.pk IN ({{keys}})
"""
_NEWEST: Final = _LISTED.format(
    keys=f"""SELECT m.pk FROM memories AS m WHERE m.api_key_id = :owner AND {_ALIVE}
    ORDER BY m.updated_at DESC LIMIT :limit"""
)
_PROFILE: Final = _LISTED.format(
    keys=f"""SELECT m.pk FROM memories AS m
    WHERE m.api_key_id = :owner AND m.is_profile AND {_ALIVE}
    ORDER BY m.updated_at DESC LIMIT :limit"""
)
_FIRST: Final = _LISTED.format(
    keys=f"SELECT m.pk FROM memories AS m WHERE {_IN_RANGE} ORDER BY m.pk LIMIT :limit"
)
_FEW: Final = f"""
SELECT count(*) FROM (SELECT 1 FROM memories AS m WHERE {_IN_RANGE} LIMIT :limit)
"""
# One term of a query each; what there is of it for one owner is a range of the index.
_HOLDING: Final = """
(SELECT count(*) FROM memory_fts
 WHERE memory_fts MATCH :term{0} AND rowid BETWEEN :first AND :last)
"""
_HITS: Final = """
SELECT rowid AS pk, :weight{0} AS weight FROM memory_fts
WHERE memory_fts MATCH :term{0} AND rowid BETWEEN :first AND :last
"""
_BEST: Final = f"""
WITH hits AS ({{hits}}),
best AS (
    SELECT pk, sum(weight) AS weight, count(*) AS terms FROM hits {{inside}}
    GROUP BY pk ORDER BY 2 DESC, pk DESC LIMIT :depth
)
SELECT (SELECT count(*) FROM best), json_group_array(
    json_array(m.pk, best.weight, best.terms, length(m.content))
) FROM best JOIN memories AS m ON m.pk = best.pk WHERE {_ALIVE}
"""
_INSIDE: Final = f"JOIN memories AS m USING (pk) WHERE {_ALIVE}"
_BY_ID: Final = f"""
SELECT {COLUMNS} FROM {JOINED} WHERE m.id = :id AND m.api_key_id = :owner AND {_ALIVE}
"""
_BY_PKS: Final = _LISTED.format(keys="SELECT value FROM json_each(:pks)")
_PK: Final = 17
"""Where COLUMNS holds the integer key."""


@dataclass(frozen=True, slots=True)
class _Range:
    """The keys of one owner, and how many memories were ever stored in it."""

    first: int
    last: int
    documents: int


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
            ranges = _ranges(connection, scope)
            values = {**_alive(scope, alive), "limit": at_most + 1}
            bounds = [{**values, "first": one.first, "last": one.last} for one in ranges]
            counts = (connection.execute(_FEW, each).fetchall()[0][0] for each in bounds)
            if sum(cast("Iterable[int]", counts)) > at_most:
                return None
            for each in bounds:
                found.extend(_memories(connection, _FIRST, each).values())
        return sorted(found, key=lambda memory: memory.created_at)

    def keyword(self, scope: Scope, alive: Alive, *, query: str, limit: int) -> list[KeywordHit]:
        """Return what shares a word with the query, best first.

        Ties go to the newer memory. Document frequencies are counted inside the owners of the
        scope: an index that several owners share would rank by the words of strangers.
        """
        with self._database.reading() as connection:
            terms = query_terms(tokenizer(connection)(query))
            ranges = _ranges(connection, scope)
            if not terms or not ranges:
                return []
            base: dict[str, Value] = {**_alive(scope, alive), "depth": MATCH_DEPTH}
            weights = _weights(connection, ranges, terms)
            for at, (term, weight) in enumerate(weights.items()):
                base |= {f"term{at}": quoted(term), f"weight{at}": weight}
            matches: dict[int, TermMatch] = {}
            for one in ranges if weights else ():
                values = {**base, "first": one.first, "last": one.last}
                matches |= _matches(connection, values, len(weights))
            return _best(connection, bm25(matches, terms=len(terms)), limit)

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
                memory
                for owner in scope.owners
                for memory in _memories(connection, sql, {**base, "owner": owner}).values()
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
            number, next_sequence = cast("tuple[int, int]", row)
            found.append(_Range(number << 32, (number << 32) | 0xFFFFFFFF, next_sequence - 1))
    return found


def _weights(
    connection: Connection, ranges: Sequence[_Range], terms: Sequence[str]
) -> dict[str, float]:
    """Return the weight of each term worth looking for, by how many memories hold it."""
    base: dict[str, Value] = {f"term{at}": quoted(term) for at, term in enumerate(terms)}
    holding = [0] * len(terms)
    for one in ranges:
        values = {**base, "first": one.first, "last": one.last}
        (counts,) = connection.execute(_counting(len(terms)), values).fetchall()
        holding = [sum(pair) for pair in zip(holding, cast("Sequence[int]", counts), strict=True)]
    documents = sum(one.documents for one in ranges)
    weights: dict[str, float] = {}
    found = 0
    for count, term in sorted(zip(holding, terms, strict=True)):
        is_common = documents > MANY_DOCUMENTS and count > COMMON_SHARE * documents
        if count and not (is_common and found >= MATCH_DEPTH):
            weights[term] = term_weight(count, documents=documents)
            found += count
    return weights


def _matches(connection: Connection, values: dict[str, Value], terms: int) -> dict[int, TermMatch]:
    """Return the best matches of one owner that may be read.

    The first statement looks at the best of all and leaves out what may not be read. Should that
    have cost places, a second one counts readable memories alone: slower, and never short.
    """
    looked_at, found = _searched(connection, _searching(terms), values)
    if looked_at == MATCH_DEPTH and len(found) < MATCH_DEPTH:
        _, found = _searched(connection, _searching(terms, inside=_INSIDE), values)
    return {
        cast("int", pk): TermMatch(cast("float", weight), cast("int", held), cast("int", length))
        for pk, weight, held, length in found
    }


def _searched(
    connection: Connection, sql: str, values: dict[str, Value]
) -> tuple[int, list[list[object]]]:
    (row,) = connection.execute(sql, values).fetchall()
    return cast("int", row[0]), json.loads(str(row[1]))


@functools.cache
def _counting(terms: int) -> str:
    return "SELECT " + ", ".join(_HOLDING.format(at) for at in range(terms))


@functools.cache
def _searching(terms: int, *, inside: str = "") -> str:
    hits = " UNION ALL ".join(_HITS.format(at) for at in range(terms))
    return _BEST.format(hits=hits, inside=inside)


def _alive(scope: Scope, alive: Alive) -> dict[str, Value]:
    return {"now": to_iso(alive.now), "since": to_iso(alive.since), "session": scope.session}


def _memories(connection: Connection, sql: str, values: Mapping[str, Value]) -> dict[int, Memory]:
    """Return the memories of one statement by their integer keys."""
    (row,) = connection.execute(sql, values).fetchall()
    rows = cast("list[list[object]]", json.loads(str(row[0])))
    return {cast("int", each[_PK]): memory_of_json(each) for each in rows}


def _best(connection: Connection, scores: dict[int, KeywordScore], limit: int) -> list[KeywordHit]:
    # Newest first among equals: keys grow with time inside of an owner.
    order = sorted(scores, key=lambda pk: (-scores[pk].score, -pk))[:limit]
    found = _memories(connection, _BY_PKS, {"pks": json.dumps(order)})
    return [KeywordHit(found[pk], scores[pk].score, scores[pk].coverage) for pk in order]
