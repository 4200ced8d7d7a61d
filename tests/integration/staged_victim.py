"""Commits of staged files that die at every step, each in a process of its own, followed by the restart.

python staged_victim.py FOLDER places|tables: in FOLDER/1, FOLDER/2, … a sink is committed to by a child that kills itself before its
1st, 2nd, … call that changes the disk, until one gets through; after each of them another child does what a restarted
driver would do.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

import headgate.queues.database
import headgate.queues.sql.operations
import headgate.queues.sqlite.engine
import headgate.spark.sink.parquet
import headgate.spark.sink.queue
import headgate.spark.sink.stream
import headgate.streams.stream  # noqa: F401  what commits import, once for all children
from headgate.pipelines.layout import TableLayout
from headgate.spark.sink import table_compaction
from headgate.spark.sink import writer as sinks
from headgate.spark.sink.destination import BatchMark, Owner, destination_of
from headgate.spark.sink.staging import StagedPart, stage
from headgate.spark.sink.writer import MessageSink

STEPS = ("link", "unlink", "rename", "replace", "fsync", "fdatasync", "pwrite", "mkdir", "rmdir")
TABLE = TableLayout((("payload", "binary"), ("n", "bigint")), (), 2)  # merged with every commit
FOLDERS = TableLayout((), ("day(timestamp)",), 2)
PLACES = {
    "places": {"stream:{}/s": None, "queue:sqlite:///{}/q.db#q": None, "parquet:{}/p": None},
    "tables": {"parquet:{}/merged": TABLE, "parquet:{}/folders": FOLDERS},
}


def sink_in(folder: Path) -> MessageSink:
    owner = Owner("victim", str(folder / "scratch"))
    made = MessageSink(
        tuple(
            destination_of(place.format(folder), "", owner, layout)
            for place, layout in PLACES[sys.argv[2]].items()
        ),
        None,
    )
    made.open()
    return made


def staged(sink: MessageSink, *payloads: bytes) -> list[StagedPart]:
    """A file for every message at every destination, as two tasks would leave them."""
    found = []
    for number, place in enumerate(sink.destinations):
        for payload in payloads:
            batch = pa.record_batch({"payload": [payload], "timestamp": [1], "h.i.n": [len(found)]})
            made = stage(place.staging, [batch], number)
            assert made is not None
            found.extend(place.prepare(made))
    return found


def commit(folder: Path, die_at: int) -> None:
    """Write the first batch in a process that dies before a certain step of it."""
    sink = sink_in(folder)
    files = staged(sink, b"a", b"b")
    calls = [0]

    def dying(function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **named: Any) -> Any:
            calls[0] += 1
            if calls[0] == die_at:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments, **named)

        return called

    for step in STEPS:
        setattr(os, step, dying(getattr(os, step)))
    table_compaction.exchange = dying(table_compaction.exchange)
    sink.commit(BatchMark("query", 0), files)


def restart(folder: Path) -> None:
    """The first batch again, and the next."""
    sink = sink_in(folder)
    sink.commit(BatchMark("query", 0), staged(sink, b"a", b"b"))
    sink.commit(BatchMark("query", 1), staged(sink, b"c"))


def in_a_child(work: Callable[[], None]) -> int:
    """How it ended: 0, or minus the signal."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException as problem:
            print(problem, file=sys.stderr)
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main(folder: Path) -> None:
    pa.array([b""])  # pyarrow imports pandas for the first list, which takes longer than a commit
    assert sinks.COMMIT_THREADS > 1
    sinks.COMMIT_THREADS = 1  # one place after the other: so every step is reached
    ended, die_at = -9, 0
    while ended == -9:
        die_at += 1
        own = folder / str(die_at)
        own.mkdir()
        ended = in_a_child(lambda own=own, at=die_at: commit(own, at))  # type: ignore[misc]
        if in_a_child(lambda own=own: restart(own)) != 0:  # type: ignore[misc]
            sys.exit(f"restarted after step {die_at}, it failed")
    sys.exit(ended)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
