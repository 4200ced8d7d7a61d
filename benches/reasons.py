"""Why a target is missed, written by hand: `make bench` puts the reason beside the figure in docs/reference/benchmarks.md.

A reason stays here while its target is met on one day and missed on another; one whose target is met for good goes.
"""

from __future__ import annotations

from typing import Final

TURNS: Final = (
    "SQLite has one writer at a time, so that several processes take turns, and each reads again what the others have written since "
    "its last turn: the best that they can reach together is little more than the rate of one."
)

# By group, name of the figure and peer, as Figure.key.
REASONS: Final[dict[tuple[str, str, str], str]] = {
    ("queues", "postgres, 1,000,000: undeclared, nothing, the first claim", ""): (
        "Data checksums, the default since PostgreSQL 18, make the first reader of a page that was written before the last "
        "checkpoint log it whole: 0.7 GB for these messages, which nothing has read before, and 0.9 GB for a plain SELECT of "
        "their headers. After a VACUUM, the first claim writes nothing and takes half the CPU time."
    ),
    ("queues", "sqlite, take and finish one at a time", "huey"): (
        "huey deletes a message when it takes it, and loses it with its worker. Here a claim acks the message before, finds the "
        "next one and leases it: five statements, which cost as much as all that huey does, and Python around them a third more."
    ),
    ("queues", "sqlite, 4 processes / one, batches of 1", ""): TURNS,
    ("queues", "sqlite, 4 processes / one, batches of 10", ""): TURNS,
    ("queues", "sqlite, 4 processes / one, batches of 100", ""): TURNS,
    ("queues", "postgres, take and finish 100 at a time", "pgmq"): (
        "On the border: 1.19 to 1.40 × in runs of several days."
    ),
    ("queues", "postgres, a claim behind a busy group of 200,000 / of 10,000", ""): (
        "Setting the waiting members of a group aside leaves old versions of their rows, which claims pass over until autovacuum "
        "has removed them: after a VACUUM a claim takes 0.21 ms behind either group."
    ),
    ("spark", "routed, into 100 streams", "a row UDF, into one stream"): (
        "5.6 × on 19 November, 4.1 × in the night after it, when the machine was slower by a fifth and more in everything; the "
        "difference was not examined."
    ),
    ("spark", "read", "Parquet, pushdown"): (
        "Half of the CPU time is Spark's own: it copies every row and column of a Python source once more, and cannot leave "
        "out the two columns that the query does not use; of the rest, a quarter is checksums, which Parquet does not verify."
    ),
}

UNKNOWN: Final = "not examined yet"
