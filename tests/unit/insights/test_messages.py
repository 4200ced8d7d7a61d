"""Messages of streams and queues to look at."""

from datetime import UTC, datetime
from functools import partial

import pytest

from headgate import insights
from headgate.errors import HeadgateError
from headgate.insights import common_values, message_at, message_in_queue
from headgate.message import Message
from headgate.queues import State
from headgate.streams import Stream
from tests.patience import PATIENCE

messages_from = partial(insights.messages_from, budget_s=PATIENCE)
newest_in_queue = partial(insights.newest_in_queue, budget_s=PATIENCE)
newest_in_stream = partial(insights.newest_in_stream, budget_s=PATIENCE)


@pytest.fixture
def hundred(tmp_path):
    """A hundred messages in many segments, a fifth of them from Europe."""
    with Stream.create(tmp_path / "s", chunk_messages=5, segment_bytes=4096) as stream:
        with stream.producer() as producer:
            for i in range(100):
                region = "EU" if i % 5 == 0 else "US"
                producer.publish(b"%d" % i, headers={"region": region, "n": i}, timestamp=i * 10**6)
                producer.flush()
        stream.seal()
    return tmp_path / "s"


def offsets(page):
    return [seen.position for seen in page.messages]


def test_the_newest_messages_come_first_and_pages_follow_each_other(hundred):
    page = newest_in_stream(hundred, limit=3)
    assert offsets(page) == [99, 98, 97]
    assert offsets(newest_in_stream(hundred, limit=3, before=page.following)) == [96, 95, 94]
    assert newest_in_stream(hundred, limit=3, before=2).following is None


def test_a_filter_is_searched_from_the_newest_back_to_the_first(hundred):
    seen, before = [], None
    while True:
        page = newest_in_stream(hundred, "region = 'EU'", limit=7, before=before)
        seen += offsets(page)
        before = page.following
        if before is None:
            break
    assert seen == list(range(95, -1, -5))


def test_a_search_in_one_long_log_pauses_within_it_and_goes_on(tmp_path):
    with Stream.create(tmp_path / "s") as stream, stream.producer() as producer:
        producer.publish_many([Message(headers={"n": n}) for n in range(3_000)])
    page = newest_in_stream(tmp_path / "s", "n = 0", budget_s=0)
    assert not page.complete
    assert page.following > 1_000
    assert offsets(newest_in_stream(tmp_path / "s", "n < 2", before=page.following)) == [1, 0]
    page = messages_from(tmp_path / "s", "first", "n >= 2998", budget_s=0)
    assert 0 < page.following < 2_000
    assert offsets(messages_from(tmp_path / "s", str(page.following), "n > 2997")) == [2998, 2999]


def test_a_search_that_takes_too_long_says_how_far_it_came(hundred):
    page = newest_in_stream(hundred, "n = 0", budget_s=0)
    assert not page.complete
    assert page.following is not None
    while not page.complete:
        page = newest_in_stream(hundred, "n = 0", before=page.following, budget_s=0)
    assert offsets(page) == [0]


def test_messages_are_read_from_a_time_or_an_offset_on(hundred):
    moment = datetime.fromtimestamp(50, UTC).isoformat()
    assert offsets(messages_from(hundred, moment, limit=2)) == [50, 51]
    page = messages_from(hundred, "97", "region = 'US'", limit=2)
    assert offsets(page) == [97, 98]
    assert offsets(messages_from(hundred, str(page.following))) == [99]


def test_one_message_is_found_by_its_offset(hundred):
    assert message_at(hundred, 42).message.payload == b"42"
    with pytest.raises(HeadgateError):
        message_at(hundred, 4200)


def test_a_queue_is_browsed_from_the_newest_with_filter_and_state(memory_database):
    queue = memory_database.queue("orders")
    ids = [queue.publish(b"%d" % i, headers={"n": i}) for i in range(6)]
    page = newest_in_queue(queue, "n < 4", limit=2)
    assert [seen.message.payload for seen in page.messages] == [b"3", b"2"]
    assert page.messages[0].state == "ready"
    older = newest_in_queue(queue, "n < 4", limit=2, before=page.following)
    assert [seen.message.payload for seen in older.messages] == [b"1", b"0"]
    assert newest_in_queue(queue, state=State.DEAD).messages == ()
    assert message_in_queue(queue, ids[3]).message.payload == b"3"
    with pytest.raises(HeadgateError, match="no message"):
        message_in_queue(queue, 999)


def test_the_values_of_headers_are_listed_by_how_common_they_are(hundred):
    seen = newest_in_stream(hundred, limit=20).messages
    found = common_values([each.message for each in seen])
    assert found["region"] == ["US", "EU"]
    assert len(found["n"]) == 8
