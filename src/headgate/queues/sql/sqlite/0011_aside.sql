-- Members of a busy group, however many, do not sit in the way of a claim.
--
-- aside: 1, ready, but set aside while another member of its group was at work. A claim without a filter does not see it. When
-- the group becomes free, or a member that is not aside goes, the first that is aside comes back: so of a group that is free,
-- the first ready member is never aside. Only what is ready is aside.
ALTER TABLE headgate_delivery ADD COLUMN aside INTEGER NOT NULL DEFAULT 0;
DROP INDEX headgate_delivery_ready;
CREATE INDEX headgate_delivery_ready ON headgate_delivery (queue, aside, rank, message) WHERE state = 0;
CREATE INDEX headgate_delivery_aside ON headgate_delivery (queue, grp, rank, message) WHERE aside = 1;

CREATE TRIGGER headgate_group_left AFTER DELETE ON headgate_delivery WHEN OLD.grp IS NOT NULL AND OLD.aside = 0
BEGIN
    UPDATE headgate_delivery SET aside = 0 WHERE queue = OLD.queue AND message = (
        SELECT message FROM headgate_delivery WHERE queue = OLD.queue AND grp = OLD.grp AND aside = 1
        ORDER BY rank, message LIMIT 1);
END;
CREATE TRIGGER headgate_group_freed AFTER UPDATE OF state ON headgate_delivery
WHEN OLD.grp IS NOT NULL AND NOT (NEW.state = 2 OR (NEW.state = 1 AND NEW.attempts > 0))
BEGIN
    UPDATE headgate_delivery SET aside = 0 WHERE queue = OLD.queue AND message = (
        SELECT message FROM headgate_delivery WHERE queue = OLD.queue AND grp = OLD.grp AND aside = 1
        ORDER BY rank, message LIMIT 1);
END;
