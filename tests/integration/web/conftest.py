"""A running broker and clients of its HTTP API."""

from collections.abc import Iterator
from contextlib import suppress

import httpx
import pika
import pytest

from headgate.testing import Broker


@pytest.fixture(scope="module")
def running() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def http(running: Broker) -> Iterator[httpx.Client]:
    """A client of the API that logs in as guest; everything that is not guest's own is gone afterwards."""
    url = running.http_url
    with httpx.Client(base_url=url, auth=("guest", "guest"), timeout=30) as client:
        yield client
        for row in client.get("/api/queues").json():
            name, vhost = row["name"].replace("/", "%2F"), row["vhost"].replace("/", "%2F")
            client.delete(f"/api/queues/{vhost}/{name}")


@pytest.fixture
def amqp(running: Broker) -> Iterator[pika.BlockingConnection]:
    connection = pika.BlockingConnection(pika.URLParameters(running.url))
    yield connection
    with suppress(pika.exceptions.AMQPError):  # the broker may have closed it
        connection.close()
