-- The profile set is read with every request: newest first, without looking at other memories.

CREATE INDEX memories_profile ON memories (api_key_id, updated_at DESC)
    WHERE is_profile AND status = 'active';
