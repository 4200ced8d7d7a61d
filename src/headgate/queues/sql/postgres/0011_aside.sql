-- Members of a busy group, however many, do not sit in the way of a claim.
--
-- aside: 1, ready, but set aside while another member of its group was at work. A claim without a filter does not see it. When
-- the group becomes free, or a member that is not aside goes, the first that is aside comes back: so of a group that is free,
-- the first ready member is never aside. Only what is ready is aside.
ALTER TABLE delivery ADD COLUMN aside smallint NOT NULL DEFAULT 0;
DROP INDEX delivery_ready;
CREATE INDEX delivery_ready ON delivery (queue, aside, rank, message) WHERE state = 0 AND rank <= 0;
CREATE INDEX delivery_aside ON delivery (queue, grp, rank, message) WHERE aside = 1;

-- Whoever sets members aside has locked the one at work, so this waits for him, and then sees what he did.
CREATE FUNCTION bring_back() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
    UPDATE delivery SET aside = 0 WHERE queue = OLD.queue AND aside = 1 AND message = (
        SELECT message FROM delivery WHERE queue = OLD.queue AND grp = OLD.grp AND aside = 1
        ORDER BY rank, message LIMIT 1);
    RETURN NULL;
END
$$;
CREATE TRIGGER group_left AFTER DELETE ON delivery
FOR EACH ROW WHEN (OLD.grp IS NOT NULL AND OLD.aside = 0) EXECUTE FUNCTION bring_back();
CREATE TRIGGER group_freed AFTER UPDATE OF state ON delivery
FOR EACH ROW WHEN (OLD.grp IS NOT NULL AND NOT (NEW.state = 2 OR (NEW.state = 1 AND NEW.attempts > 0)))
EXECUTE FUNCTION bring_back();
