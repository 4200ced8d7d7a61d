"""headgate stream stats, advise and replay: commands that run on Spark."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from headgate import insights, queues, streams
from headgate.cli.arguments import AsJson, Conf, FilterOption, From, Master, StreamPath
from headgate.cli.output import (
    print_json,
    print_table,
    print_warnings,
    spark_with_progress,
    terminal,
    write_text,
)
from headgate.errors import HeadgateError

app = typer.Typer()


@app.command()
def stats(
    stream: StreamPath, master: Master = None, conf: Conf = None, as_json: AsJson = False
) -> None:
    """Measure a stream on Spark: messages, sizes, and every header's values.

    Example: headgate stream stats orders
    """
    streams.load_options(stream)
    with spark_with_progress("measuring", master, conf) as (spark, on_progress):
        from headgate.cli.stream_tables import stats_tables
        from headgate.spark.jobs import stream_stats

        found = stream_stats(spark, stream, on_progress)
    if as_json:
        print_json(insights.describe_stats(found))
    else:
        print_table(stats_tables(str(stream), found))


@app.command()
def advise(
    stream: StreamPath,
    filter: Annotated[
        list[str],
        typer.Option("--filter", help="A filter that you use; may be repeated.", metavar="FILTER"),
    ] = [],  # noqa: B006
    sample: Annotated[
        int,
        typer.Option(
            help="The number of segments to simulate on, spread over the stream; 0 for all."
        ),
    ] = 16,
    weigh: Annotated[
        str,
        typer.Option(
            help="Without --filter: weigh all values equally (uniform) or by their number of messages (use)."
        ),
    ] = "uniform",
    svg: Annotated[
        Path | None, typer.Option(help="Draw a chart into this SVG file.", metavar="FILE")
    ] = None,
    master: Master = None,
    conf: Conf = None,
    as_json: AsJson = False,
) -> None:
    """Find out on the stream's own messages which headers to index, and how large a Bloom filter to keep.

    Every design is simulated on Spark with the real summaries: what each filter skips now, and what it would skip
    before and after sealing. Without --filter, equality on each header is simulated.

    Example: headgate stream advise orders --filter "region = 'EU'"
    """
    if weigh not in ("uniform", "use"):
        raise HeadgateError(f"--weigh is uniform or use, not {weigh!r}")
    streams.load_options(stream)
    for text in filter:
        print_warnings(insights.warn_of_filter(text, stream=stream))
    with spark_with_progress("trying designs", master, conf) as (spark, on_progress):
        from headgate.cli.stream_tables import print_advice
        from headgate.spark.jobs import advice_chart
        from headgate.spark.jobs import advise as find_advice

        found = find_advice(
            spark,
            stream,
            filter,
            sample=sample,
            weighing=weigh,  # type: ignore[arg-type]  # refused above when it is neither
            on_progress=on_progress,
        )
    if svg is not None:
        write_text(svg, advice_chart(found))
    if as_json:
        print_json(insights.describe_advice(found))
    else:
        print_advice(found, terminal())


@app.command()
def replay(
    stream: StreamPath,
    to: Annotated[
        str,
        typer.Option(
            help="stream:PATH, queue:sqlite:///FILE#NAME, queue:postgresql://…#NAME, parquet:PATH or amqp://HOST/VHOST#EXCHANGE."
        ),
    ],
    filter: FilterOption = "",
    start: From = "first",
    until: Annotated[
        str,
        typer.Option(
            help="Where to stop, not included; next is the end of the stream when the run begins."
        ),
    ] = "next",
    run_id: Annotated[
        str | None,
        typer.Option(
            "--id", help="The id of a run; with the id of an earlier run, that one is continued."
        ),
    ] = None,
    master: Master = None,
    conf: Conf = None,
    as_json: AsJson = False,
) -> None:
    """Publish the messages that a filter selects to a stream, a queue or Parquet files, each exactly once; or to an exchange, at least once.

    A run that was stopped continues under the same --id, and publishes no message twice.

    Example: headgate stream replay orders --filter "region = 'EU'" --to queue:sqlite:///orders.db#orders
    """
    streams.load_options(stream)
    print_warnings(insights.warn_of_filter(filter, stream=stream))
    with spark_with_progress("replaying", master, conf) as (spark, on_progress):
        from headgate.spark.jobs import replay as run_replay

        def show(messages: int, done: int, of: int) -> None:
            if on_progress is not None:
                on_progress(done, of)

        found = run_replay(
            spark, stream, filter, to, start=start, until=until, run_id=run_id, on_progress=show
        )
    if as_json:
        print_json(asdict(found))
        return
    typer.echo(f"replayed {found.messages:,} messages to {queues.hide_password(to)}")
    typer.echo(f"run {found.run_id}: {found.batches} batches, {found.batches_before} done before")
