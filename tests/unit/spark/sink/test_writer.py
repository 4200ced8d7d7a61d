"""The sink's options: what cannot be written is refused before anything runs, with what to do."""

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

from headgate.errors import HeadgateError
from headgate.spark.datasource import HeadgateSource
from headgate.spark.sink.destination import BatchMark
from headgate.spark.sink.staging import StagedPart
from headgate.spark.sink.writer import (
    DESCRIPTOR_NAMES,
    batch_writer,
    mark_of,
    read_descriptors,
    stream_writer,
)

NUMBERS = StructType([StructField("n", LongType())])


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "give one place to write to"),
        ({"path": "a", "to": "stream:b"}, "give one place to write to"),
        ({"to": "kafka:x"}, "is no place for messages"),
        ({"to": "queue:sqlite:///q.db"}, "names no queue"),
        ({"destinations": "[1]"}, "descriptors are destination int"),
    ],
)
def test_options_that_cannot_be_written_to_are_refused(options, problem):
    with pytest.raises(HeadgateError, match=problem):
        batch_writer(NUMBERS, options, overwrite=False)


def test_destinations_must_be_a_list_of_places():
    schema = StructType([StructField(n, LongType()) for n in DESCRIPTOR_NAMES])
    for text in ("[1]", "{", '[{"queue": "x"}]'):
        with pytest.raises(HeadgateError, match='must be a JSON list of objects with "to"'):
            batch_writer(schema, {"destinations": text}, overwrite=False)


def test_messages_are_never_overwritten(tmp_path):
    for writer in (batch_writer, stream_writer):
        with pytest.raises(HeadgateError, match="use mode 'append'"):
            writer(NUMBERS, {"path": str(tmp_path / "s")}, overwrite=True)


def test_a_streaming_query_needs_a_checkpoint_of_its_own(tmp_path):
    with pytest.raises(HeadgateError, match=r"add \.option.*checkpointLocation"):
        stream_writer(NUMBERS, {"path": str(tmp_path / "s")}, overwrite=False)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"txnAppId": "loader"}, "txnAppId and txnVersion must be set together"),
        ({"txnVersion": "3"}, "txnAppId and txnVersion must be set together"),
        ({"txnAppId": "loader", "txnVersion": "-1"}, "txnVersion: give a whole number"),
        ({"txnAppId": "loader", "txnVersion": str(2**63)}, "txnVersion: give a whole number"),
        ({"txnAppId": "loader", "txnVersion": "9" * 5000}, "txnVersion: give a whole number"),
        ({"txnAppId": "a\nb", "txnVersion": "1"}, "txnAppId: give a name of at most 128 letters"),
        (
            {"txnAppId": "x" * 129, "txnVersion": "1"},
            "txnAppId: give a name of at most 128 letters",
        ),
    ],
)
def test_half_a_transaction_or_a_name_that_fits_nowhere_is_refused(options, problem):
    with pytest.raises(HeadgateError, match=problem):
        mark_of(options)


def test_a_write_without_a_transaction_is_always_new():
    assert mark_of({}) != mark_of({})
    assert mark_of({"txnappid": "loader", "txnversion": "7"}) == BatchMark("loader", 7)


def test_a_streaming_query_is_told_that_its_checkpoint_knows_its_batches(tmp_path):
    options = {"path": str(tmp_path / "s"), "txnAppId": "a", "txnVersion": "1"}
    with pytest.raises(HeadgateError, match="knows its batches by its checkpoint"):
        stream_writer(NUMBERS, options, overwrite=False)


def test_a_table_is_refused_with_the_reason_when_it_is_created_and_when_it_is_used():
    made = {"owner": "me", "provider": "headgate", "path": "file:/data/events"}
    for options in (made, {}):
        with pytest.raises(HeadgateError, match=r"CREATE TABLE … USING headgate .*since Spark"):
            HeadgateSource(options)


def test_descriptors_give_back_their_staged_files():
    staged = [StagedPart(0, "a", 1, 2, 3), StagedPart(4, "b", 5, 6, 7)]
    counters = pa.record_batch({name: [None] for name in DESCRIPTOR_NAMES})
    files = pa.record_batch({n: [getattr(one, n) for one in staged] for n in DESCRIPTOR_NAMES})
    assert list(read_descriptors([files, counters])) == staged
