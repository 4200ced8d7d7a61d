"""A pipeline file -> a pipeline, or everything that is wrong with the file at once.

    [pipeline]      name, checkpoint, trigger = "500ms" | "once" | "continuous", max_messages_per_trigger,
                    max_bytes_per_trigger, partitions
    [source]        stream = "data/events" | ["a", "b"], filter, start, fail_on_data_loss
                    or queue = "queue:sqlite:///orders.db#orders", states, filter, fail_on_data_loss
                    or format = "json", path, schema, options, columns, headers, filter,
                    malformed = "dead-letter" | "fail" | "drop"
    [exchange]      type, name, alternate; [[exchange]] for several, the first is the one messages enter
                    or, instead of it, topology = "topology.toml" and exchange = "orders" above all tables
    [[binding]]     queue (or exchange), key, arguments, filter, and the other words of a topology file
    [[sink]]        queue, to
    [dead_letter]   to: where messages go that no queue gets

Paths are relative to the file. `check.py` holds what can only be known by looking at the world.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from headgate.errors import HeadgateError, PipelineError, SparkOptionsError
from headgate.filters import SYS_KINDS, parse
from headgate.pipelines.definition import (
    DEAD_LETTER,
    MALFORMED,
    FormatSource,
    Pipeline,
    QueueSource,
    Sink,
    Source,
    StreamSource,
    Trigger,
)
from headgate.pipelines.entries import Entry, Problems
from headgate.pipelines.limits import bytes_option, messages_option
from headgate.pipelines.location import local_path
from headgate.pipelines.places import absolute, place
from headgate.pipelines.queue_url import ARCHIVED, QUEUE, queue_place, states_of
from headgate.pipelines.routes import Routes, read_routes, without_partner
from headgate.streams.read import parse_start

TABLES: Final = (
    "pipeline", "source", "exchange", "topology", "binding", "sink", "dead_letter",
)  # fmt: skip
PARTS: Final = ("payload", *SYS_KINDS)
_LOSS: Final = "fail_on_data_loss"
_STREAM_KEYS: Final = ("stream", "filter", "start", _LOSS)
_QUEUE_KEYS: Final = ("queue", "states", "filter", _LOSS)
_FORMAT_KEYS: Final = (
    "format", "path", "schema", "options", "columns", "headers", "filter", "malformed",
)  # fmt: skip
_SETTINGS: Final = (
    "name", "checkpoint", "trigger", "max_messages_per_trigger", "max_bytes_per_trigger", "partitions",
)  # fmt: skip
_DURATION: Final = re.compile(r"(\d{1,9})\s*(ms|s|m|h)")
_UNITS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}


def read_pipeline(file: str | Path) -> Pipeline:
    """The pipeline of a file; a `PipelineError` lists all that is wrong with it."""
    path = Path(file)
    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as problem:
        raise PipelineError(str(file), (f"cannot be read: {problem}",)) from problem
    except (ValueError, RecursionError) as problem:
        raise PipelineError(str(file), (f"this is not TOML: {problem}",)) from problem
    return pipeline_of(document, path)


def pipeline_of(document: dict[str, Any], file: Path) -> Pipeline:
    """The pipeline that a parsed file describes."""
    problems = Problems()
    base = file.absolute().parent
    Entry(document, "the file", problems).only(*TABLES)
    source = _source(document, base, problems)
    routes = read_routes(document, base, problems)
    sinks = _sinks(document, base, problems)
    dead_letter = _dead_letter(document, base, problems)
    if isinstance(source, FormatSource) and source.malformed == DEAD_LETTER and not dead_letter:
        problems.note("[dead_letter]", 'malformed = "dead-letter" needs it; add to = "stream:…"')
    settings = _settings(document, file, base, problems, source)
    without_partner(routes, sinks, problems)
    if problems.found or source is None or routes is None:
        raise PipelineError(str(file), tuple(problems.found))
    return _made(file, source, routes, sinks, dead_letter, settings)


def _made(
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
        problems.note("[source]", 'is missing; add [source] with stream = "data/events"')
        return None
    entry = Entry(document["source"], "[source]", problems)
    kinds = [kind for kind in _SOURCES if kind in entry]
    if len(kinds) != 1:
        entry.note(
            'needs stream = "data/events", queue = "queue:…#name" or format = "json", and one only'
        )
        return None
    _check(entry, "filter", parse)
    return _SOURCES[kinds[0]](entry, base)


def _streams(entry: Entry, base: Path) -> StreamSource:
    entry.only(*_STREAM_KEYS)
    _check(entry, "start", parse_start)
    _no_queue(entry, "stream", entry.texts("stream"))
    paths = tuple(absolute(path, base) for path in entry.texts("stream"))
    if len(set(paths)) < len(paths) or not paths:
        entry.note("stream: give at least one, and each only once")
    start = entry.text("start") or "first"
    return StreamSource(paths, entry.text("filter"), start, entry.truth(_LOSS, True))


def _queue(entry: Entry, base: Path) -> QueueSource:
    entry.only(*_QUEUE_KEYS)
    states = (entry.text("states") or ARCHIVED).strip().lower()
    try:
        states_of(states)
    except SparkOptionsError as problem:
        entry.note(str(problem))
    fail = entry.truth(_LOSS, True)
    return QueueSource(_queue_named(entry, base), entry.text("filter"), states, fail)


def _queue_named(entry: Entry, base: Path) -> str:
    try:
        named = place(QUEUE + (entry.text("queue") or "").removeprefix(QUEUE), "", base)
        queue_place(named)
    except ValueError as problem:
        entry.note(f"queue: {problem}")
        return ""
    return named


def _format(entry: Entry, base: Path) -> FormatSource:
    entry.only(*_FORMAT_KEYS)
    path = entry.text("path")
    _no_queue(entry, "path", [path or ""])
    columns = entry.table("columns")
    columns.only(*PARTS)
    return FormatSource(
        entry.required("format", '"json"'),
        None if path is None else absolute(path, base),
        entry.text("schema"),
        tuple((key, _said(value)) for key, value in entry.table("options").given.items()),
        tuple((part, columns.text(part) or "") for part in columns.given if part in PARTS),
        _headers(entry),
        entry.text("filter"),
        _malformed(entry),
    )


def _malformed(entry: Entry) -> str | None:
    said = entry.text("malformed")
    if said is not None and said not in MALFORMED:
        entry.note(f"malformed is one of {', '.join(MALFORMED)}, not {said!r}")
    return said


def _no_queue(entry: Entry, key: str, places: Iterable[str]) -> None:
    if any(place.startswith(QUEUE) for place in places):
        entry.note(
            f'{key}: this is a queue; write queue = "queue:…#name" instead, and nothing else but filter and states'
        )


_SOURCES: Final[dict[str, Callable[[Entry, Path], Source]]] = {
    "stream": _streams,
    "queue": _queue,
    "format": _format,
}


def _headers(entry: Entry) -> tuple[tuple[str, str], ...] | None:
    """Which columns are headers: a list of names, or a table of header = "column"."""
    if "headers" not in entry:
        return None
    if isinstance(entry.given["headers"], dict):
        named = entry.table("headers")
        return tuple((name, named.text(name) or "") for name in named.given)
    return tuple((name, name) for name in entry.texts("headers"))


def _said(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# ---- where they go -----------------------------------------------------------------------------------


def _sinks(document: dict[str, Any], base: Path, problems: Problems) -> tuple[Sink, ...]:
    given = document.get("sink", [])
    if not isinstance(given, list) or not given:
        problems.note("[[sink]]", 'is missing; add [[sink]] with queue = "…" and to = "stream:…"')
        return ()
    return tuple(_sink(Entry(s, f"[[sink]] {n}", problems), base) for n, s in enumerate(given, 1))


def _sink(entry: Entry, base: Path) -> Sink:
    entry.only("queue", "to")
    queue = entry.required("queue", '"orders"')
    return Sink(queue, _place(entry, queue, base))


def _dead_letter(document: dict[str, Any], base: Path, problems: Problems) -> str | None:
    if "dead_letter" not in document:
        return None
    entry = Entry(document["dead_letter"], "[dead_letter]", problems)
    entry.only("to")
    return _place(entry, "dead-letters", base)


def _place(entry: Entry, queue: str, base: Path) -> str:
    to = entry.required("to", '"stream:data/orders"')
    if not to:
        return ""
    try:
        return place(to, queue, base)
    except ValueError as problem:
        entry.note(f"to: {problem}")
        return ""


# ---- how it runs -------------------------------------------------------------------------------------


def _settings(
    document: dict[str, Any], file: Path, base: Path, problems: Problems, source: Source | None
) -> dict[str, Any]:
    entry = Entry(document.get("pipeline", {}), "[pipeline]", problems)
    entry.only(*_SETTINGS)
    name = entry.text("name") or file.stem
    if not re.fullmatch(r"[\w.-]+", name):
        entry.note(f"name is made of letters, digits, '.', '_' and '-', not {name!r}")
    return {
        "name": name,
        "checkpoint": _checkpoint(entry, entry.text("checkpoint") or f".headgate/{name}", base),
        "trigger": _trigger(entry, source),
        "max_messages_per_trigger": _limit(entry, "max_messages_per_trigger", source),
        "max_bytes_per_trigger": _limit(entry, "max_bytes_per_trigger", source),
        "partitions": entry.count("partitions"),
    }


def _checkpoint(entry: Entry, text: str, base: Path) -> Path:
    where = absolute(text, base)
    try:
        real = local_path(where)
    except SparkOptionsError as problem:
        entry.note(f"checkpoint: {problem}")
        return Path(text)
    path = Path(where) if where.startswith("/") else real
    if path is None:
        entry.note(
            f"checkpoint is a directory that driver and executors share, not {text!r}; mount it and write its path"
        )
    return path or Path(text)


def _limit(entry: Entry, key: str, source: Source | None) -> int | None:
    option_of = messages_option if key == "max_messages_per_trigger" else bytes_option
    if key in entry and source is not None and option_of(source) is None:
        entry.note(
            f"{key}: this source cannot be limited like that; leave it out, and of a format give its own limit in "
            "[source.options], for example maxFilesPerTrigger"
        )
    return entry.count(key)


def _trigger(entry: Entry, source: Source | None) -> Trigger:
    ends = isinstance(source, QueueSource) and source.looks_once
    text = entry.text("trigger") or ("once" if ends else "continuous")
    if text == "once" or text == "continuous":
        return text  # type: ignore[return-value]
    found = _DURATION.fullmatch(text)
    if found is None:
        entry.note(f'trigger is "once", "continuous" or a time like "500ms", not {text!r}')
        return "continuous"
    return timedelta(milliseconds=int(found[1]) * _UNITS[found[2]])


def _check(entry: Entry, key: str, understand: Callable[[str], object]) -> None:
    text = entry.text(key)
    if text is None:
        return
    try:
        understand(text)
    except HeadgateError as problem:
        entry.note(f"{key}: {problem}")
