-- name: outbox_read
-- Limit.
SELECT id, delivery_key, queue, delay_us, dedup_key, grp, {columns}
FROM headgate_outbox o WHERE problem IS NULL ORDER BY id LIMIT ?1

-- name: outbox_first
SELECT min(id) FROM headgate_outbox WHERE problem IS NULL

-- name: outbox_drop
DELETE FROM headgate_outbox WHERE id IN (SELECT value FROM json_each(?1))

-- name: outbox_refuse
UPDATE headgate_outbox SET problem = ?2 WHERE id IN (SELECT value FROM json_each(?1))

-- name: outbox_parked
-- Limit. As bytes: entries that were inserted by SQL may contain invalid text.
SELECT id, CAST(delivery_key AS BLOB), CAST(queue AS BLOB), CAST(topic AS BLOB), problem
FROM headgate_outbox WHERE problem IS NOT NULL ORDER BY id LIMIT ?1

-- name: outbox_waiting
-- Limit.
SELECT id FROM headgate_outbox WHERE problem IS NULL LIMIT ?1

-- name: outbox_retry
-- Ids, or NULL for all.
UPDATE headgate_outbox SET problem = NULL
WHERE problem IS NOT NULL AND (?1 IS NULL OR id IN (SELECT value FROM json_each(?1))) RETURNING id
