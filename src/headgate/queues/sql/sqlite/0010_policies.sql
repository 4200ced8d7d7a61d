-- Messages that expire, rates of claims, keys of unique messages, results of handlers.

-- policies: 1 claims are limited by headgate_rate, 2 messages may expire. Claims look at the rest only where it is set.
ALTER TABLE headgate_queue ADD COLUMN policies INTEGER NOT NULL DEFAULT 0;
DROP TRIGGER IF EXISTS headgate_queue_updated;
CREATE TRIGGER headgate_queue_updated AFTER UPDATE OF
    max_attempts, dedup_window_us, archive, filter_headers, indexed, filter, source, version, paused, policies
ON headgate_queue
BEGIN
    UPDATE headgate_catalog SET version = version + 1;
    INSERT INTO headgate_catalog_change SELECT version, NEW.id FROM headgate_catalog;
    DELETE FROM headgate_catalog_change WHERE version <= (SELECT version FROM headgate_catalog) - 1000;
END;

ALTER TABLE headgate_delivery ADD COLUMN expires_at INTEGER;
CREATE INDEX headgate_delivery_expiry ON headgate_delivery (queue, expires_at) WHERE expires_at IS NOT NULL;

-- A token bucket of `count` tokens, filled within a period; it is full again at full_at.
CREATE TABLE headgate_rate (
    queue INTEGER PRIMARY KEY, count INTEGER NOT NULL, period_us INTEGER NOT NULL, full_at INTEGER NOT NULL
);

-- The message that was published last with a key that is to be pending once at a time.
CREATE TABLE headgate_unique (
    queue INTEGER NOT NULL, key TEXT NOT NULL, message INTEGER NOT NULL, PRIMARY KEY (queue, key)
) WITHOUT ROWID;
CREATE INDEX headgate_unique_message ON headgate_unique (queue, message);

-- What a handler returned for a message, as JSON; NULL until then.
CREATE TABLE headgate_result (
    message INTEGER PRIMARY KEY, queue INTEGER NOT NULL, keep_us INTEGER NOT NULL, value TEXT, expires_at INTEGER
);
CREATE INDEX headgate_result_expiry ON headgate_result (expires_at);
