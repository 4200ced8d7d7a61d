"""Filters that name headers which no message has, or compare kinds that never meet, are warned of."""

import pytest

import headgate
from headgate import insights
from headgate.filters import parse
from headgate.insights import queue_fields, stream_fields, warn_of_filter
from headgate.insights.fields import MOST_MESSAGES, MOST_PARTS
from headgate.message import OPAQUE, Message
from headgate.streams import Stream

ORDER = {"region": "EU", "amount": 1200, "price": 9.5, "express": True}


@pytest.fixture(params=["hot", "sealed"])
def orders(request, tmp_path):
    """A stream with one order, hot or sealed."""
    with Stream.create(tmp_path / "orders") as stream:
        with stream.producer() as producer:
            producer.publish(b"", headers=ORDER, properties={"subject": "invoice"})
        if request.param == "sealed":
            stream.seal(all=True)
    return tmp_path / "orders"


@pytest.fixture(params=["sqlite", "memory"])
def jobs(request, tmp_path):
    """A queue with the same order."""
    url = f"sqlite:///{tmp_path}/q.db" if request.param == "sqlite" else "memory:"
    with headgate.connect(url) as db:
        queue = db.queue("orders", filter_headers=["declared"])
        queue.publish(b"", headers=ORDER, properties={"subject": "invoice"})
        yield queue


WARNED = [
    ("regoin = 'EU'", "no message of orders has the header regoin; did you mean region?"),
    ("topic = 'x'", "no message of orders has the header topic; the topic of a message is sys.topic"),
    ("Region = 'EU'", "no message of orders has the header Region; did you mean region?"),
    ("EXISTS(regoin)", "no message of orders has the header regoin; did you mean region?"),
    ("region = EU", "no message of orders has the header EU; a text is written in quotes: 'EU'"),
    ("region IN (EU, 'US')", "no message of orders has the header EU; a text is written in quotes: 'EU'"),
    ("zzz > 5", "no message of orders has the header zzz"),
    ("subject = 'invoice'", "no message of orders has the header subject; the property of that name is p.subject"),
    ("amount = '1200'", "amount is compared with text, but in orders it is a number: that comparison is never TRUE"),
    ("price LIKE '9%'", "price is compared with text, but in orders it is a number: that comparison is never TRUE"),
    ("region IN (1, 2)", "region is compared with a number, but in orders it is text: that comparison is never TRUE"),
    ("express = 'true'", "express is compared with text, but in orders it is TRUE or FALSE: that comparison is never TRUE"),
    ("amount > 5 AND amount < 3", "the filter can never be TRUE: it matches nothing"),
    ("\"region\" = 'EU'", "'region' = 'EU' compares the text 'region'; the header of that name is region, without quotes"),
    ("JMSType = 'invoice'", "JMSType is a header of that name here; the field of the message is p.subject (AMQP 1.0) or p.type (AMQP 0-9-1)"),
]  # fmt: skip
FINE = [
    "",
    "region = 'EU' AND amount > 5 AND price = 9 AND express",
    "amount = 1200.0",
    "p.subject = 'invoice'",
    "sys.key = 'x' OR sys.topic MATCHES 'a.#'",
    "region = 'never seen'",
]


@pytest.mark.parametrize(("text", "warning"), WARNED)
def test_a_filter_that_cannot_match_the_messages_of_a_stream_is_warned_of(orders, text, warning):
    assert warning in warn_of_filter(text, stream=orders)


@pytest.mark.parametrize(("text", "warning"), WARNED)
def test_a_filter_that_cannot_match_the_messages_of_a_queue_is_warned_of(jobs, text, warning):
    assert warning in warn_of_filter(text, queue=jobs)


@pytest.mark.parametrize("text", FINE)
def test_a_filter_that_can_match_has_no_warning(orders, jobs, text):
    assert warn_of_filter(text, stream=orders) == []
    assert warn_of_filter(text, queue=jobs) == []
    assert warn_of_filter("declared = 5", queue=jobs) == []


def test_an_empty_stream_or_queue_proves_nothing(tmp_path):
    Stream.create(tmp_path / "empty").close()
    assert warn_of_filter("regoin = 'EU'", stream=tmp_path / "empty") == []
    with headgate.connect("memory:") as db:
        assert warn_of_filter("regoin = 'EU'", queue=db.queue("empty")) == []


def test_a_kind_that_an_older_message_has_is_not_warned_of(tmp_path):
    with Stream.create(tmp_path / "s") as stream:
        for value in ("1200", 1200, 1200, OPAQUE):
            with stream.producer() as producer:
                producer.publish(b"", headers={"amount": value})
            stream.seal(all=True)
    assert warn_of_filter("amount = '1200' OR amount > 5", stream=tmp_path / "s") == []
    assert warn_of_filter("amount", stream=tmp_path / "s") != []


def test_a_header_without_a_column_is_known(tmp_path):
    wide = {f"h{i:04}": i for i in range(1500)}  # more than a chunk has columns
    with Stream.create(tmp_path / "s") as stream:
        with stream.producer() as producer:
            producer.publish(b"", headers=wide)
        for _ in ("hot", "sealed"):
            assert warn_of_filter("h0001 = 1 AND h1499 = 'x'", stream=tmp_path / "s") == []
            assert "h1500" in warn_of_filter("h1500 = 1", stream=tmp_path / "s")[0]
            stream.seal(all=True)


def test_a_long_stream_is_asked_only_until_everything_was_found(tmp_path, monkeypatch):
    with Stream.create(tmp_path / "s", chunk_messages=1) as stream, stream.producer() as producer:
        producer.publish_many([Message(headers={"old": 1})])
        producer.publish_many([Message(headers={"region": "EU"}) for _ in range(2 * MOST_PARTS)])
    asked = []
    held = insights.fields.held_columns
    monkeypatch.setattr(
        insights.fields,
        "held_columns",
        lambda path: (asked.append(1) or part for part in held(path)),
    )
    assert warn_of_filter("region = 'EU'", stream=tmp_path / "s") == []
    assert len(asked) == 1
    (warning,) = warn_of_filter("old = 1", stream=tmp_path / "s")
    assert warning == f"no message of the newest {MOST_PARTS} messages of s has the header old"
    assert len(asked) == 1 + MOST_PARTS
    assert stream_fields(tmp_path / "s").headers == ["region"]


def test_a_long_queue_shows_its_first_messages(tmp_path):
    with headgate.connect("memory:") as db:
        queue = db.queue("q")
        queue.publish_many([Message(headers={"n": i}) for i in range(MOST_MESSAGES + 5)])
        assert queue_fields(queue).of == f"the first {MOST_MESSAGES} messages of q"


def test_explain_warns_of_the_same(orders, jobs):
    warning = "no message of orders has the header regoin; did you mean region?"
    assert warning in insights.explain_filter("regoin = 'EU'", orders).warnings
    assert warning in insights.explain_filter("regoin = 'EU'", queue=jobs).warnings
    assert warning not in insights.explain_filter("regoin = 'EU'").warnings


def test_looking_at_fields_writes_nothing(orders):
    before = {path.name: path.stat().st_mtime_ns for path in orders.iterdir()}
    stream_fields(orders, parse("regoin = 'EU'"))
    assert {path.name: path.stat().st_mtime_ns for path in orders.iterdir()} == before
