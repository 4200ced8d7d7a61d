-- Which queue each of the last versions of the catalog changed: whoever remembers an older version reads those only.
CREATE TABLE headgate_catalog_change (version INTEGER PRIMARY KEY, queue INTEGER NOT NULL);

DROP TRIGGER IF EXISTS headgate_queue_inserted;
CREATE TRIGGER headgate_queue_inserted AFTER INSERT ON headgate_queue
BEGIN
    UPDATE headgate_catalog SET version = version + 1;
    INSERT INTO headgate_catalog_change SELECT version, NEW.id FROM headgate_catalog;
    DELETE FROM headgate_catalog_change WHERE version <= (SELECT version FROM headgate_catalog) - 1000;
END;
DROP TRIGGER IF EXISTS headgate_queue_deleted;
CREATE TRIGGER headgate_queue_deleted AFTER DELETE ON headgate_queue
BEGIN
    UPDATE headgate_catalog SET version = version + 1;
    INSERT INTO headgate_catalog_change SELECT version, OLD.id FROM headgate_catalog;
    DELETE FROM headgate_catalog_change WHERE version <= (SELECT version FROM headgate_catalog) - 1000;
END;
-- Not of expires_at: a subscriber that is alive changes nothing.
DROP TRIGGER IF EXISTS headgate_queue_updated;
CREATE TRIGGER headgate_queue_updated AFTER UPDATE OF
    max_attempts, dedup_window_us, archive, filter_headers, indexed, filter, source, version, paused
ON headgate_queue
BEGIN
    UPDATE headgate_catalog SET version = version + 1;
    INSERT INTO headgate_catalog_change SELECT version, NEW.id FROM headgate_catalog;
    DELETE FROM headgate_catalog_change WHERE version <= (SELECT version FROM headgate_catalog) - 1000;
END;
