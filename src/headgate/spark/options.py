"""The options of `format("headgate")`, checked. Spark hands them over as text, their names in lower case.

Spark starts a process for every look at a source, so what only some of them need is imported where it is needed.
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
from headgate.message import INT64_MAX
from headgate.pipelines import QUEUE
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
)
_TABLE: Final = frozenset({"owner", "provider"})  # what Spark says of a table, and of nothing else
_NO_TABLE: Final = (
    "CREATE TABLE … USING headgate makes a table that cannot be used, since Spark does not hand the options of a table to a "
    "source written in Python; read with CREATE TEMPORARY VIEW name USING headgate OPTIONS (path '…')"
)


def check_known(options: Mapping[str, str], known: Collection[str]) -> None:
    """Refuse an option that is not among the known ones, with the one that was probably meant."""
    by_key = {name.lower(): name for name in known}
    for key in options:
        if key.lower() in by_key:
            continue
        near = difflib.get_close_matches(key.lower(), by_key, n=1)
        hint = f"did you mean {by_key[near[0]]!r}?" if near else f"there are {', '.join(known)}"
        raise SparkOptionsError(f'format("headgate") has no option {key!r}; {hint}')


def refuse_table(options: Mapping[str, str]) -> None:
    """Refuse to make a table, which Spark tells us about, and to use one, of which no option arrives."""
    if options.keys() >= _TABLE:
        raise SparkOptionsError(f"{_NO_TABLE}, and write with df.write.save() or INSERT INTO name")
    if not options:
        raise SparkOptionsError(
            'which stream or queue? give its place: .load("data/events") or .save("data/events"). If this is a '
            f"table: {_NO_TABLE}"
        )


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What a read asks for."""

    paths: tuple[str, ...]
    filter: Filter
    start: Start = "first"
    end: Start = "next"
    max_messages: int | None = None
    max_bytes: int | None = None
    partitions: int = 0  # as many as the weight is worth
    cores: int = 0  # those of this machine
    cursor: str = ""  # empty: progress is not stored
    fail_on_data_loss: bool = True


def source_options(given: Mapping[str, str]) -> SourceOptions:
    """The options of a read; every stream must be there and the filter must parse."""
    check_known(given, SOURCE_OPTIONS)
    options = {key.lower(): value for key, value in given.items()}
    paths = stream_paths(options)
    filter = filter_of(options.get("filter", ""))
    return SourceOptions(
        paths,
        filter,
        _start(options),
        _end(options.get("endingoffset", "next")),
        positive(options, "maxMessagesPerTrigger"),
        positive(options, "maxBytesPerTrigger"),
        positive(options, "partitions") or 0,
        positive(options, "cores") or 0,
        options["cursor"] if "cursor" in options else default_cursor(paths, filter),
        truth(options, "failOnDataLoss", True),
    )


def names_queue(given: Mapping[str, str]) -> bool:
    """Whether one queue is to be read, and no stream."""
    return "paths" not in given and given.get("path", "").startswith(QUEUE)


def wants_text(given: Mapping[str, str]) -> bool:
    """Whether headers are asked for as text."""
    wanted = given.get("headers", "values").lower()
    if wanted not in ("values", "text"):
        raise SparkOptionsError(f"headers: give 'text' or 'values', not {wanted!r}")
    return wanted == "text"


def filter_of(text: str) -> Filter:
    """The filter of a text; everything when there is none."""
    from headgate.filters import TRUE, as_filter

    return as_filter(text) if text.strip() else TRUE


def default_cursor(paths: Iterable[str], filter: Filter) -> str:
    """A name that the same query has again after a restart; give two queries that are alike names of their own."""
    from headgate.filters import normalize, to_text

    asked = json.dumps([sorted(paths), to_text(normalize(filter).tree)])
    return f"spark-{hashlib.sha256(asked.encode()).hexdigest()[:12]}"


# ---- one option each ---------------------------------------------------------------------------------


def _start(options: Mapping[str, str]) -> Start:
    if "from" in options and "startingoffset" in options:
        raise SparkOptionsError("from and startingOffset are the same: give one of them")
    name = "from" if "from" in options else "startingOffset"
    return _moment(name, options.get(name.lower(), "first"))


def _end(text: str) -> Start:
    end = _moment("endingOffset", text)
    if end in ("first", "last"):
        raise SparkOptionsError(
            f"endingOffset: reading ends before it; give an offset, a moment or 'next', not {text!r}"
        )
    return end


def _moment(name: str, text: str) -> Start:
    from headgate.streams.read import parse_start

    try:
        return parse_start(text)
    except StreamOptionsError as problem:
        raise SparkOptionsError(f"{name}: {problem}") from None


def positive(options: Mapping[str, str], name: str) -> int | None:
    """A number of at least 1, if the option is given."""
    text = options.get(name.lower())
    if text is None:
        return None
    if not (DIGITS.fullmatch(text) and 0 < int(text) <= INT64_MAX):
        raise SparkOptionsError(
            f"{name}: a whole number of at least 1 is needed, not {text[:40]!r}"
        )
    return int(text)


def truth(options: Mapping[str, str], name: str, otherwise: bool) -> bool:
    """An option that is true or false."""
    text = options.get(name.lower(), str(otherwise)).lower()
    if text not in ("true", "false"):
        raise SparkOptionsError(f"{name}: give true or false, not {text!r}")
    return text == "true"


# ---- which streams -----------------------------------------------------------------------------------


def stream_paths(options: Mapping[str, str]) -> tuple[str, ...]:
    """The directories of all streams that are asked for, a super stream's partitions one by one."""
    given = [*_listed(options.get("paths", "")), *filter(str.strip, [options.get("path", "")])]
    if any(one.startswith(QUEUE) for one in given):
        raise SparkOptionsError(
            'paths: are for streams; read one queue with .load("queue:…#name"), and several with union()'
        )
    if not given:
        raise SparkOptionsError(
            'which stream? give its directory: .load("data/events") or .option("paths", "data/a,data/b")'
        )
    found = [path for one in given for path in _expanded(directory_of(one))]
    real = [os.path.realpath(path) for path in found]
    if len(set(real)) < len(real):
        raise SparkOptionsError(f"{max(real, key=real.count)} is asked for twice")
    return tuple(found)


def _listed(text: str) -> list[str]:
    if not text.lstrip().startswith("["):
        return [part.strip() for part in text.split(",") if part.strip()]
    try:
        found: Any = json.loads(text)
    except ValueError as problem:
        raise SparkOptionsError(f"paths: {text!r} is no JSON list: {problem}") from None
    if not all(isinstance(one, str) for one in found):
        raise SparkOptionsError(f"paths: a list of directories is needed, not {text!r}")
    return list(found)


def directory_of(text: str) -> str:
    """A directory as an absolute path: executors may run elsewhere in the file system."""
    try:
        scheme = urlsplit(text).scheme if "://" in text or text.startswith("file:") else ""
    except ValueError as problem:  # half an address in brackets
        raise SparkOptionsError(f"{text!r} is no directory: {problem}") from None
    if scheme == "file":
        text = unquote(urlsplit(text).path)
    elif scheme:
        raise SparkOptionsError(
            f"{text}: a stream is a directory that driver and executors share, not {scheme}:"
        )
    return os.path.abspath(text)


def _expanded(path: str) -> Iterator[str]:
    if not (Path(path) / SUPER_FILE).exists():
        load_options(Path(path))  # refuses what is no stream
        yield path
        return
    # Brings SQLite, which executors do without.
    from headgate.streams import SuperStream

    yield from (str(stream.path) for stream in SuperStream.open(path).partitions)
