"""What a pipeline is: where messages come from, who gets which, and where they go. Values only."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final, TypeAlias
from typing import Literal as OneOf

from headgate.pipelines.queue_url import ARCHIVED
from headgate.routing import Topology

Trigger: TypeAlias = timedelta | OneOf["once", "continuous"]
Pairs: TypeAlias = tuple[tuple[str, str], ...]

DEAD_LETTER: Final = "dead-letter"
FAIL: Final = "fail"
MALFORMED: Final = (DEAD_LETTER, FAIL, "drop")  # what becomes of a record that is no message
NOWHERE: Final = "none:"  # a place where messages are counted and not kept


@dataclass(frozen=True, slots=True)
class StreamSource:
    """One or several Headgate streams."""

    streams: tuple[str, ...]
    filter: str | None = None
    start: str = "first"
    fail_on_data_loss: bool = True  # when retention takes what was not read yet


@dataclass(frozen=True, slots=True)
class QueueSource:
    """A queue in a database: its archive, which is followed as it grows, or what it holds in some states, looked at
    once."""

    queue: str  # its place
    filter: str | None = None
    states: str = ARCHIVED
    fail_on_data_loss: bool = True  # when what was planned is pruned before it is read

    @property
    def looks_once(self) -> bool:
        return self.states != ARCHIVED


@dataclass(frozen=True, slots=True)
class FormatSource:
    """Anything Spark reads as a stream; `columns` says which of its columns becomes which part of a message.

    Columns nobody names are headers of their own name, unless `headers` lists those that are.
    """

    format: str
    path: str | None = None
    schema: str | None = None
    options: Pairs = ()
    columns: Pairs = ()  # (system column of a message, column of the source)
    headers: Pairs | None = None  # (header, column of the source)
    filter: str | None = None
    malformed: str | None = None  # one of MALFORMED


Source: TypeAlias = StreamSource | QueueSource | FormatSource


@dataclass(frozen=True, slots=True)
class Sink:
    """Where the messages of one queue go."""

    queue: str
    to: str


@dataclass(frozen=True, slots=True)
class Pipeline:
    """All that a pipeline file says, its paths made absolute."""

    file: Path
    name: str
    source: Source
    exchange: str
    sinks: tuple[Sink, ...]
    checkpoint: Path
    topology: Topology = field(compare=False, repr=False)
    dead_letter: str | None = None
    trigger: Trigger = "continuous"
    max_messages_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    partitions: int | None = None

    @property
    def malformed(self) -> str:
        """What becomes of a malformed record: nothing is lost unless the file says so."""
        said = self.source.malformed if isinstance(self.source, FormatSource) else None
        return said or (FAIL if self.dead_letter is None else DEAD_LETTER)

    def places(self) -> tuple[str, ...]:
        """Every place that keeps messages, each once: two sinks on one place share what is committed there."""
        named = dict.fromkeys([*(sink.to for sink in self.sinks), self.dead_letter])
        return tuple(place for place in named if place is not None and place != NOWHERE)

    def outlets(self) -> dict[str, tuple[int, ...]]:
        """For each queue the numbers of its places."""
        number = {place: at for at, place in enumerate(self.places())}
        found: dict[str, tuple[int, ...]] = {}
        for sink in self.sinks:
            here = () if sink.to == NOWHERE else (number[sink.to],)
            found[sink.queue] = found.get(sink.queue, ()) + here
        return found
