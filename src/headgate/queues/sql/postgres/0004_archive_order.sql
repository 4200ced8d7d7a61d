-- The order in which messages came into an archive, for whoever follows it.
--
-- turn: the transaction that put a message there. Transactions end in another order than they begin in; but those below
-- pg_snapshot_xmin have all ended, so what they left is all there and stays as it is. The messages that were in an
-- archive before have the turn of this migration.
ALTER TABLE archive ADD COLUMN turn bigint NOT NULL DEFAULT pg_current_xact_id()::text::bigint;
CREATE INDEX archive_turn ON archive (queue, turn, id);
