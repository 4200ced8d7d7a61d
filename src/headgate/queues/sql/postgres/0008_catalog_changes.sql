-- Which queues each of the last versions of the catalog changed: whoever remembers an older version reads those only. Queue 0
-- stands for the version itself, which a statement that changes no row counts, too.
CREATE TABLE catalog_change (version bigint, queue integer, PRIMARY KEY (version, queue));

CREATE OR REPLACE FUNCTION count_catalog_change() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
    current bigint;
BEGIN
    UPDATE catalog SET version = version + 1 RETURNING version INTO current;
    INSERT INTO catalog_change VALUES (current, 0);
    DELETE FROM catalog_change WHERE version <= current - 1000;
    RETURN NULL;
END
$$;

CREATE FUNCTION note_catalog_change() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
    INSERT INTO catalog_change SELECT version, CASE TG_OP WHEN 'DELETE' THEN OLD.id ELSE NEW.id END FROM catalog
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END
$$;
CREATE TRIGGER queue_listed_row AFTER INSERT OR DELETE ON queue
FOR EACH ROW EXECUTE FUNCTION note_catalog_change();
CREATE TRIGGER queue_changed_row AFTER UPDATE OF
    max_attempts, dedup_window_us, archive, filter_headers, indexed, filter, source, version, paused ON queue
FOR EACH ROW EXECUTE FUNCTION note_catalog_change();
