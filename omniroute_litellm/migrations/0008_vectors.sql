-- Which vector tables there are, and which memories want their vector made, made anew or removed
-- in each. Derived: losing all of it costs a reindex. The vectors themselves are in a vec0 table
-- for every row of vector_tables, named by its number.

CREATE TABLE vector_tables (
    number       INTEGER PRIMARY KEY AUTOINCREMENT,
    source       TEXT NOT NULL,
    model        TEXT NOT NULL,
    dimension    INTEGER NOT NULL,
    quantization TEXT NOT NULL CHECK (quantization IN ('none', 'int8')),
    state        TEXT NOT NULL CHECK (state IN ('building', 'active')),
    queued_to    INTEGER,  -- memories up to this key are queued or done; null: all are
    begun_at     TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX vector_tables_state ON vector_tables (state);

-- A row's version grows with every change to its memory, so that a worker cannot settle what
-- changed under its hands.
CREATE TABLE vector_work (
    table_number INTEGER NOT NULL REFERENCES vector_tables (number) ON DELETE CASCADE,
    pk           INTEGER NOT NULL,
    version      INTEGER NOT NULL DEFAULT 0,
    attempts     INTEGER NOT NULL DEFAULT 0,
    due_at       TEXT NOT NULL DEFAULT '',
    worker       TEXT,
    last_error   TEXT,
    PRIMARY KEY (table_number, pk)
) STRICT, WITHOUT ROWID;

-- OmniRoute's names: active_dim, embedding_signature, last_reset_at, vec_loaded; ours: cancelled.
CREATE TABLE memory_vec_meta (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT;

CREATE INDEX memories_unindexed ON memories (needs_reindex) WHERE needs_reindex;

-- Counts what made a vector wrong that a process may hold: a changed text, a deleted memory, one
-- that came back under its old key.
ALTER TABLE owners ADD COLUMN vector_revision INTEGER NOT NULL DEFAULT 0;

CREATE TRIGGER memories_vector_insert AFTER INSERT ON memories BEGIN
    INSERT INTO vector_work (table_number, pk) SELECT number, new.pk FROM vector_tables WHERE true
    ON CONFLICT (table_number, pk) DO UPDATE SET
        version = version + 1, attempts = 0, due_at = '', worker = NULL, last_error = NULL;
    UPDATE owners SET vector_revision = vector_revision + 1
    WHERE number = new.pk >> 32 AND next_sequence > (new.pk & 0xFFFFFFFF);
END;
CREATE TRIGGER memories_vector_update AFTER UPDATE OF content ON memories
WHEN old.content IS NOT new.content BEGIN
    INSERT INTO vector_work (table_number, pk) SELECT number, new.pk FROM vector_tables WHERE true
    ON CONFLICT (table_number, pk) DO UPDATE SET
        version = version + 1, attempts = 0, due_at = '', worker = NULL, last_error = NULL;
    UPDATE owners SET vector_revision = vector_revision + 1 WHERE number = new.pk >> 32;
END;
CREATE TRIGGER memories_vector_delete AFTER DELETE ON memories BEGIN
    INSERT INTO vector_work (table_number, pk) SELECT number, old.pk FROM vector_tables WHERE true
    ON CONFLICT (table_number, pk) DO UPDATE SET
        version = version + 1, attempts = 0, due_at = '', worker = NULL, last_error = NULL;
    UPDATE owners SET vector_revision = vector_revision + 1 WHERE number = old.pk >> 32;
END;
