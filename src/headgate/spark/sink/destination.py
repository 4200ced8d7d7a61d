"""Destinations, which store each batch of a query as a whole and once (exchanges: at least once); owners of staged files."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol
from uuid import uuid4

from headgate.errors import SparkOptionsError
from headgate.pipelines import (
    DirectoryPlace,
    ExchangePlace,
    QueuePlace,
    SparkPlace,
    TableLayout,
    local_path,
    parse_place,
)
from headgate.spark.sink.staging import StagedPart

_NAME_DIGITS: Final = 20


@dataclass(frozen=True, slots=True)
class BatchMark:
    """A batch of a query, so that a destination recognizes it when it is repeated. The numbers of a query only grow."""

    query: str
    batch: int


@dataclass(frozen=True, slots=True)
class Owner:
    """The writer of staged files: it has folders of its own, and only one batch at a time writes to them.

    `scratch` is the folder for files that are staged for a place which has no folder itself.
    """

    name: str
    scratch: str


def owner_of(checkpoint: str) -> Owner:
    """The owner for the query with that checkpoint; every run of the query gets an equal one."""
    local = local_path(checkpoint)
    location = checkpoint if local is None else str(local)
    name = hashlib.sha256(location.encode()).hexdigest()[:_NAME_DIGITS]
    return Owner(name, str(local / "staged") if local is not None else _temporary_folder())


def new_owner() -> Owner:
    """An owner for a write that has no checkpoint."""
    return Owner(uuid4().hex[:_NAME_DIGITS], _temporary_folder())


def _temporary_folder() -> str:
    return str(Path(tempfile.gettempdir()) / "headgate-staged")


class Destination(Protocol):
    """A place for messages. It is frozen and can be pickled; two destinations are equal when they are one place."""

    @property
    def staging(self) -> str:
        """The folder in which executors stage files for this place."""
        ...

    def check(self) -> None:
        """On the driver, before the query runs: raise when the place cannot be written to; changes nothing."""
        ...

    def open(self) -> None:
        """On the driver: create the place and the folder for staged files if they are missing; idempotent."""
        ...

    def prepare(self, staged: StagedPart) -> tuple[StagedPart, ...]:
        """On an executor: convert a staged file to one or more files as the place needs them; a converted file stays as it is."""
        ...

    def commit(self, mark: BatchMark, staged: Sequence[StagedPart]) -> None:
        """On the driver: store all rows of these files durably, in this order; a batch that was stored before is ignored."""
        ...

    def discard(self, staged: Sequence[StagedPart]) -> None:
        """Delete files that will not be committed, except those that a started commit lists."""
        ...

    def collect_orphans(self) -> None:
        """Delete staged files of the owner that no commit will need, and old ones of other owners.

        Call it only while no batch of the owner is running.
        """
        ...

    def leave(self) -> None:
        """Delete the owner's folder for staged files, at the end of its last batch."""
        ...


def destination_of(
    to: str, queue: str, owner: Owner | None = None, layout: TableLayout | None = None
) -> Destination:
    """The destination of a place; `queue` is the name of a queue where the text gives none, `layout` is for Parquet files.

    With the owner of its checkpoint (`owner_of`), a query deletes the staged files of its last run. Without an owner, a
    new one is made, whose files are deleted by others after a day.
    """
    owner = owner or new_owner()
    place = parse_place(to, queue)
    if isinstance(place, SparkPlace):
        from headgate.spark.sink.spark_format import SparkDestination

        return SparkDestination(place, owner, layout or TableLayout())
    if layout and (not isinstance(place, DirectoryPlace) or place.kind != "parquet"):
        raise SparkOptionsError(
            f"schema, partition_by and compact_after are for parquet:…, not {to}"
        )
    if isinstance(place, ExchangePlace):
        from headgate.spark.sink.exchange import ExchangeDestination

        return ExchangeDestination(place.url, place.exchange, owner)
    if isinstance(place, QueuePlace):
        from headgate.spark.sink.queue import QueueDestination

        return QueueDestination(place.url, place.name, owner)
    if place.kind == "stream":
        from headgate.spark.sink.stream import StreamDestination

        return StreamDestination(place.path, owner)
    from headgate.spark.sink.parquet import ParquetDestination

    return ParquetDestination(place.path, owner, layout or TableLayout())
