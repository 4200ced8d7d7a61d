"""The text that names a place for messages -> the destination.

stream:data/orders                   a Headgate stream
queue:sqlite:///orders.db#eu-high    a queue in a database; `queue` unless #name says another
queue:postgresql://host/db
parquet:out/orders                   Parquet files
"""

from __future__ import annotations

from typing import Final

from headgate.errors import SparkOptionsError
from headgate.pipelines import local_path, queue_place
from headgate.spark.sink.checkpoint import Owner, fresh_owner
from headgate.spark.sink.destination import Destination
from headgate.spark.sink.parquet import ParquetDestination
from headgate.spark.sink.queue import QueueDestination
from headgate.spark.sink.stream import StreamDestination

KINDS: Final = ("stream", "queue", "parquet")
_HOW: Final = "write stream:PATH, queue:sqlite:///PATH, queue:postgresql://… or parquet:PATH"


def parse(to: str, queue: str, owner: Owner | None = None) -> Destination:
    """The destination a text names. `queue` is the name of a queue where the text gives none.

    With the owner that `checkpoint.owner_of` gives, a query collects what its last run left behind; without one,
    somebody new stages here, whose files nobody else touches for a day.
    """
    owner = owner or fresh_owner()
    kind, colon, rest = to.partition(":")
    if not colon or kind not in KINDS or not rest:
        raise SparkOptionsError(f"{to!r} is no place for messages; {_HOW}")
    if kind == "stream":
        return StreamDestination(_directory(to, rest), owner)
    if kind == "parquet":
        return ParquetDestination(_directory(to, rest), owner)
    return _queue(to, queue, owner)


def _directory(to: str, text: str) -> str:
    path = local_path(text)
    if path is None:
        raise SparkOptionsError(f"{to!r} is not in a file system that is mounted here; {_HOW}")
    return str(path)


def _queue(to: str, queue: str, owner: Owner) -> QueueDestination:
    place = queue_place(to, queue)
    return QueueDestination(place.url, place.name, owner)
