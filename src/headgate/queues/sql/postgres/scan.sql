-- Reading a queue in ranges of ids, without claiming: for Spark. SELECT is the only privilege it needs.

-- name: tables_version
SELECT coalesce(max(version), 0)::bigint FROM migration

-- name: queue_named
SELECT id::bigint FROM queue WHERE name = $1

-- name: last_delivery
SELECT d.message FROM delivery d WHERE d.queue = $1 AND d.state IN ({states}) ORDER BY d.message DESC LIMIT 1

-- name: delivery_count
-- Queue, the first id, the id after the last.
SELECT count(*) FROM delivery d
WHERE d.queue = $1 AND d.message >= $2 AND d.message < $3 AND d.state IN ({states})

-- name: delivery_at
-- As above, then how many rows to skip.
SELECT d.message FROM delivery d
WHERE d.queue = $1 AND d.message >= $2 AND d.message < $3 AND d.state IN ({states})
ORDER BY d.message LIMIT 1 OFFSET $4

-- name: delivery_borders
-- Queue, the first id, the id after the last, how many rows lie between two borders.
SELECT n.message FROM (
    SELECT d.message, row_number() OVER (ORDER BY d.message) - 1 AS at FROM delivery d
    WHERE d.queue = $1 AND d.message >= $2 AND d.message < $3 AND d.state IN ({states})) n
WHERE n.at % $4 = 0 ORDER BY n.message

-- name: deliveries
-- Queue, the first id, the id after the last, limit, then the parameters of the gap.
SELECT {columns} FROM delivery d CROSS JOIN LATERAL (SELECT * FROM message WHERE id = d.message LIMIT 1) m
WHERE d.queue = $1 AND d.message >= $2 AND d.message < $3 AND d.state IN ({states}) AND {where}
ORDER BY d.message LIMIT $4

-- name: last_archived
SELECT m.id FROM archive m WHERE m.queue = $1 ORDER BY m.id DESC LIMIT 1

-- name: archive_borders
SELECT n.id FROM (
    SELECT m.id, row_number() OVER (ORDER BY m.id) - 1 AS at FROM archive m
    WHERE m.queue = $1 AND m.id >= $2 AND m.id < $3) n
WHERE n.at % $4 = 0 ORDER BY n.id

-- name: archived_messages
SELECT {columns} FROM archive m WHERE m.queue = $1 AND m.id >= $2 AND m.id < $3 AND {where} ORDER BY m.id LIMIT $4

-- name: keeps_archive
SELECT archive::int::bigint FROM queue WHERE id = $1

-- name: turns_end
-- Queue. All turns below the first are over: no running or later transaction has one of them. The second is a turn in the
-- archive that no transaction of this server can have had, if there is one: it comes from another server.
SELECT pg_snapshot_xmin(s)::text::bigint, (SELECT max(m.turn) FROM archive m
    WHERE m.queue = $1 AND m.turn >= pg_snapshot_xmax(s)::text::bigint)
FROM pg_current_snapshot() s

-- name: last_in_turn
-- Queue, the turn after the last that is over.
SELECT m.turn, m.id FROM archive m WHERE m.queue = $1 AND m.turn < $2 ORDER BY m.turn DESC, m.id DESC LIMIT 1

-- name: turn_count
-- Queue, the first turn and id, the turn and id after the last.
SELECT count(*) FROM archive m WHERE m.queue = $1 AND (m.turn, m.id) >= ($2, $3) AND (m.turn, m.id) < ($4, $5)

-- name: turn_at
-- As above, then how many rows to skip.
SELECT m.turn, m.id FROM archive m
WHERE m.queue = $1 AND (m.turn, m.id) >= ($2, $3) AND (m.turn, m.id) < ($4, $5)
ORDER BY m.turn, m.id LIMIT 1 OFFSET $6

-- name: turn_borders
-- As above, then how many rows lie between two borders.
SELECT n.turn, n.id FROM (
    SELECT m.turn, m.id, row_number() OVER (ORDER BY m.turn, m.id) - 1 AS at FROM archive m
    WHERE m.queue = $1 AND (m.turn, m.id) >= ($2, $3) AND (m.turn, m.id) < ($4, $5)) n
WHERE n.at % $6 = 0 ORDER BY n.turn, n.id

-- name: archived_in_turn
-- As above, then limit, then the parameters of the gap.
SELECT {columns} FROM archive m
WHERE m.queue = $1 AND (m.turn, m.id) >= ($2, $3) AND (m.turn, m.id) < ($4, $5) AND {where}
ORDER BY m.turn, m.id LIMIT $6
