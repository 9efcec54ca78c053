-- Three letters in a row: finds inflected words and scripts that write no spaces between words.

CREATE VIRTUAL TABLE memory_trigrams USING fts5 (
    content, content = 'memories', content_rowid = 'pk', tokenize = 'trigram remove_diacritics 1',
    detail = 'none'
);

CREATE TRIGGER memories_trigrams_insert AFTER INSERT ON memories BEGIN
    INSERT INTO memory_trigrams (rowid, content) VALUES (new.pk, new.content);
END;
CREATE TRIGGER memories_trigrams_delete AFTER DELETE ON memories BEGIN
    INSERT INTO memory_trigrams (memory_trigrams, rowid, content)
    VALUES ('delete', old.pk, old.content);
END;
CREATE TRIGGER memories_trigrams_update AFTER UPDATE OF content ON memories BEGIN
    INSERT INTO memory_trigrams (memory_trigrams, rowid, content)
    VALUES ('delete', old.pk, old.content);
    INSERT INTO memory_trigrams (rowid, content) VALUES (new.pk, new.content);
END;

INSERT INTO memory_trigrams (memory_trigrams) VALUES ('rebuild');
