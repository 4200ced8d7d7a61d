"""Queues with filters against a naive model, in thousands of random histories."""

from __future__ import annotations

from functools import partialmethod

import pytest

from headgate.broker import lane, queue_filters, selective
from headgate.broker.queue import ClassicQueue
from tests.conformance.filtered_histories import drain_in_order, run_history

HISTORIES = 2_000
FULL_HISTORIES = 50_000
WITH_SQLITE = 25  # one history of so many is over SQLite, and not over the store in memory
ONCE_WRONG = ["4250331323/23005", "4250331323/33015"]  # a filter never met a message that came back


@pytest.fixture
def small_numbers(monkeypatch):
    """Let everything that is large in a real broker happen in a history of forty steps."""
    monkeypatch.setattr(lane, "PAGE_ROWS", 4)
    monkeypatch.setattr(lane, "FEW_HOLES", 2)
    monkeypatch.setattr("headgate.broker.broker.AHEAD", 2)
    monkeypatch.setattr(selective, "NOTES", 3)
    monkeypatch.setattr(queue_filters, "MOST_FOUND", 6)
    monkeypatch.setattr(queue_filters, "ROWS", 3)
    monkeypatch.setattr(ClassicQueue, "drain", partialmethod(drain_in_order, ClassicQueue.drain))


@pytest.mark.usefixtures("small_numbers")
def test_every_delivery_is_one_that_the_model_allows_and_nobody_starves(tmp_path, seed, full):
    for number in range(FULL_HISTORIES if full else HISTORIES):
        place = tmp_path / f"{number}.db" if number % WITH_SQLITE == 0 else None
        run_history(f"{seed}/{number}", place)
        if place is not None:
            place.unlink()


@pytest.mark.usefixtures("small_numbers")
@pytest.mark.parametrize("history", ONCE_WRONG)
def test_a_history_that_was_once_wrong_is_right(history):
    run_history(history, None)
