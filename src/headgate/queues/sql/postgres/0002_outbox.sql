-- What applications publish inside their own transactions. A relay moves it into the queues.

CREATE TABLE outbox (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    delivery_key text NOT NULL UNIQUE,
    queue text NOT NULL,
    topic text NOT NULL,
    headers text NOT NULL,
    properties text NOT NULL,
    priority smallint NOT NULL,
    timestamp bigint,
    message_id text,
    filter_value text,
    key text,
    payload bytea NOT NULL,
    delay_us bigint NOT NULL,
    dedup_key text,
    grp text,
    problem text
);

-- Relays wait for queue 0, which is none.
CREATE FUNCTION wake_relay() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$ BEGIN PERFORM wake_up(0); RETURN NULL; END $$;
CREATE TRIGGER outbox_inserted AFTER INSERT ON outbox FOR EACH STATEMENT EXECUTE FUNCTION wake_relay();
