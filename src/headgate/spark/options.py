"""The options of `format("headgate")`, parsed and checked. Spark passes them as text, with names in lower case.

Spark starts a process for every call to a source, so modules that only some of these calls need are imported late.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from headgate.errors import SparkOptionsError, StreamOptionsError
from headgate.filters import Filter
from headgate.message import INT64_MAX
from headgate.pipelines import QueuePlace, is_queue, parse_states, queue_place
from headgate.queues import State
from headgate.streams import SUPER_FILE, load_options

if TYPE_CHECKING:
    from headgate.filters import Filter
    from headgate.streams.read import Start

DIGITS: Final = re.compile(r"[0-9]{1,19}")  # Spark counts in 64 bits
_PLACES: Final = ("path", "paths")
SOURCE_OPTIONS: Final = (
    *_PLACES,
    "filter",
    "headers",
    "from",
    "startingOffset",
    "endingOffset",
    "maxMessagesPerTrigger",
    "maxBytesPerTrigger",
    "partitions",
    "cores",
    "cursor",
    "failOnDataLoss",
    "payload",
    "payloadSchema",
)
QUEUE_OPTIONS: Final = ("path", "queue", "filter", "headers", "states", "partitions", "cores")
SINK_OPTIONS: Final = (
    "path",
    "to",
    "checkpointLocation",
    "queryName",
    "destinations",
    "queue",
    "txnAppId",
    "txnVersion",
    "schema",
    "partitionBy",
    "compactAfter",
)
_TABLE: Final = frozenset({"owner", "provider"})  # options that Spark sets for tables only
_NO_TABLE: Final = (
    "CREATE TABLE … USING headgate makes a table that cannot be used, since Spark does not pass the options of a table to a "
    "source written in Python; read with CREATE TEMPORARY VIEW name USING headgate OPTIONS (path '…')"
)


def check_known(options: Mapping[str, str], known: Collection[str]) -> None:
    """Refuse an unknown option, and suggest the closest known one."""
    by_key = {name.lower(): name for name in known}
    for key in options:
        if key.lower() in by_key:
            continue
        near = difflib.get_close_matches(key.lower(), by_key, n=1)
        hint = (
            f"did you mean {by_key[near[0]]!r}?" if near else f"the options are {', '.join(known)}"
        )
        raise SparkOptionsError(f'format("headgate") has no option {key!r}; {hint}')


def refuse_table(options: Mapping[str, str]) -> None:
    """Refuse CREATE TABLE … USING headgate, and the use of such a table: Spark does not pass its options."""
    if options.keys() >= _TABLE:
        raise SparkOptionsError(f"{_NO_TABLE}, and write with df.write.save() or INSERT INTO name")
    if not options:
        raise SparkOptionsError(
            'no stream or queue is given; name one: .load("data/events") or .save("data/events"). If this is a '
            f"table: {_NO_TABLE}"
        )


@dataclass(frozen=True, slots=True)
class StreamRead:
    """The options of a read of streams."""

    paths: tuple[str, ...]
    filter: Filter
    start: Start = "first"
    end: Start = "next"
    max_messages: int | None = None
    max_bytes: int | None = None
    partitions: int = 0  # tasks; 0: by the bytes to read
    cores: int = 0  # 0: those of this machine
    cursor: str = ""  # empty: progress is not stored
    fail_on_data_loss: bool = True
    payload: str = ""  # the format that payloads are decoded from


def parse_stream_read(raw: Mapping[str, str]) -> StreamRead:
    """Parse the options of a read of streams; every stream must exist."""
    check_known(raw, SOURCE_OPTIONS)
    options = {key.lower(): value for key, value in raw.items()}
    paths = stream_paths(options)
    filter = parse_filter(options.get("filter", ""))
    return StreamRead(
        paths,
        filter,
        _start_option(options),
        _parse_end(options.get("endingoffset", "next")),
        positive_number(options, "maxMessagesPerTrigger"),
        positive_number(options, "maxBytesPerTrigger"),
        positive_number(options, "partitions") or 0,
        positive_number(options, "cores") or 0,
        options["cursor"] if "cursor" in options else default_cursor(paths, filter),
        flag(options, "failOnDataLoss", True),
        payload_format(options),
    )


def payload_format(raw: Mapping[str, str]) -> str:
    """The format that payloads are decoded from; empty when they are not decoded."""
    format = raw.get("payload", "").lower()
    if format not in ("", "json"):
        raise SparkOptionsError(
            f"payload: give json, not {format!r}; decode Avro and Protobuf with Spark's from_avro and from_protobuf"
        )
    if raw.get("payloadschema") and not format:
        raise SparkOptionsError("payloadSchema: add .option('payload', 'json')")
    return format


def names_queue(raw: Mapping[str, str]) -> bool:
    """Whether the options name a queue, and no stream."""
    return "paths" not in raw and is_queue(raw.get("path", ""))


def shows_headers_as_text(raw: Mapping[str, str]) -> bool:
    """Whether the default schema has headers as text."""
    form = raw.get("headers", "values").lower()
    if form not in ("values", "text"):
        raise SparkOptionsError(f"headers: give 'text' or 'values', not {form!r}")
    return form == "text"


def parse_filter(text: str) -> Filter:
    """Parse a filter; an empty text matches everything."""
    from headgate.filters import TRUE, as_filter

    return as_filter(text) if text.strip() else TRUE


def default_cursor(paths: Iterable[str], filter: Filter) -> str:
    """Name the cursor of a query by its streams and filter, so that the query finds it after a restart.

    Two queries with equal streams and filters need names of their own.
    """
    from headgate.filters import normalize, to_text

    query = json.dumps([sorted(paths), to_text(normalize(filter).tree)])
    return f"spark-{hashlib.sha256(query.encode()).hexdigest()[:12]}"


# ---- single options ----------------------------------------------------------------------------------


def _start_option(options: Mapping[str, str]) -> Start:
    if "from" in options and "startingoffset" in options:
        raise SparkOptionsError(
            "from and startingOffset mean the same option: give only one of them"
        )
    name = "from" if "from" in options else "startingOffset"
    return _parse_start(name, options.get(name.lower(), "first"))


def _parse_end(text: str) -> Start:
    end = _parse_start("endingOffset", text)
    if end in ("first", "last"):
        raise SparkOptionsError(
            f"endingOffset: give an offset, a moment or 'next', before which reading ends, not {text!r}"
        )
    return end


def _parse_start(name: str, text: str) -> Start:
    from headgate.streams.read import parse_start

    try:
        return parse_start(text)
    except StreamOptionsError as problem:
        raise SparkOptionsError(f"{name}: {problem}") from None


def positive_number(options: Mapping[str, str], name: str) -> int | None:
    """The value of an option that is a number of at least 1; None when it is not set."""
    text = options.get(name.lower())
    if text is None:
        return None
    if not (DIGITS.fullmatch(text) and 0 < int(text) <= INT64_MAX):
        raise SparkOptionsError(f"{name}: give a whole number of at least 1, not {text[:40]!r}")
    return int(text)


def flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    """The value of an option that is true or false."""
    text = options.get(name.lower(), str(default)).lower()
    if text not in ("true", "false"):
        raise SparkOptionsError(f"{name}: give true or false, not {text!r}")
    return text == "true"


# ---- paths of streams --------------------------------------------------------------------------------


def stream_paths(options: Mapping[str, str]) -> tuple[str, ...]:
    """The directories of all streams the options name; a super stream counts as its partitions."""
    listed = [*_parse_list(options.get("paths", "")), *filter(str.strip, [options.get("path", "")])]
    if any(map(is_queue, listed)):
        raise SparkOptionsError(
            'paths: only streams are read with paths; read one queue with .load("queue:…#name"), and several with union()'
        )
    if not listed:
        raise SparkOptionsError(
            'no stream is given; name its directory: .load("data/events") or .option("paths", "data/a,data/b")'
        )
    paths = [path for one in listed for path in _expand(directory_of(one))]
    real = [os.path.realpath(path) for path in paths]
    if len(set(real)) < len(real):
        raise SparkOptionsError(f"{max(real, key=real.count)} is listed twice")
    return tuple(paths)


def _parse_list(text: str) -> list[str]:
    if not text.lstrip().startswith("["):
        return [part.strip() for part in text.split(",") if part.strip()]
    try:
        items: Any = json.loads(text)
    except ValueError as problem:
        raise SparkOptionsError(f"paths: {text!r} is no JSON list: {problem}") from None
    if not all(isinstance(one, str) for one in items):
        raise SparkOptionsError(f"paths: give a list of directories, not {text!r}")
    return list(items)


def directory_of(text: str) -> str:
    """The directory as an absolute path: executors may run in another working directory."""
    try:
        scheme = urlsplit(text).scheme if "://" in text or text.startswith("file:") else ""
    except ValueError as problem:  # an IPv6 address without its closing bracket
        raise SparkOptionsError(f"{text!r} is no directory: {problem}") from None
    if scheme == "file":
        text = unquote(urlsplit(text).path)
    elif scheme:
        raise SparkOptionsError(
            f"{text}: a stream is a directory that driver and executors share, not {scheme}:"
        )
    return os.path.abspath(text)


def _expand(path: str) -> Iterator[str]:
    if not (Path(path) / SUPER_FILE).exists():
        load_options(Path(path))  # refuses a directory that is no stream
        yield path
        return
    # Imports SQLite, which executors do not need.
    from headgate.streams import SuperStream

    yield from (str(stream.path) for stream in SuperStream.open(path).partitions)


# ---- queues ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class QueueRead:
    """The options of a read of a queue. Without states, its archive is read: messages that were acked and kept."""

    place: QueuePlace
    filter: Filter
    states: tuple[State, ...] = (State.READY,)
    partitions: int = 0  # tasks; 0: by the messages to read
    cores: int = 0  # 0: those of this machine
    max_messages: int | None = None  # of a micro-batch
    fail_on_data_loss: bool = True  # of a query that follows an archive


def parse_queue_read(raw: Mapping[str, str], known: Collection[str] = QUEUE_OPTIONS) -> QueueRead:
    """Parse the options of a read of a queue."""
    options = {key.lower(): value for key, value in raw.items()}
    _refuse_stream_options(options, known)
    return QueueRead(
        queue_place(options.get("path", ""), options.get("queue", "")),
        parse_filter(options.get("filter", "")),
        parse_states(options.get("states", "ready")),
        positive_number(options, "partitions") or 0,
        positive_number(options, "cores") or 0,
        positive_number(options, "maxMessagesPerTrigger"),
        flag(options, "failOnDataLoss", True),
    )


def parse_queue_follow(raw: Mapping[str, str]) -> QueueRead:
    """Parse the options of a streaming query over a queue."""
    return parse_queue_read(raw, (*QUEUE_OPTIONS, "maxMessagesPerTrigger", "failOnDataLoss"))


def _refuse_stream_options(options: Mapping[str, str], known: Collection[str]) -> None:
    keys = {name.lower() for name in known}
    for name in SOURCE_OPTIONS:
        if name.lower() in options and name.lower() not in keys:
            raise SparkOptionsError(
                f"{name}: only streams have this option; a queue is read with {', '.join(known)}, and by ids with "
                "WHERE offset >= …"
            )
    check_known(options, known)
