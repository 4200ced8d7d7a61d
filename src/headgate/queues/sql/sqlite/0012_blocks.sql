-- Messages are deleted in blocks of eight ids, when the last delivery of the block goes: deleting them one by one rewrites
-- two or three pages for each. What is long is deleted with its own last delivery, so that little is kept in vain.
DROP TRIGGER headgate_delivery_deleted;
CREATE TRIGGER headgate_delivery_deleted AFTER DELETE ON headgate_delivery
BEGIN
    DELETE FROM headgate_message WHERE id BETWEEN OLD.message & ~7 AND OLD.message | 7
        AND NOT EXISTS (SELECT 1 FROM headgate_delivery WHERE message BETWEEN OLD.message & ~7 AND OLD.message | 7)
        AND NOT EXISTS (SELECT 1 FROM headgate_unrouted WHERE message = headgate_message.id);
    DELETE FROM headgate_message WHERE id = OLD.message AND length(payload) > 2000
        AND NOT EXISTS (SELECT 1 FROM headgate_delivery WHERE message = OLD.message)
        AND NOT EXISTS (SELECT 1 FROM headgate_unrouted WHERE message = OLD.message);
END;
