"""Streams and queues as a source of Spark."""
