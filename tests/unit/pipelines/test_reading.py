"""The keys of a pipeline file for payloads, casts, steps, tables and formats: what they become, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.pipelines.definition import PayloadColumns, SqlStep
from headgate.pipelines.layout import TableLayout
from headgate.pipelines.places import SparkPlace, parse_place
from headgate.spark.pipeline.run import source_options
from tests.unit.pipelines.test_file import ISSUE, problems, read

SINK = '\n    to = "stream:data/eu-high"\n'


def with_source(lines: str) -> str:
    return ISSUE.replace('"data/events"\n', f'"data/events"\n{lines}\n')


def with_sink(lines: str) -> str:
    return ISSUE.replace(SINK, f"\n{lines}\n")


def test_payload_casts_and_steps_are_read_in_order(tmp_path: Path) -> None:
    text = with_source(
        'payload = "json"\npayload_schema = "a string, b long"\ncasts = { b = "double" }\nmalformed = "drop"'
    )
    steps = '[[step]]\nsql = "SELECT 1"\n[[step]]\nsql = "SELECT 2"\nwatermark = "timestamp 10 minutes"\n'
    pipeline = read(tmp_path, text + steps)
    reading = pipeline.reading
    assert reading.payload == PayloadColumns("json", "a string, b long")
    assert reading.casts == (("b", "double"),)
    assert reading.steps == (SqlStep("SELECT 1"), SqlStep("SELECT 2", ("timestamp", "10 minutes")))
    assert pipeline.malformed == "drop"
    assert not read(tmp_path, ISSUE).reading


def test_bindings_are_part_of_the_scan_unless_they_read_columns_that_are_made_later(
    tmp_path: Path,
) -> None:
    def filter_of(text: str) -> str | None:
        pipeline = read(tmp_path, text)
        return source_options(pipeline, pipeline.source, 2).get("filter")  # type: ignore[arg-type]

    assert filter_of(ISSUE) == "priority = 'HIGH' AND region = 'EU' AND amount > 1000"
    assert filter_of(with_source('filter = "n > 1 OR n < 0"')) == (
        "(n > 1 OR n < 0) AND priority = 'HIGH' AND region = 'EU' AND amount > 1000"
    )
    for to in ("none:", "stream:dead"):
        assert filter_of(ISSUE + f'\n    [dead_letter]\n    to = "{to}"\n') is None
    step = '[[step]]\nsql = "SELECT * FROM messages"\n'
    assert filter_of(ISSUE + step) is None
    assert filter_of(with_source('filter = "n > 1"') + step) == "n > 1"
    assert filter_of(with_source('filter = "n > 1"\ncasts = { n = "long" }')) is None


def test_a_format_of_spark_is_a_place_with_options(tmp_path: Path) -> None:
    [sink] = read(
        tmp_path,
        with_sink('format = "delta"\npath = "out"\noptions = { mergeSchema = true, n = 3 }'),
    ).sinks
    assert parse_place(sink.to) == SparkPlace("delta", "path", f"{tmp_path}/out")
    assert sink.options == (("mergeSchema", "true"), ("n", "3"))
    [sink] = read(tmp_path, with_sink('format = "iceberg"\ntable = "lake.shop.orders"')).sinks
    assert parse_place(sink.to) == SparkPlace("iceberg", "table", "lake.shop.orders")
    [sink] = read(tmp_path, with_sink('format = "jdbc"')).sinks
    assert parse_place(sink.to) == SparkPlace("jdbc", "queue", "eu-high")


def test_a_table_of_parquet_files_has_a_layout(tmp_path: Path) -> None:
    [sink] = read(
        tmp_path,
        with_sink(
            'to = "parquet:out"\nschema = "region string, payload binary"\npartition_by = "region"\ncompact_after = 9'
        ),
    ).sinks
    assert sink.layout == TableLayout((("region", "string"), ("payload", "binary")), ("region",), 9)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (with_source('payload = "xml"'), "[source]: payload is one of json, avro, protobuf"),
        (with_source('payload = "json"'), "[source]: payload_schema is missing; add"),
        (with_source('payload_schema = "a string"'), "[source]: payload_schema needs payload"),
        (
            with_source('payload = "avro"\npayload_schema = "no.avsc"'),
            "[source]: payload_schema: the file cannot be read",
        ),
        (
            with_source('payload = "avro"\npayload_schema = "{"'),
            "[source]: payload_schema: this is no schema of Avro",
        ),
        (
            with_source('payload = "protobuf"\npayload_schema = "x.desc"'),
            "[source]: payload_schema: name the message after the file",
        ),
        (
            with_source('payload = "protobuf"\npayload_schema = "x.desc#Order"'),
            "[source]: payload_schema: there is no file",
        ),
        (with_source('malformed = "drop"'), "[source]: malformed is for payloads"),
        (ISSUE + "[[step]]\n", "[[step]] 1: sql is missing"),
        (ISSUE + "[step]\n", "[[step]]: write it with two brackets"),
        (ISSUE + '[[step]]\nsql = ""\nwatermark = "ts"\n', "[[step]] 1: watermark is a column"),
        (with_sink('to = "stream:x"\nschema = "a long"'), "[[sink]] 1: schema is for files"),
        (with_sink('to = "parquet:x"\npartition_by = "a"'), "[[sink]] 1: partition_by: 'a' needs"),
        (
            with_sink('to = "spark:delta:path:x"'),
            "[[sink]] 1: to: 'spark:delta:path:x': write format",
        ),
        (
            with_sink('format = "delta"\npath = "x"\ntable = "y"'),
            "[[sink]] 1: give path or table",
        ),
        (
            with_sink('format = "delta"\npath = "x"\npartition_by = "day(timestamp)"'),
            "[[sink]] 1: partition_by: name columns",
        ),
        (with_sink('format = "delta; x"\npath = "x"'), "[[sink]] 1: format is the name"),
        (
            with_sink('format = "orc"\npath = "x"')
            + '[[sink]]\nqueue = "eu-high"\nformat = "orc"\npath = "x"\noptions = { a = 1 }\n',
            "[[sink]]: two sinks write to spark:orc:path:",
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_table(tmp_path: Path, text: str, said: str) -> None:
    found = problems(tmp_path, text)
    assert [problem for problem in found if problem.startswith(said)], found
