-- Which sentences were read already, as digests: a history that is sent again is no restatement.

CREATE TABLE heard (
    api_key_id TEXT NOT NULL,
    sentence   TEXT NOT NULL,
    at         TEXT NOT NULL,
    PRIMARY KEY (api_key_id, sentence)
) STRICT, WITHOUT ROWID;
CREATE INDEX heard_at ON heard (at);
