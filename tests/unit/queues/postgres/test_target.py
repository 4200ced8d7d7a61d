"""Which database and which schema a URL names."""

from __future__ import annotations

import pytest

from headgate.errors import QueueOptionsError
from headgate.queues.postgres.target import target_of


@pytest.mark.parametrize(
    ("url", "schema", "wanted"),
    [
        ("postgresql://h/d", None, ("postgresql://h/d", "headgate")),
        ("postgresql://h/d", "mine", ("postgresql://h/d", "mine")),
        ("postgresql://h/d?schema=mine", None, ("postgresql://h/d", "mine")),
        ("postgresql://u@/d?host=/tmp/x&schema=a", None, ("postgresql://u@/d?host=/tmp/x", "a")),
        ("postgresql://h/d?schema=a", "b", ("postgresql://h/d", "b")),
        (
            "postgresql://h/d?schema=a&options=-c%20role%3Dx",
            None,
            ("postgresql://h/d?options=-c%20role%3Dx", "a"),
        ),
    ],
)
def test_the_schema_is_an_option_or_part_of_the_url(url, schema, wanted):
    target = target_of(url, schema)
    assert (target.url, target.schema) == wanted


@pytest.mark.parametrize("schema", ["1a", "a b", 'a"; DROP', "A", "x" * 41, "ü"])
def test_a_schema_that_would_have_to_be_quoted_is_refused(schema):
    with pytest.raises(QueueOptionsError, match="schema"):
        target_of("postgresql://h/d", schema)
