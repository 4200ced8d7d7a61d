-- The last batch of each source that publishes in batches, each of them once.

CREATE TABLE batch (
    queue bigint NOT NULL,
    source text NOT NULL,
    batch bigint NOT NULL,
    PRIMARY KEY (queue, source)
);
