-- The last batch of each source that publishes in batches, each of them once.

CREATE TABLE headgate_batch (
    queue INTEGER NOT NULL,
    source TEXT NOT NULL,
    batch INTEGER NOT NULL,
    PRIMARY KEY (queue, source)
) WITHOUT ROWID;
