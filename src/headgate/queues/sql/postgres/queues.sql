-- name: catalog_version
SELECT version FROM catalog

-- name: share_catalog
-- Keeps other transactions from changing a queue or subscription until this one ends.
SELECT version FROM catalog FOR KEY SHARE

-- name: lock_catalog
-- Waits for all transactions that publish by the current catalog, and keeps new ones out.
SELECT version FROM catalog FOR UPDATE

-- name: catalog
SELECT id, name, kind, max_attempts, dedup_window_us, archive, filter_headers, indexed, filter, source, version,
    paused, expires_at, policies
FROM queue ORDER BY name COLLATE "C"

-- name: catalog_changes
-- After which version: the changed queues as they are now, NULL where a queue was deleted.
SELECT c.version, c.queue, q.id, q.name, q.kind, q.max_attempts, q.dedup_window_us, q.archive, q.filter_headers, q.indexed, q.filter,
    q.source, q.version, q.paused, q.expires_at, q.policies
FROM catalog_change c LEFT JOIN queue q ON q.id = c.queue WHERE c.version > $1::bigint ORDER BY c.version

-- name: create_queue
-- name, kind, max_attempts, dedup window, archive, filter headers, indexed headers, filter, source, now, lease or NULL,
-- policies
INSERT INTO queue (name, kind, max_attempts, dedup_window_us, archive, filter_headers, indexed, filter, source, expires_at,
    policies)
VALUES ($1::text, $2::text, $3::bigint, $4::bigint, $5::int::boolean, to_jsonb($6::text[]), to_jsonb($7::text[]),
    $8::text, $9::bigint, coalesce($10::bigint, now_us()) + $11::bigint, $12::integer)

-- name: change_options
-- queue, max_attempts, dedup window, archive, filter headers
UPDATE queue SET max_attempts = $2::bigint, dedup_window_us = $3::bigint, archive = $4::int::boolean,
    filter_headers = to_jsonb($5::text[])
WHERE id = $1

-- name: change_filter
-- queue, filter, source
UPDATE queue SET filter = $2::text, source = $3::bigint, version = version + 1 WHERE id = $1

-- name: add_indexed
-- Queue, headers. Others may have added theirs meanwhile.
UPDATE queue SET indexed = (
    SELECT coalesce(jsonb_agg(h.name ORDER BY h.n), '[]')
    FROM jsonb_array_elements_text(filter_headers) WITH ORDINALITY AS h (name, n)
    WHERE indexed ? h.name OR h.name = ANY ($2::text[]))
WHERE id = $1

-- name: set_paused
WITH changed AS (UPDATE queue SET paused = $2::int::boolean WHERE id = $1 RETURNING id) SELECT wake_up(id) FROM changed

-- name: set_expiry
-- queue, now, lease
UPDATE queue SET expires_at = coalesce($2::bigint, now_us()) + $3::bigint WHERE id = $1 RETURNING id

-- name: delete_deliveries
-- In pieces. Not IN (SELECT …), for which the planner may compare every delivery with each of them.
DELETE FROM delivery WHERE queue = $1 AND message = ANY (ARRAY(
    SELECT message FROM delivery WHERE queue = $1 ORDER BY message LIMIT 1000 FOR UPDATE SKIP LOCKED))
RETURNING 1

-- name: delete_dedup_keys
DELETE FROM dedup WHERE queue = $1

-- name: delete_archive
DELETE FROM archive WHERE queue = $1

-- name: delete_usage
DELETE FROM usage WHERE queue = $1

-- name: deleted_queues
SELECT queue FROM dropped

-- name: forget_deleted_queue
-- Not while there are deliveries, which were locked when the others were deleted.
DELETE FROM dropped WHERE queue = $1 AND NOT EXISTS (SELECT FROM delivery d WHERE d.queue = $1)

-- name: delete_queue
-- Its consumers are woken, and find that it was deleted.
WITH gone AS (DELETE FROM queue WHERE id = $1 RETURNING id) SELECT wake_up(id) FROM gone

-- name: delete_expired_queue
-- Queue, now.
WITH gone AS (
    DELETE FROM queue WHERE id = $1 AND expires_at <= coalesce($2::bigint, now_us()) RETURNING id
)
SELECT wake_up(id) FROM gone

-- name: lock_indexes
-- Whether the lock was free; if it was not, after a pause. One builder at a time in this schema: building concurrently takes
-- no lock that would keep two apart. A builder waits for the end of all statements, also of one that would wait for its lock.
SELECT CASE WHEN pg_try_advisory_lock(hashtextextended('headgate.indexes.' || current_schema(), 0))
    THEN true ELSE pg_sleep(0.05) IS NULL END

-- name: unlock_indexes
SELECT pg_advisory_unlock(hashtextextended('headgate.indexes.' || current_schema(), 0))

-- name: filter_index
-- Name: whether the index exists, and whether its build was finished.
SELECT i.indisvalid FROM pg_index i WHERE i.indexrelid = to_regclass($1::text)

-- name: drop_filter_index
DROP INDEX CONCURRENTLY IF EXISTS {index}

-- name: create_filter_index
-- Built without blocking writers. Rows without the header are left out: no lookup needs them, and so the planner cannot
-- use this index for a query without a condition on the header.
CREATE INDEX CONCURRENTLY {index} ON delivery (queue, ({expression}), rank, message)
WHERE state = 0 AND {expression} IS NOT NULL

-- name: backfill
-- Queue, after which message. Copies the queue's filter headers, as they are now, from the messages, a thousand at a time.
UPDATE delivery d SET keys = coalesce(
    (SELECT jsonb_object_agg(h.key, h.value) FROM message m, jsonb_each(m.headers) h
     WHERE m.id = d.message AND (SELECT q.filter_headers FROM queue q WHERE q.id = $1) ? h.key), '{}')
WHERE d.queue = $1 AND d.message = ANY (ARRAY(
    SELECT message FROM delivery WHERE queue = $1 AND message > $2 ORDER BY message LIMIT 1000))
RETURNING d.message
