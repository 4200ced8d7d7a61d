-- Subscriptions that start with the stored messages get them in pages, so that nobody waits. A row says how far a
-- subscription has come, for whoever continues: up to which message, after which position, and until when somebody is
-- at work on it.
CREATE TABLE backlog (
    queue integer PRIMARY KEY,
    upto bigint NOT NULL,
    after_queue integer NOT NULL,
    after_message bigint NOT NULL DEFAULT 0,
    busy_until bigint NOT NULL
);

CREATE INDEX queue_expiry ON queue (expires_at) WHERE expires_at IS NOT NULL;
