-- The archive keeps exactly what was acked. The door says what it refuses, and keeps delay and group for subscriptions
-- too. A queue that is dropped leaves nothing behind, though whoever drops it may be killed.

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

-- When a message that came through the door with a delay falls due, and its group: for the subscriptions it is offered to.
ALTER TABLE unrouted ADD COLUMN visible_at bigint NOT NULL DEFAULT 0;
ALTER TABLE unrouted ADD COLUMN grp text;

-- Queues that are gone and may have left rows behind: deleting those takes many transactions.
CREATE TABLE dropped (queue bigint PRIMARY KEY);
CREATE FUNCTION remember_dropped() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$ BEGIN INSERT INTO dropped VALUES (OLD.id) ON CONFLICT DO NOTHING; RETURN NULL; END $$;
CREATE TRIGGER queue_dropped AFTER DELETE ON queue FOR EACH ROW EXECUTE FUNCTION remember_dropped();
INSERT INTO dropped
SELECT queue FROM delivery UNION SELECT queue FROM dedup UNION SELECT queue FROM archive
UNION SELECT queue FROM usage UNION SELECT queue FROM unrouted UNION SELECT queue FROM batch
EXCEPT SELECT id FROM queue;

-- An integer of 64 bits, or what a double can be. jsonb keeps no exponents: 1e300 is an integer there, and is taken for a
-- double where it has no more digits than a double is written with.
CREATE FUNCTION is_door_number(given numeric) RETURNS boolean IMMUTABLE LANGUAGE sql AS $$
    SELECT CASE
        WHEN given >= -9223372036854775808 AND given <= 9223372036854775807 THEN true
        WHEN abs(given) > 1.7976931348623157e308 THEN false
        ELSE scale(given) > 0 OR given = given::float8::text::numeric END
$$;

-- What is no scalar becomes null; null means that there is no such header. What is no 64-bit integer is the double that is
-- nearest to it, and keeps its point.
CREATE OR REPLACE FUNCTION door_headers(given jsonb) RETURNS jsonb STABLE LANGUAGE sql AS $$
    SELECT coalesce(jsonb_object_agg(h.key, CASE jsonb_typeof(h.value)
        WHEN 'array' THEN 'null'::jsonb
        WHEN 'object' THEN 'null'::jsonb
        WHEN 'number' THEN CASE WHEN scale((h.value #>> '{}')::numeric) = 0
                AND (h.value #>> '{}')::numeric BETWEEN -9223372036854775808 AND 9223372036854775807
            THEN to_jsonb((h.value #>> '{}')::bigint)
            ELSE to_jsonb(round((h.value #>> '{}')::float8::text::numeric,
                greatest(1, scale((h.value #>> '{}')::float8::text::numeric)))) END
        ELSE h.value END), '{}')
    FROM jsonb_each(given) h WHERE jsonb_typeof(h.value) <> 'null'
$$;

-- Text that is no UTF-8, NUL and lone surrogates are refused by the server itself.
CREATE OR REPLACE FUNCTION publish_from_door() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
    target queue;
    headers jsonb;
    delay_us bigint;
    number bigint;
    offered boolean;
BEGIN
    -- First the lock, then the number: whoever has a number is a transaction that others can see at work.
    PERFORM FROM catalog FOR KEY SHARE;
    number := nextval('message_id_seq');
    SELECT * INTO target FROM queue WHERE name = NEW.queue AND kind = 'queue';
    IF NOT FOUND THEN
        RAISE 'headgate: there is no queue %; create it first', quote_nullable(NEW.queue);
    END IF;
    IF jsonb_typeof(NEW.headers) <> 'object' THEN
        RAISE 'headgate: headers must be a JSON object';
    END IF;
    IF NEW.priority NOT BETWEEN 0 AND 255 THEN
        RAISE 'headgate: priority must be an integer from 0 to 255';
    END IF;
    IF NEW.delay NOT BETWEEN 0 AND 31536000000 THEN
        RAISE 'headgate: delay must be a number of seconds from 0 to 31536000000';
    END IF;
    delay_us := coalesce(NEW.delay, 0) * 1000000;
    IF octet_length(NEW.topic) > 255 THEN
        RAISE 'headgate: topic must be text of at most 255 bytes';
    END IF;
    IF NEW.dedup_key = '' OR NEW.group_key = '' THEN
        RAISE 'headgate: dedup_key and group_key must be text that is not empty';
    END IF;
    IF EXISTS (SELECT FROM jsonb_object_keys(NEW.headers) AS name
            WHERE octet_length(name) > 255 OR name ~ '[\x01-\x1f\x7f]') THEN
        RAISE 'headgate: names of headers are at most 255 bytes long and hold no control characters';
    END IF;
    IF EXISTS (SELECT FROM jsonb_each_text(NEW.headers) h WHERE jsonb_typeof(NEW.headers -> h.key) = 'number'
            AND NOT is_door_number(h.value::numeric)) THEN
        RAISE 'headgate: a number in headers must be a 64-bit integer or a finite double';
    END IF;
    IF NEW.dedup_key IS NOT NULL THEN
        INSERT INTO dedup AS s (queue, key, message, expires_at)
        VALUES (target.id, NEW.dedup_key, number, now_us() + target.dedup_window_us)
        ON CONFLICT (queue, key) DO UPDATE SET message = excluded.message, expires_at = excluded.expires_at
            WHERE s.expires_at <= now_us();
        IF NOT FOUND THEN
            RETURN NULL;
        END IF;
    END IF;
    headers := door_headers(coalesce(NEW.headers, '{}'));
    offered := EXISTS (SELECT FROM queue WHERE kind <> 'queue');
    INSERT INTO message (id, topic, headers, properties, priority, timestamp, payload) OVERRIDING SYSTEM VALUE
    VALUES (number, coalesce(NEW.topic, NEW.queue), headers, '{}', coalesce(NEW.priority, 0), now_us(),
        coalesce(NEW.payload, ''));
    IF offered THEN
        INSERT INTO unrouted (message, queue, visible_at, grp)
        VALUES (number, target.id, CASE WHEN delay_us > 0 THEN now_us() + delay_us ELSE 0 END, NEW.group_key);
        PERFORM wake_up(NULL);
    END IF;
    INSERT INTO delivery (message, queue, state, rank, shared, visible_at, grp, keys)
    VALUES (number, target.id, (delay_us > 0)::int, -coalesce(NEW.priority, 0), offered, now_us() + delay_us,
        NEW.group_key,
        (SELECT coalesce(jsonb_object_agg(h.key, h.value), '{}') FROM jsonb_each(headers) h
         WHERE target.filter_headers ? h.key));
    RETURN NEW;
END
$$;
