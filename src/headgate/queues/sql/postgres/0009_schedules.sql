-- Messages that are published by a cron expression, and when each is published next: microseconds since 1970 UTC.
CREATE TABLE schedule (
    name text PRIMARY KEY,
    cron text NOT NULL,
    timezone text NOT NULL,
    missed text NOT NULL,
    queue text,
    grp text,
    topic text NOT NULL,
    headers text NOT NULL,
    properties text NOT NULL,
    priority smallint NOT NULL,
    timestamp bigint,
    message_id text,
    filter_value text,
    key text,
    payload bytea NOT NULL,
    next_at bigint NOT NULL,
    last_at bigint,
    runs bigint NOT NULL,
    missed_runs bigint NOT NULL,
    problem text
);
CREATE INDEX schedule_next ON schedule (next_at);
