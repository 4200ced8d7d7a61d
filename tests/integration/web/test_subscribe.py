"""Messages of a stream as server-sent events."""

import gc
import json
import threading
from contextlib import ExitStack

import httpx
import pytest

from headgate.broker import StreamQueue
from headgate.streams import Stream
from headgate.testing import Broker

GUEST = ("guest", "guest")


@pytest.fixture
def served(tmp_path):
    """A broker, and a stream below its data with ten messages."""
    with Stream.create(tmp_path / "orders", chunk_messages=2) as stream:
        with stream.producer() as producer:
            for i in range(10):
                producer.publish(b"%d" % i, headers={"n": i})
        with Broker(tmp_path) as broker:
            yield broker, stream


def subscribe(broker, headers=None, **query):
    url = f"{broker.http_url}/api/headgate/subscribe"
    return httpx.stream("GET", url, params=query, auth=GUEST, headers=headers, timeout=20)


def events(answer):
    """The id and the message of each event."""
    id = None
    for line in answer.iter_lines():
        if line.startswith("id: "):
            id = int(line[4:])
        elif line.startswith("data: "):
            yield id, json.loads(line[6:])


def test_matching_messages_come_and_new_ones_follow(served):
    broker, stream = served
    query = {"stream": "orders", "filter": "n >= 8", "from": "first"}
    with subscribe(broker, **query) as answer:
        found = events(answer)
        assert [next(found)[0], next(found)[0]] == [8, 9]
        with stream.producer() as producer:
            producer.publish(b"no", headers={"n": 1})
            producer.publish(b"new", headers={"n": 99})
        offset, message = next(found)
    assert (offset, message["payload"], message["headers"]) == (11, "new", {"n": 99})


def test_a_client_resumes_behind_the_last_event_it_saw(served):
    broker, _ = served
    headers = {"Last-Event-ID": "6"}
    with subscribe(broker, headers, stream="orders", filter="n >= 2") as answer:
        assert next(events(answer))[0] == 7


def test_a_stream_queue_can_be_subscribed_to_before_its_directory_is_made(tmp_path, monkeypatch):
    open_stream, asked, is_asked_for = StreamQueue.open_stream, threading.Event(), []

    def open_late(queue):
        """The queue's own thread makes the directory only after another asked for the stream."""
        if is_asked_for:
            asked.set()
        else:
            is_asked_for.append(True)
            asked.wait(20)
        return open_stream(queue)

    monkeypatch.setattr(StreamQueue, "open_stream", open_late)
    with Broker(tmp_path) as broker:
        queue = f"{broker.http_url}/api/queues/%2F/events"
        declaration = {"durable": True, "arguments": {"x-queue-type": "stream"}}
        assert httpx.put(queue, json=declaration, auth=GUEST).status_code == 201
        with subscribe(broker, queue="events", **{"from": "first"}) as answer:
            message = {
                "routing_key": "events",
                "payload": "one",
                "payload_encoding": "string",
                "properties": {},
            }
            published = f"{broker.http_url}/api/exchanges/%2F/amq.default/publish"
            assert httpx.post(published, json=message, auth=GUEST).json() == {"routed": True}
            assert next(events(answer))[1]["payload"] == "one"


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({"stream": "orders", "filter": "n = = 1"}, 400),
        ({"stream": "../orders"}, 400),
        ({"stream": "nothing"}, 400),
        ({"stream": "orders", "from": "soon"}, 400),
        ({"queue": "orders"}, 400),
    ],
)
def test_bad_questions_are_refused_before_the_stream_begins(served, query, status):
    with subscribe(served[0], **query) as answer:
        assert answer.status_code == status


def test_a_login_is_needed(served):
    answer = httpx.get(f"{served[0].http_url}/api/headgate/subscribe?stream=orders")
    assert answer.status_code == 401


def test_a_broker_that_stops_leaves_no_task_of_a_subscriber_behind(tmp_path, caplog):
    Stream.create(tmp_path / "orders").close()
    with ExitStack() as clients:
        with Broker(tmp_path) as broker:
            answer = clients.enter_context(subscribe(broker, stream="orders"))
            assert next(answer.iter_lines()) == "retry: 2000"
        del broker
        gc.collect()
    assert "Task was destroyed" not in caplog.text
