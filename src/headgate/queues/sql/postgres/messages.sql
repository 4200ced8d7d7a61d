-- name: publish
-- One statement, so that a batch needs one round trip. The version of the catalog by which the receivers were chosen, now,
-- dedup window, queue of the dedup keys; then the messages and the deliveries by column: an array where they differ, one
-- value where all are equal.
--
-- Returns one row with all ids as an array, which takes less time than a row for each; NULL in place of an id is a dedup key
-- that was published before. No row if the catalog has changed.
WITH current AS MATERIALIZED (
    SELECT version FROM catalog WHERE version = $1 FOR KEY SHARE
), input AS MATERIALIZED (
    SELECT nextval('message_id_seq') AS id, g.n, coalesce($2::bigint, now_us()) AS now, {messages}
    FROM current, unnest({message_arrays}) WITH ORDINALITY AS g ({message_names}, n)
), fresh AS (
    INSERT INTO dedup AS s (queue, key, message, expires_at)
    SELECT $4::bigint, dedup_key, id, now + $3::bigint FROM input WHERE dedup_key IS NOT NULL ORDER BY dedup_key
    ON CONFLICT (queue, key) DO UPDATE SET message = excluded.message, expires_at = excluded.expires_at
        WHERE s.expires_at <= coalesce($2::bigint, now_us())
    RETURNING message
), stored AS MATERIALIZED (
    SELECT input.* FROM input WHERE dedup_key IS NULL OR id IN (SELECT message FROM fresh)
), messages AS (
    INSERT INTO message (id, topic, headers, properties, priority, timestamp, message_id, filter_value, key, payload)
    OVERRIDING SYSTEM VALUE
    SELECT id, topic, headers, properties, priority, coalesce(timestamp, now), message_id, filter_value,
        key, payload
    FROM stored
), deliveries AS (
    INSERT INTO delivery (message, queue, state, rank, shared, visible_at, grp, keys)
    SELECT s.id, r.queue, (s.delay > 0)::int, r.rank, r.shared, s.now + s.delay, r.grp, r.keys
    FROM (SELECT {deliveries} FROM unnest({delivery_arrays}) AS g ({delivery_names})) r JOIN stored s ON s.n = r.at
)
SELECT array_agg(s.id ORDER BY g.n) FROM input g LEFT JOIN stored s ON s.n = g.n HAVING count(*) > 0

-- name: publish_plain
-- As publish, without dedup keys and with one receiver for each message, as most publishers do. Values that all messages
-- have in common are copied into the stored rows only. The ids ascend in the order of the input, which array_agg keeps.
WITH current AS MATERIALIZED (
    SELECT coalesce($2::bigint, now_us()) AS now FROM catalog WHERE version = $1 FOR KEY SHARE
), input AS MATERIALIZED (
    SELECT nextval('message_id_seq') AS id, now, {varied} FROM current, unnest({arrays}) AS g ({names})
), whole AS NOT MATERIALIZED (
    SELECT input.*{same} FROM input
), messages AS (
    INSERT INTO message (id, topic, headers, properties, priority, timestamp, message_id, filter_value, key, payload)
    OVERRIDING SYSTEM VALUE
    SELECT id, topic, headers, properties, priority, coalesce(timestamp, now), message_id, filter_value, key, payload
    FROM whole
), deliveries AS (
    INSERT INTO delivery (message, queue, state, rank, visible_at, grp, keys)
    SELECT id, queue, (delay > 0)::int, rank, now + delay, grp, keys FROM whole
)
SELECT array_agg(id) FROM input HAVING count(*) > 0

-- name: publish_one
-- As publish, for a single message. The version of the catalog, now, the message, then its delivery: queue, rank, delay,
-- group, keys.
WITH current AS MATERIALIZED (
    SELECT version FROM catalog WHERE version = $1 FOR KEY SHARE
), stored AS (
    INSERT INTO message (topic, headers, properties, priority, timestamp, message_id, filter_value, key, payload)
    SELECT $3::text, $4::text::jsonb, $5::text::jsonb, $6::bigint, coalesce($7::bigint, now_us()), $8::text, $9::text,
        $10::text, $11::bytea
    FROM current
    RETURNING id
)
INSERT INTO delivery (message, queue, state, rank, visible_at, grp, keys)
SELECT id, $12::bigint, ($14::bigint > 0)::int, $13::bigint, coalesce($2::bigint, now_us()) + $14::bigint, $15::text,
    $16::text::jsonb
FROM stored
RETURNING ARRAY[message]

-- name: insert_delivery
-- Message, queue, rank, delay, group, keys, now: one array each. For messages that other queues have; a queue that has the
-- message does not get it twice.
INSERT INTO delivery (message, queue, state, rank, shared, visible_at, grp, keys)
SELECT r.message, r.queue, (r.delay > 0)::int, r.rank, true, coalesce(r.now, now_us()) + r.delay, r.grp, r.keys::jsonb
FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[], $6::text[], $7::bigint[])
    AS r (message, queue, rank, delay, grp, keys, now)
ON CONFLICT DO NOTHING

-- name: known_dedup_keys
-- queue, keys, now
SELECT key, message FROM dedup
WHERE queue = $1 AND key = ANY ($2::text[]) AND expires_at > coalesce($3::bigint, now_us())

-- name: forget_expired_keys
DELETE FROM dedup WHERE (queue, key) IN (
    SELECT queue, key FROM dedup WHERE expires_at <= coalesce($1::bigint, now_us())
    ORDER BY expires_at LIMIT 100 FOR UPDATE SKIP LOCKED)

-- name: has_unrouted
SELECT 1 FROM unrouted LIMIT 1

-- name: unrouted_messages
-- Limit, now. Locked: a second transaction waits, and finds them routed.
SELECT u.message, u.queue, greatest(u.visible_at - coalesce($2::bigint, now_us()), 0), u.grp, {columns}
FROM unrouted u JOIN message m ON m.id = u.message ORDER BY u.message LIMIT $1 FOR UPDATE OF u

-- name: delete_unrouted
DELETE FROM unrouted WHERE message = ANY ($1::bigint[])
