from __future__ import annotations

from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from headgate.columns.decode import decode_messages, decode_records
from headgate.streams.read.catalog import SegmentCatalog
from headgate.streams.read.query import make_query
from headgate.streams.read.scan import Scan
from tests import generate
from tests.unit.streams.written_segments import seal_at, stamped, write_hot


@pytest.mark.parametrize("state", ["hot", "sealed"])
@pytest.mark.parametrize("seed", range(6))
def test_a_scanned_batch_decodes_to_the_written_messages(
    tmp_path: Path, seed: int, state: str
) -> None:
    rng = Random(seed)
    chunks = [generate.messages(rng, rng.randint(1, 30)) for _ in range(4)]
    write_hot(tmp_path, 0, chunks)
    if state == "sealed":
        seal_at(tmp_path, 0, generate.HEADERS[:2])
    batches = list(Scan(SegmentCatalog(tmp_path), make_query(), 0, 10**6))
    records = [record for batch in batches for record in decode_records(batch)]
    expected = [stamped(m) for chunk in chunks for m in chunk]
    assert [r.offset for r in records] == list(range(len(expected)))
    assert [r.message for r in records] == expected
    assert [_types(r.message.headers) for r in records] == [_types(m.headers) for m in expected]


def _types(headers: object) -> dict[str, type]:
    return {name: type(value) for name, value in headers.items()}  # type: ignore[attr-defined]


def test_a_field_without_a_column_has_its_default() -> None:
    [message] = decode_messages(pa.record_batch({"offset": [7], "h.i.n": [1]}))
    assert (message.payload, message.topic, message.priority, message.headers) == (
        b"",
        "",
        0,
        {"n": 1},
    )
