-- Which block stands behind which human turn, so that later requests of a conversation repeat it
-- byte by byte. Derived: losing a row costs a provider's prompt cache, never a memory.

CREATE TABLE placements (
    turn       TEXT PRIMARY KEY,
    api_key_id TEXT NOT NULL,
    block      TEXT NOT NULL,
    seen_at    TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX placements_seen ON placements (seen_at);
CREATE INDEX placements_owner ON placements (api_key_id, seen_at DESC);

CREATE TABLE placed_memories (
    memory_id TEXT NOT NULL,
    turn      TEXT NOT NULL REFERENCES placements (turn) ON DELETE CASCADE,
    content   TEXT NOT NULL,
    PRIMARY KEY (memory_id, turn)
) STRICT, WITHOUT ROWID;
CREATE INDEX placed_memories_turn ON placed_memories (turn);

-- What is deleted, forgotten, replaced or set aside leaves no copy in here.
CREATE TRIGGER memories_unplaced_delete AFTER DELETE ON memories BEGIN
    DELETE FROM placements WHERE turn IN (
        SELECT turn FROM placed_memories WHERE memory_id = old.id
    );
END;
CREATE TRIGGER memories_unplaced_update AFTER UPDATE OF content, status ON memories
WHEN old.content IS NOT new.content OR (old.status = 'active' AND new.status <> 'active') BEGIN
    DELETE FROM placements WHERE turn IN (
        SELECT turn FROM placed_memories WHERE memory_id = old.id
    );
END;
