"""headgate.testing: what users test their own code with."""

from datetime import timedelta

import pytest

from headgate.testing import ManualClock, MessageFactory, memory_database


def test_a_lease_in_the_memory_database_ends_when_the_clock_is_advanced(
    memory_database, manual_clock
):
    orders = memory_database.queue("orders")
    orders.publish(b"1")
    assert len(orders.claim(lease=timedelta(seconds=30))) == 1
    assert orders.claim() == []
    manual_clock.advance(timedelta(seconds=31))
    assert [delivery.message.payload for delivery in orders.claim()] == [b"1"]


def test_two_memory_databases_share_nothing():
    with memory_database() as one, memory_database() as other:
        one.queue("orders")
        assert other.queues() == []


def test_a_manual_clock_stands_still_until_it_is_advanced():
    time = ManualClock()
    before = time.clock.wall_us()
    assert time.clock.wall_us() == before
    time.advance(timedelta(milliseconds=1))
    assert time.clock.wall_us() == before + 1_000


def test_setting_the_wall_clock_lets_no_time_pass(manual_clock):
    elapsed = manual_clock.clock.elapsed_us()
    manual_clock.set_wall_clock(timedelta(hours=-1))
    assert manual_clock.clock.elapsed_us() == elapsed


def test_a_message_factory_makes_distinct_messages_with_common_headers():
    orders = MessageFactory("orders.created", {"region": "EU"})
    first, second = orders.make_many(2)
    assert (first.id, first.payload, second.id) == ("message-1", b"message-1", "message-2")
    assert first.topic == second.topic == "orders.created"
    third = orders.make(b"x", headers={"amount": 5}, topic="orders.paid", priority=3)
    assert dict(third.headers) == {"region": "EU", "amount": 5}
    assert (third.payload, third.topic, third.priority) == (b"x", "orders.paid", 3)


def test_a_temporary_stream_begins_empty_and_keeps_what_is_published(
    temporary_stream, message_factory
):
    with temporary_stream.producer() as producer:
        for message in message_factory.make_many(3):
            producer.publish(message)
    assert [m.id for m in temporary_stream.consume()] == ["message-1", "message-2", "message-3"]


def test_every_name_of_the_module_is_documented():
    import headgate.testing

    for name in headgate.testing.__all__:
        assert getattr(headgate.testing, name).__doc__, name


@pytest.mark.parametrize("count", [0, 1, 10])
def test_make_many_makes_as_many_as_asked_for(message_factory, count):
    assert len({message.id for message in message_factory.make_many(count)}) == count
