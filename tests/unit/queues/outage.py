"""A database in memory that fails on demand."""

from __future__ import annotations

from typing import TypeVar

from headgate.errors import DatabaseUnavailable
from headgate.queues.engine import Operation
from headgate.queues.memory.engine import MemoryEngine

T = TypeVar("T")


class OutageEngine(MemoryEngine):
    """Fails the next `left` operations with `problem`."""

    left = 0
    problem: Exception = DatabaseUnavailable("no answer from the database")

    def run(self, operation: Operation[T]) -> T:
        if self.left:
            self.left -= 1
            operation.close()
            raise self.problem
        return super().run(operation)
