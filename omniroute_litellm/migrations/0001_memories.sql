-- Canonical rows, their history, the keyword index, and the settings.

CREATE TABLE owners (
    number        INTEGER PRIMARY KEY AUTOINCREMENT,
    api_key_id    TEXT NOT NULL UNIQUE,
    next_sequence INTEGER NOT NULL DEFAULT 1,
    created_at    TEXT NOT NULL
) STRICT;

-- pk = (owner number << 32) | sequence: one owner is one BETWEEN here, in FTS and in vectors.
CREATE TABLE memories (
    pk            INTEGER PRIMARY KEY,
    id            TEXT NOT NULL UNIQUE,
    api_key_id    TEXT NOT NULL REFERENCES owners (api_key_id),
    session_id    TEXT,
    slot_session  TEXT NOT NULL DEFAULT '',
    type          TEXT NOT NULL CHECK (type IN ('factual', 'episodic', 'procedural', 'semantic')),
    key           TEXT NOT NULL,
    content       TEXT NOT NULL,
    metadata      TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(metadata)),
    created_at    TEXT NOT NULL,
    updated_at    TEXT NOT NULL,
    last_seen_at  TEXT NOT NULL,
    expires_at    TEXT,
    needs_reindex INTEGER NOT NULL DEFAULT 1,
    status        TEXT NOT NULL DEFAULT 'active'
                  CHECK (status IN ('active', 'quarantined', 'superseded', 'archived')),
    source        TEXT NOT NULL
                  CHECK (source IN ('user_message', 'llm_response', 'manual', 'mcp', 'import', 'summary')),
    pinned        INTEGER NOT NULL DEFAULT 0 CHECK (pinned IN (0, 1)),
    is_profile    INTEGER GENERATED ALWAYS AS (
        pinned
        OR key GLOB 'preference:*' OR key GLOB 'pattern:*' OR key GLOB 'identity:*'
        OR coalesce(json_extract(metadata, '$.category'), '') IN ('preference', 'pattern', 'identity')
    ) VIRTUAL
) STRICT;

CREATE UNIQUE INDEX memories_slot ON memories (api_key_id, slot_session, key)
    WHERE status = 'active';
CREATE INDEX memories_newest ON memories (api_key_id, updated_at DESC);
CREATE INDEX memories_all_newest ON memories (updated_at DESC);

CREATE VIRTUAL TABLE memory_fts USING fts5 (
    content, key, content = 'memories', content_rowid = 'pk', tokenize = 'porter unicode61'
);

CREATE TRIGGER memories_fts_insert AFTER INSERT ON memories BEGIN
    INSERT INTO memory_fts (rowid, content, key) VALUES (new.pk, new.content, new.key);
END;
CREATE TRIGGER memories_fts_delete AFTER DELETE ON memories BEGIN
    INSERT INTO memory_fts (memory_fts, rowid, content, key)
    VALUES ('delete', old.pk, old.content, old.key);
END;
CREATE TRIGGER memories_fts_update AFTER UPDATE OF content, key ON memories BEGIN
    INSERT INTO memory_fts (memory_fts, rowid, content, key)
    VALUES ('delete', old.pk, old.content, old.key);
    INSERT INTO memory_fts (rowid, content, key) VALUES (new.pk, new.content, new.key);
END;

-- What an update or a delete replaced; undo reads it back.
CREATE TABLE memory_history (
    number     INTEGER PRIMARY KEY AUTOINCREMENT,
    memory_id  TEXT NOT NULL,
    api_key_id TEXT NOT NULL,
    at         TEXT NOT NULL,
    action     TEXT NOT NULL CHECK (action IN ('update', 'delete')),
    actor      TEXT NOT NULL,
    before     TEXT NOT NULL CHECK (json_valid(before))
) STRICT;
CREATE INDEX memory_history_memory ON memory_history (memory_id, number DESC);
CREATE INDEX memory_history_at ON memory_history (at);

-- Use is counted apart from the rows, so that counting touches no trigger.
CREATE TABLE memory_access (
    pk               INTEGER PRIMARY KEY REFERENCES memories (pk) ON DELETE CASCADE,
    access_count     INTEGER NOT NULL,
    last_accessed_at TEXT NOT NULL
) STRICT;

CREATE TABLE settings (
    name       TEXT PRIMARY KEY,
    value      TEXT NOT NULL CHECK (json_valid(value)),
    updated_at TEXT NOT NULL
) STRICT;

-- Values that the installation makes for itself, such as the seed of the console's cookie key.
CREATE TABLE installation (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT;
