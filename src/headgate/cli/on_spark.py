"""A job on Spark as a person sees it: a session for as long as it takes, and a bar."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from headgate.spark.jobs.running import OnProgress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def on_spark(what: str, master: str | None) -> Iterator[tuple[SparkSession, OnProgress | None]]:
    """A session, and a bar on the terminal while it works."""
    from headgate.spark.sessions import running_session, session

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
    mine = running_session() is None
    with bar:
        task = bar.add_task("starting Spark", total=None)
        spark = session(master=master)
        bar.update(task, description=what)

        def show(done: int, of: int) -> None:
            bar.update(task, completed=done, total=of or None)

        try:
            yield spark, None if bar.disable else show
        finally:
            if mine:
                spark.stop()
