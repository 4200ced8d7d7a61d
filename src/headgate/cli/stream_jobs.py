"""headgate stream stats, advise and replay: the verbs that run on Spark."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from headgate.cli.arguments import write_text
from headgate.cli.on_spark import Conf, Master, on_spark
from headgate.cli.options import AsJson, FilterText, From, StreamPath
from headgate.errors import HeadgateError
from headgate.pipelines import hide_password
from headgate.streams import load_options

app = typer.Typer()


@app.command()
def stats(
    stream: StreamPath, master: Master = None, conf: Conf = None, as_json: AsJson = False
) -> None:
    """Measure a stream on Spark: messages, sizes, and every header's values."""
    load_options(stream)
    with on_spark("measuring", master, conf) as (spark, on_progress):
        from headgate.cli.stream_stats import stats_json, stats_tables
        from headgate.spark.jobs import stream_stats

        found = stream_stats(spark, stream, on_progress)
    if as_json:
        typer.echo(json.dumps(stats_json(found), ensure_ascii=False))
    else:
        Console(highlight=False).print(stats_tables(str(stream), found))


@app.command()
def advise(
    stream: StreamPath,
    filter: Annotated[
        list[str],
        typer.Option(
            "--filter", "-f", help="A filter you care about; may be repeated.", metavar="FILTER"
        ),
    ] = [],  # noqa: B006
    sample: Annotated[
        int, typer.Option(help="Try it on so many segments, spread over the stream; 0 for all.")
    ] = 16,
    weigh: Annotated[
        str,
        typer.Option(help="Without --filter: values asked for evenly (uniform) or as used (use)."),
    ] = "uniform",
    svg: Annotated[
        Path | None, typer.Option(help="Draw a chart into this SVG file.", metavar="FILE")
    ] = None,
    master: Master = None,
    conf: Conf = None,
    as_json: AsJson = False,
) -> None:
    """Find out, on the stream's own messages, which headers to index and how large a filter to keep.

    Every design is simulated on Spark with the real summaries: what each filter skips now, and what it would skip
    before and after sealing. Without --filter, equality on each header is looked at.
    """
    if weigh not in ("uniform", "use"):
        raise HeadgateError(f"--weigh is uniform or use, not {weigh!r}")
    load_options(stream)
    with on_spark("trying designs", master, conf) as (spark, on_progress):
        from headgate.cli.stream_advice import advice_json, print_advice
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
        typer.echo(json.dumps(advice_json(found), ensure_ascii=False))
    else:
        print_advice(found, Console(highlight=False))


@app.command()
def replay(
    stream: StreamPath,
    to: Annotated[
        str,
        typer.Option(
            help="stream:PATH, queue:sqlite:///FILE#NAME, queue:postgresql://…#NAME or parquet:PATH."
        ),
    ],
    filter: FilterText = "",
    start: From = "first",
    until: Annotated[
        str, typer.Option(help="Where to stop, not included; next is the end as it is now.")
    ] = "next",
    run_id: Annotated[
        str | None,
        typer.Option("--id", help="The same id again goes on, and replays nothing twice."),
    ] = None,
    master: Master = None,
    conf: Conf = None,
    as_json: AsJson = False,
) -> None:
    """Send the messages a filter selects from all history to a stream, a queue or Parquet files, each exactly once.

    A run that was stopped goes on under the same --id; what it had sent is not sent again.
    """
    load_options(stream)
    with on_spark("replaying", master, conf) as (spark, on_progress):
        from headgate.spark.jobs import replay as run_replay

        def show(messages: int, done: int, of: int) -> None:
            if on_progress is not None:
                on_progress(done, of)

        found = run_replay(
            spark, stream, filter, to, start=start, until=until, run_id=run_id, on_progress=show
        )
    if as_json:
        typer.echo(json.dumps(asdict(found)))
        return
    typer.echo(f"replayed {found.messages:,} messages to {hide_password(to)}")
    typer.echo(f"run {found.run_id}: {found.batches} batches, {found.batches_before} done before")
