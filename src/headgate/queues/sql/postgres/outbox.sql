-- name: outbox_read
-- Limit. Locked: two relays never move one entry.
SELECT id, delivery_key, queue, delay_us, dedup_key, grp, {columns}
FROM outbox o WHERE problem IS NULL ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED

-- name: outbox_drop
DELETE FROM outbox WHERE id = ANY ($1::bigint[])

-- name: outbox_refuse
UPDATE outbox SET problem = $2::text WHERE id = ANY ($1::bigint[])

-- name: outbox_parked
-- Limit.
SELECT id, delivery_key, queue, topic, problem FROM outbox WHERE problem IS NOT NULL ORDER BY id LIMIT $1

-- name: outbox_waiting
-- Limit.
SELECT id FROM outbox WHERE problem IS NULL LIMIT $1

-- name: outbox_retry
-- Ids, or NULL for all.
WITH changed AS (
    UPDATE outbox SET problem = NULL
    WHERE problem IS NOT NULL AND ($1::bigint[] IS NULL OR id = ANY ($1::bigint[])) RETURNING id
), woken AS MATERIALIZED (SELECT wake_up(0))
SELECT id FROM changed, woken
