-- Counts the changes to what an owner's memories say: a process that has read one knows by the
-- number whether it still holds. A new memory gets a new key and changes nothing that was read;
-- one that comes back under its old key does.

ALTER TABLE owners ADD COLUMN revision INTEGER NOT NULL DEFAULT 0;

CREATE TRIGGER memories_revised_update AFTER UPDATE OF
    session_id, slot_session, type, key, content, metadata, created_at, updated_at, last_seen_at,
    expires_at, status, source, pinned
ON memories BEGIN
    UPDATE owners SET revision = revision + 1 WHERE number = old.pk >> 32;
END;
CREATE TRIGGER memories_revised_delete AFTER DELETE ON memories BEGIN
    UPDATE owners SET revision = revision + 1 WHERE number = old.pk >> 32;
END;
CREATE TRIGGER memories_revised_restore AFTER INSERT ON memories BEGIN
    UPDATE owners SET revision = revision + 1
    WHERE number = new.pk >> 32 AND next_sequence > (new.pk & 0xFFFFFFFF);
END;
