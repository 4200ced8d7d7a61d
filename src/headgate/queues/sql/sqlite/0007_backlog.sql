-- Subscriptions that start with the stored messages get them in pages, so that nobody waits. A row says how far a
-- subscription has come, for whoever continues: up to which message, after which position, and until when somebody is
-- at work on it.
CREATE TABLE headgate_backlog (
    queue INTEGER PRIMARY KEY,
    upto INTEGER NOT NULL,
    after_queue INTEGER NOT NULL,
    after_message INTEGER NOT NULL DEFAULT 0,
    busy_until INTEGER NOT NULL
);

CREATE INDEX headgate_queue_expiry ON headgate_queue (expires_at) WHERE expires_at IS NOT NULL;
