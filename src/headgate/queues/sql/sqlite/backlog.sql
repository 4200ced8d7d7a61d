-- name: begin_backlog
-- Name of the subscription, now, lease.
INSERT INTO headgate_backlog (queue, upto, after_queue, busy_until)
SELECT id, coalesce((SELECT max(id) FROM headgate_message), 0), coalesce(source, 0), ?2 + ?3
FROM headgate_queue WHERE name = ?1

-- name: backlog
SELECT upto, after_queue, after_message FROM headgate_backlog WHERE queue = ?1

-- name: backlog_page
-- Subscription, position: queue and message; last message, limit, source or NULL, now. The next messages by id, whether
-- the source has them, and the position of each. They keep the rest of their delay, and their group.
SELECT 0, m.id, count(d.message),
    min(CASE WHEN d.state = 1 AND d.attempts = 0 THEN max(d.visible_at - ?7, 0) ELSE 0 END), max(d.grp), {columns}
FROM (SELECT id FROM headgate_message WHERE id > ?3 AND id <= ?4 ORDER BY id LIMIT ?5) p
CROSS JOIN headgate_message m ON m.id = p.id
LEFT JOIN headgate_delivery d ON d.message = p.id AND d.queue = coalesce(?6, d.queue)
GROUP BY p.id ORDER BY p.id

-- name: move_backlog
-- Subscription, position: queue and message; now, lease.
UPDATE headgate_backlog SET after_queue = ?2, after_message = ?3, busy_until = ?4 + ?5 WHERE queue = ?1

-- name: delete_backlog
DELETE FROM headgate_backlog WHERE queue = ?1

-- name: upkeep
-- Now: expired push subscriptions, and subscriptions with a backlog that nobody is at work on.
SELECT 'expired', id FROM headgate_queue WHERE expires_at <= ?1 AND kind = 'push'
UNION ALL SELECT 'backlog', queue FROM headgate_backlog WHERE busy_until <= ?1
