"""The sink's options: what cannot be written is refused before anything runs, with what to do."""

import subprocess
import sys

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

from headgate.errors import HeadgateError
from headgate.spark.sink import DESCRIPTOR_NAMES, batch_writer, described, stream_writer
from headgate.spark.staging import Staged

NUMBERS = StructType([StructField("n", LongType())])


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "say where to write, once"),
        ({"path": "a", "to": "stream:b"}, "say where to write, once"),
        ({"to": "kafka:x"}, "is no place for messages"),
        ({"to": "queue:sqlite:///q.db"}, "names no queue"),
        ({"destinations": "[1]"}, "descriptors are destination int"),
    ],
)
def test_what_cannot_be_written_is_refused(options, problem):
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


def test_descriptors_are_what_they_were_made_of():
    staged = [Staged(0, "a", 1, 2, 3), Staged(4, "b", 5, 6, 7)]
    counters = pa.record_batch({name: [None] for name in DESCRIPTOR_NAMES})
    files = pa.record_batch({n: [getattr(one, n) for one in staged] for n in DESCRIPTOR_NAMES})
    assert list(described([files, counters])) == staged


def test_executors_load_no_database_and_no_server():
    program = (
        "import sys, headgate.spark.datasource, headgate.spark.sink, headgate.spark.staging\n"
        "heavy = {'apsw', 'psycopg', 'starlette', 'typer', 'rich'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
