"""Arguments and options that commands share, and how their text becomes values."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from headgate.cli.completion import complete_header_value, complete_queue, complete_stream
from headgate.errors import HeadgateError
from headgate.message import HeaderValue
from headgate.quantities import parse_duration as parse_duration
from headgate.quantities import parse_size as parse_size

if TYPE_CHECKING:
    from headgate.queues import Access, Database

# ---- declarations --------------------------------------------------------------------------------------

StreamPath: TypeAlias = Annotated[
    Path,
    typer.Argument(
        help="The stream's directory.", metavar="STREAM", autocompletion=complete_stream
    ),
]
QueueName: TypeAlias = Annotated[
    str,
    typer.Argument(help="The queue's name.", metavar="QUEUE", autocompletion=complete_queue),
]
DatabaseUrl: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--db",
        help="sqlite:///orders.db or postgresql://…; by default the setting `database`.",
        metavar="URL",
    ),
]
FilterOption: TypeAlias = Annotated[
    str,
    typer.Option("--filter", help="Only messages that match this filter.", metavar="FILTER"),
]
From: TypeAlias = Annotated[
    str,
    typer.Option(
        "--from",
        help="Where to begin: first, last, next, an offset, a time (2026-01-31T12:00:00Z) or a duration ago (10m).",
        metavar="START",
    ),
]
OnLostOption: TypeAlias = Annotated[
    str,
    typer.Option(
        help="If retention has deleted the offset to begin at, or it is past the end: error, first or next.",
        metavar="WHAT",
    ),
]
SkipCorrupt: TypeAlias = Annotated[
    bool,
    typer.Option("--skip-corrupt", help="Skip chunks that cannot be read, and report each."),
]
Headers: TypeAlias = Annotated[
    list[str],
    typer.Option(
        "--header",
        "-H",
        help="A header: name=text, or name:=json for numbers and booleans; may be repeated.",
        autocompletion=complete_header_value,
    ),
]
Priority: TypeAlias = Annotated[int, typer.Option(help="0 to 255, higher is more urgent.")]
Limit: TypeAlias = Annotated[
    int, typer.Option("-n", "--limit", help="The largest number of messages.")
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON, one object per line.")]
Follow: TypeAlias = Annotated[
    bool,
    typer.Option("--follow", "-f", "-F", help="Continue with messages as they are published."),
]
HeadersOnly: TypeAlias = Annotated[
    bool, typer.Option("--headers-only", help="Leave the payloads out.")
]
Yes: TypeAlias = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]
Master: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="Where Spark runs: spark://host:7077, …; local[*,4] by default.",
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


def confirm(question: str, yes: bool) -> None:
    """Go on if --yes was given or the user answers yes; otherwise exit with code 1."""
    if not yes and not typer.confirm(question):
        raise typer.Exit(1)


@contextmanager
def open_database(url: str | None, access: Access = "change") -> Iterator[Database]:
    """The database at a URL, or the one in the settings. Only `create` makes one, so a typing error in a URL does not."""
    from headgate.queues import connect
    from headgate.settings import load_settings

    with connect(load_settings(database=url).database, access=access) as database:
        yield database


# ---- from text to values -------------------------------------------------------------------------------


def parse_headers(pairs: Iterable[str]) -> dict[str, HeaderValue]:
    """`region=EU` is text; `amount:=1200`, `express:=true` are JSON and keep their kind."""
    headers: dict[str, HeaderValue] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise HeadgateError(f"a header is written name=text or name:=json, not {pair!r}")
        if name.endswith(":"):
            headers[name[:-1]] = _parse_json(pair, value)
        else:
            headers[name] = value
    return headers


def _parse_json(pair: str, value: str) -> HeaderValue:
    try:
        found: HeaderValue = json.loads(value)
    except (ValueError, RecursionError):
        raise HeadgateError(
            f"{pair!r}: {value!r} is not valid JSON; for text write name=text"
        ) from None
    return found


def split_names(given: Iterable[str]) -> tuple[str, ...]:
    """The names of an option that may be repeated and may list several with commas."""
    return tuple(name for text in given for name in map(str.strip, text.split(",")) if name)


def parse_restriction(text: str) -> tuple[str, tuple[str, ...]]:
    """`region=us,eu`: a header, and the values that batches are kept apart by."""
    name, equals, values = text.partition("=")
    if not equals or not values:
        raise HeadgateError(f"a restriction is written header=value,value, not {text!r}")
    return name, tuple(values.split(","))


def parse_conf(conf: Iterable[str] | None) -> dict[str, str]:
    """The settings of Spark that --conf gave."""
    pairs = [setting.partition("=") for setting in conf or ()]
    for key, equals, value in pairs:
        if not key.startswith("spark.") or not equals or not value:
            from headgate.errors import SparkOptionsError

            raise SparkOptionsError(
                f"--conf {key}{equals}{value} is not a setting of Spark; write it as --conf spark.executor.memory=4g"
            )
    return {key: value for key, _, value in pairs}
