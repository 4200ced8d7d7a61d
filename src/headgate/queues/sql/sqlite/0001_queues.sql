-- Queues, messages, deliveries. Tables begin with headgate_: they may live in an application's own database file.

-- One row. version counts the changes to headgate_queue, so that everyone who remembers queues knows when to look again.
-- last_message is the highest id of a message that was deleted while it was the last.
CREATE TABLE headgate_catalog (version INTEGER NOT NULL, last_message INTEGER NOT NULL);
INSERT INTO headgate_catalog VALUES (1, 0);

CREATE TABLE headgate_queue (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL DEFAULT 'queue',
    max_attempts INTEGER NOT NULL DEFAULT 5,
    dedup_window_us INTEGER NOT NULL DEFAULT 300000000,
    archive INTEGER NOT NULL DEFAULT 0,
    filter_headers TEXT NOT NULL DEFAULT '[]',
    indexed TEXT NOT NULL DEFAULT '[]',
    filter TEXT NOT NULL DEFAULT '',
    source INTEGER,
    version INTEGER NOT NULL DEFAULT 1,
    paused INTEGER NOT NULL DEFAULT 0,
    expires_at INTEGER
);

CREATE TRIGGER headgate_queue_inserted AFTER INSERT ON headgate_queue
BEGIN UPDATE headgate_catalog SET version = version + 1; END;
CREATE TRIGGER headgate_queue_deleted AFTER DELETE ON headgate_queue
BEGIN UPDATE headgate_catalog SET version = version + 1; END;
-- Not of expires_at: a subscriber that is alive changes nothing.
CREATE TRIGGER headgate_queue_updated AFTER UPDATE OF
    max_attempts, dedup_window_us, archive, filter_headers, indexed, filter, source, version, paused
ON headgate_queue
BEGIN UPDATE headgate_catalog SET version = version + 1; END;

-- Never updated.
CREATE TABLE headgate_message (
    id INTEGER PRIMARY KEY,
    topic TEXT NOT NULL,
    headers TEXT NOT NULL,
    properties TEXT NOT NULL,
    priority INTEGER NOT NULL,
    timestamp INTEGER NOT NULL,
    message_id TEXT,
    filter_value TEXT,
    key TEXT,
    payload BLOB NOT NULL
);

-- SQLite would give the id of a deleted last row to the next one. AUTOINCREMENT prevents that with one more page in every
-- commit; here only the deletion of the last row is written down.
CREATE TRIGGER headgate_message_deleted AFTER DELETE ON headgate_message
WHEN OLD.id > coalesce((SELECT max(id) FROM headgate_message), 0)
BEGIN UPDATE headgate_catalog SET last_message = OLD.id WHERE last_message < OLD.id; END;
CREATE VIEW headgate_next_message (id, version) AS
SELECT max(last_message, coalesce((SELECT max(id) FROM headgate_message), 0)) + 1, version FROM headgate_catalog;

-- One message in one queue. state: 0 ready, 1 delayed, 2 leased, 3 dead. rank = -priority, so that the order of a
-- queue ascends in (rank, message). keys: the filter headers of the queue, copied from the message.
CREATE TABLE headgate_delivery (
    message INTEGER NOT NULL,
    queue INTEGER NOT NULL,
    state INTEGER NOT NULL,
    rank INTEGER NOT NULL,
    visible_at INTEGER NOT NULL,
    token INTEGER NOT NULL DEFAULT 0,
    attempts INTEGER NOT NULL DEFAULT 0,
    grp TEXT,
    keys TEXT NOT NULL DEFAULT '{}',
    reason TEXT,
    PRIMARY KEY (message, queue)
) WITHOUT ROWID;

-- A message with its only delivery, to be inserted as one row.
CREATE VIEW headgate_publication AS
SELECT m.id, m.topic, m.headers, m.properties, m.priority, m.timestamp, m.message_id, m.filter_value, m.key, m.payload,
    d.queue, d.state, d.rank, d.visible_at, d.grp, d.keys
FROM headgate_message m JOIN headgate_delivery d ON d.message = m.id;
CREATE TRIGGER headgate_published INSTEAD OF INSERT ON headgate_publication
BEGIN
    INSERT INTO headgate_message
    VALUES (NEW.id, NEW.topic, NEW.headers, NEW.properties, NEW.priority, NEW.timestamp, NEW.message_id, NEW.filter_value,
        NEW.key, NEW.payload);
    INSERT INTO headgate_delivery (message, queue, state, rank, visible_at, grp, keys)
    VALUES (NEW.id, NEW.queue, NEW.state, NEW.rank, NEW.visible_at, NEW.grp, NEW.keys);
END;

-- What is not ready never sits in the way of a claim.
CREATE INDEX headgate_delivery_ready ON headgate_delivery (queue, rank, message) WHERE state = 0;
CREATE INDEX headgate_delivery_due ON headgate_delivery (queue, visible_at) WHERE state IN (1, 2);
CREATE INDEX headgate_delivery_busy ON headgate_delivery (queue, grp) WHERE grp IS NOT NULL AND state IN (1, 2);
CREATE INDEX headgate_delivery_dead ON headgate_delivery (queue, message) WHERE state = 3;

-- What came through the door and was not yet offered to the subscriptions.
CREATE TABLE headgate_unrouted (message INTEGER PRIMARY KEY, queue INTEGER NOT NULL);

-- The last delivery takes the message with it.
CREATE TRIGGER headgate_delivery_deleted AFTER DELETE ON headgate_delivery
BEGIN
    DELETE FROM headgate_message WHERE id = OLD.message
        AND NOT EXISTS (SELECT 1 FROM headgate_delivery WHERE message = OLD.message)
        AND NOT EXISTS (SELECT 1 FROM headgate_unrouted WHERE message = OLD.message);
END;
CREATE TRIGGER headgate_unrouted_deleted AFTER DELETE ON headgate_unrouted
BEGIN
    DELETE FROM headgate_message WHERE id = OLD.message
        AND NOT EXISTS (SELECT 1 FROM headgate_delivery WHERE message = OLD.message);
END;

CREATE TABLE headgate_dedup (
    queue INTEGER NOT NULL,
    key TEXT NOT NULL,
    message INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (queue, key)
) WITHOUT ROWID;
CREATE INDEX headgate_dedup_expiry ON headgate_dedup (expires_at);

CREATE TABLE headgate_archive (
    queue INTEGER NOT NULL,
    id INTEGER NOT NULL,
    acked_at INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    grp TEXT,
    topic TEXT NOT NULL,
    headers TEXT NOT NULL,
    properties TEXT NOT NULL,
    priority INTEGER NOT NULL,
    timestamp INTEGER NOT NULL,
    message_id TEXT,
    filter_value TEXT,
    key TEXT,
    payload BLOB NOT NULL,
    PRIMARY KEY (queue, id)
);

CREATE TABLE headgate_usage (
    queue INTEGER NOT NULL,
    consumer TEXT NOT NULL,
    claims INTEGER NOT NULL,
    empty_claims INTEGER NOT NULL,
    rows INTEGER NOT NULL,
    claim_us INTEGER NOT NULL,
    unmatched INTEGER NOT NULL,
    acked INTEGER NOT NULL,
    nacked INTEGER NOT NULL,
    failures INTEGER NOT NULL,
    PRIMARY KEY (queue, consumer)
) WITHOUT ROWID;

-- Time of the database = time since this boot + offset_us: no change of the wall clock moves it.
CREATE TABLE headgate_clock (boot_id TEXT PRIMARY KEY, offset_us INTEGER NOT NULL) WITHOUT ROWID;

-- The door: INSERT INTO inbox (queue, payload) VALUES ('orders', 'hello') is a publish, from any tool.
-- delay is in seconds. Plain SQL knows only the time of day; julianday is what the oldest shells can say.
CREATE VIEW inbox (queue, topic, headers, payload, priority, delay, dedup_key, group_key) AS
SELECT q.name, m.topic, m.headers, m.payload, m.priority, 0.0, NULL, d.grp
FROM headgate_delivery d
JOIN headgate_queue q ON q.id = d.queue
JOIN headgate_message m ON m.id = d.message
WHERE d.state = 0;

CREATE TRIGGER headgate_inbox INSTEAD OF INSERT ON inbox
BEGIN
    SELECT RAISE(ABORT, 'headgate: there is no queue of that name; create it first')
    WHERE NOT EXISTS (SELECT 1 FROM headgate_queue WHERE name = NEW.queue AND kind = 'queue');
    SELECT RAISE(ABORT, 'headgate: headers must be a JSON object')
    WHERE NEW.headers IS NOT NULL AND NOT (json_valid(NEW.headers) AND json_type(NEW.headers) = 'object');
    SELECT RAISE(ABORT, 'headgate: priority must be an integer from 0 to 255')
    WHERE NEW.priority IS NOT NULL AND NOT (typeof(NEW.priority) = 'integer' AND NEW.priority BETWEEN 0 AND 255);
    SELECT RAISE(ABORT, 'headgate: delay must be a number of seconds, 0 or more')
    WHERE NEW.delay IS NOT NULL AND NOT (typeof(NEW.delay) IN ('integer', 'real') AND NEW.delay >= 0);
    SELECT RAISE(IGNORE) WHERE NEW.dedup_key IS NOT NULL AND EXISTS (
        SELECT 1 FROM headgate_dedup s JOIN headgate_queue q ON q.id = s.queue
        WHERE q.name = NEW.queue AND s.key = NEW.dedup_key
            AND s.expires_at > CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER));
    -- Numbers keep their very digits (->); what is no scalar becomes null, and null means that there is no such header.
    INSERT INTO headgate_message (id, topic, headers, properties, priority, timestamp, payload)
    VALUES (
        (SELECT id FROM headgate_next_message),
        coalesce(NEW.topic, NEW.queue),
        coalesce((SELECT json_group_object(
            e.key, CASE WHEN e.type IN ('object', 'array') THEN json('null') ELSE json(NEW.headers -> e.fullkey) END)
            FROM json_each(coalesce(NEW.headers, '{}')) e WHERE e.type <> 'null'), '{}'),
        '{}',
        coalesce(NEW.priority, 0),
        CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER),
        coalesce(CAST(NEW.payload AS BLOB), x'')
    );
    INSERT INTO headgate_delivery (message, queue, state, rank, visible_at, grp, keys)
    SELECT m.id, q.id, coalesce(NEW.delay, 0) > 0, -m.priority,
        m.timestamp + CAST(coalesce(NEW.delay, 0) * 1e6 AS INTEGER), NEW.group_key,
        coalesce((SELECT json_group_object(h.value, json(m.headers -> ('$."' || h.value || '"')))
            FROM json_each(q.filter_headers) h
            WHERE json_type(m.headers, '$."' || h.value || '"') IS NOT NULL), '{}')
    FROM headgate_message m JOIN headgate_queue q ON q.name = NEW.queue
    WHERE m.id = last_insert_rowid();
    INSERT INTO headgate_dedup (queue, key, message, expires_at)
    SELECT q.id, NEW.dedup_key, (SELECT max(id) FROM headgate_message),
        CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER) + q.dedup_window_us
    FROM headgate_queue q WHERE q.name = NEW.queue AND NEW.dedup_key IS NOT NULL
    ON CONFLICT DO UPDATE SET message = excluded.message, expires_at = excluded.expires_at;
    INSERT INTO headgate_unrouted (message, queue)
    SELECT (SELECT max(id) FROM headgate_message), q.id FROM headgate_queue q
    WHERE q.name = NEW.queue AND EXISTS (SELECT 1 FROM headgate_queue WHERE kind <> 'queue');
END;
