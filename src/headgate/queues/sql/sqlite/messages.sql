-- name: insert_message
INSERT INTO headgate_message
    (id, topic, headers, properties, priority, timestamp, message_id, filter_value, key, payload)
SELECT id, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9 FROM headgate_next_message RETURNING id

-- name: insert_delivery
-- Message, queue, rank, delay, group, keys, now. A queue that has the message does not get it twice.
INSERT INTO headgate_delivery (message, queue, state, rank, visible_at, grp, keys)
VALUES (?1, ?2, ?4 > 0, ?3, ?7 + ?4, ?5, ?6) ON CONFLICT DO NOTHING

-- name: publish_one
-- The parameters of insert_message, queue, rank, delay, group, keys, now, catalog version. A message and its only delivery
-- in a single statement, which is its own transaction. keep_id() is a function of the connection: it keeps the id, for
-- which RETURNING would use a temporary table, and refuses NULL, which is the id when the catalog has another version.
INSERT INTO headgate_publication VALUES (
    keep_id((SELECT id FROM headgate_next_message WHERE version = ?16)),
    ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?12 > 0, ?11, ?15 + ?12, ?13, ?14)

-- name: known_dedup_keys
-- queue, keys, now
SELECT key, message FROM headgate_dedup
WHERE queue = ?1 AND key IN (SELECT value FROM json_each(?2)) AND expires_at > ?3

-- name: remember_key
-- queue, key, message, now, window
INSERT INTO headgate_dedup (queue, key, message, expires_at) VALUES (?1, ?2, ?3, ?4 + ?5)
ON CONFLICT DO UPDATE SET message = excluded.message, expires_at = excluded.expires_at

-- name: forget_expired_keys
DELETE FROM headgate_dedup WHERE (queue, key) IN
    (SELECT queue, key FROM headgate_dedup WHERE expires_at <= ?1 ORDER BY expires_at LIMIT 100)

-- name: has_unrouted
SELECT 1 FROM headgate_unrouted LIMIT 1

-- name: unrouted_messages
-- Limit, now.
SELECT u.message, u.queue, max(u.visible_at - ?2, 0), u.grp, {columns}
FROM headgate_unrouted u JOIN headgate_message m ON m.id = u.message ORDER BY u.message LIMIT ?1

-- name: delete_unrouted
DELETE FROM headgate_unrouted WHERE message IN (SELECT value FROM json_each(?1))
