"""Where Spark may write messages to: streams, queues in SQL databases, Parquet files."""

from headgate.spark.destinations.contract import BatchMark, Destination
from headgate.spark.destinations.parsing import parse

__all__ = ["BatchMark", "Destination", "parse"]
