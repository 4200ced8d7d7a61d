-- name: mark_batch
-- Queue, source, batch. No row if this batch or a later one was published before.
INSERT INTO headgate_batch (queue, source, batch) VALUES (?1, ?2, ?3)
ON CONFLICT (queue, source) DO UPDATE SET batch = excluded.batch WHERE headgate_batch.batch < excluded.batch
RETURNING batch

-- name: delete_batches
DELETE FROM headgate_batch WHERE queue = ?1
