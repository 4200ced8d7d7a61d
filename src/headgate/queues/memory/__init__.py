"""The in-memory engine: the reference for the others."""
