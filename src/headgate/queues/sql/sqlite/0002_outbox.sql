-- What applications publish inside their own transactions. A relay moves it into the queues.

CREATE TABLE headgate_outbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    delivery_key TEXT NOT NULL UNIQUE,
    queue TEXT NOT NULL,
    topic TEXT NOT NULL,
    headers TEXT NOT NULL,
    properties TEXT NOT NULL,
    priority INTEGER NOT NULL,
    timestamp INTEGER,
    message_id TEXT,
    filter_value TEXT,
    key TEXT,
    payload BLOB NOT NULL,
    delay_us INTEGER NOT NULL,
    dedup_key TEXT,
    grp TEXT,
    problem TEXT
);
CREATE INDEX headgate_outbox_waiting ON headgate_outbox (id) WHERE problem IS NULL;
