"""The data pipeline: Headgate as a source, a sink and a router inside Spark."""

from headgate.spark.sessions import session

__all__ = ["session"]
