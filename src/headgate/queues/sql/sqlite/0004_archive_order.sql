-- The order in which messages came into an archive, for whoever follows it.
--
-- turn: each acked message of a queue has a higher one than those before. The messages that were in an archive before
-- have turn 0. last_turn is the highest that was deleted while it was the last: none is given twice.
ALTER TABLE headgate_archive ADD COLUMN turn INTEGER NOT NULL DEFAULT 0;
CREATE INDEX headgate_archive_turn ON headgate_archive (queue, turn, id);
ALTER TABLE headgate_catalog ADD COLUMN last_turn INTEGER NOT NULL DEFAULT 0;

CREATE VIEW headgate_next_turn (queue, turn) AS
SELECT q.id, max(c.last_turn, coalesce((SELECT max(a.turn) FROM headgate_archive a WHERE a.queue = q.id), 0)) + 1
FROM headgate_queue q CROSS JOIN headgate_catalog c;

CREATE TRIGGER headgate_archive_deleted AFTER DELETE ON headgate_archive
WHEN OLD.turn > coalesce((SELECT max(turn) FROM headgate_archive WHERE queue = OLD.queue), 0)
BEGIN UPDATE headgate_catalog SET last_turn = OLD.turn WHERE last_turn < OLD.turn; END;

-- For who opened the database before there were turns, and still acks.
CREATE TRIGGER headgate_archived AFTER INSERT ON headgate_archive WHEN NEW.turn = 0
BEGIN
    UPDATE headgate_archive SET turn = (SELECT turn FROM headgate_next_turn WHERE queue = NEW.queue)
    WHERE queue = NEW.queue AND id = NEW.id;
END;
