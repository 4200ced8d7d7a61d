"""Which database and which schema a URL names."""

from __future__ import annotations

import pytest

from headgate.errors import QueueOptionsError
from headgate.queues import connect
from headgate.queues.database_url import postgres_target, sqlite_path


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
    target = postgres_target(url, schema)
    assert (target.url, target.schema) == wanted


@pytest.mark.parametrize("schema", ["1a", "a b", 'a"; DROP', "A", "x" * 41, "ü"])
def test_a_schema_that_would_have_to_be_quoted_is_refused(schema):
    with pytest.raises(QueueOptionsError, match="schema"):
        postgres_target("postgresql://h/d", schema)


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///orders.db", "orders.db"),
        ("sqlite:////var/orders.db", "/var/orders.db"),
        ("sqlite:///a%20b.db?synchronous=NORMAL", "a b.db"),
        ("sqlite:///a%23b.db", "a#b.db"),
    ],
)
def test_three_slashes_are_relative_and_four_absolute(url, path):
    assert str(sqlite_path(url)) == path


@pytest.mark.parametrize(
    "url",
    [
        "sqlite://orders.db",
        "sqlite:///",
        "sqlite:///:memory:",
        "sqlite:///orders.db#paid",  # which opened orders.db, whatever was meant
        "sqlite:///a%00b.db",
        "mysql://x",
        "orders.db",
    ],
)
def test_a_url_that_names_no_database_is_refused(url):
    with pytest.raises(QueueOptionsError):
        connect(url)
