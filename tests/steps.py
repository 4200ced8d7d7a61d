"""Operations of queues, watched step by step: so another one can come in between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headgate.queues.database import Database
from headgate.queues.engine import ForEach, Operation, Statement, Step, Transaction


def watched(operation: Operation[Any], see: Callable[[Step], object]) -> Operation[Any]:
    """Run the operation, and call `see` before each of its steps, also in its transactions; what `see` raises is raised there."""
    reply: Any = None
    problem: BaseException | None = None
    try:
        while True:
            step = operation.send(reply) if problem is None else operation.throw(problem)
            reply = problem = None
            try:
                see(step)
                if isinstance(step, Transaction):
                    step = Transaction(step.mode, lambda body=step.body: watched(body(), see))
                reply = yield step
            except GeneratorExit:
                operation.close()
                raise
            except BaseException as raised:
                problem = raised
    except StopIteration as end:
        return end.value


def before(db: Database, name: str, act: Callable[[], object]) -> Callable[[Step], None]:
    """For `watched`: call `act` before the first statement of that name."""
    text, left = db.engine.operations.dialect.text(name), [act]

    def see(step: Step) -> None:
        if isinstance(step, Statement | ForEach) and step.text == text and left:
            left.pop()()

    return see


def before_transaction(act: Callable[[], object], number: int = 1) -> Callable[[Step], None]:
    """For `watched`: call `act` before the transaction of that number."""
    seen = 0

    def see(step: Step) -> None:
        nonlocal seen
        seen += isinstance(step, Transaction)
        if isinstance(step, Transaction) and seen == number:
            act()

    return see
