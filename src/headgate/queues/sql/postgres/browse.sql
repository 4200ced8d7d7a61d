-- name: snapshots
-- Queue, limit, then the parameters of the gap.
SELECT d.message, d.state, d.attempts, d.visible_at, d.grp, d.reason, {columns}
FROM delivery d CROSS JOIN LATERAL (SELECT * FROM message WHERE id = d.message LIMIT 1) m
WHERE d.queue = $1 AND {where} ORDER BY {order} LIMIT $2

-- name: next_deliveries
-- Queue, limit, after which message: the number of the next deliveries by id, the last of them, and whether at least one
-- message in four of this range of ids is among them.
SELECT count(*), coalesce(max(message), $3), coalesce(max(message) - min(message) < 4 * count(*), false) FROM (
    SELECT d.message FROM delivery d WHERE d.queue = $1 AND d.message > $3{in_state} ORDER BY d.message LIMIT $2) n

-- name: snapshots_in_range
-- As snapshots, after $3 up to $4. The messages are read first, and the deliveries of those that match.
SELECT d.message, d.state, d.attempts, d.visible_at, d.grp, d.reason, {columns}
FROM message m CROSS JOIN LATERAL (SELECT * FROM delivery WHERE queue = $1 AND message = m.id LIMIT 1) d
WHERE m.id > $3 AND m.id <= $4 AND {where} ORDER BY m.id LIMIT $2

-- name: id_among
d.message = ANY ({ids}::bigint[])

-- name: archived
SELECT a.id, 0, a.attempts, a.acked_at, a.grp, NULL::text, {columns}
FROM archive a WHERE a.queue = $1 AND a.id > $2 ORDER BY a.id LIMIT $3

-- name: purge_waiting
DELETE FROM delivery WHERE queue = $1 AND message = ANY (ARRAY(
    SELECT message FROM delivery WHERE queue = $1 AND state IN (0, 1) ORDER BY message LIMIT 1000 FOR UPDATE SKIP LOCKED))
RETURNING 1

-- name: purge_state
-- The state is no parameter: a plan for all states could not use the index of one.
DELETE FROM delivery WHERE queue = $1 AND message = ANY (ARRAY(
    SELECT message FROM delivery WHERE queue = $1 AND state = {state} ORDER BY message LIMIT 1000 FOR UPDATE SKIP LOCKED))
RETURNING 1

-- name: prune
-- Queue, the wall clock, age. Leased deliveries are kept.
DELETE FROM delivery WHERE queue = $1 AND message = ANY (ARRAY(
    SELECT d.message FROM delivery d JOIN message m ON m.id = d.message
    WHERE d.queue = $1 AND d.state <> 2 AND m.timestamp < coalesce($2::bigint, now_us()) - $3::bigint
    ORDER BY d.message LIMIT 1000 FOR UPDATE OF d SKIP LOCKED))
RETURNING 1

-- name: prune_archive
DELETE FROM archive WHERE (queue, id) IN (
    SELECT queue, id FROM archive WHERE queue = $1 AND timestamp < coalesce($2::bigint, now_us()) - $3::bigint
    ORDER BY queue, id LIMIT 1000)
RETURNING 1

-- name: requeue
-- Queue, now.
WITH changed AS (
    UPDATE delivery SET state = 0, attempts = 0, visible_at = coalesce($2::bigint, now_us()), reason = NULL
    WHERE queue = $1 AND message = ANY (ARRAY(
        SELECT message FROM delivery WHERE queue = $1 AND state = 3 ORDER BY message LIMIT 1000 FOR UPDATE SKIP LOCKED))
    RETURNING message
), woken AS MATERIALIZED (SELECT wake_up($1))
SELECT message FROM changed, woken

-- name: requeue_some
-- Queue, now, messages.
WITH changed AS (
    UPDATE delivery SET state = 0, attempts = 0, visible_at = coalesce($2::bigint, now_us()), reason = NULL
    WHERE queue = $1 AND message = ANY ($3::bigint[]) AND state = 3
    RETURNING message
), woken AS MATERIALIZED (SELECT wake_up($1))
SELECT message FROM changed, woken

-- name: counts
SELECT 0, count(*) FROM delivery WHERE queue = $1 AND state = 0 AND rank <= 0
UNION ALL SELECT state, count(*) FROM delivery WHERE queue = $1 AND state IN (1, 2) AND visible_at >= 0 GROUP BY state
UNION ALL SELECT 3, count(*) FROM delivery WHERE queue = $1 AND state = 3

-- name: oldest_ready
-- Queue, the wall clock. The oldest message of each rank is the first of those aside, or of the others; there are at most
-- 256 ranks.
WITH RECURSIVE first (aside, rank, message) AS (
    (SELECT aside, rank, message FROM delivery WHERE queue = $1 AND state = 0 AND rank <= 0
     ORDER BY aside, rank, message LIMIT 1)
    UNION ALL
    SELECT n.aside, n.rank, n.message FROM first CROSS JOIN LATERAL (
        SELECT d.aside, d.rank, d.message FROM delivery d
        WHERE d.queue = $1 AND d.state = 0 AND d.rank <= 0 AND (d.aside, d.rank) > (first.aside, first.rank)
        ORDER BY d.aside, d.rank, d.message LIMIT 1) n
)
SELECT greatest(coalesce($2::bigint, now_us()) - greatest(min(m.timestamp), 0), 0) FROM first JOIN message m ON m.id = first.message
HAVING count(*) > 0

-- name: usage
SELECT consumer, claims, empty_claims, rows, claim_us, unmatched, acked, nacked, failures, filter
FROM usage WHERE queue = $1 ORDER BY consumer COLLATE "C"

-- name: add_usage
INSERT INTO usage AS u (queue, consumer, claims, empty_claims, rows, claim_us, unmatched, acked, nacked, failures, filter)
VALUES ($1, $2::text, $3, $4, $5, $6, $7, $8, $9, $10, $11::text)
ON CONFLICT (queue, consumer) DO UPDATE SET claims = u.claims + excluded.claims,
    empty_claims = u.empty_claims + excluded.empty_claims, rows = u.rows + excluded.rows,
    claim_us = u.claim_us + excluded.claim_us, unmatched = u.unmatched + excluded.unmatched,
    acked = u.acked + excluded.acked, nacked = u.nacked + excluded.nacked, failures = u.failures + excluded.failures,
    filter = excluded.filter

-- name: explain
EXPLAIN {query}
