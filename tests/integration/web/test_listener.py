"""HTTP is served by the process and the event loop of the broker."""

import socket
import urllib.error
import urllib.request
from contextlib import suppress

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


def test_a_connection_that_sends_no_request_is_cut_off(monkeypatch):
    monkeypatch.setattr("headgate.web.listener.REQUEST_S", 0.2)
    with Broker() as broker:
        with socket.create_connection(("127.0.0.1", broker.http_port), timeout=10) as silent:
            silent.sendall(b"GET /api/whoami HTTP/1.1\r\nHost: x")
            with suppress(ConnectionResetError):
                assert silent.recv(100) == b""


def test_a_body_that_never_comes_is_not_waited_for(monkeypatch):
    monkeypatch.setattr("headgate.web.endpoints.BODY_S", 0.2)
    with Broker() as broker:
        with socket.create_connection(("127.0.0.1", broker.http_port), timeout=10) as slow:
            slow.sendall(b"PUT /api/vhosts/x HTTP/1.1\r\nHost: x\r\nAuthorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\nContent-Length: 9\r\n\r\n{")  # fmt: skip
            assert slow.recv(100).startswith(b"HTTP/1.1 408")


def test_a_connection_that_stays_open_does_not_keep_the_broker_from_stopping():
    with Broker() as broker, httpx.Client(auth=("guest", "guest")) as client:
        assert client.get(f"{broker.http_url}/api/whoami").status_code == 200
