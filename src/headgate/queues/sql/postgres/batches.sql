-- name: mark_batch
-- Queue, source, batch. No row if this batch or a later one was published before.
INSERT INTO batch (queue, source, batch) VALUES ($1::bigint, $2::text, $3::bigint)
ON CONFLICT (queue, source) DO UPDATE SET batch = excluded.batch WHERE batch.batch < excluded.batch
RETURNING batch.batch

-- name: delete_batches
DELETE FROM batch WHERE queue = $1::bigint
