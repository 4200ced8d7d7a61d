"""Mistakes that type checkers find and programs make: each is refused with the argument's name and what to give."""

from datetime import timedelta
from pathlib import Path

import pytest

from headgate import Message, Stream, SuperStream, Topology, compile_filter, header
from headgate.errors import (
    BindingRefused,
    DeclarationRefused,
    FilterTypeError,
    HeadgateError,
    InvalidMessage,
    QueueOptionsError,
    StreamOptionsError,
)
from headgate.queues import Member, Retry, connect


class SaysFalse:
    def decide(self, chunk):
        return False


class SaysNothing:
    def decide(self, chunk):
        return None


@pytest.fixture
def orders(tmp_path):
    with Stream.create(tmp_path / "stream") as stream:
        with stream.producer() as producer:
            producer.publish(b"x", topic="t", headers={"region": "EU"})
        yield stream


@pytest.fixture
def db(tmp_path):
    with connect(f"sqlite:///{tmp_path}/queues.db") as db:
        yield db


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"linger": 5}, r"linger: give a timedelta, for example timedelta\(seconds=5\), not 5"),
        ({"fsync_interval": 0.2}, "fsync_interval: give a timedelta"),
        ({"max_age": "7d"}, r"max_age: give a timedelta, for example timedelta\(seconds=30\)"),
        ({"max_age": 7}, "max_age: give a timedelta"),
        ({"max_age": True}, "max_age: give a timedelta"),
        ({"indexed": "region"}, r"indexed: give a list, \['region'\], not the text 'region'"),
        ({"indexed": None}, "indexed: give a list of texts, not None"),
        ({"indexed": {"region": 1}}, "indexed: give a list of texts"),
        ({"indexed": [5]}, "indexed: give a list of texts; 5 is not one"),
        ({"entry_filters": "mine"}, r"entry_filters: give a list, \['mine'\]"),
        ({"entry_filters": [SaysFalse()]}, "entry_filters: give a list of texts"),
        ({"restrict_same_values": ["region"]}, "restrict_same_values: give the values of each"),
        ({"chunk_messages": "5"}, "chunk_messages: give an integer"),
        ({"chunk_messages": True}, "chunk_messages: give an integer"),
        ({"chunk_bytes": 1.5}, "chunk_bytes: give an integer"),
        ({"segment_bytes": None}, "segment_bytes: give an integer"),
        ({"max_bytes": "1G"}, "max_bytes: give an integer"),
        ({"filter_size": "16"}, "filter_size: give an integer"),
        ({"index": ["region"]}, "there is no option 'index'; did you mean 'indexed'?"),
        ({"maxage": timedelta(1)}, "there is no option 'maxage'; did you mean 'max_age'?"),
        ({"colour": "red"}, "there is no option 'colour'; there are indexed, filter_size"),
    ],
)
def test_an_option_of_a_stream(tmp_path, options, complaint):
    with pytest.raises(StreamOptionsError, match=complaint):
        Stream.create(tmp_path / "refused", **options)
    assert not (tmp_path / "refused" / "stream.json").exists()


@pytest.mark.parametrize(
    ("use", "complaint"),
    [
        (lambda s: s.consume(timeout=5), r"timeout: give a timedelta, .*seconds=5\), not 5"),
        (lambda s: s.consume(timeout=timedelta(-1)), "timeout: cannot be negative"),
        (lambda s: s.consume(follow="no"), "follow: give True or False, not 'no'"),
        (lambda s: s.consume(post_filter="a = 1"), "post_filter: give a function"),
        (lambda s: s.scan(columns=["region"]), "no column 'region'.* h.s.region"),
        (lambda s: s.scan(columns=["ofset"]), "did you mean 'offset'?"),
        (lambda s: s.scan(columns="offset"), r"columns: give a list, \['offset'\]"),
        (lambda s: s.scan(columns=[5]), "columns: give a list of texts; 5"),
        (lambda s: s.scan(filter_values="EU"), r"filter_values: give a list, \['EU'\]"),
        (lambda s: s.scan(filter_values=[5]), "filter_values: give a list of texts; 5"),
        (lambda s: s.scan(filter_values=5), "filter_values: give a list of texts, not 5"),
        (lambda s: s.scan(end="5"), "end: give an integer"),
        (lambda s: list(s.scan(entry_filter=SaysFalse())), "SaysFalse decided False; return Dec"),
        (lambda s: list(s.scan(entry_filter=SaysNothing())), "SaysNothing decided None; return"),
        (lambda s: s.trim(max_age=7), "max_age: give a timedelta"),
        (lambda s: s.trim(max_bytes="1G"), "max_bytes: give an integer"),
        (lambda s: s.trim(before_offset="5"), "before_offset: give an integer"),
        (lambda s: s.producer(filter_value="region"), "filter_value: give a function"),
        (lambda s: s.cursors().commit("billing", "5"), "'5' is not an offset"),
        (lambda s: s.reconfigure(max_age=5), "max_age: give a timedelta"),
    ],
)
def test_an_argument_of_a_stream(orders, use, complaint):
    with pytest.raises(StreamOptionsError, match=complaint):
        use(orders)


@pytest.mark.parametrize("partitions", ["4", 4.0, True, 0, 1025])
def test_the_number_of_partitions(tmp_path, partitions):
    with pytest.raises(StreamOptionsError, match="a super stream has 1 to 1024 partitions"):
        SuperStream.create(tmp_path / "refused", partitions)
    assert not (tmp_path / "refused").exists()


def test_a_routing_that_returns_no_text(tmp_path):
    with SuperStream.create(tmp_path / "super", 2) as parts:
        with pytest.raises(StreamOptionsError, match="routing: give a function"):
            parts.producer(routing="key")
        with (
            parts.producer(routing=lambda message: 5) as producer,
            pytest.raises(InvalidMessage, match=r"a text as the key .* not 5"),
        ):
            producer.publish(b"x")


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"headers": [("a", 1)]}, "headers: must be a dict .* not list"),
        ({"headers": 5}, "headers: must be a dict .* not int"),
        ({"properties": 5}, "properties: must be a dict .* not int"),
        ({"properties": 5, "reply_to": "x"}, "properties: must be a dict"),
    ],
)
def test_headers_that_are_no_mapping(orders, db, fields, complaint):
    queue = db.queue("orders")
    with orders.producer() as producer:
        for publish in (producer.publish, queue.publish):
            with pytest.raises(InvalidMessage, match=complaint):
                publish(b"x", **fields)
        for publish_many in (producer.publish_many, queue.publish_many):
            with pytest.raises(InvalidMessage, match=complaint):
                publish_many([Message(b"x", **fields)])


def test_a_mistyped_field_of_a_message(orders):
    with orders.producer() as producer, pytest.raises(TypeError, match="did you mean 'headers'"):
        producer.publish(b"x", header={"a": 1})


@pytest.mark.parametrize("one", [b"xyz", "xyz", Message(b"x"), {"a": 1}, 5])
def test_one_message_where_many_are_meant(orders, db, one):
    with orders.producer() as producer:
        for publish_many in (producer.publish_many, db.queue("orders").publish_many):
            with pytest.raises(InvalidMessage, match=r"a list of messages .*publish\(\) takes one"):
                publish_many(one)
    assert orders.next_offset == 1
    assert db.queue("orders").stats().ready == 0


@pytest.mark.parametrize(
    ("use", "complaint"),
    [
        (lambda q: q.claim(lease=30), r"lease: give a timedelta, .*seconds=30\), not 30"),
        (lambda q: q.claim("5"), "limit: give an integer"),
        (lambda q: q.claim(skip=5), r"give a list of ids, \[5\]"),
        (lambda q: q.publish(b"x", delay=5), "delay: give a timedelta"),
        (lambda q: q.prune(7), "older_than: give a timedelta"),
        (lambda q: list(q.browse("ready")), "state: give one of State.READY"),
        (lambda q: list(q.browse(page="5")), "page: give an integer"),
        (lambda q: q.purge("redy"), "state: give one of State.READY"),
        (lambda q: q.requeue(5), r"give a list of ids, \[5\]"),
        (lambda q: q.index_add(5), "filter_headers: give a list of texts; 5"),
        (lambda q: q.consumer("print"), "handler: give a function"),
        (lambda q: q.consumer(print, poll=5), "poll: give a timedelta"),
        (lambda q: q.consumer(print, lease=5), "lease: give a timedelta"),
        (lambda q: q.consumer(print, retry=5), "retry: give a Retry"),
        (lambda q: q.consumer(print, predicate="a = 1"), "predicate: give a function"),
        (lambda q: q.consumer(print, threads="2"), "threads: give an integer"),
        (lambda q: q.consumer(print, batch=0), "batch: give an integer"),
        (lambda q: q.consumer_group([print]), "members: give a list of Member"),
        (lambda q: q.consumer_group([Member("a", 5)]), "handler: give a function"),
        (lambda q: Retry(first=1), r"Retry: first: give a timedelta, .*seconds=1\), not 1"),
        (lambda q: Retry(most=60), "Retry: most: give a timedelta"),
        (lambda q: Retry(factor=0), "Retry: factor: give a number above 0"),
    ],
)
def test_an_argument_of_a_queue(db, use, complaint):
    with pytest.raises(QueueOptionsError, match=complaint):
        use(db.queue("orders"))


@pytest.mark.parametrize(
    ("use", "complaint"),
    [
        (lambda db: db.queue("a", dedup_window=5), "dedup_window: give a timedelta"),
        (lambda db: db.queue("a", archive="yes"), "archive: give True or False"),
        (lambda db: db.queue("a", filter_headers="region"), r"filter_headers: give a list, \['reg"),
        (lambda db: db.queue("a", filter_headers=[5]), "filter_headers: give a list of texts"),
        (lambda db: db.relay(poll=5), "poll: give a timedelta"),
        (lambda db: db.add_callback("#", "print", id="a"), "callback: give a function"),
        (lambda db: db.add_callback("#", print, id=5), "id must be text"),
        (lambda db: connect(5), "URL of a database is text"),
        (lambda db: connect(Path("/tmp/a.db")), "'sqlite:////tmp/a.db'"),
    ],
)
def test_an_argument_of_a_database(db, use, complaint):
    with pytest.raises(QueueOptionsError, match=complaint):
        use(db)
    assert db.queues() == []


@pytest.mark.parametrize("span", [5, 0.5, "5s"])
def test_a_span_of_a_delivery(db, span):
    queue = db.queue("orders")
    queue.publish(b"x")
    (delivery,) = queue.claim()
    for settle in (delivery.nack, delivery.extend):
        with pytest.raises(QueueOptionsError, match="give a timedelta"):
            settle(span)
    delivery.ack()


@pytest.mark.parametrize(
    ("use", "error", "complaint"),
    [
        (lambda t: t.declare_queue(5), DeclarationRefused, "name of the queue is text, not 5"),
        (lambda t: t.declare_exchange(5), DeclarationRefused, "name of the exchange is text"),
        (
            lambda t: t.declare_exchange("x", durable="no"),
            DeclarationRefused,
            "durable: give True or False",
        ),
        (
            lambda t: t.declare_queue("x", auto_delete="no"),
            DeclarationRefused,
            "auto_delete: give True or False",
        ),
        (
            lambda t: t.bind("amq.headers", queue="a", arguments="x"),
            BindingRefused,
            "arguments is a dict, not 'x'",
        ),
        (
            lambda t: t.bind_all([{"source": "amq.topic", "queues": "a"}]),
            BindingRefused,
            "bind has no argument 'queues'; did you mean 'queue'?",
        ),
        (lambda t: t.bind_all(["amq.topic"]), BindingRefused, "give dicts"),
        (lambda t: t.bind_all([{"queue": "a"}]), BindingRefused, "has no source"),
    ],
)
def test_an_argument_of_a_topology(use, error, complaint):
    topology = Topology()
    topology.declare_queue("a")
    with pytest.raises(error, match=complaint) as raised:
        use(topology)
    assert isinstance(raised.value, HeadgateError)
    assert len(topology) == 0


def test_a_stream_without_options_is_refused_with_the_two_ways_to_get_one():
    with pytest.raises(
        StreamOptionsError, match=r"Stream\.open\('orders'\), or make it with Stream\.create"
    ):
        Stream("orders")


def test_a_sqlite_url_with_two_slashes_is_refused_with_three():
    with pytest.raises(QueueOptionsError, match=r"write sqlite:///data/shop\.db"):
        connect("sqlite://data/shop.db")


def test_a_condition_asked_with_in_is_refused_with_is_in():
    with pytest.raises(FilterTypeError, match=r"for `in` write is_in"):
        assert header("region") in ["EU", "US"]


def test_a_filter_that_is_asked_about_a_mapping_says_what_to_give():
    with pytest.raises(FilterTypeError, match=r"Message\(headers=.*of the type dict"):
        compile_filter("amount > 5")({"amount": 6})
