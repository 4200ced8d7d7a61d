"""A job on Spark as a person sees it: where it runs, a session for as long as it takes, and a bar."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn

from headgate.cli.progress import progress
from headgate.errors import SparkOptionsError
from headgate.spark.jobs import OnProgress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Master: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="Where Spark runs: local[*,4] unless said otherwise, spark://host:7077, …",
        envvar="HEADGATE_SPARK_MASTER",
    ),
]
Conf: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE",
        help="A setting of Spark, such as spark.executor.memory=4g; may be repeated.",
    ),
]


def settings_of(conf: Iterable[str] | None) -> dict[str, str]:
    """The settings that --conf gave."""
    pairs = [setting.partition("=") for setting in conf or ()]
    for key, equals, value in pairs:
        if not key.startswith("spark.") or not equals or not value:
            raise SparkOptionsError(
                f"--conf {key}{equals}{value} is no setting of Spark; write it as --conf spark.executor.memory=4g"
            )
    return {key: value for key, _, value in pairs}


@contextmanager
def on_spark(
    what: str, master: str | None, conf: Iterable[str] | None = None
) -> Iterator[tuple[SparkSession, OnProgress | None]]:
    """A session, and a bar on the terminal while it works."""
    from headgate.spark import running_session, session

    settings = settings_of(conf)
    bar = progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    mine = running_session() is None
    with bar:
        task = bar.add_task("starting Spark", total=None)
        spark = session(master=master, config=settings)
        bar.update(task, description=what)

        def show(done: int, of: int) -> None:
            bar.update(task, completed=done, total=of or None)

        try:
            yield spark, None if bar.disable else show
        finally:
            if mine:
                spark.stop()
