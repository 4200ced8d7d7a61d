"""Queues as a source of Spark: looked at, never claimed."""
