"""Pipelines: a source, an exchange with its bindings, and sinks, written down in one TOML file and run on Spark."""
