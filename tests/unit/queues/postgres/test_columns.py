"""Rows become columns; what all rows have alike is said once."""

from __future__ import annotations

from headgate.queues.postgres.columns import Column, columns


def test_what_differs_is_an_array_and_what_is_alike_one_value():
    found = columns(
        [
            Column("payload", "bytea", [b"a", b"a"]),
            Column("topic", "text", ["t", "t"]),
            Column("key", "text", ["k", None]),
            Column("delay", "bigint", [0, 0]),
        ],
        3,
    )
    assert found.varied == "g.payload, g.key"
    assert found.same == ", $4::text AS topic, $6::bigint AS delay"
    assert found.arrays == "$3::bytea[], $5::text[]"
    assert found.names == "payload, key"
    assert found.params == [[b"a", b"a"], "t", ["k", None], 0]


def test_one_row_needs_one_array_to_be_counted_by():
    found = columns([Column("payload", "bytea", [b"a"]), Column("key", "text", [None])], 1)
    assert (found.names, found.params) == ("payload", [[b"a"], None])


def test_json_is_sent_as_text_and_read_once_where_it_is_alike():
    found = columns(
        [Column("headers", "jsonb", ["{}", '{"a":1}']), Column("keys", "jsonb", ["{}", "{}"])], 1
    )
    assert (found.varied, found.arrays) == ("g.headers::jsonb", "$1::text[]")
    assert found.same == ", (SELECT $2::text::jsonb) AS keys"
