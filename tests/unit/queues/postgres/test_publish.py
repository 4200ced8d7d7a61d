"""Rows become columns; a value that all rows have in common is sent once."""

from __future__ import annotations

from headgate.queues.postgres.publish import ParameterColumn, unnest


def test_a_column_is_an_array_if_its_values_differ_and_else_one_value():
    found = unnest(
        [
            ParameterColumn("payload", "bytea", [b"a", b"a"]),
            ParameterColumn("topic", "text", ["t", "t"]),
            ParameterColumn("key", "text", ["k", None]),
            ParameterColumn("delay", "bigint", [0, 0]),
        ],
        3,
    )
    assert found.varied == "g.payload, g.key"
    assert found.same == ", $4::text AS topic, $6::bigint AS delay"
    assert found.arrays == "$3::bytea[], $5::text[]"
    assert found.names == "payload, key"
    assert found.params == [[b"a", b"a"], "t", ["k", None], 0]


def test_a_single_row_has_one_array_for_the_number_of_rows():
    found = unnest(
        [ParameterColumn("payload", "bytea", [b"a"]), ParameterColumn("key", "text", [None])], 1
    )
    assert (found.names, found.params) == ("payload", [[b"a"], None])


def test_json_is_sent_as_text_and_converted_once_if_all_values_are_equal():
    found = unnest(
        [
            ParameterColumn("headers", "jsonb", ["{}", '{"a":1}']),
            ParameterColumn("keys", "jsonb", ["{}", "{}"]),
        ],
        1,
    )
    assert (found.varied, found.arrays) == ("g.headers::jsonb", "$1::text[]")
    assert found.same == ", (SELECT $2::text::jsonb) AS keys"
