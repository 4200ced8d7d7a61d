-- The door refuses what no other engine takes, and keeps delay and group for subscriptions too. A queue that is dropped
-- leaves nothing behind, though whoever drops it may be killed.

-- When a message that came through the door with a delay falls due, and its group: for the subscriptions it is offered to.
ALTER TABLE headgate_unrouted ADD COLUMN visible_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE headgate_unrouted ADD COLUMN grp TEXT;

-- Queues that are gone and may have left rows behind: deleting those takes many transactions.
CREATE TABLE headgate_dropped (queue INTEGER PRIMARY KEY);
CREATE TRIGGER headgate_queue_dropped AFTER DELETE ON headgate_queue
BEGIN INSERT OR IGNORE INTO headgate_dropped VALUES (OLD.id); END;
INSERT INTO headgate_dropped
SELECT queue FROM headgate_delivery UNION SELECT queue FROM headgate_dedup UNION SELECT queue FROM headgate_archive
UNION SELECT queue FROM headgate_usage UNION SELECT queue FROM headgate_unrouted UNION SELECT queue FROM headgate_batch
EXCEPT SELECT id FROM headgate_queue;

-- Names of indexes do not tell upper from lower case: those of headers that are not lower case have other names now,
-- and are built again by whoever declares the queue next.
UPDATE headgate_queue SET indexed = '[]' WHERE indexed <> lower(indexed);

-- Groups that came through the door and are no text: see below how that is found out.
UPDATE headgate_delivery SET grp = NULL, state = 3, reason = 'the group is not text in UTF-8'
WHERE grp IS NOT NULL AND (typeof(grp) = 'blob' OR instr(CAST(grp AS BLOB), x'00') OR EXISTS (
    WITH RECURSIVE one (at, text) AS (
        SELECT 1, substr(headgate_delivery.grp, 1, 1)
        UNION ALL SELECT at + 1, substr(headgate_delivery.grp, at + 1, 1) FROM one WHERE text <> ''
    )
    SELECT 1 FROM one WHERE text <> '' AND CAST(char(unicode(text)) AS BLOB) <> CAST(text AS BLOB)
        AND CAST(text AS BLOB) NOT IN (x'EFBFBE', x'EFBFBF')));

DROP TRIGGER headgate_inbox;
CREATE TRIGGER headgate_inbox INSTEAD OF INSERT ON inbox
BEGIN
    SELECT RAISE(ABORT, 'headgate: there is no queue of that name; create it first')
    WHERE NOT EXISTS (SELECT 1 FROM headgate_queue WHERE name = NEW.queue AND kind = 'queue');
    SELECT RAISE(ABORT, 'headgate: headers must be a JSON object')
    WHERE NEW.headers IS NOT NULL
        AND NOT (typeof(NEW.headers) = 'text' AND json_valid(NEW.headers) AND json_type(NEW.headers) = 'object');
    SELECT RAISE(ABORT, 'headgate: priority must be an integer from 0 to 255')
    WHERE NEW.priority IS NOT NULL AND NOT (typeof(NEW.priority) = 'integer' AND NEW.priority BETWEEN 0 AND 255);
    SELECT RAISE(ABORT, 'headgate: delay must be a number of seconds from 0 to 31536000000')
    WHERE NEW.delay IS NOT NULL
        AND NOT (typeof(NEW.delay) IN ('integer', 'real') AND NEW.delay BETWEEN 0 AND 31536000000);
    SELECT RAISE(ABORT, 'headgate: topic must be text of at most 255 bytes')
    WHERE typeof(NEW.topic) = 'blob' OR length(CAST(NEW.topic AS BLOB)) > 255;
    SELECT RAISE(ABORT, 'headgate: dedup_key and group_key must be text that is not empty')
    WHERE typeof(NEW.dedup_key) = 'blob' OR typeof(NEW.group_key) = 'blob' OR NEW.dedup_key = '' OR NEW.group_key = '';
    -- Text is made again from its code points and compared: bytes that are none decode to others. In pieces, for a place in
    -- a text is found by counting from its beginning; what is ASCII needs no such look. Old
    -- versions of SQLite end a text at an escaped NUL.
    SELECT RAISE(ABORT, 'headgate: text must be UTF-8 without NUL or lone surrogates')
    WHERE instr(replace(NEW.headers, '\\', ''), '\u0000') OR EXISTS (
        SELECT 1 FROM (
            SELECT NEW.topic AS text UNION ALL SELECT NEW.headers
            UNION ALL SELECT NEW.dedup_key UNION ALL SELECT NEW.group_key
            UNION ALL SELECT e.key FROM json_each(coalesce(NEW.headers, '{}')) e
            UNION ALL SELECT e.value FROM json_each(coalesce(NEW.headers, '{}')) e WHERE e.type = 'text') given
        WHERE instr(CAST(given.text AS BLOB), x'00')
            OR (given.text GLOB '*[^' || char(1) || '-' || char(127) || ']*' AND EXISTS (
                WITH RECURSIVE piece (at, text) AS (
                    SELECT 1, substr(given.text, 1, 256)
                    UNION ALL SELECT at + 256, substr(given.text, at + 256, 256) FROM piece WHERE length(text) = 256
                ), one (piece, at, text) AS (
                    SELECT text, 1, substr(text, 1, 1) FROM piece
                    UNION ALL SELECT piece, at + 1, substr(piece, at + 1, 1) FROM one WHERE text <> ''
                )
                SELECT 1 FROM one WHERE text <> '' AND CAST(char(unicode(text)) AS BLOB) <> CAST(text AS BLOB)
                    AND CAST(text AS BLOB) NOT IN (x'EFBFBE', x'EFBFBF'))));
    SELECT RAISE(ABORT, 'headgate: names of headers are at most 255 bytes long and hold no control characters')
    WHERE EXISTS (SELECT 1 FROM json_each(coalesce(NEW.headers, '{}')) e WHERE length(CAST(e.key AS BLOB)) > 255
        OR e.key GLOB '*[' || char(1) || '-' || char(31) || char(127) || ']*');
    SELECT RAISE(ABORT, 'headgate: a number in headers must be a 64-bit integer or a finite double')
    WHERE EXISTS (SELECT 1 FROM json_each(coalesce(NEW.headers, '{}')) e
        WHERE e.type = 'integer' AND typeof(e.value) <> 'integer'
            OR e.type = 'real' AND abs(e.value) > 1.7976931348623157e308);
    SELECT RAISE(IGNORE) WHERE NEW.dedup_key IS NOT NULL AND EXISTS (
        SELECT 1 FROM headgate_dedup s JOIN headgate_queue q ON q.id = s.queue
        WHERE q.name = NEW.queue AND s.key = NEW.dedup_key
            AND s.expires_at > CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER));
    -- Numbers keep their very digits (->); what is no scalar becomes null, and null means that there is no such header. Of a
    -- name that comes twice, the last counts.
    INSERT INTO headgate_message (id, topic, headers, properties, priority, timestamp, payload)
    VALUES (
        (SELECT id FROM headgate_next_message),
        coalesce(NEW.topic, NEW.queue),
        coalesce((SELECT json_group_object(
            e.key, CASE WHEN e.type IN ('object', 'array') THEN json('null') ELSE json(e.document) END)
            FROM (SELECT key, type, max(id), CASE type WHEN 'text' THEN json_quote(value) WHEN 'true' THEN 'true'
                    WHEN 'false' THEN 'false' WHEN 'integer' THEN value ELSE CASE count(*) WHEN 1 THEN NEW.headers -> fullkey ELSE json_quote(value) END END AS document
                FROM json_each(coalesce(NEW.headers, '{}')) GROUP BY key) e WHERE e.type <> 'null'), '{}'),
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
    INSERT INTO headgate_unrouted (message, queue, visible_at, grp)
    SELECT d.message, d.queue, CASE d.state WHEN 1 THEN d.visible_at ELSE 0 END, d.grp FROM headgate_delivery d
    WHERE d.message = (SELECT max(id) FROM headgate_message)
        AND EXISTS (SELECT 1 FROM headgate_queue WHERE kind <> 'queue');
END;
