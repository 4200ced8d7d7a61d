"""The orders that streams and pipelines are measured with."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from headgate.message import Message
from headgate.streams.stream import Stream

PAYLOAD = 100  # bytes
VALUES = 1_000
WORDS = [f"v{i:04}" for i in range(VALUES)]
REGIONS = ["AMER", "EMEA", "APAC"]
SUBJECTS = ["order.created", *(f"subject.{i}" for i in range(20))]
START_US = 1_750_000_000_000_000


class Data:
    """Makes orders; all random choices follow from one seed."""

    def __init__(self, seed: int) -> None:
        self.rng, self.numbers = random.Random(seed), np.random.default_rng(seed)
        self._bytes = self.numbers.bytes(PAYLOAD << 16)

    def messages(self, count: int) -> list[Message]:
        rng = self.rng
        return [
            Message(
                self._bytes[(i % 65536) * PAYLOAD : (i % 65536 + 1) * PAYLOAD],
                topic="orders.eu.created",
                headers={
                    "region": rng.choice(WORDS),
                    "type": rng.choice("abcd"),
                    "amount": rng.randrange(5000),
                },
            )
            for i in range(count)
        ]

    def orders(self, rows: int, chunk: int = 65536) -> Iterator[pa.Table]:
        """Headers region (one of 1,000), type and amount, payloads of 100 bytes."""
        for first in range(0, rows, chunk):
            size = min(chunk, rows - first)
            yield pa.table(
                {
                    "timestamp": pa.array(START_US + np.arange(first, first + size)),
                    "topic": coded(np.zeros(size, np.int8), ["orders.eu.created"]),
                    "payload": self.payloads(size),
                    "region": coded(self.numbers.integers(0, VALUES, size, np.int16), WORDS),
                    "type": coded(self.numbers.integers(0, 4, size, np.int8), list("abcd")),
                    "amount": pa.array(self.numbers.integers(0, 5000, size)),
                }
            )

    def published(self, rows: int, chunk: int = 65536) -> Iterator[pa.Table]:
        """RabbitMQ's benchmark: an order.created every 100,000 messages, one in ten of them from AMER."""
        for first in range(0, rows, chunk):
            size = min(chunk, rows - first)
            at = np.arange(first, first + size)
            subjects = self.numbers.integers(1, len(SUBJECTS), size, np.int8)
            regions = self.numbers.integers(0, 3, size, np.int8)
            rare = at % 100_000 == 50_000
            subjects[rare] = 0
            regions[rare] = 1
            regions[at % 1_000_000 == 50_000] = 0
            yield pa.table(
                {
                    "timestamp": pa.array(START_US + at),
                    "topic": coded(np.zeros(size, np.int8), ["orders"]),
                    "payload": self.payloads(size),
                    "subject": coded(subjects, SUBJECTS),
                    "region": coded(regions, REGIONS),
                    "ts": pa.array(START_US // 1000 + at),
                }
            )

    def payloads(self, rows: int, size: int = PAYLOAD) -> pa.Array:
        ends = pa.py_buffer(np.arange(0, (rows + 1) * size, size, dtype=np.int32))
        return pa.Array.from_buffers(
            pa.binary(), rows, [None, ends, pa.py_buffer(self.numbers.bytes(rows * size))]
        )


def coded(codes: np.ndarray, words: Sequence[str]) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(words))


def fill(path: Path, tables: Iterator[pa.Table], **options: object) -> Stream:
    stream = Stream.create(path, fsync="never", **options)
    for table in tables:
        stream.append(table)
    return stream
