"""Streams: an append-only log of Arrow columns whose filters prune under load."""
