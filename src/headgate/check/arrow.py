"""The Arrow engine: messages become record batches, and every filter one mask per batch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from headgate.check.engine import Question
from headgate.columns import BatchColumns, shred_messages
from headgate.filters import Filter
from headgate.filters.compile.arrow import compile_mask
from headgate.message import Message

ROWS_PER_BATCH: Final = 4096


class ArrowEngine:
    name = "arrow"

    def answer(self, questions: Sequence[Question]) -> list[bool]:
        # The same message is often asked about many times; messages cannot be hashed, but they can be told apart.
        messages = {id(question.message): question.message for question in questions}
        rows = {identity: row for row, identity in enumerate(messages)}
        batches = _batches(list(messages.values()))
        answers = [False] * len(questions)
        for (node, number), asked in _by_filter_and_batch(questions, rows).items():
            mask = compile_mask(node)(batches[number])
            for at, row in asked:
                answers[at] = bool(mask[row])
        return answers


def _batches(messages: list[Message]) -> list[BatchColumns]:
    starts = range(0, len(messages), ROWS_PER_BATCH)
    return [
        BatchColumns(shred_messages(messages[start : start + ROWS_PER_BATCH])) for start in starts
    ]


def _by_filter_and_batch(
    questions: Sequence[Question], rows: dict[int, int]
) -> dict[tuple[Filter, int], list[tuple[int, int]]]:
    """Per filter and batch: which question asks about which row of it."""
    asked: dict[tuple[Filter, int], list[tuple[int, int]]] = defaultdict(list)
    for at, question in enumerate(questions):
        batch, row = divmod(rows[id(question.message)], ROWS_PER_BATCH)
        asked[question.filter, batch].append((at, row))
    return asked
