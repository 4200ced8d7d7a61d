"""Headers beyond the columns of a chunk: the most useful ones keep a column, the others are JSON, and nothing is lost."""

from __future__ import annotations

import json
import random
from typing import Any

import pyarrow as pa
import pytest

from headgate.columns import (
    MAX_HEADER_COLUMNS,
    OVERFLOW,
    Arrays,
    decode_messages,
    header_of,
    is_header_column,
    read_overflow,
    shred_chunk,
    validate_transposed,
)
from headgate.message import INT64_MAX, INT64_MIN, OPAQUE, Message

VALUES = [
    "", 'é "quoted" \\ \n\t\x7f €😀 </', 0, -1, INT64_MAX, INT64_MIN,
    0.0, -0.0, 1.5, 1e300, 5e-324, 0.1, True, False, OPAQUE,
]  # fmt: skip


@pytest.fixture(params=[None, validate_transposed], ids=["unchecked", "checked"])
def shred(request: pytest.FixtureRequest) -> Any:
    """Both ways to the columns of a chunk: by messages that were checked one by one, and by those checked here."""

    def make(messages: list[Message], indexed: tuple[str, ...] = ()) -> Arrays:
        payloads = [message.payload for message in messages]
        return shred_chunk(messages, payloads, indexed, 1, request.param)

    return make


def column_headers(arrays: Arrays) -> set[str]:
    return {header_of(name) for name in arrays if is_header_column(name)}


def test_messages_with_many_different_headers_come_back_as_they_were(shred: Any, seed: int) -> None:
    rng = random.Random(seed)
    sent = [
        Message(
            b"%d" % n, headers={f"h{rng.randrange(2000)}": rng.choice(VALUES) for _ in range(5)}
        )
        for n in range(500)
    ]
    batch = pa.RecordBatch.from_pydict(shred(sent))
    for message, found in zip(sent, decode_messages(batch), strict=True):
        assert found.headers == message.headers
        for name, value in message.headers.items():
            assert repr(found.headers[name]) == repr(value)


def test_indexed_headers_keep_a_column_then_the_most_frequent_then_by_name(shred: Any) -> None:
    often = [f"often{n}" for n in range(10)]
    rare = [f"rare{n:04}" for n in range(300)]
    messages = [Message(b"", headers={name: 1}) for name in [*rare, *often, *often]]
    kept = column_headers(shred(messages, ("rare0299", "absent")))
    assert len(kept) == MAX_HEADER_COLUMNS
    assert kept == {"rare0299", *often, *rare[: MAX_HEADER_COLUMNS - 11]}


def test_the_overflow_is_json_with_sorted_keys_and_without_blanks(shred: Any) -> None:
    common = {f"c{n:03}": 1 for n in range(MAX_HEADER_COLUMNS)}
    more = {"zz": "é\n", 'a "name"': 2, "b": 0.5, "t": True, "f": False, "o": OPAQUE}
    arrays = shred([Message(b"", headers=common)] * 2 + [Message(b"", headers={**common, **more})])
    texts = arrays[OVERFLOW].to_pylist()
    assert texts[:2] == [None, None]
    expected = {name: [] if value is OPAQUE else value for name, value in more.items()}
    options: dict[str, Any] = {"sort_keys": True, "ensure_ascii": False, "separators": (",", ":")}
    assert texts[2] == json.dumps(expected, **options).encode()
    assert read_overflow(arrays[OVERFLOW])[2] == more


def test_a_message_keeps_its_headers_when_others_overflow(shred: Any) -> None:
    headers = [{f"h{n}": n, f"k{n}": n} for n in range(MAX_HEADER_COLUMNS)]
    messages = [Message(b"", headers=dict(row)) for row in headers]
    shred(messages)
    assert [message.headers for message in messages] == headers


def test_values_of_several_kinds_overflow_when_their_columns_are_too_many(shred: Any) -> None:
    sent = [
        Message(b"", headers={f"h{n}": value for n in range(100)})
        for value in ("text", 1, 2.5, OPAQUE)
    ]
    sent.append(Message(b"", headers={f"x{n}": n for n in range(100)}))
    arrays = shred(sent)
    assert sum(map(is_header_column, arrays)) <= MAX_HEADER_COLUMNS
    found = decode_messages(pa.RecordBatch.from_pydict(arrays))
    assert [message.headers for message in found] == [message.headers for message in sent]
