-- name: begin_backlog
-- Name of the subscription, now, lease.
INSERT INTO headgate_backlog (queue, upto, after_queue, busy_until)
SELECT id, coalesce((SELECT max(id) FROM headgate_message), 0), coalesce(source, 0), ?2 + ?3
FROM headgate_queue WHERE name = ?1

-- name: backlog
SELECT upto, after_queue, after_message FROM headgate_backlog WHERE queue = ?1

-- name: backlog_page
-- Subscription, position: queue and message; last message, limit, source or NULL, now. The next messages by id, whether
-- the source has them and they have not expired, and the position of each; of others the last only, which says how far the page
-- goes: their payloads are not read. Messages keep the rest of their delay, their group, and their end.
WITH page AS MATERIALIZED (SELECT id FROM headgate_message WHERE id > ?3 AND id <= ?4 ORDER BY id LIMIT ?5),
stored AS MATERIALIZED (
    SELECT p.id, count(d.message) AND coalesce(min(d.expires_at) > ?7, 1) AS is_stored,
        min(CASE WHEN d.state = 1 AND d.attempts = 0 THEN max(d.visible_at - ?7, 0) ELSE 0 END) AS delay,
        max(d.grp) AS grp, min(d.expires_at) AS expires_at
    FROM page p LEFT JOIN headgate_delivery d ON d.message = p.id AND d.queue = coalesce(?6, d.queue)
    GROUP BY p.id
)
SELECT 0, m.id, s.is_stored, s.delay, s.grp, s.expires_at, {columns}
FROM headgate_message m CROSS JOIN stored s ON s.id = m.id
WHERE m.id > ?3 AND m.id <= (SELECT max(id) FROM page) AND (s.is_stored OR m.id = (SELECT max(id) FROM page))
ORDER BY m.id

-- name: set_end
-- Message, queue, when it expires.
UPDATE headgate_delivery SET expires_at = ?3 WHERE message = ?1 AND queue = ?2

-- name: move_backlog
-- Subscription, position: queue and message; now, lease.
UPDATE headgate_backlog SET after_queue = ?2, after_message = ?3, busy_until = ?4 + ?5 WHERE queue = ?1

-- name: delete_backlog
DELETE FROM headgate_backlog WHERE queue = ?1

-- name: upkeep
-- Now: expired push subscriptions, and subscriptions whose backlog no process is delivering.
SELECT 'expired', id FROM headgate_queue WHERE expires_at <= ?1 AND kind = 'push'
UNION ALL SELECT 'backlog', queue FROM headgate_backlog WHERE busy_until <= ?1
