"""What a place for messages promises: each batch of a query arrives there as a whole, and once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from headgate.spark.sink.staging import Staged


@dataclass(frozen=True, slots=True)
class BatchMark:
    """Which batch of which query: a destination takes each once. The numbers of one query's batches only grow."""

    query: str
    batch: int


class Destination(Protocol):
    """Frozen and picklable; two that are equal are the same place."""

    @property
    def staging(self) -> str:
        """The folder executors stage files for it in."""
        ...

    def check(self) -> None:
        """On the driver, before anything runs: refuse what cannot work, change nothing."""
        ...

    def open(self) -> None:
        """On the driver: make what is missing, and the folder for staged files; idempotent."""
        ...

    def prepare(self, staged: Staged) -> Staged:
        """On an executor, as the last thing that happens to a file there; idempotent."""
        ...

    def commit(self, mark: BatchMark, staged: Sequence[Staged]) -> None:
        """On the driver: all rows of these files, in this order, durably; nothing when the batch was here before."""
        ...

    def discard(self, staged: Sequence[Staged]) -> None:
        """Delete files that will not be committed, unless a commit that began names them."""
        ...

    def collect_orphans(self) -> None:
        """Delete what its owner staged and nobody will commit; while no batch of the owner is at work."""
        ...

    def leave(self) -> None:
        """Nothing more will be staged by its owner: remove the folder for it."""
        ...
