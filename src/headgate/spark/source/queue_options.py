"""What a read of a queue asks for."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from headgate.errors import SparkOptionsError
from headgate.filters import Filter
from headgate.pipelines import QueuePlace, queue_place, states_of
from headgate.queues import State
from headgate.spark.options import (
    QUEUE_OPTIONS,
    SOURCE_OPTIONS,
    check_known,
    filter_of,
    positive,
    truth,
)


@dataclass(frozen=True, slots=True)
class QueueRead:
    """Which messages of which queue. No states: those that were acked and are kept in the archive."""

    place: QueuePlace
    filter: Filter
    states: tuple[State, ...] = (State.READY,)
    partitions: int = 0  # 0: as many as the rows are worth
    cores: int = 0  # those of this machine
    max_messages: int | None = None  # of a batch of a query
    fail_on_data_loss: bool = True  # of a query that follows an archive


def queue_read(given: Mapping[str, str], known: Collection[str] = QUEUE_OPTIONS) -> QueueRead:
    """The options of a read of a queue, checked."""
    options = {key.lower(): value for key, value in given.items()}
    _refuse_foreign(options, known)
    return QueueRead(
        queue_place(options.get("path", ""), options.get("queue", "")),
        filter_of(options.get("filter", "")),
        states_of(options.get("states", "ready")),
        positive(options, "partitions") or 0,
        positive(options, "cores") or 0,
        positive(options, "maxMessagesPerTrigger"),
        truth(options, "failOnDataLoss", True),
    )


def followed(given: Mapping[str, str]) -> QueueRead:
    """The options of a query that goes from batch to batch through a queue."""
    return queue_read(given, (*QUEUE_OPTIONS, "maxMessagesPerTrigger", "failOnDataLoss"))


def _refuse_foreign(options: Mapping[str, str], known: Collection[str]) -> None:
    keys = {name.lower() for name in known}
    for name in SOURCE_OPTIONS:
        if name.lower() in options and name.lower() not in keys:
            raise SparkOptionsError(
                f"{name}: is for streams; a queue is read with {', '.join(known)}, and by ids with "
                "WHERE offset >= …"
            )
    check_known(options, known)
