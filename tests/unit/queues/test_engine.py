"""An operation inside the transaction of another: its steps, its result and its exceptions pass through."""

import pytest

from headgate.queues.engine import (
    Operation,
    Rows,
    Statement,
    Transaction,
    TransactionMode,
    run_inline,
)

LOCK, WORK, UNLOCK = Statement("lock"), Statement("work"), Statement("unlock")


def locked() -> Operation[Rows]:
    yield LOCK
    try:
        return (yield WORK)
    finally:
        yield UNLOCK


def test_the_result_of_the_operation_is_returned():
    operation = run_inline(locked())
    assert [next(operation), operation.send(()), operation.send([(1,)])] == [LOCK, WORK, UNLOCK]
    with pytest.raises(StopIteration) as end:
        operation.send(())
    assert end.value.value == [(1,)]


@pytest.mark.parametrize("problem", [ValueError, KeyboardInterrupt])
def test_an_exception_is_raised_in_the_operation_which_takes_its_last_step(problem):
    operation = run_inline(locked())
    assert [next(operation), operation.send(())] == [LOCK, WORK]
    assert operation.throw(problem()) == UNLOCK
    with pytest.raises(problem):
        operation.send(())


def test_closing_it_closes_the_operation():
    ended = []

    def work() -> Operation[None]:
        try:
            yield WORK
        finally:
            ended.append(True)

    operation = run_inline(work())
    next(operation)
    operation.close()
    assert ended == [True]


def test_the_steps_of_its_transaction_are_steps_of_the_outer_one():
    def work() -> Operation[Rows]:
        return (yield Transaction(TransactionMode.WRITE, locked))

    operation = run_inline(work())
    assert [next(operation), operation.send(()), operation.send([(1,)])] == [LOCK, WORK, UNLOCK]
    with pytest.raises(StopIteration) as end:
        operation.send(())
    assert end.value.value == [(1,)]
