"""Answers that RabbitMQ gives and no recorded conversation has: limits, transactions, carbon copies, arguments."""

from __future__ import annotations

import re
import time

import pika
import pytest
from pika.exceptions import ChannelClosedByBroker

from tests.patience import PATIENCE


def refused(code: int):
    return pytest.raises(ChannelClosedByBroker, match=rf"^\({code}, ")


def count_of(channel, queue: str) -> int:
    return channel.queue_declare(queue, passive=True).method.message_count


def collect(channel, queue: str, count: int, tag: str = "t") -> list[bytes]:
    """What a consumer of a queue is sent, as soon as it is this much; then what else came with it."""
    got: list[bytes] = []
    channel.basic_consume(queue, lambda _c, _m, _p, body: got.append(body), consumer_tag=tag)
    wait_for(channel, got, count)
    return got


def wait_for(channel, got: list[bytes], count: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while len(got) < count and time.monotonic() < deadline:
        channel.connection.process_data_events(time_limit=0.05)


# ---- limits


@pytest.mark.parametrize("overflow", ["drop-head", "reject-publish"])
def test_what_a_consumer_has_room_for_does_not_count_against_a_limit(connection, overflow):
    publisher, channel = connection.channel(), connection.channel()
    channel.queue_declare("q", arguments={"x-max-length": 1, "x-overflow": overflow})
    channel.basic_qos(prefetch_count=5)
    got = collect(channel, "q", 0)
    for number in range(10):  # no answer is awaited between them: they arrive together
        publisher.basic_publish("", "q", b"%d" % number)
    wait_for(channel, got, 5)
    assert got == [b"0", b"1", b"2", b"3", b"4"]
    _, _, left = publisher.basic_get("q")
    assert left == (b"9" if overflow == "drop-head" else b"5")


def test_a_limit_drops_what_would_be_delivered_next(channel):
    channel.queue_declare("q", arguments={"x-max-length": 2, "x-max-priority": 5})
    for priority in (3, 1, 5):
        channel.basic_publish("", "q", b"%d" % priority, pika.BasicProperties(priority=priority))
    assert [channel.basic_get("q", auto_ack=True)[2] for _ in range(2)] == [b"3", b"1"]


def test_a_quorum_queue_that_would_reject_into_dead_letters_drops_its_oldest(channel):
    channel.queue_declare("dead")
    channel.queue_declare(
        "q",
        durable=True,
        arguments={
            "x-queue-type": "quorum",
            "x-max-length": 1,
            "x-overflow": "reject-publish-dlx",
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": "dead",
        },
    )
    channel.confirm_delivery()
    for body in (b"a", b"b"):
        channel.basic_publish("", "q", body)  # neither is refused
    assert channel.basic_get("q", auto_ack=True)[2] == b"b"
    assert channel.basic_get("dead", auto_ack=True)[2] == b"a"


# ---- prefetch


def test_messages_that_were_got_do_not_count_against_the_prefetch_of_a_channel(channel):
    channel.queue_declare("q")
    for number in range(3):
        channel.basic_publish("", "q", b"%d" % number)
    channel.basic_qos(prefetch_count=1, global_qos=True)
    channel.basic_get("q")
    assert collect(channel, "q", 1) == [b"1"]


def test_a_prefetch_for_consumers_ends_that_of_the_channel(channel):
    channel.queue_declare("q")
    for number in range(6):
        channel.basic_publish("", "q", b"%d" % number)
    channel.basic_qos(prefetch_count=3, global_qos=True)
    channel.basic_qos(prefetch_count=2)
    first = collect(channel, "q", 2, "a")
    second = collect(channel, "q", 2, "b")
    assert sorted(first + second) == [b"0", b"1", b"2", b"3"]


# ---- transactions


def test_a_transaction_acknowledges_a_delivery_once(channel):
    channel.queue_declare("q")
    channel.basic_publish("", "q", b"m")
    channel.tx_select()
    tag = channel.basic_get("q")[0].delivery_tag
    channel.basic_ack(tag)
    channel.tx_rollback()
    channel.basic_ack(tag)  # it was taken back
    channel.basic_ack(tag)
    with refused(406):
        channel.tx_commit()


def test_a_transaction_refuses_a_request_for_replies_that_nobody_consumes(channel):
    channel.tx_select()
    replies = pika.BasicProperties(reply_to="amq.rabbitmq.reply-to")
    channel.basic_publish("", "q", b"m", replies)
    with refused(406):
        channel.queue_declare("q")


def test_a_transaction_fails_of_which_a_queue_refuses_a_message(channel, connection):
    channel.queue_declare("q", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    channel.tx_select()
    for body in (b"taken", b"refused"):
        channel.basic_publish("", "q", body)
    with pytest.raises(ChannelClosedByBroker, match=r"^\(406, .* - partial tx completion"):
        channel.tx_commit()
    assert connection.channel().basic_get("q")[2] == b"taken"


# ---- routing


def test_an_alternate_exchange_gets_what_no_key_of_a_message_routes(channel):
    channel.exchange_declare("lost", "fanout")
    channel.exchange_declare("x", arguments={"alternate-exchange": "lost"})
    for queue, source, key in (("found", "x", "k"), ("unrouted", "lost", "")):
        channel.queue_declare(queue)
        channel.queue_bind(queue, source, key)
    for copies in (["k"], ["other"]):
        channel.basic_publish("x", "no", b"m", pika.BasicProperties(headers={"CC": copies}))
    assert (count_of(channel, "found"), count_of(channel, "unrouted")) == (1, 1)


def test_every_exchange_sees_all_keys_of_a_message(channel):
    channel.exchange_declare("first", "topic")
    channel.exchange_declare("second", "direct")
    channel.queue_declare("q")
    channel.exchange_bind("second", "first", "a")
    channel.queue_bind("q", "second", "b")
    channel.basic_publish("first", "a", b"m", pika.BasicProperties(headers={"CC": ["b"]}))
    assert count_of(channel, "q") == 1


def test_an_internal_exchange_takes_dead_letters(channel):
    channel.exchange_declare("dead", "fanout", internal=True)
    channel.queue_declare("letters")
    channel.queue_bind("letters", "dead")
    channel.queue_declare("q", arguments={"x-dead-letter-exchange": "dead"})
    channel.basic_publish("", "q", b"m", pika.BasicProperties(expiration="60000"))
    channel.basic_reject(channel.basic_get("q")[0].delivery_tag, requeue=False)
    _, properties, body = channel.basic_get("letters")
    assert body == b"m"
    assert properties.headers["x-death"][0]["original-expiration"] == "60000"


def test_a_letter_with_another_key_keeps_its_copies_and_is_not_routed_by_them(channel):
    for queue, key in (("third", "k"), ("second", "k"), ("first", None)):
        arguments = {"x-dead-letter-exchange": "amq.direct" if key else ""}
        arguments |= {} if key else {"x-dead-letter-routing-key": "second"}
        channel.queue_declare(queue, arguments=arguments)
    channel.queue_bind("third", "amq.direct", "second")
    channel.queue_bind("first", "amq.direct", "copy")
    channel.basic_publish("", "first", b"m", pika.BasicProperties(headers={"CC": ["copy"]}))
    for queue in ("first", "second"):
        channel.basic_reject(channel.basic_get(queue)[0].delivery_tag, requeue=False)
    _, properties, _ = channel.basic_get("third")
    assert properties.headers["CC"] == ["copy"]
    keys = [death["routing-keys"] for death in properties.headers["x-death"]]
    assert keys == [["second"], ["first", "copy"]]
    assert count_of(channel, "first") == 0


def test_a_mandatory_reply_is_delivered_and_comes_back_for_no_queue_has_it(connection):
    asking, answering = connection.channel(), connection.channel()
    answering.queue_declare("q")
    replies, returned = [], []
    asking.basic_consume("amq.rabbitmq.reply-to", lambda *m: replies.append(m[3]), auto_ack=True)
    asking.basic_publish("", "q", b"?", pika.BasicProperties(reply_to="amq.rabbitmq.reply-to"))
    _, properties, _ = answering.basic_get("q", auto_ack=True)
    answering.add_on_return_callback(lambda *m: returned.append(m[3]))
    answering.basic_publish("", properties.reply_to, b"!", mandatory=True)
    wait_for(asking, replies, 1)
    wait_for(answering, returned, 1)
    assert (replies, returned) == ([b"!"], [b"!"])


# ---- declarations


@pytest.mark.parametrize("type", ["quorum", "stream"])
def test_only_classic_queues_are_named_by_the_broker(channel, type):
    with refused(406):
        channel.queue_declare("", durable=True, arguments={"x-queue-type": type})


def test_a_passive_declaration_names_its_queue(channel):
    channel.queue_declare("")
    with refused(404):
        channel.queue_declare("", passive=True)


def test_an_alternate_exchange_is_named_by_a_text(channel):
    with refused(406):
        channel.exchange_declare("x", arguments={"alternate-exchange": None})


def test_a_declaration_of_a_name_for_replies_is_passive(channel):
    assert count_of(channel, "amq.rabbitmq.reply-to") == 0
    assert channel.queue_declare("amq.rabbitmq.reply-to").method.consumer_count == 1
    with refused(404):
        channel.queue_declare("amq.rabbitmq.reply-to.nobody")


@pytest.mark.parametrize(
    ("arguments", "is_taken"),
    [
        ({"x-queue-version": 3}, False),
        ({"x-queue-version": 0}, False),
        ({"x-queue-version": 2}, True),
        ({"x-queue-type": None}, False),
        ({"x-queue-leader-locator": "balanced"}, True),
        ({"x-queue-leader-locator": "anywhere"}, False),
        ({"x-queue-leader-locator": 1}, False),
        ({"x-queue-type": "stream", "x-max-age": "0h"}, False),
        ({"x-stream-filter-size-bytes": 300}, True),  # of no meaning, and not looked at
        ({"x-queue-type": "quorum", "x-stream-filter-size-bytes": "x"}, True),
    ],
)
def test_arguments_of_queues_are_checked_as_rabbitmq_checks_them(channel, arguments, is_taken):
    if is_taken:
        channel.queue_declare("q", durable=True, arguments=arguments)
        return
    with refused(406):
        channel.queue_declare("q", durable=True, arguments=arguments)


QUORUM = {"x-queue-type": "quorum"}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({}, {"arguments": {"x-max-age": "1D"}}),  # only streams have it
        ({}, {"arguments": {"x-quorum-initial-group-size": 3}}),
        ({"durable": True, "exclusive": True}, {"exclusive": True}),  # durable means nothing there
        ({"exclusive": True}, {"exclusive": True, "durable": True}),
    ],
)
def test_a_second_declaration_is_compared_in_what_matters_to_the_type(channel, first, second):
    channel.queue_declare("q", **first)
    channel.queue_declare("q", **second)
    assert channel.is_open


@pytest.mark.parametrize(
    ("first", "second", "difference"),
    [
        (
            {},
            {"x-queue-type": "bogus"},
            "'x-queue-type'.*received 'bogus' but current is 'classic'",
        ),
        ({"x-message-ttl": 5}, {"x-message-ttl": -5}, "received '-5' but current is '5'"),
        ({"x-max-length": 1}, {"x-max-length": True}, "received 'true' but current is '1'"),
    ],
)
def test_a_second_declaration_names_what_differs(channel, first, second, difference):
    channel.queue_declare("q", durable=True, arguments=first)
    with pytest.raises(ChannelClosedByBroker, match=f"406.*inequivalent arg.*{difference}"):
        channel.queue_declare("q", durable=True, arguments=second)


def test_a_name_that_the_broker_gave_cannot_be_declared_again(channel):
    name = channel.queue_declare("").method.queue
    assert count_of(channel, name) == 0
    with pytest.raises(ChannelClosedByBroker, match=f"403.*queue name '{name}' contains reserved"):
        channel.queue_declare(name)


@pytest.mark.parametrize(
    ("properties", "refused_for"),
    [
        ({"durable": True, "auto_delete": True}, "auto-delete"),
        ({"durable": True, "exclusive": True}, "exclusive-owner"),
        ({"exclusive": True}, "exclusive-owner"),
        ({}, "non-durable"),
    ],
)
def test_a_quorum_queue_belongs_to_nobody_and_stays(channel, properties, refused_for):
    with pytest.raises(ChannelClosedByBroker, match=f"406.*invalid property '{refused_for}'"):
        channel.queue_declare("q", arguments=QUORUM, **properties)


@pytest.mark.parametrize(
    ("second", "said"),
    [
        ("y", "received 'y' but current is 'lost'"),
        (1, "received '1' but current is 'lost'"),
        (None, "received none but current is the value 'lost' of type 'longstr'"),
    ],
)
def test_another_alternate_exchange_is_a_difference(channel, second, said):
    channel.exchange_declare("x", arguments={"alternate-exchange": "lost"})
    arguments = None if second is None else {"alternate-exchange": second}
    with pytest.raises(ChannelClosedByBroker, match=f"406.*inequivalent arg.*{said}"):
        channel.exchange_declare("x", arguments=arguments)


@pytest.mark.parametrize(("passive", "code"), [(False, 406), (True, 403)])
def test_the_type_of_an_exchange_is_looked_at_before_its_name(channel, passive, code):
    with refused(code):
        channel.exchange_declare("", "bogus", passive=passive)


@pytest.mark.parametrize(
    ("value", "said"), [(True, "bool (value true)"), (None, "void (value undefined)")]
)
def test_a_kind_of_match_that_is_no_text_is_named(channel, value, said):
    channel.queue_declare("q")
    text = re.escape(f"Invalid x-match field type {said}; expected longstr")
    with pytest.raises(ChannelClosedByBroker, match=text):
        channel.queue_bind("q", "amq.headers", arguments={"x-match": value})


def test_the_last_queue_is_unbound_under_its_name(channel):
    channel.queue_declare("q")
    channel.queue_bind("", "amq.direct", "")
    channel.queue_unbind("", "amq.direct", "")
    channel.basic_publish("amq.direct", "q", b"m")
    assert count_of(channel, "q") == 0


# ---- one active consumer


def test_no_consumer_is_exclusive_where_one_is_active(channel):
    channel.queue_declare("q", arguments={"x-single-active-consumer": True})
    with refused(403):
        channel.basic_consume("q", lambda *_: None, exclusive=True)


def test_a_quorum_queue_with_one_active_consumer_refuses_gets(channel):
    arguments = {"x-queue-type": "quorum", "x-single-active-consumer": True}
    channel.queue_declare("q", durable=True, arguments=arguments)
    with refused(405):
        channel.basic_get("q")


@pytest.mark.parametrize(("type", "is_next"), [("classic", "first"), ("quorum", "second")])
def test_a_higher_priority_takes_over_a_quorum_queue_when_all_is_acknowledged(
    channel, type, is_next
):
    got = []

    def note(_channel, method, _properties, body):
        got.append((method.consumer_tag, body, method.delivery_tag))

    arguments = {"x-queue-type": type, "x-single-active-consumer": True}
    channel.queue_declare("q", durable=True, arguments=arguments)
    channel.basic_consume("q", note, consumer_tag="first")
    channel.basic_publish("", "q", b"1")
    wait_for(channel, got, 1)
    channel.basic_consume("q", note, consumer_tag="second", arguments={"x-priority": 5})
    channel.basic_publish("", "q", b"2")
    count_of(channel, "q")
    assert [entry[:2] for entry in got] == [("first", b"1"), ("first", b"2")][: len(got)]
    channel.basic_ack(got[0][2])
    wait_for(channel, got, 2)
    assert got[1][:2] == (is_next, b"2")


def test_the_first_of_several_consumers_gets_the_first_message(channel):
    got = []
    channel.queue_declare("q")
    for tag in ("first", "second"):
        channel.basic_consume("q", lambda _c, m, _p, body: got.append((m.consumer_tag, body)), consumer_tag=tag)  # fmt: skip
    for number in range(4):
        channel.basic_publish("", "q", b"%d" % number)
        wait_for(channel, got, number + 1)
    assert got == [("first", b"0"), ("second", b"1"), ("first", b"2"), ("second", b"3")]


def test_a_priority_that_is_no_number_is_named(channel):
    channel.queue_declare("q")
    with pytest.raises(ChannelClosedByBroker, match=r"406.*for queue .*integer, got longstr"):
        channel.basic_consume("q", lambda *_: None, arguments={"x-priority": "high"})


# ---- lifetimes


@pytest.mark.parametrize("expiration", ["+60000", "-0"])
def test_an_expiration_may_have_a_sign(channel, expiration):
    channel.basic_publish("", "nobody", b"m", pika.BasicProperties(expiration=expiration))
    channel.queue_declare("q")  # the channel is open


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize(
    ("prefetches", "is_shared", "expected"),
    [
        ((0, 0), False, ["AAAAA", "BBBBB"]),
        ((0, 0, 0), False, ["AAAA", "BBB", "CCC"]),
        ((2, 0), False, ["AA", "BBBBBBBB"]),
        ((3, 3), False, ["AAA", "BBB"]),
        ((5, 5), True, ["AAA", "BB"]),  # five for both
    ],
)
def test_consumers_get_messages_that_come_together_one_by_one_in_turn(
    connection, durable, prefetches, is_shared, expected
):
    channel, publisher, got = connection.channel(), connection.channel(), []
    channel.queue_declare("turns", durable=durable, arguments={"x-expires": 60_000})
    for tag, prefetch in zip("ABC", prefetches, strict=False):
        channel.basic_qos(prefetch_count=prefetch, global_qos=is_shared)
        channel.basic_consume(
            "turns",
            lambda _channel, method, _properties, body: got.append((body, method.consumer_tag)),
            consumer_tag=tag,
        )
    publisher.tx_select()
    for number in range(10):
        properties = pika.BasicProperties(delivery_mode=2 if durable else 1)
        publisher.basic_publish("", "turns", b"%d" % number, properties)
    publisher.tx_commit()
    wanted = sum(map(len, expected))
    while len(got) < wanted:
        connection.process_data_events(1)
    publisher.queue_declare("turns", passive=True)  # everything that was delivered came before
    tags = [tag for _, tag in sorted(got)]
    assert sorted(tags) == sorted("".join(expected))
    columns = [iter(part) for part in expected]
    in_turn = [tag for _ in range(10) for column in columns if (tag := next(column, None))]
    assert tags == in_turn
