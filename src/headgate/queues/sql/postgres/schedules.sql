-- name: schedules
-- Name or NULL for all, now. The time, and the schedules; one row of NULLs if there are none.
SELECT coalesce($2::bigint, now_us()),
    s.name, s.cron, s.timezone, s.missed, s.queue, s.grp, s.next_at, s.last_at, s.runs, s.missed_runs, s.problem, {columns}
FROM (SELECT 1 AS one) o LEFT JOIN schedule s ON $1::text IS NULL OR s.name = $1::text
ORDER BY s.name

-- name: schedules_due
-- Limit, now. Locked: of two schedulers one runs a schedule.
SELECT coalesce($2::bigint, now_us()),
    s.name, s.cron, s.timezone, s.missed, s.queue, s.grp, s.next_at, s.last_at, s.runs, s.missed_runs, s.problem, {columns}
FROM schedule s WHERE s.next_at <= coalesce($2::bigint, now_us()) ORDER BY s.next_at LIMIT $1 FOR UPDATE SKIP LOCKED

-- name: schedule_next
-- Now: how long until the next run.
SELECT greatest(min(next_at) - coalesce($1::bigint, now_us()), 0) FROM schedule HAVING min(next_at) IS NOT NULL

-- name: declare_schedule
-- A schedule that is there keeps its next run, unless its times change.
INSERT INTO schedule (name, cron, timezone, missed, queue, grp, next_at,
    topic, headers, properties, priority, timestamp, message_id, filter_value, key, payload, runs, missed_runs)
VALUES ($1::text, $2::text, $3::text, $4::text, $5::text, $6::text, $7::bigint, $8::text,
    $9::text, $10::text, $11::smallint, $12::bigint, $13::text, $14::text, $15::text, $16::bytea, 0, 0)
ON CONFLICT (name) DO UPDATE SET
    next_at = CASE WHEN schedule.cron = excluded.cron AND schedule.timezone = excluded.timezone
        THEN schedule.next_at ELSE excluded.next_at END,
    problem = NULL,
    cron = excluded.cron, timezone = excluded.timezone, missed = excluded.missed, queue = excluded.queue,
    grp = excluded.grp, topic = excluded.topic, headers = excluded.headers, properties = excluded.properties,
    priority = excluded.priority, timestamp = excluded.timestamp, message_id = excluded.message_id, filter_value = excluded.filter_value,
    key = excluded.key, payload = excluded.payload

-- name: schedule_ran
-- Name, next run, last run, runs, missed runs, problem.
UPDATE schedule SET next_at = $2::bigint, last_at = $3::bigint, runs = $4::bigint, missed_runs = $5::bigint, problem = $6::text
WHERE name = $1

-- name: delete_schedule
DELETE FROM schedule WHERE name = $1 RETURNING 1
