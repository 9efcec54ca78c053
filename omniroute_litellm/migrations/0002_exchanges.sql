-- Exchanges that wait for extraction, the record of requests, and the worker processes.

CREATE TABLE outbox (
    number      INTEGER PRIMARY KEY AUTOINCREMENT,
    api_key_id  TEXT NOT NULL,
    request_id  TEXT NOT NULL,
    session_id  TEXT,
    user_text   TEXT NOT NULL,
    answer_text TEXT NOT NULL,
    model       TEXT NOT NULL,
    captured_at TEXT NOT NULL,
    attempts    INTEGER NOT NULL DEFAULT 0,
    worker      TEXT,
    leased_until TEXT,
    last_error  TEXT,
    UNIQUE (api_key_id, request_id)
) STRICT;
CREATE INDEX outbox_captured ON outbox (captured_at);

-- Content-free: ids, counts, scores, times and reasons only.
CREATE TABLE traces (
    id          TEXT PRIMARY KEY,
    api_key_id  TEXT,
    at          TEXT NOT NULL,
    model       TEXT NOT NULL,
    outcome     TEXT NOT NULL,
    injected    INTEGER NOT NULL,
    tokens      INTEGER NOT NULL,
    retrieved   INTEGER NOT NULL CHECK (retrieved IN (0, 1)),
    detail      TEXT NOT NULL CHECK (json_valid(detail))
) STRICT;
CREATE INDEX traces_at ON traces (at);
CREATE INDEX traces_owner ON traces (api_key_id, at DESC);

CREATE TABLE workers (
    id         TEXT PRIMARY KEY,
    pid        INTEGER NOT NULL,
    version    TEXT NOT NULL,
    started_at TEXT NOT NULL,
    seen_at    TEXT NOT NULL
) STRICT;
