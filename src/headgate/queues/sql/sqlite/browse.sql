-- name: snapshots
-- Queue, limit, then the parameters of the gap.
SELECT d.message, d.state, d.attempts, d.visible_at, d.grp, d.reason, {columns}
FROM headgate_delivery d CROSS JOIN headgate_message m ON m.id = d.message
WHERE d.queue = ?1 AND {where} ORDER BY {order} LIMIT ?2

-- name: next_deliveries
-- Queue, limit, after which message: the number of the next deliveries by id, and the last of them.
SELECT count(*), coalesce(max(message), ?3), FALSE FROM (
    SELECT d.message FROM headgate_delivery d WHERE d.queue = ?1 AND d.message > ?3{in_state}
    ORDER BY d.message LIMIT ?2)

-- name: readable
-- A condition on messages, true where the headers are not valid JSON: the inbox view of an older version accepted that.
CASE WHEN json_valid(m.headers) THEN {where} ELSE TRUE END

-- name: archived
SELECT a.id, 0, a.attempts, a.acked_at, a.grp, NULL, {columns}
FROM headgate_archive a WHERE a.queue = ?1 AND a.id > ?2 ORDER BY a.id LIMIT ?3

-- name: purge_waiting
-- `state IN (1, 2)` is the condition of an index, which SQLite does not see in `state = 1`.
DELETE FROM headgate_delivery WHERE queue = ?1 AND message IN (
    SELECT message FROM headgate_delivery WHERE queue = ?1 AND state = 0
    UNION ALL SELECT message FROM headgate_delivery WHERE queue = ?1 AND state IN (1, 2) AND state = 1 LIMIT 1000)
RETURNING 1

-- name: purge_state
DELETE FROM headgate_delivery WHERE queue = ?1 AND message IN (
    SELECT message FROM headgate_delivery WHERE queue = ?1 AND state = 0 AND {state} = 0
    UNION ALL SELECT message FROM headgate_delivery WHERE queue = ?1 AND state IN (1, 2) AND state = {state}
    UNION ALL SELECT message FROM headgate_delivery WHERE queue = ?1 AND state = 3 AND {state} = 3 LIMIT 1000)
RETURNING 1

-- name: prune
-- Queue, the wall clock, age. Leased deliveries are kept.
DELETE FROM headgate_delivery WHERE queue = ?1 AND message IN (
    SELECT d.message FROM (
        SELECT message FROM headgate_delivery WHERE queue = ?1 AND state = 0
        UNION ALL SELECT message FROM headgate_delivery WHERE queue = ?1 AND state IN (1, 2) AND state = 1
        UNION ALL SELECT message FROM headgate_delivery WHERE queue = ?1 AND state = 3) d
    CROSS JOIN headgate_message m ON m.id = d.message
    WHERE m.timestamp < ?2 - ?3 LIMIT 1000)
RETURNING 1

-- name: prune_archive
DELETE FROM headgate_archive WHERE (queue, id) IN
    (SELECT queue, id FROM headgate_archive WHERE queue = ?1 AND timestamp < ?2 - ?3 LIMIT 1000) RETURNING 1

-- name: requeue
-- Queue, now.
UPDATE headgate_delivery SET state = 0, attempts = 0, visible_at = ?2, reason = NULL
WHERE queue = ?1 AND message IN (
    SELECT message FROM headgate_delivery WHERE queue = ?1 AND state = 3 LIMIT 1000)
RETURNING message

-- name: requeue_some
-- Queue, now, messages.
UPDATE headgate_delivery SET state = 0, attempts = 0, visible_at = ?2, reason = NULL
WHERE queue = ?1 AND message IN (SELECT value FROM json_each(?3)) AND state = 3
RETURNING message

-- name: counts
SELECT 0, count(*) FROM headgate_delivery WHERE queue = ?1 AND state = 0
UNION ALL SELECT state, count(*) FROM headgate_delivery WHERE queue = ?1 AND state IN (1, 2) GROUP BY state
UNION ALL SELECT 3, count(*) FROM headgate_delivery WHERE queue = ?1 AND state = 3

-- name: oldest_ready
-- Queue, the wall clock. The oldest message of each rank is the first of those aside, or of the others; there are at most
-- 256 ranks.
WITH RECURSIVE first(aside, rank, message) AS (
    SELECT * FROM (SELECT aside, rank, message FROM headgate_delivery WHERE queue = ?1 AND state = 0
        ORDER BY aside, rank, message LIMIT 1)
    UNION ALL
    SELECT d.aside, d.rank, d.message FROM first CROSS JOIN headgate_delivery d ON d.queue = ?1 AND d.message = (
        SELECT n.message FROM headgate_delivery n INDEXED BY headgate_delivery_ready
        WHERE n.queue = ?1 AND n.state = 0 AND (n.aside, n.rank) > (first.aside, first.rank)
        ORDER BY n.aside, n.rank, n.message LIMIT 1)
)
SELECT max(?2 - max(m.timestamp, 0), 0) FROM first JOIN headgate_message m ON m.id = first.message
ORDER BY m.id LIMIT 1

-- name: usage
SELECT consumer, claims, empty_claims, rows, claim_us, unmatched, acked, nacked, failures, filter
FROM headgate_usage WHERE queue = ?1 ORDER BY consumer

-- name: add_usage
INSERT INTO headgate_usage
    (queue, consumer, claims, empty_claims, rows, claim_us, unmatched, acked, nacked, failures, filter)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
ON CONFLICT DO UPDATE SET claims = claims + excluded.claims, empty_claims = empty_claims + excluded.empty_claims,
    rows = rows + excluded.rows, claim_us = claim_us + excluded.claim_us,
    unmatched = unmatched + excluded.unmatched, acked = acked + excluded.acked,
    nacked = nacked + excluded.nacked, failures = failures + excluded.failures, filter = excluded.filter

-- name: explain
EXPLAIN QUERY PLAN {query}

-- name: id_among
d.message IN (SELECT value FROM json_each({ids}))
