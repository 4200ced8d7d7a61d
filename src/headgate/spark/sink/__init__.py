"""Where Spark writes messages: streams, queues in SQL databases, Parquet files."""
