"""The options of a stream, kept in its stream.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Literal, NoReturn, TypeAlias, TypedDict

from headgate.checks import check_count, check_span, list_texts, suggest
from headgate.errors import InvalidMessage, StreamError, StreamNotFound, StreamOptionsError
from headgate.message import Scalar, check_header_name, check_header_value
from headgate.streams.format import FORMAT_VERSION, MAX_BODY_BYTES, OPTIONS_FILE, SUPER_FILE
from headgate.streams.record import damaged_records, mend_record, read_record, write_record

Fsync: TypeAlias = Literal["always", "interval", "never"]

MAX_INDEXED: Final = 63  # the coverage bitmap has 64 bits, one is filter_value's
MAX_TUPLES: Final = 2**63  # combinations of restricted values; a chunk's is kept in 64 bits
SEED_BLOOM: Final = range(16, 256)  # bytes; RabbitMQ's range
INDEXED_BLOOM: Final = range(16, (16 << 10) + 1)
DEFAULT_SEED_BYTES: Final = 16
DEFAULT_INDEXED_BYTES: Final = 1024
_DURATIONS: Final = ("fsync_interval", "linger", "max_age", "producer_max_age")
_ENDLESS: Final = ("max_age", "producer_max_age")  # may be None
_COUNTS: Final = ("filter_size", "chunk_messages", "chunk_bytes", "segment_bytes", "max_bytes")


class StreamOptionFields(TypedDict, total=False):
    """The keywords of `Stream.create` and `Stream.reconfigure`: the fields of `StreamOptions`."""

    indexed: Sequence[str]
    filter_size: int
    restrict_same_values: Mapping[str, Sequence[Scalar]]
    fsync: Fsync
    fsync_interval: timedelta
    linger: timedelta
    chunk_messages: int
    chunk_bytes: int
    segment_bytes: int
    max_age: timedelta | None
    max_bytes: int | None
    producer_max_age: timedelta | None
    entry_filters: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """The options of a stream. A changed option holds for what is written and sealed afterwards.

    `fsync`: with "always" every confirmed message survives a power failure; with "interval" a power failure may lose
    what was confirmed since the last sync began, which is once in `fsync_interval`, while a killed process loses nothing;
    with "never" the operating system decides. Deposits are durable with each of them.

    `max_age` counts from a segment's latest timestamp; if that is in the future, from when the segment was written.

    `producer_max_age`: the name of a closed producer that has published nothing for that long is forgotten when the next
    segment begins; its publishing ids then count as new. None remembers all names for ever.

    `filter_size` is the Bloom filter's bytes in each chunk's index entry: 16 to 255 when only filter values are
    in it, up to 16384 when headers are `indexed`.
    """

    indexed: tuple[str, ...] = ()
    filter_size: int = 0  # 0: 16 bytes, or 1 KiB with indexed headers
    restrict_same_values: Mapping[str, tuple[Scalar, ...]] = field(default_factory=dict)
    fsync: Fsync = "interval"
    fsync_interval: timedelta = timedelta(milliseconds=200)
    linger: timedelta = timedelta(milliseconds=1)  # how long a chunk waits for more messages
    chunk_messages: int = 4096
    chunk_bytes: int = 1 << 20
    segment_bytes: int = 64 << 20  # log and index together
    max_age: timedelta | None = None  # retention; None keeps everything
    max_bytes: int | None = None
    producer_max_age: timedelta | None = timedelta(days=30)
    # Names of installed entry filters that every reader applies.
    entry_filters: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        put = object.__setattr__
        for names in ("indexed", "entry_filters"):
            put(self, names, list_texts(names, getattr(self, names), StreamOptionsError))
        put(self, "restrict_same_values", _tuples(self.restrict_same_values))
        _check_kinds(self)
        if not self.filter_size:
            put(self, "filter_size", DEFAULT_INDEXED_BYTES if self.indexed else DEFAULT_SEED_BYTES)
        _check_names("indexed", self.indexed)
        _check_names("restrict_same_values", tuple(self.restrict_same_values))
        _check_restriction(self.restrict_same_values)
        for problem in _problems(self):
            raise StreamOptionsError(problem)

    @property
    def bloom_hashes(self) -> int:
        """Bits set for a value: two for filter values alone, as in RabbitMQ; else seven: 1 % false positives at ten bits a value."""
        return 7 if self.indexed else 2


def _check_kinds(options: StreamOptions) -> None:
    """Refuse a time span that is no timedelta, and a number that is no integer."""
    for name in _DURATIONS:
        if name not in _ENDLESS or getattr(options, name) is not None:
            check_span(name, getattr(options, name), StreamOptionsError)
    for name in _COUNTS:
        if name != "max_bytes" or options.max_bytes is not None:
            check_count(name, getattr(options, name), StreamOptionsError)


def _tuples(restriction: Mapping[str, Sequence[Scalar]]) -> dict[str, tuple[Scalar, ...]]:
    if not isinstance(restriction, Mapping):
        raise StreamOptionsError(
            "restrict_same_values: give the values of each header, for example "
            f'{{"region": ["eu", "us"]}}, not {restriction!r}'
        )
    for name, values in restriction.items():
        if isinstance(values, str) or not isinstance(values, Sequence):
            raise StreamOptionsError(
                f"restrict_same_values: {name!r} needs a list of values, not {values!r}"
            )
    return {name: tuple(values) for name, values in restriction.items()}


def _check_names(option: str, names: tuple[str, ...]) -> None:
    if len(set(names)) < len(names):
        raise StreamOptionsError(f"{option}: a header is named twice in {names}")
    for name in names:
        try:
            check_header_name(name)
        except InvalidMessage as problem:
            raise StreamOptionsError(f"{option}: {problem}") from None


def _check_restriction(restriction: Mapping[str, tuple[Scalar, ...]]) -> None:
    tuples = 1
    for name, values in restriction.items():
        tuples *= len(values) + 1
        for value in values:
            try:
                check_header_value(f"restrict_same_values[{name!r}]", value)
            except InvalidMessage as problem:
                raise StreamOptionsError(str(problem)) from None
    if tuples > MAX_TUPLES:
        raise StreamOptionsError("restrict_same_values: more than 2^63 combinations of values")


def _problems(options: StreamOptions) -> list[str]:
    sizes = INDEXED_BLOOM if options.indexed else SEED_BLOOM
    checks = {
        f"indexed: at most {MAX_INDEXED} headers can be indexed, not {len(options.indexed)}": (
            len(options.indexed) <= MAX_INDEXED
        ),
        f"filter_size: {options.filter_size} bytes; {sizes.start} to {sizes.stop - 1} are possible here": (
            options.filter_size in sizes
        ),
        f"fsync: {options.fsync!r} is not always, interval or never": (
            options.fsync in ("always", "interval", "never")
        ),
        "fsync_interval: must be longer than 0": options.fsync_interval > timedelta(0),
        "linger: cannot be negative": options.linger >= timedelta(0),
        "chunk_messages: must be 1 to 1,048,576": 1 <= options.chunk_messages <= 1 << 20,
        f"chunk_bytes: must be 1 to {MAX_BODY_BYTES:,}": 1 <= options.chunk_bytes <= MAX_BODY_BYTES,
        "segment_bytes: must be at least 4,096": options.segment_bytes >= 4096,
        "max_age: must be longer than 0": options.max_age is None or options.max_age > timedelta(0),
        "max_bytes: must be more than 0": options.max_bytes is None or options.max_bytes > 0,
        "producer_max_age: must be longer than 0": (
            options.producer_max_age is None or options.producer_max_age > timedelta(0)
        ),
    }
    return [problem for problem, fine in checks.items() if not fine]


# ---- stream.json -------------------------------------------------------------------------------------


def save_options(directory: Path, options: StreamOptions) -> None:
    """Write stream.json and its copy."""
    known: dict[str, Any] = asdict(options)
    for name in _DURATIONS:
        duration = known.pop(name)
        if duration is not None:
            known[f"{name}_us"] = duration // timedelta(microseconds=1)
        elif name == "producer_max_age":  # without it, the default holds
            known[f"{name}_us"] = None
    write_record(directory / OPTIONS_FILE, {"format": FORMAT_VERSION, **known})


def load_options(directory: Path) -> StreamOptions:
    """Read the options from stream.json."""
    path = directory / OPTIONS_FILE
    try:
        return read_record(path, _options_from)
    except FileNotFoundError:
        if (directory / SUPER_FILE).exists():
            raise StreamNotFound(
                f"there is no stream in {directory}, but a super stream: use SuperStream, or the "
                "directory of one of its partitions"
            ) from None
        raise StreamNotFound(
            f"there is no stream in {directory}: it has no {OPTIONS_FILE}; create one with "
            f"Stream.create, or `headgate stream create {directory}`"
        ) from None
    except NotADirectoryError as problem:
        raise StreamNotFound(
            f"there is no stream in {directory}: a stream is a directory, and this is a file"
        ) from problem
    except OSError as problem:
        raise StreamError(f"{path} cannot be read: {problem.strerror}") from problem
    except ValueError as problem:
        raise StreamOptionsError(f"{path} cannot be read: {problem}") from problem


def mend_options(directory: Path) -> None:
    """Restore stream.json or its copy from the other file. Needs the writer's lock."""
    mend_record(directory / OPTIONS_FILE, _options_from)


def damaged_options(directory: Path) -> dict[Path, str]:
    """Return, by path, what is wrong with stream.json and with its copy; a sound or missing file is not listed."""
    return damaged_records(directory / OPTIONS_FILE, _options_from)


def _options_from(known: dict[str, Any]) -> StreamOptions:
    version = known.pop("format")
    if version != FORMAT_VERSION:
        raise ValueError(f"format {version}; this program reads format {FORMAT_VERSION}")
    for name in _DURATIONS:
        if f"{name}_us" in known:
            duration = known.pop(f"{name}_us")
            known[name] = None if duration is None else timedelta(microseconds=duration)
    return StreamOptions(**known)


def change_options(options: StreamOptions, changes: StreamOptionFields) -> StreamOptions:
    """Return the options with these changes; refuse an unknown name."""
    known = [option.name for option in fields(StreamOptions)]
    for name in changes:
        if name not in known:
            raise StreamOptionsError(f"there is no option {name!r}; {suggest(name, known)}")
    if "indexed" in changes and "filter_size" not in changes:
        changes = {**changes, "filter_size": 0}
    return replace(options, **changes)  # type: ignore[arg-type]  # __post_init__ makes tuples of sequences


def refuse_constructor(path: str | Path) -> NoReturn:
    """Say how a stream is opened or made: not by calling its class."""
    place = repr(str(path))
    raise StreamOptionsError(
        f"open the stream with Stream.open({place}), or make it with Stream.create({place})"
    )
