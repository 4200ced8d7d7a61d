-- The archive keeps exactly what was acked.

-- A message may be in an archive already, where an older Headgate archived it and its ack came too late.
CREATE OR REPLACE FUNCTION keep_acked(queue bigint, now bigint, messages bigint[], attempts integer[], groups text[])
RETURNS void VOLATILE LANGUAGE sql
SET search_path FROM CURRENT
AS $$
    INSERT INTO archive (queue, id, acked_at, attempts, grp, topic, headers, properties, priority, timestamp, message_id,
        filter_value, key, payload)
    SELECT keep_acked.queue, m.id, now, a.attempts, a.grp, m.topic, m.headers, m.properties, m.priority, m.timestamp,
        m.message_id, m.filter_value, m.key, m.payload
    FROM unnest(messages, keep_acked.attempts, groups) AS a (message, attempts, grp)
    CROSS JOIN LATERAL (SELECT * FROM message WHERE id = a.message LIMIT 1) m
    ON CONFLICT ON CONSTRAINT archive_pkey DO UPDATE
    SET acked_at = excluded.acked_at, attempts = excluded.attempts, turn = excluded.turn
$$;
