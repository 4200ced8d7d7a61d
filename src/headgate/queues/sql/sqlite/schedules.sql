-- name: schedules
-- Name or NULL for all, now. The time, and the schedules; one row of NULLs if there are none.
SELECT ?2,
    s.name, s.cron, s.timezone, s.missed, s.queue, s.grp, s.next_at, s.last_at, s.runs, s.missed_runs, s.problem, {columns}
FROM (SELECT 1 AS one) o LEFT JOIN headgate_schedule s ON ?1 IS NULL OR s.name = ?1
ORDER BY s.name

-- name: schedules_due
-- Limit, now. In a write transaction: of two schedulers one runs a schedule.
SELECT ?2,
    s.name, s.cron, s.timezone, s.missed, s.queue, s.grp, s.next_at, s.last_at, s.runs, s.missed_runs, s.problem, {columns}
FROM headgate_schedule s WHERE s.next_at <= ?2 ORDER BY s.next_at LIMIT ?1

-- name: schedule_next
-- Now: how long until the next run.
SELECT max(min(next_at) - ?1, 0) FROM headgate_schedule HAVING min(next_at) IS NOT NULL

-- name: declare_schedule
-- A schedule that is there keeps its next run, unless its times change.
INSERT INTO headgate_schedule (name, cron, timezone, missed, queue, grp, next_at,
    topic, headers, properties, priority, timestamp, message_id, filter_value, key, payload, runs, missed_runs)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8,
    ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, 0, 0)
ON CONFLICT (name) DO UPDATE SET
    next_at = CASE WHEN headgate_schedule.cron = excluded.cron AND headgate_schedule.timezone = excluded.timezone
        THEN headgate_schedule.next_at ELSE excluded.next_at END,
    problem = NULL,
    cron = excluded.cron, timezone = excluded.timezone, missed = excluded.missed, queue = excluded.queue,
    grp = excluded.grp, topic = excluded.topic, headers = excluded.headers, properties = excluded.properties,
    priority = excluded.priority, timestamp = excluded.timestamp, message_id = excluded.message_id, filter_value = excluded.filter_value,
    key = excluded.key, payload = excluded.payload

-- name: schedule_ran
-- Name, next run, last run, runs, missed runs, problem.
UPDATE headgate_schedule SET next_at = ?2, last_at = ?3, runs = ?4, missed_runs = ?5, problem = ?6
WHERE name = ?1

-- name: delete_schedule
DELETE FROM headgate_schedule WHERE name = ?1 RETURNING 1
