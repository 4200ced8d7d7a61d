"""An operation inside another: its steps, its result and its troubles pass through."""

import pytest

from headgate.queues.engine import Operation, Rows, Statement, Step, Transaction
from headgate.queues.sql.core import stepwise, without_transaction

LOCK, WORK, UNLOCK = Statement("lock"), Statement("work"), Statement("unlock")


def locked() -> Operation[Rows]:
    yield LOCK
    try:
        return (yield WORK)
    finally:
        yield UNLOCK


def as_it_is(step: Step) -> Operation[Rows]:
    return (yield step)


def test_what_the_operation_returns_is_returned():
    operation = stepwise(locked(), as_it_is)
    assert [next(operation), operation.send(()), operation.send([(1,)])] == [LOCK, WORK, UNLOCK]
    with pytest.raises(StopIteration) as end:
        operation.send(())
    assert end.value.value == [(1,)]


@pytest.mark.parametrize("trouble", [ValueError, KeyboardInterrupt])
def test_what_fails_reaches_the_operation_which_takes_its_last_step(trouble):
    operation = stepwise(locked(), as_it_is)
    assert [next(operation), operation.send(())] == [LOCK, WORK]
    assert operation.throw(trouble()) == UNLOCK
    with pytest.raises(trouble):
        operation.send(())


def test_closing_it_closes_the_operation():
    ended = []

    def work() -> Operation[None]:
        try:
            yield WORK
        finally:
            ended.append(True)

    inner = work()
    operation = stepwise(inner, as_it_is)
    next(operation)
    operation.close()
    assert ended == [True]


def test_without_its_transaction_an_operation_takes_only_the_other_steps():
    def work() -> Operation[None]:
        yield Transaction.WRITE
        yield WORK
        yield Transaction.COMMIT

    assert list(without_transaction(work())) == [WORK]
