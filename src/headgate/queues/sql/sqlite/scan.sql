-- Reading a queue in ranges of ids, without claiming: for Spark. The + keeps SQLite from using an index that is not in
-- the order of ids.

-- name: tables_version
SELECT coalesce(max(version), 0) FROM headgate_migration

-- name: queue_named
SELECT id FROM headgate_queue WHERE name = ?1

-- name: last_delivery
SELECT d.message FROM headgate_delivery d WHERE +d.queue = ?1 AND d.state IN ({states}) ORDER BY d.message DESC LIMIT 1

-- name: delivery_count
-- Queue, the first id, the id after the last.
SELECT count(*) FROM headgate_delivery d
WHERE +d.queue = ?1 AND d.message >= ?2 AND d.message < ?3 AND d.state IN ({states})

-- name: delivery_at
-- As above, then how many rows to skip.
SELECT d.message FROM headgate_delivery d
WHERE +d.queue = ?1 AND d.message >= ?2 AND d.message < ?3 AND d.state IN ({states})
ORDER BY d.message LIMIT 1 OFFSET ?4

-- name: delivery_borders
-- Queue, the first id, the id after the last, how many rows lie between two borders.
SELECT n.message FROM (
    SELECT d.message, row_number() OVER (ORDER BY d.message) - 1 AS at FROM headgate_delivery d
    WHERE +d.queue = ?1 AND d.message >= ?2 AND d.message < ?3 AND d.state IN ({states})) n
WHERE n.at % ?4 = 0 ORDER BY n.message

-- name: deliveries
-- Queue, the first id, the id after the last, limit, then the parameters of the gap.
SELECT {columns} FROM headgate_delivery d CROSS JOIN headgate_message m ON m.id = d.message
WHERE +d.queue = ?1 AND d.message >= ?2 AND d.message < ?3 AND d.state IN ({states}) AND {where}
ORDER BY d.message LIMIT ?4

-- name: last_archived
SELECT m.id FROM headgate_archive m WHERE m.queue = ?1 ORDER BY m.id DESC LIMIT 1

-- name: archive_borders
SELECT n.id FROM (
    SELECT m.id, row_number() OVER (ORDER BY m.id) - 1 AS at FROM headgate_archive m
    WHERE m.queue = ?1 AND m.id >= ?2 AND m.id < ?3) n
WHERE n.at % ?4 = 0 ORDER BY n.id

-- name: archived_messages
SELECT {columns} FROM headgate_archive m WHERE m.queue = ?1 AND m.id >= ?2 AND m.id < ?3 AND {where}
ORDER BY m.id LIMIT ?4

-- name: keeps_archive
SELECT archive FROM headgate_queue WHERE id = ?1

-- name: turns_end
-- Queue. All turns below the first column are over. The second is a turn of another server, which SQLite has not.
SELECT turn, NULL FROM headgate_next_turn WHERE queue = ?1

-- name: last_in_turn
-- Queue, the turn after the last that is over.
SELECT m.turn, m.id FROM headgate_archive m WHERE m.queue = ?1 AND m.turn < ?2 ORDER BY m.turn DESC, m.id DESC LIMIT 1

-- name: turn_count
-- Queue, the first turn and id, the turn and id after the last.
SELECT count(*) FROM headgate_archive m
WHERE m.queue = ?1 AND (m.turn, m.id) >= (?2, ?3) AND (m.turn, m.id) < (?4, ?5)

-- name: turn_at
-- As above, then how many rows to skip.
SELECT m.turn, m.id FROM headgate_archive m
WHERE m.queue = ?1 AND (m.turn, m.id) >= (?2, ?3) AND (m.turn, m.id) < (?4, ?5)
ORDER BY m.turn, m.id LIMIT 1 OFFSET ?6

-- name: turn_borders
-- As above, then how many rows lie between two borders.
SELECT n.turn, n.id FROM (
    SELECT m.turn, m.id, row_number() OVER (ORDER BY m.turn, m.id) - 1 AS at FROM headgate_archive m
    WHERE m.queue = ?1 AND (m.turn, m.id) >= (?2, ?3) AND (m.turn, m.id) < (?4, ?5)) n
WHERE n.at % ?6 = 0 ORDER BY n.turn, n.id

-- name: archived_in_turn
-- As above, then limit, then the parameters of the gap.
SELECT {columns} FROM headgate_archive m
WHERE m.queue = ?1 AND (m.turn, m.id) >= (?2, ?3) AND (m.turn, m.id) < (?4, ?5) AND {where}
ORDER BY m.turn, m.id LIMIT ?6
