"""A pipeline file -> a pipeline, or a list of all problems of the file.

    [pipeline]      name, checkpoint, trigger = "500ms" | "once" | "continuous", max_messages_per_trigger,
                    max_bytes_per_trigger, partitions
    [source]        stream = "data/events" | ["a", "b"], filter, start, fail_on_data_loss
                    or queue = "queue:sqlite:///orders.db#orders", states, filter, fail_on_data_loss
                    or format = "json", path, schema, options, columns, headers, filter,
                    malformed = "dead-letter" | "fail" | "drop"
    [exchange]      type, name, alternate; [[exchange]] for several, the first is the one messages enter
                    or, instead of it, topology = "topology.toml" and exchange = "orders" above all tables
    [[step]]        sql, watermark; and payload, payload_schema, casts of [source]: `pipelines/reading`
    [[binding]]     queue (or exchange), key, arguments, filter, and the other words of a topology file
    [[sink]]        queue, to; of parquet:… also schema, partition_by and compact_after
                    or format = "delta", path or table, options, schema, partition_by
    [dead_letter]   to: where unroutable messages go

Paths are relative to the file. What needs a look at streams, databases and checkpoints is in `spark/pipeline/checks`.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from headgate.errors import HeadgateError, PipelineError, SparkOptionsError
from headgate.filters import SYS_KINDS, parse
from headgate.pipelines.definition import (
    ARCHIVED,
    DEAD_LETTER,
    MALFORMED,
    FormatSource,
    Pipeline,
    QueueSource,
    Sink,
    Source,
    StreamSource,
    Trigger,
    parse_states,
)
from headgate.pipelines.layout import TableLayout, parse_layout
from headgate.pipelines.places import (
    NOWHERE,
    SparkPlace,
    absolute_path,
    absolute_place,
    is_queue,
    local_path,
    place_kind,
    queue_place,
)
from headgate.pipelines.reading import READING_KEYS, read_reading
from headgate.pipelines.routes import Routes, check_partners, read_routes
from headgate.pipelines.sources import bytes_option, messages_option
from headgate.pipelines.tables import Problems, TomlTable
from headgate.streams.read import parse_start

TABLES: Final = (
    "pipeline", "source", "step", "exchange", "topology", "binding", "sink", "dead_letter",
)  # fmt: skip
PARTS: Final = ("payload", *SYS_KINDS)
_LOSS: Final = "fail_on_data_loss"
_STREAM_KEYS: Final = ("stream", "filter", "start", "schema", _LOSS, "malformed", *READING_KEYS)
_QUEUE_KEYS: Final = ("queue", "states", "filter", "schema", _LOSS, "malformed", *READING_KEYS)
_FORMAT_KEYS: Final = (
    "format", "path", "schema", "options", "columns", "headers", "filter", "malformed",
    *READING_KEYS,
)  # fmt: skip
_SETTINGS: Final = (
    "name", "checkpoint", "trigger", "max_messages_per_trigger", "max_bytes_per_trigger", "partitions",
)  # fmt: skip
_LAYOUT_KEYS: Final = ("schema", "partition_by", "compact_after")
_DURATION: Final = re.compile(r"(\d{1,9})\s*(ms|s|m|h)")
_UNITS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}


def read_pipeline(file: str | Path) -> Pipeline:
    """Read the pipeline of a file; a `PipelineError` lists all problems."""
    path = Path(file)
    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as problem:
        reason = getattr(problem, "strerror", None) or problem
        raise PipelineError(str(file), (f"cannot be read: {reason}",)) from problem
    except (ValueError, RecursionError) as problem:
        raise PipelineError(str(file), (f"this is not TOML: {problem}",)) from problem
    return pipeline_of(document, path)


def pipeline_of(document: dict[str, Any], file: Path) -> Pipeline:
    """Build the pipeline that a parsed file describes."""
    problems = Problems()
    base = file.absolute().parent
    TomlTable(document, "the file", problems).allow_only(*TABLES)
    source = _source(document, base, problems)
    routes = read_routes(document, base, problems)
    sinks = _sinks(document, base, problems)
    dead_letter = _dead_letter(document, base, problems)
    settings = _settings(document, file, base, problems, source)
    reading = settings["reading"] = read_reading(document, base, problems, source)
    malformed = source.malformed if isinstance(source, FormatSource) else reading.malformed
    if malformed == DEAD_LETTER and not dead_letter:
        problems.add("[dead_letter]", 'malformed = "dead-letter" needs it; add to = "stream:…"')
    check_partners(routes, sinks, problems)
    if problems.texts or source is None or routes is None:
        raise PipelineError(str(file), tuple(problems.texts))
    return _build(file, source, routes, sinks, dead_letter, settings)


def _build(
    file: Path,
    source: Source,
    routes: Routes,
    sinks: tuple[Sink, ...],
    dead_letter: str | None,
    settings: dict[str, Any],
) -> Pipeline:
    return Pipeline(
        file=file,
        source=source,
        exchange=routes.exchange,
        topology=routes.topology,
        sinks=sinks,
        dead_letter=dead_letter,
        **settings,
    )


# ---- where messages come from ------------------------------------------------------------------------


def _source(document: dict[str, Any], base: Path, problems: Problems) -> Source | None:
    if "source" not in document:
        problems.add("[source]", 'is missing; add [source] with stream = "data/events"')
        return None
    table = TomlTable(document["source"], "[source]", problems)
    kinds = [kind for kind in _SOURCES if kind in table]
    if len(kinds) != 1:
        table.add_problem(
            'needs exactly one of stream = "data/events", queue = "queue:…#name" and format = "json"'
        )
        return None
    _check_syntax(table, "filter", parse)
    return _SOURCES[kinds[0]](table, base)


def _streams(table: TomlTable, base: Path) -> StreamSource:
    table.allow_only(*_STREAM_KEYS)
    _check_syntax(table, "start", parse_start)
    _refuse_queue(table, "stream", table.texts("stream"))
    paths = tuple(absolute_path(path, base) for path in table.texts("stream"))
    if len(set(paths)) < len(paths) or not paths:
        table.add_problem("stream: give at least one, and each only once")
    start = table.text("start") or "first"
    return StreamSource(paths, table.text("filter"), start, table.flag(_LOSS, True))


def _queue(table: TomlTable, base: Path) -> QueueSource:
    table.allow_only(*_QUEUE_KEYS)
    states = (table.text("states") or ARCHIVED).strip().lower()
    try:
        parse_states(states)
    except SparkOptionsError as problem:
        table.add_problem(str(problem))
    fail = table.flag(_LOSS, True)
    return QueueSource(_queue_place(table, base), table.text("filter"), states, fail)


def _queue_place(table: TomlTable, base: Path) -> str:
    try:
        place = absolute_place(
            "queue:" + (table.text("queue") or "").removeprefix("queue:"), "", base
        )
        queue_place(place)
    except ValueError as problem:
        table.add_problem(f"queue: {problem}")
        return ""
    return place


def _format(table: TomlTable, base: Path) -> FormatSource:
    table.allow_only(*_FORMAT_KEYS)
    path = table.text("path")
    _refuse_queue(table, "path", [path or ""])
    columns = table.table("columns")
    columns.allow_only(*PARTS)
    return FormatSource(
        table.required_text("format", '"json"'),
        None if path is None else absolute_path(path, base),
        table.text("schema"),
        tuple((key, _option_text(value)) for key, value in table.table("options").values.items()),
        tuple((part, columns.text(part) or "") for part in columns.values if part in PARTS),
        _headers(table),
        table.text("filter"),
        _malformed(table),
    )


def _malformed(table: TomlTable) -> str | None:
    policy = table.text("malformed")
    if policy is not None and policy not in MALFORMED:
        table.add_problem(f"malformed is one of {', '.join(MALFORMED)}, not {policy!r}")
    return policy


def _refuse_queue(table: TomlTable, key: str, places: Iterable[str]) -> None:
    if any(map(is_queue, places)):
        table.add_problem(
            f'{key}: this is a queue; write queue = "queue:…#name" instead, with filter and states only'
        )


_SOURCES: Final[dict[str, Callable[[TomlTable, Path], Source]]] = {
    "stream": _streams,
    "queue": _queue,
    "format": _format,
}


def _headers(table: TomlTable) -> tuple[tuple[str, str], ...] | None:
    """Read the columns that become headers: a list of names, or a table of header = "column"."""
    if "headers" not in table:
        return None
    if isinstance(table.values["headers"], dict):
        columns = table.table("headers")
        named = tuple((name, columns.text(name) or "") for name in columns.values)
    else:
        named = tuple((name, name) for name in table.texts("headers"))
    for name, column in named:
        if name in PARTS:
            table.add_problem(
                f"headers: {name!r} is a part of a message; give the header another name, "
                f'headers = {{ its_{name} = "{column}" }}, or fill the part: columns = {{ {name} = "{column}" }}'
            )
    return named


def _option_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# ---- where they go -----------------------------------------------------------------------------------


def _sinks(document: dict[str, Any], base: Path, problems: Problems) -> tuple[Sink, ...]:
    sinks = document.get("sink", [])
    if not isinstance(sinks, list) or not sinks:
        problems.add("[[sink]]", 'is missing; add [[sink]] with queue = "…" and to = "stream:…"')
        return ()
    found = tuple(
        _sink(TomlTable(s, f"[[sink]] {n}", problems), base) for n, s in enumerate(sinks, 1)
    )
    for to in {sink.to for sink in found if sink.to}:
        if len({(sink.layout, sink.options) for sink in found if sink.to == to}) > 1:
            problems.add("[[sink]]", f"two sinks write to {to} with different settings")
    for (queue, to), count in Counter((sink.queue, sink.to) for sink in found).items():
        if count > 1 and queue and to not in ("", NOWHERE):
            problems.add(
                f"sink of {queue!r}",
                f"{count} sinks write this queue to {to}, which would store every message {count} times; keep one of them",
            )
    return found


def _sink(table: TomlTable, base: Path) -> Sink:
    if "format" in table:
        return _format_sink(table, base)
    table.allow_only("queue", "to", *_LAYOUT_KEYS)
    queue = table.required_text("queue", '"orders"')
    to = _place(table, queue, base)
    return Sink(queue, to, _layout(table, to))


def _format_sink(table: TomlTable, base: Path) -> Sink:
    """Read a sink of a format that Spark writes."""
    table.allow_only("queue", "format", "path", "table", "options", "schema", "partition_by")
    queue, format = (
        table.required_text("queue", '"orders"'),
        table.required_text("format", '"delta"'),
    )
    path, name = table.text("path"), table.text("table")
    if path is not None and name is not None:
        table.add_problem("give path or table, and not both")
    if format and not re.fullmatch(r"[\w.]+", format):
        table.add_problem(f"format is the name of one that Spark writes, not {format!r}")
    place = SparkPlace(
        format,
        "path" if path is not None else "table" if name is not None else "queue",
        absolute_path(path, base) if path is not None else name if name is not None else queue,
    )
    options = table.table("options").values.items()
    layout = _layout(table, "parquet:")
    if layout is not None and layout.partition_names() != layout.partition_by:
        table.add_problem(
            "partition_by: name columns; let a step make the day: to_date(timestamp) AS day"
        )
    return Sink(
        queue, place.text, layout, tuple((key, _option_text(value)) for key, value in options)
    )


def _layout(table: TomlTable, to: str) -> TableLayout | None:
    keys = [key for key in _LAYOUT_KEYS if key in table]
    if not keys:
        return None
    if to and place_kind(to) != "parquet":
        table.add_problem(f'{keys[0]} is for files: to = "parquet:…", not {to.partition(":")[0]}:')
        return None
    try:
        return parse_layout(
            table.text("schema"), table.texts("partition_by"), table.count("compact_after")
        )
    except SparkOptionsError as problem:
        table.add_problem(problem)
        return None


def _dead_letter(document: dict[str, Any], base: Path, problems: Problems) -> str | None:
    if "dead_letter" not in document:
        return None
    table = TomlTable(document["dead_letter"], "[dead_letter]", problems)
    table.allow_only("to")
    return _place(table, "dead-letters", base)


def _place(table: TomlTable, queue: str, base: Path) -> str:
    to = table.required_text("to", '"stream:data/orders"')
    if not to:
        return ""
    try:
        return absolute_place(to, queue, base)
    except ValueError as problem:
        table.add_problem(f"to: {problem}")
        return ""


# ---- how it runs -------------------------------------------------------------------------------------


def _settings(
    document: dict[str, Any], file: Path, base: Path, problems: Problems, source: Source | None
) -> dict[str, Any]:
    table = TomlTable(document.get("pipeline", {}), "[pipeline]", problems)
    table.allow_only(*_SETTINGS)
    name = table.text("name") or file.stem
    if not re.fullmatch(r"[\w.-]+", name):
        table.add_problem(f"name is made of letters, digits, '.', '_' and '-', not {name!r}")
    return {
        "name": name,
        "checkpoint": _checkpoint(table, table.text("checkpoint") or f".headgate/{name}", base),
        "trigger": _trigger(table, source),
        "max_messages_per_trigger": _limit(table, "max_messages_per_trigger", source),
        "max_bytes_per_trigger": _limit(table, "max_bytes_per_trigger", source),
        "partitions": table.count("partitions"),
    }


def _checkpoint(table: TomlTable, text: str, base: Path) -> Path:
    location = absolute_path(text, base)
    try:
        real = local_path(location)
    except SparkOptionsError as problem:
        table.add_problem(f"checkpoint: {problem}")
        return Path(text)
    path = Path(location) if location.startswith("/") else real
    if path is None:
        table.add_problem(
            f"checkpoint is a directory that driver and executors share, not {text!r}; mount it and write its path"
        )
    return path or Path(text)


def _limit(table: TomlTable, key: str, source: Source | None) -> int | None:
    option_of = messages_option if key == "max_messages_per_trigger" else bytes_option
    if key in table and source is not None and option_of(source) is None:
        table.add_problem(
            f"{key}: this source has no such limit; leave it out, and give a format its own limit in "
            "[source.options], for example maxFilesPerTrigger"
        )
    return table.count(key)


def _trigger(table: TomlTable, source: Source | None) -> Trigger:
    ends = isinstance(source, QueueSource) and source.reads_once
    text = table.text("trigger") or ("once" if ends else "continuous")
    if text == "once" or text == "continuous":
        return text  # type: ignore[return-value]
    duration = _DURATION.fullmatch(text)
    if duration is None:
        table.add_problem(f'trigger is "once", "continuous" or a time like "500ms", not {text!r}')
        return "continuous"
    return timedelta(milliseconds=int(duration[1]) * _UNITS[duration[2]])


def _check_syntax(table: TomlTable, key: str, parse_text: Callable[[str], object]) -> None:
    text = table.text(key)
    if text is None:
        return
    try:
        parse_text(text)
    except HeadgateError as problem:
        table.add_problem(f"{key}: {problem}")
