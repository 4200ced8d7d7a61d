"""The cold tier: sealed segments rewritten as Parquet, here or in an object store, and read as part of the stream."""
