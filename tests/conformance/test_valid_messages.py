"""One definition of a valid message, `headgate.message.validate`, and every faster check of it."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from headgate import InvalidMessage, Message, Stream
from headgate.columns import read_table, shred_valid, typed_name, validate_batch
from headgate.filters import KIND_OF, SYS_KINDS
from headgate.message import OPAQUE, validate
from tests import generate
from tests.conftest import FULL

COUNT = 20_000 if FULL else 2_000
BATCH = 8


def problem_of(message: Message) -> str | None:
    """What `validate` says; None when the message is valid."""
    return problem_in(validate, message)


def problem_in(check: Any, value: Any) -> str | None:
    try:
        check(value)
    except InvalidMessage as problem:
        return str(problem)
    return None


@pytest.fixture(scope="module")
def messages(seed) -> list[Message]:
    rng = Random(f"{seed} messages")
    found = [generate.suspect_message(rng) for _ in range(COUNT)]
    valid = sum(problem_of(message) is None for message in found)
    assert 0.3 < valid / COUNT < 0.7  # both kinds are tried
    return found


@pytest.mark.parametrize("check", [validate_batch, shred_valid])
def test_a_batch_is_refused_with_the_error_of_its_first_invalid_message(check, messages):
    for start in range(0, COUNT, BATCH):
        batch = messages[start : start + BATCH]
        problems = [problem for message in batch if (problem := problem_of(message)) is not None]
        assert problem_in(check, batch) == (problems[0] if problems else None)
        valid = [message for message in batch if problem_of(message) is None]
        assert problem_in(check, valid) is None


def test_a_producer_accepts_exactly_the_valid_messages(tmp_path: Path, messages):
    # A topic of a subclass of str is taken for an equal one that was accepted before: both mean one text.
    messages = [message for message in messages if type(message.topic) is not generate.Word]
    accepted = 0
    with Stream.create(tmp_path / "s") as stream, stream.producer() as producer:
        for message in messages:
            problem = problem_of(message)
            assert problem_in(producer.publish, message) == problem
            accepted += problem is None
        for start in range(0, len(messages), BATCH):
            batch = messages[start : start + BATCH]
            problems = [p for message in batch if (p := problem_of(message)) is not None]
            assert problem_in(producer.publish_many, batch) == (problems[0] if problems else None)
            accepted += 0 if problems else len(batch)
        producer.flush()
        assert stream.next_offset - stream.first_offset == accepted


def test_a_table_is_refused_where_its_rows_are_invalid_messages(messages):
    seen = {True: 0, False: 0}
    for message in messages:
        batch = as_batch(message)
        if batch is not None:
            valid = problem_of(message) is None
            assert (problem_in(lambda batch: read_table(batch, 0), batch) is None) is valid, message
            seen[valid] += 1
    assert min(seen.values()) > COUNT / 50


def as_batch(message: Message) -> pa.RecordBatch | None:
    """The message as a table of one row; None when Arrow cannot hold it, or would change the type of a value."""
    if type(message.payload) is not bytes or message.topic is None or message.priority is None:
        return None  # a null is the default there
    columns: dict[str, list[Any]] = {"payload": [message.payload]}
    for name, kind in SYS_KINDS.items():
        value = getattr(message, name)
        if value is not None and KIND_OF.get(type(value)) != kind:
            return None
        columns |= {} if value is None else {name: [value]}
    for name, value in [*message.headers.items(), *message.properties.items()]:
        if type(name) is not str:
            return None
        scope = "header" if name in message.headers else "property"
        if value is not None and value is not OPAQUE and type(value) not in KIND_OF:
            return None
        view = "opaque" if value is OPAQUE else KIND_OF.get(type(value), "string")
        columns[typed_name(scope, view, name)] = [True if value is OPAQUE else value]
    try:
        return pa.RecordBatch.from_pydict(columns)
    except (pa.ArrowException, UnicodeError, OverflowError):
        return None
