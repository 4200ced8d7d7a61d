-- Queues, subscriptions, messages and their deliveries.
--
-- No schema is named here: the search path is set to the one these tables go into, and functions that are called from
-- outside keep it. Times are microseconds since 1970 by this server's clock.

CREATE FUNCTION now_us() RETURNS bigint STABLE PARALLEL SAFE LANGUAGE sql AS $$
    SELECT (extract(epoch FROM statement_timestamp()) * 1000000)::bigint
$$;

-- PostgreSQL sends equal notifications of one transaction once. Who listens looks for himself what there is; without a
-- queue, in all of them.
CREATE FUNCTION wake_up(queue bigint) RETURNS void VOLATILE LANGUAGE sql
SET search_path FROM CURRENT
AS $$ SELECT pg_notify('headgate.' || current_schema(), coalesce(queue::text, '')) $$;

-- What an index holds of a header: its kind and its value. Long text is cut, because an index entry has a limit; equal
-- numbers are written alike. Whoever asks this also asks the exact question. Every step of it is immutable (`||` with
-- a number would not be), so that PostgreSQL writes it out in place instead of calling it for every row of every index.
CREATE FUNCTION probe_key(value jsonb) RETURNS text IMMUTABLE PARALLEL SAFE LANGUAGE sql AS $$
    SELECT CASE jsonb_typeof(value)
        WHEN 'string' THEN 's' || left(value #>> '{}', 200)
        WHEN 'number' THEN 'n' || trim_scale((value #>> '{}')::numeric)::text
        WHEN 'boolean' THEN 'b' || (value #>> '{}')
    END
$$;

-- One row: it counts the changes to queue. As the version is its key, changing it waits for everyone who holds it FOR
-- KEY SHARE: each message is judged by the subscriptions of one moment, and a scan of what is stored misses none.
CREATE TABLE catalog (version bigint PRIMARY KEY);
INSERT INTO catalog VALUES (1);

CREATE TABLE queue (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE,
    kind text NOT NULL DEFAULT 'queue',
    max_attempts integer NOT NULL DEFAULT 5,
    dedup_window_us bigint NOT NULL DEFAULT 300000000,
    archive boolean NOT NULL DEFAULT false,
    filter_headers jsonb NOT NULL DEFAULT '[]',
    indexed jsonb NOT NULL DEFAULT '[]',
    filter text NOT NULL DEFAULT '',
    source integer,
    version integer NOT NULL DEFAULT 1,
    paused boolean NOT NULL DEFAULT false,
    expires_at bigint
);

CREATE FUNCTION count_catalog_change() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$ BEGIN UPDATE catalog SET version = version + 1; RETURN NULL; END $$;

-- BEFORE: everyone locks the catalog first and the queue second.
CREATE TRIGGER queue_listed BEFORE INSERT OR DELETE ON queue
FOR EACH STATEMENT EXECUTE FUNCTION count_catalog_change();
-- Not of expires_at: a subscriber that is alive changes nothing.
CREATE TRIGGER queue_changed BEFORE UPDATE OF
    max_attempts, dedup_window_us, archive, filter_headers, indexed, filter, source, version, paused ON queue
FOR EACH STATEMENT EXECUTE FUNCTION count_catalog_change();

-- Never updated. A body that goes out of line goes there uncompressed.
CREATE TABLE message (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    topic text NOT NULL,
    headers jsonb NOT NULL,
    properties jsonb NOT NULL,
    priority smallint NOT NULL,
    timestamp bigint NOT NULL,
    message_id text,
    filter_value text,
    key text,
    payload bytea NOT NULL
);
ALTER TABLE message ALTER payload SET STORAGE EXTERNAL;

-- One message in one queue. state: 0 ready, 1 delayed, 2 leased, 3 dead. rank = -priority, so that the order of a queue
-- ascends in (rank, message). keys: the filter headers of the queue, copied from the message. shared: the message
-- may have other deliveries.
--
-- Half of every page is free, of the table and of its key: what is claimed is written once more, and finds room beside what
-- it was before. Full pages would have to be split or tidied first, and others found.
CREATE TABLE delivery (
    message bigint NOT NULL,
    queue integer NOT NULL,
    state smallint NOT NULL,
    rank smallint NOT NULL,
    shared boolean NOT NULL DEFAULT false,
    attempts integer NOT NULL DEFAULT 0,
    visible_at bigint NOT NULL,
    token bigint NOT NULL DEFAULT 0,
    grp text,
    keys jsonb NOT NULL DEFAULT '{}',
    reason text,
    PRIMARY KEY (queue, message) WITH (fillfactor = 45)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);

-- What is not ready never sits in the way of a claim. `rank <= 0` and `visible_at >= 0` are always true; only the queries
-- these indexes are for say so. So the planner, whose statistics lag behind a queue, cannot be tempted to read a
-- whole index where another query looks something up.
CREATE INDEX delivery_ready ON delivery (queue, rank, message) WHERE state = 0 AND rank <= 0;
CREATE INDEX delivery_due ON delivery (queue, visible_at) WHERE state IN (1, 2) AND visible_at >= 0;
CREATE INDEX delivery_dead ON delivery (queue, message) WHERE state = 3;
CREATE INDEX delivery_shared ON delivery (message) WHERE shared;
-- Not only an index: of two claims that take members of a group at the same moment, it refuses the later.
CREATE UNIQUE INDEX delivery_at_work ON delivery (queue, grp)
    WHERE grp IS NOT NULL AND (state = 2 OR (state = 1 AND attempts > 0));

-- What came through the door and was not yet offered to the subscriptions.
CREATE TABLE unrouted (message bigint PRIMARY KEY, queue integer NOT NULL);

-- Messages that lost a delivery while they may have others. Seen from the transaction that takes the last delivery but
-- one, and at the same moment from the one that takes the last, there still is another: so the next one looks.
CREATE TABLE loose (message bigint NOT NULL);

-- Deletes those loose messages that have no delivery left. Not the caller's own: whoever took another delivery of
-- them at this moment cannot be seen yet.
CREATE FUNCTION sweep_loose() RETURNS void VOLATILE LANGUAGE sql
SET search_path FROM CURRENT
AS $$
    WITH taken AS (
        DELETE FROM loose WHERE ctid IN (
            SELECT ctid FROM loose WHERE xmin::text <> pg_current_xact_id()::xid::text LIMIT 1000 FOR UPDATE SKIP LOCKED)
        RETURNING message)
    DELETE FROM message WHERE id = ANY (ARRAY(
        SELECT t.message FROM taken t
        WHERE (SELECT d.message FROM delivery d WHERE d.message = t.message AND d.shared LIMIT 1) IS NULL
            AND (SELECT u.message FROM unrouted u WHERE u.message = t.message) IS NULL))
$$;

-- The last delivery takes the message with it.
CREATE FUNCTION drop_messages() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
    DELETE FROM message WHERE id = ANY (ARRAY(SELECT g.message FROM gone g WHERE NOT g.shared));
    IF EXISTS (SELECT FROM gone WHERE shared) THEN
        INSERT INTO loose SELECT message FROM gone WHERE shared;
        PERFORM sweep_loose();
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER delivery_deleted AFTER DELETE ON delivery REFERENCING OLD TABLE AS gone
FOR EACH STATEMENT EXECUTE FUNCTION drop_messages();

CREATE FUNCTION drop_routed_messages() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$ BEGIN INSERT INTO loose SELECT message FROM gone; RETURN NULL; END $$;
CREATE TRIGGER unrouted_deleted AFTER DELETE ON unrouted REFERENCING OLD TABLE AS gone
FOR EACH STATEMENT EXECUTE FUNCTION drop_routed_messages();

-- Whoever puts something into a queue, by whatever statement, wakes those who wait. It does what wake_up does, without a
-- search path that would have to be set each time.
CREATE FUNCTION wake_waiting() RETURNS trigger LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM pg_notify('headgate.' || TG_TABLE_SCHEMA, queue::text) FROM (SELECT DISTINCT queue FROM arrived) q;
    RETURN NULL;
END
$$;
CREATE TRIGGER delivery_inserted AFTER INSERT ON delivery REFERENCING NEW TABLE AS arrived
FOR EACH STATEMENT EXECUTE FUNCTION wake_waiting();

CREATE TABLE dedup (
    queue integer NOT NULL,
    key text NOT NULL,
    message bigint NOT NULL,
    expires_at bigint NOT NULL,
    PRIMARY KEY (queue, key)
);
CREATE INDEX dedup_expiry ON dedup (expires_at);

CREATE TABLE archive (
    queue integer NOT NULL,
    id bigint NOT NULL,
    acked_at bigint NOT NULL,
    attempts integer NOT NULL,
    grp text,
    topic text NOT NULL,
    headers jsonb NOT NULL,
    properties jsonb NOT NULL,
    priority smallint NOT NULL,
    timestamp bigint NOT NULL,
    message_id text,
    filter_value text,
    key text,
    payload bytea NOT NULL,
    PRIMARY KEY (queue, id)
);

-- What a claim acks, where the queue keeps an archive. Called before the messages go.
CREATE FUNCTION keep_acked(queue bigint, now bigint, messages bigint[], attempts integer[], groups text[])
RETURNS void VOLATILE LANGUAGE sql
SET search_path FROM CURRENT
AS $$
    INSERT INTO archive (queue, id, acked_at, attempts, grp, topic, headers, properties, priority, timestamp, message_id,
        filter_value, key, payload)
    SELECT keep_acked.queue, m.id, now, a.attempts, a.grp, m.topic, m.headers, m.properties, m.priority, m.timestamp,
        m.message_id, m.filter_value, m.key, m.payload
    FROM unnest(messages, keep_acked.attempts, groups) AS a (message, attempts, grp)
    CROSS JOIN LATERAL (SELECT * FROM message WHERE id = a.message LIMIT 1) m
$$;

CREATE TABLE usage (
    queue integer NOT NULL,
    consumer text NOT NULL,
    claims bigint NOT NULL,
    empty_claims bigint NOT NULL,
    rows bigint NOT NULL,
    claim_us bigint NOT NULL,
    unmatched bigint NOT NULL,
    acked bigint NOT NULL,
    nacked bigint NOT NULL,
    failures bigint NOT NULL,
    PRIMARY KEY (queue, consumer)
);

-- The door: INSERT INTO inbox (queue, payload) VALUES ('orders', 'hello') is a publish, from any tool.
-- delay is in seconds.
CREATE VIEW inbox AS
SELECT q.name AS queue, m.topic, m.headers, m.payload, m.priority::integer AS priority, 0.0::float8 AS delay,
    NULL::text AS dedup_key, d.grp AS group_key
FROM delivery d JOIN queue q ON q.id = d.queue JOIN message m ON m.id = d.message
WHERE d.state = 0;

-- What is no scalar becomes null; null means that there is no such header. A number with a fraction is the double that is
-- nearest to it, and keeps its point.
CREATE FUNCTION door_headers(given jsonb) RETURNS jsonb STABLE LANGUAGE sql AS $$
    SELECT coalesce(jsonb_object_agg(h.key, CASE jsonb_typeof(h.value)
        WHEN 'array' THEN 'null'::jsonb
        WHEN 'object' THEN 'null'::jsonb
        WHEN 'number' THEN CASE WHEN (h.value #>> '{}')::numeric = trunc((h.value #>> '{}')::numeric)
                AND scale((h.value #>> '{}')::numeric) = 0
            THEN to_jsonb((h.value #>> '{}')::bigint)
            ELSE to_jsonb(round((h.value #>> '{}')::float8::text::numeric,
                greatest(1, scale((h.value #>> '{}')::float8::text::numeric)))) END
        ELSE h.value END), '{}')
    FROM jsonb_each(given) h WHERE jsonb_typeof(h.value) <> 'null'
$$;

CREATE FUNCTION publish_from_door() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
    target queue;
    headers jsonb;
    delay_us bigint := coalesce(NEW.delay, 0) * 1000000;
    number bigint;
    offered boolean;
BEGIN
    -- First the lock, then the number: whoever has a number is a transaction that others can see at work.
    PERFORM FROM catalog FOR KEY SHARE;
    number := nextval('message_id_seq');
    SELECT * INTO target FROM queue WHERE name = NEW.queue AND kind = 'queue';
    IF NOT FOUND THEN
        RAISE 'headgate: there is no queue %; create it first', quote_nullable(NEW.queue);
    END IF;
    IF jsonb_typeof(NEW.headers) <> 'object' THEN
        RAISE 'headgate: headers must be a JSON object';
    END IF;
    IF NEW.priority NOT BETWEEN 0 AND 255 THEN
        RAISE 'headgate: priority must be an integer from 0 to 255';
    END IF;
    IF delay_us < 0 THEN
        RAISE 'headgate: delay must be a number of seconds, 0 or more';
    END IF;
    IF NEW.dedup_key IS NOT NULL THEN
        INSERT INTO dedup AS s (queue, key, message, expires_at)
        VALUES (target.id, NEW.dedup_key, number, now_us() + target.dedup_window_us)
        ON CONFLICT (queue, key) DO UPDATE SET message = excluded.message, expires_at = excluded.expires_at
            WHERE s.expires_at <= now_us();
        IF NOT FOUND THEN
            RETURN NULL;
        END IF;
    END IF;
    headers := door_headers(coalesce(NEW.headers, '{}'));
    offered := EXISTS (SELECT FROM queue WHERE kind <> 'queue');
    INSERT INTO message (id, topic, headers, properties, priority, timestamp, payload) OVERRIDING SYSTEM VALUE
    VALUES (number, coalesce(NEW.topic, NEW.queue), headers, '{}', coalesce(NEW.priority, 0), now_us(),
        coalesce(NEW.payload, ''));
    IF offered THEN
        INSERT INTO unrouted (message, queue) VALUES (number, target.id);
        PERFORM wake_up(NULL);
    END IF;
    INSERT INTO delivery (message, queue, state, rank, shared, visible_at, grp, keys)
    VALUES (number, target.id, (delay_us > 0)::int, -coalesce(NEW.priority, 0), offered, now_us() + delay_us,
        NEW.group_key,
        (SELECT coalesce(jsonb_object_agg(h.key, h.value), '{}') FROM jsonb_each(headers) h
         WHERE target.filter_headers ? h.key));
    RETURN NEW;
END
$$;
CREATE TRIGGER inbox_insert INSTEAD OF INSERT ON inbox
FOR EACH ROW EXECUTE FUNCTION publish_from_door();
