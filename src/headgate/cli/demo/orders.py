"""A shop's events: skewed regions and types, amounts with a long tail, few customers who buy most.

Every region has a shop of its own, which sends its events in bursts: a burst is of one region, and of all types. They are
made column by column, so that half a million take a second; a seed makes the same orders each time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

BURST: Final = 1024  # messages that one shop publishes at once
_START_US: Final = 1_767_225_600_000_000  # 2026-01-01
_REGIONS: Final = {
    "EU": 38, "US": 27, "APAC": 14, "UK": 8, "LATAM": 5, "CH": 3, "NORDICS": 2, "MEA": 1.5, "ANZ": 1, "ISLANDS": 0.5,
}  # fmt: skip
_TYPES: Final = {
    "created": 40, "paid": 30, "shipped": 20, "cancelled": 6, "returned": 3.5, "disputed": 0.5,
}  # fmt: skip
_CUSTOMERS: Final = 20_000


def order_events(messages: int, seed: int = 1) -> Iterator[pa.RecordBatch]:
    """Bursts of order events with stream columns, ready for `Stream.append`."""
    random = np.random.default_rng(seed)
    for start in range(0, messages, BURST):
        yield _burst(random, start, min(BURST, messages - start))


def _burst(random: np.random.Generator, start: int, rows: int) -> pa.RecordBatch:
    numbers = np.arange(start, start + rows)
    region = _draw(random, _REGIONS, 1).take(pa.array(np.zeros(rows, np.int64)))
    kind = _draw(random, _TYPES, rows)
    customer = _add_prefix(np.minimum(random.zipf(1.3, rows), _CUSTOMERS), "c-")
    amount = pa.array(np.minimum(random.lognormal(4.2, 1.3, rows), 1e6).astype(np.int64) + 1)
    columns = {
        "timestamp": pa.array(_START_US + numbers * 1_000),
        "topic": pc.binary_join_element_wise("orders", pc.utf8_lower(region), kind, "."),
        "payload": _payloads(numbers, customer, amount),
        "h.s.region": region.dictionary_encode(),
        "h.s.type": kind.dictionary_encode(),
        "h.s.customer": customer,
        "h.i.amount": amount,
        "h.f.weight": _weights(random, rows),
        "h.b.express": pa.array(random.random(rows) < 0.12),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def _draw(random: np.random.Generator, weights: dict[str, float], rows: int) -> pa.Array:
    shares = np.array(list(weights.values())) / sum(weights.values())
    return pa.array(list(weights)).take(pa.array(random.choice(len(weights), rows, p=shares)))


def _add_prefix(numbers: npt.NDArray[np.int64], prefix: str) -> pa.Array:
    return pc.binary_join_element_wise(prefix, pa.array(numbers).cast(pa.string()), "")


def _weights(random: np.random.Generator, rows: int) -> pa.Array:
    """Every third order is a service, and has no weight."""
    weights = np.round(random.gamma(2.0, 1.5, rows), 3)
    return pa.array(weights, mask=random.random(rows) < 1 / 3)


def _payloads(numbers: npt.NDArray[np.int64], customer: pa.Array, amount: pa.Array) -> pa.Array:
    order = pa.array(numbers).cast(pa.string())
    text = pc.binary_join_element_wise(
        '{"order": ', order, ', "customer": "', customer, '", "amount": ', amount.cast(pa.string()),
        ', "currency": "EUR", "note": "leave it with the neighbour, please"}', "",
    )  # fmt: skip
    return text.cast(pa.binary())
