"""What a pipeline is: where messages come from, which queue gets which, and where they go. Values only."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final, TypeAlias
from typing import Literal as OneOf

from headgate.errors import SparkOptionsError
from headgate.pipelines.layout import TableLayout
from headgate.pipelines.places import NOWHERE
from headgate.queues import State
from headgate.routing import Topology

Trigger: TypeAlias = timedelta | OneOf["once", "continuous"]
NamePairs: TypeAlias = tuple[tuple[str, str], ...]

DEAD_LETTER: Final = "dead-letter"
FAIL: Final = "fail"
MALFORMED: Final = (DEAD_LETTER, FAIL, "drop")  # what to do with a record that is no message
ARCHIVED: Final = "archived"  # the state of a message that was acked and kept
STATES: Final = tuple(state.name.lower() for state in State)  # by their numbers
_ALL: Final = "all"


@dataclass(frozen=True, slots=True)
class PayloadColumns:
    """How payloads are decoded: each field of the schema becomes a column, a header of the message.

    `schema` is columns for json, the JSON text or the file (.avsc) of a schema for avro, and FILE.desc#Message for protobuf.
    """

    format: OneOf["json", "avro", "protobuf"]
    schema: str


@dataclass(frozen=True, slots=True)
class SqlStep:
    """A SQL query over the table `messages`: the messages as the step before leaves them."""

    sql: str
    watermark: tuple[str, str] | None = None  # a column and a delay


@dataclass(frozen=True, slots=True)
class Reading:
    """What becomes of rows between the source and the exchange."""

    schema: str | None = None  # headers of a stream or queue as columns, for the steps
    payload: PayloadColumns | None = None
    casts: NamePairs = ()  # (column, type)
    steps: tuple[SqlStep, ...] = ()
    # What to do with a payload that cannot be decoded.
    malformed: str | None = None

    def __bool__(self) -> bool:
        return self != Reading()


@dataclass(frozen=True, slots=True)
class StreamSource:
    """One or several Headgate streams."""

    streams: tuple[str, ...]
    filter: str | None = None
    start: str = "first"
    fail_on_data_loss: bool = True  # when retention deletes messages that were not read yet


@dataclass(frozen=True, slots=True)
class QueueSource:
    """A queue in a database: its archive, followed as it grows, or its messages in some states, read once."""

    queue: str  # its place
    filter: str | None = None
    states: str = ARCHIVED
    fail_on_data_loss: bool = True  # when planned messages are pruned before they are read

    @property
    def reads_once(self) -> bool:
        return self.states != ARCHIVED


@dataclass(frozen=True, slots=True)
class FormatSource:
    """Any format Spark reads as a stream; `columns` maps parts of a message to columns of the source.

    All other columns are headers of their own name, unless `headers` lists the columns that are headers.
    """

    format: str
    path: str | None = None
    schema: str | None = None
    options: NamePairs = ()
    columns: NamePairs = ()  # (system column of a message, column of the source)
    headers: NamePairs | None = None  # (header, column of the source)
    filter: str | None = None
    malformed: str | None = None  # one of MALFORMED


Source: TypeAlias = StreamSource | QueueSource | FormatSource


@dataclass(frozen=True, slots=True)
class Sink:
    """Where the messages of one queue go."""

    queue: str
    to: str
    layout: TableLayout | None = None  # of Parquet files; None: all parts of a message
    options: NamePairs = ()  # of a format that Spark writes


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The content of a pipeline file, with absolute paths."""

    file: Path
    name: str
    source: Source
    exchange: str
    sinks: tuple[Sink, ...]
    checkpoint: Path
    topology: Topology = field(compare=False, repr=False)
    reading: Reading = field(default_factory=Reading)
    dead_letter: str | None = None
    trigger: Trigger = "continuous"
    max_messages_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    partitions: int | None = None

    @property
    def malformed(self) -> str:
        """What to do with a malformed record: nothing is lost unless the file says so."""
        source = self.source
        own = source.malformed if isinstance(source, FormatSource) else self.reading.malformed
        return own or (FAIL if self.dead_letter is None else DEAD_LETTER)

    def places(self) -> tuple[str, ...]:
        """Return every place that keeps messages, each once: two sinks with one place share its commits."""
        listed = dict.fromkeys([*(sink.to for sink in self.sinks), self.dead_letter])
        return tuple(place for place in listed if place is not None and place != NOWHERE)

    def layout_of(self, place: str) -> TableLayout | None:
        """Return the layout of a place; None if no sink gives one."""
        return next((sink.layout for sink in self.sinks if sink.to == place and sink.layout), None)

    def options_of(self, place: str) -> NamePairs:
        """Return the options of a place that Spark writes."""
        return next((sink.options for sink in self.sinks if sink.to == place), ())

    def outlets(self) -> dict[str, tuple[int, ...]]:
        """Return for each queue the numbers of its places."""
        number = {place: at for at, place in enumerate(self.places())}
        outlets: dict[str, tuple[int, ...]] = {}
        for sink in self.sinks:
            own = () if sink.to == NOWHERE else (number[sink.to],)
            outlets[sink.queue] = outlets.get(sink.queue, ()) + own
        return outlets


def parse_states(text: str) -> tuple[State, ...]:
    """Parse a list of states, or `all`; `archived` gives no states."""
    names = [name.strip().lower() for name in text.split(",")]
    if names == [ARCHIVED]:
        return ()
    if names == [_ALL]:
        return tuple(State)
    unknown = [name for name in names if name not in STATES]
    if unknown:
        alone = unknown[0] in (ARCHIVED, _ALL)
        reason = f"{unknown[0]!r} cannot be combined" if alone else f"not {text!r}"
        raise SparkOptionsError(
            f"states: give some of {', '.join(STATES)}, or {_ALL}, or {ARCHIVED}; {reason}"
        )
    return tuple(State(STATES.index(name)) for name in STATES if name in names)
