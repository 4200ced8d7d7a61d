"""The data pipeline: Headgate as a source, a sink and a router inside Spark."""
