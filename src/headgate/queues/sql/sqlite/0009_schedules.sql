-- Messages that are published by a cron expression, and when each is published next: microseconds since 1970 UTC.
CREATE TABLE headgate_schedule (
    name TEXT PRIMARY KEY,
    cron TEXT NOT NULL,
    timezone TEXT NOT NULL,
    missed TEXT NOT NULL,
    queue TEXT,
    grp TEXT,
    topic TEXT NOT NULL,
    headers TEXT NOT NULL,
    properties TEXT NOT NULL,
    priority INTEGER NOT NULL,
    timestamp INTEGER,
    message_id TEXT,
    filter_value TEXT,
    key TEXT,
    payload BLOB NOT NULL,
    next_at INTEGER NOT NULL,
    last_at INTEGER,
    runs INTEGER NOT NULL,
    missed_runs INTEGER NOT NULL,
    problem TEXT
) WITHOUT ROWID;
CREATE INDEX headgate_schedule_next ON headgate_schedule (next_at);
