-- Messages that expire, rates of claims, keys of unique messages, results of handlers.

-- policies: 1 claims are limited by rate, 2 messages may expire. Claims look at the rest only where it is set.
ALTER TABLE queue ADD COLUMN policies integer NOT NULL DEFAULT 0;
DROP TRIGGER queue_changed ON queue;
CREATE TRIGGER queue_changed BEFORE UPDATE OF
    max_attempts, dedup_window_us, archive, filter_headers, indexed, filter, source, version, paused, policies ON queue
FOR EACH STATEMENT EXECUTE FUNCTION count_catalog_change();
DROP TRIGGER queue_changed_row ON queue;
CREATE TRIGGER queue_changed_row AFTER UPDATE OF
    max_attempts, dedup_window_us, archive, filter_headers, indexed, filter, source, version, paused, policies ON queue
FOR EACH ROW EXECUTE FUNCTION note_catalog_change();

ALTER TABLE delivery ADD COLUMN expires_at bigint;
CREATE INDEX delivery_expiry ON delivery (queue, expires_at) WHERE expires_at IS NOT NULL;

-- A token bucket of `count` tokens, filled within a period; it is full again at full_at.
CREATE TABLE rate (
    queue integer PRIMARY KEY, count integer NOT NULL, period_us bigint NOT NULL, full_at bigint NOT NULL
);

-- The message that was published last with a key that is to be pending once at a time.
CREATE TABLE unique_key (
    queue integer NOT NULL, key text NOT NULL, message bigint NOT NULL, PRIMARY KEY (queue, key)
);
CREATE INDEX unique_key_message ON unique_key (queue, message);

-- What a handler returned for a message, as JSON; NULL until then.
CREATE TABLE result (
    message bigint PRIMARY KEY, queue integer NOT NULL, keep_us bigint NOT NULL, value text, expires_at bigint
);
CREATE INDEX result_expiry ON result (expires_at);
