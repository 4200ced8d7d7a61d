"""HTTP is served by the process and the event loop of the broker."""

import urllib.error
import urllib.request

import httpx
import pytest

from headgate.testing import Broker


def test_a_broker_serves_http_while_it_runs():
    with Broker() as broker:
        answer = httpx.get(f"{broker.http_url}/api/whoami", auth=("guest", "guest"))
        assert answer.json()["name"] == "guest"
        assert "date" in answer.headers
        assert "server" not in answer.headers
        url = broker.http_url
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(url, timeout=5)


def test_a_connection_that_stays_open_does_not_keep_the_broker_from_stopping():
    with Broker() as broker, httpx.Client(auth=("guest", "guest")) as client:
        assert client.get(f"{broker.http_url}/api/whoami").status_code == 200
