-- name: begin_backlog
-- Name of the subscription, now, lease. All messages that were published before it are visible: see lock_catalog.
INSERT INTO backlog (queue, upto, after_queue, busy_until)
SELECT id, coalesce((SELECT max(id) FROM message), 0), coalesce(source, 0), coalesce($2::bigint, now_us()) + $3::bigint
FROM queue WHERE name = $1::text

-- name: backlog
SELECT upto, after_queue, after_message FROM backlog WHERE queue = $1 FOR UPDATE

-- name: backlog_page
-- Subscription, position: queue and message; last message, limit, source or NULL, now. The next deliveries in the order of
-- the primary key, which has no gaps to read through, and the position of each. They are locked, so that none is deleted
-- with its message before the subscription has its own. The message keeps the rest of its delay, its group, and its end;
-- where several queues have it, the shortest delay.
WITH page AS MATERIALIZED (
    SELECT queue, message, shared, grp, expires_at, CASE WHEN state = 1 AND attempts = 0
        THEN greatest(visible_at - coalesce($7::bigint, now_us()), 0) ELSE 0 END AS delay
    FROM delivery
    WHERE (queue, message) > ($2::integer, $3::bigint) AND message <= $4::bigint
        AND queue <= coalesce($6::integer, $1::integer - 1)
    ORDER BY queue, message LIMIT $5 FOR UPDATE
)
SELECT p.queue, p.message,
    coalesce(least(p.expires_at, s.expires_at) > coalesce($7::bigint, now_us()), true),
    least(p.delay, s.delay), coalesce(s.grp, p.grp), least(p.expires_at, s.expires_at), {columns}
FROM page p
CROSS JOIN LATERAL (SELECT * FROM message WHERE id = p.message LIMIT 1) m
CROSS JOIN LATERAL (
    SELECT max(d.grp) AS grp, min(d.expires_at) AS expires_at, min(CASE WHEN d.state = 1 AND d.attempts = 0
        THEN greatest(d.visible_at - coalesce($7::bigint, now_us()), 0) ELSE 0 END) AS delay
    FROM delivery d WHERE d.message = p.message AND d.shared AND p.shared AND $6::bigint IS NULL) s
ORDER BY p.queue, p.message

-- name: share_delivery
-- Queue, message: one array each. The message is about to get another delivery.
UPDATE delivery d SET shared = true FROM unnest($1::bigint[], $2::bigint[]) AS r (queue, message)
WHERE d.queue = r.queue AND d.message = r.message AND NOT d.shared

-- name: set_end
-- Message, queue, when it expires: one array each.
UPDATE delivery d SET expires_at = r.expires_at
FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS r (message, queue, expires_at)
WHERE d.queue = r.queue AND d.message = r.message

-- name: move_backlog
-- Subscription, position: queue and message; now, lease.
UPDATE backlog SET after_queue = $2::bigint, after_message = $3::bigint, busy_until = coalesce($4::bigint, now_us()) + $5::bigint
WHERE queue = $1

-- name: delete_backlog
DELETE FROM backlog WHERE queue = $1::bigint

-- name: upkeep
-- Now: expired push subscriptions, and subscriptions whose backlog no process is delivering.
SELECT 'expired', id FROM queue WHERE expires_at <= coalesce($1::bigint, now_us()) AND kind = 'push'
UNION ALL SELECT 'backlog', queue FROM backlog WHERE busy_until <= coalesce($1::bigint, now_us())
