-- name: catalog_version
SELECT version FROM headgate_catalog

-- name: catalog
SELECT id, name, kind, max_attempts, dedup_window_us, archive, filter_headers, indexed, filter, source, version,
    paused, expires_at, policies
FROM headgate_queue ORDER BY name

-- name: catalog_changes
-- After which version: the changed queues as they are now, NULL where a queue was deleted.
SELECT c.version, c.queue, q.id, q.name, q.kind, q.max_attempts, q.dedup_window_us, q.archive, q.filter_headers, q.indexed, q.filter,
    q.source, q.version, q.paused, q.expires_at, q.policies
FROM headgate_catalog_change c LEFT JOIN headgate_queue q ON q.id = c.queue WHERE c.version > ?1 ORDER BY c.version

-- name: create_queue
-- name, kind, max_attempts, dedup window, archive, filter headers, indexed headers, filter, source, now, lease or NULL,
-- policies
INSERT INTO headgate_queue
    (name, kind, max_attempts, dedup_window_us, archive, filter_headers, indexed, filter, source, expires_at, policies)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10 + ?11, ?12)

-- name: change_options
-- queue, max_attempts, dedup window, archive, filter headers
UPDATE headgate_queue
SET max_attempts = ?2, dedup_window_us = ?3, archive = ?4, filter_headers = ?5 WHERE id = ?1

-- name: change_filter
-- queue, filter, source
UPDATE headgate_queue SET filter = ?2, source = ?3, version = version + 1 WHERE id = ?1

-- name: add_indexed
-- Queue, headers. Others may have added theirs meanwhile.
UPDATE headgate_queue SET indexed = (
    SELECT json_group_array(h.value) FROM json_each(filter_headers) h
    WHERE h.value IN (SELECT value FROM json_each(indexed) UNION ALL SELECT value FROM json_each(?2)))
WHERE id = ?1

-- name: set_paused
UPDATE headgate_queue SET paused = ?2 WHERE id = ?1

-- name: set_expiry
-- queue, now, lease
UPDATE headgate_queue SET expires_at = ?2 + ?3 WHERE id = ?1 RETURNING id

-- name: delete_deliveries
-- In pieces, so that other writers do not wait long for the lock. State by state: each is the condition of an index, and
-- without one the deliveries of all queues would be read.
DELETE FROM headgate_delivery WHERE queue = ?1 AND message IN (
    SELECT message FROM headgate_delivery WHERE queue = ?1 AND state = 0
    UNION ALL SELECT message FROM headgate_delivery WHERE queue = ?1 AND state IN (1, 2)
    UNION ALL SELECT message FROM headgate_delivery WHERE queue = ?1 AND state = 3 LIMIT 1000)
RETURNING 1

-- name: delete_dedup_keys
DELETE FROM headgate_dedup WHERE queue = ?1

-- name: delete_archive
DELETE FROM headgate_archive WHERE queue = ?1

-- name: delete_usage
DELETE FROM headgate_usage WHERE queue = ?1

-- name: delete_queue
-- A trigger adds the queue to headgate_dropped, see deleted_queues.
DELETE FROM headgate_queue WHERE id = ?1

-- name: delete_expired_queue
-- Queue, now.
DELETE FROM headgate_queue WHERE id = ?1 AND expires_at <= ?2

-- name: deleted_queues
SELECT queue FROM headgate_dropped

-- name: forget_deleted_queue
DELETE FROM headgate_dropped WHERE queue = ?1

-- name: misnamed_indexes
-- Name, expression: indexes of that name on something else, and on that expression with another name.
SELECT name FROM sqlite_schema WHERE type = 'index' AND name LIKE 'headgate\_filter\_%' ESCAPE '\'
    AND (lower(name) = lower(?1)) <> (instr(sql, ?2) > 0)

-- name: drop_filter_index
DROP INDEX IF EXISTS "{index}"

-- name: create_filter_index
-- The expression has the text that filters are compiled to, by which SQLite finds the index. Rows without the header are
-- left out: no lookup needs them.
CREATE INDEX IF NOT EXISTS "{index}"
ON headgate_delivery (queue, {expression}, rank, message) WHERE state = 0 AND {expression} IS NOT NULL

-- name: backfill
-- Queue, after which message. Copies the queue's filter headers, as they are now, from the messages, a thousand at a time.
UPDATE headgate_delivery SET keys = coalesce(
    (SELECT json_group_object(h.value, json(m.headers -> ('$."' || h.value || '"')))
     FROM headgate_message m, json_each((SELECT filter_headers FROM headgate_queue WHERE id = ?1)) h
     WHERE m.id = headgate_delivery.message AND json_type(m.headers, '$."' || h.value || '"') IS NOT NULL), '{}')
WHERE queue = ?1 AND message IN (
    SELECT message FROM headgate_delivery WHERE queue = ?1 AND message > ?2 ORDER BY message LIMIT 1000)
RETURNING message
