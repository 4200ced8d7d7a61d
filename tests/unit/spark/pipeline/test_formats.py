"""Records that are no messages, row by row."""

from __future__ import annotations

from random import Random

import pyarrow as pa
import pytest

from headgate.errors import InvalidMessage
from headgate.pipelines.account import Counters
from headgate.pipelines.definition import FormatSource
from headgate.spark.pipeline.formats import RECORD, RecordValidator, keeps_records
from headgate.spark.schema import SchemaColumn, writing_columns
from tests.unit.spark.ddl import struct

NAN = float("nan")


def columns() -> tuple[SchemaColumn, ...]:
    return writing_columns(struct("topic string, ratio double"))


def rows(*ratios: float, records: list[bytes | None] | None = None) -> pa.RecordBatch:
    made = {"topic": ["t"] * len(ratios), "ratio": pa.array(ratios, pa.float64())}
    if records is not None:
        made[RECORD] = pa.array(records, pa.binary())
    return pa.record_batch(made)


def ratios_in(batches: list[pa.RecordBatch]) -> list[float]:
    return [ratio for batch in batches for ratio in batch.column("h.f.ratio").to_pylist()]


def test_rows_that_are_valid_pass_as_one_batch() -> None:
    counters = Counters()
    validator = RecordValidator(columns(), "fail", counters)
    [batch] = validator.messages([rows(0.5, 1.5, records=[None, None]), rows()])
    assert ratios_in([batch]) == [0.5, 1.5]
    assert (counters.scanned, counters.malformed, validator.letters) == (2, 0, [])


def test_every_valid_row_passes_in_order_whichever_others_are_malformed(seed: int) -> None:
    rng = Random(seed)
    for _ in range(20):
        ratios = [rng.choice((NAN, float(n))) for n in range(rng.randrange(1, 40))]
        records = [rng.choice((None, None, b"broken \xff")) for _ in ratios]
        counters = Counters()
        validator = RecordValidator(columns(), "dead-letter", counters)
        passed = ratios_in(list(validator.messages([rows(*ratios, records=records)])))
        pairs = list(zip(ratios, records, strict=True))
        assert passed == [ratio for ratio, record in pairs if ratio == ratio and record is None]
        letters = [p for letter in validator.letters for p in letter.column("payload").to_pylist()]
        assert letters.count(b"broken \xff") == sum(record is not None for record in records)
        assert len(letters) == counters.malformed == len(ratios) - len(passed)


def test_dropped_records_are_counted_and_not_kept() -> None:
    counters = Counters()
    validator = RecordValidator(columns(), "drop", counters)
    assert ratios_in(list(validator.messages([rows(NAN, 1.0)]))) == [1.0]
    assert (counters.malformed, validator.letters) == (1, [])


def test_the_error_that_ends_a_run_shows_the_record_and_the_remedy() -> None:
    validator = RecordValidator(columns(), "fail", Counters())
    with pytest.raises(InvalidMessage, match=r"cannot be parsed .*b'\{a'; .*malformed = "):
        list(validator.messages([rows(1.0, records=[b"{a"])]))


def test_text_that_is_no_utf_8_is_kept_in_a_form_that_can_be_read() -> None:
    """Spark's format "text" hands over the bytes of a line as they are."""
    topics = pa.Array.from_buffers(
        pa.string(), 2, pa.array([b"good", b"caf\xe9"], pa.binary()).buffers()
    )
    counters = Counters()
    validator = RecordValidator(writing_columns(struct("topic string")), "dead-letter", counters)
    [batch] = validator.messages([pa.record_batch({"topic": topics})])
    assert batch.column("topic").to_pylist() == ["good"]
    [letters] = validator.letters
    assert letters.column("payload").to_pylist() == [rb'{"topic": "caf\\xe9"}']
    assert "UTF-8" in letters.column("h.s.malformed").to_pylist()[0]


def test_records_of_one_batch_are_one_batch_of_letters() -> None:
    validator = RecordValidator(columns(), "dead-letter", Counters())
    list(validator.messages([rows(NAN, 1.0, NAN, records=[None, None, b"broken"]), rows(NAN)]))
    assert [len(letters) for letters in validator.letters] == [2, 1]


@pytest.mark.parametrize(
    ("schema", "options", "kept"),
    [
        ("kind string", (), True),
        ("kind string, _corrupt_record string", (), False),
        ("kind string, `_Corrupt_Record` string", (), False),
        ("kind string", (("Mode", "DROPMALFORMED"),), False),
        ("kind string, bad string", (("columnNameOfCorruptRecord", "bad"),), False),
    ],
)
def test_spark_handles_malformed_records_where_the_source_sets_that(
    schema: str, options: tuple[tuple[str, str], ...], kept: bool
) -> None:
    assert keeps_records(FormatSource("json", "in", schema, options)) is kept
