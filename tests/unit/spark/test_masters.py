"""A cluster that does not answer is noticed within seconds, before Spark is started."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from threading import Event

import pytest

from headgate.errors import SparkError
from headgate.spark import sessions
from headgate.spark.sessions import addresses_of, answers, check_master


@pytest.fixture
def listening() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def refusing() -> int:
    """A port at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


@pytest.mark.parametrize(
    ("url", "wanted"),
    [
        ("spark://one:7077", [("one", 7077)]),
        ("spark://one:7077,two:7078", [("one", 7077), ("two", 7078)]),
        ("spark://one", [("one", 7077)]),
        ("spark://[::1]:7077", [("::1", 7077)]),
        ("sc://host", [("host", 15002)]),
        ("sc://host:15/;user_id=me;token=x", [("host", 15)]),
        ("k8s://https://host:6443", [("host", 6443)]),
        ("k8s://host", [("host", 443)]),
        ("k8s://http://host", [("host", 80)]),
        ("local[*]", []),
        ("local-cluster[2,1,1024]", []),
        ("yarn", []),
        ("bogus://x", []),
        ("spark://", []),
    ],
)
def test_a_masters_url_names_its_addresses(url, wanted):
    assert addresses_of(url) == wanted


def test_one_master_that_answers_is_enough(listening, refusing):
    check_master(f"spark://127.0.0.1:{refusing},127.0.0.1:{listening}")


def test_a_cluster_where_nobody_listens_is_refused_with_what_to_do(refusing):
    with pytest.raises(SparkError, match=r"no Spark answers at spark://.*check that it is running"):
        check_master(f"spark://127.0.0.1:{refusing}")


def test_what_is_reached_through_a_proxy_is_not_asked(refusing, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    check_master(f"sc://127.0.0.1:{refusing}")
    check_master(f"k8s://https://127.0.0.1:{refusing}")
    with pytest.raises(SparkError):
        check_master(f"spark://127.0.0.1:{refusing}")


def test_a_token_is_not_shown(refusing, monkeypatch):
    for name in ("grpc_proxy", "https_proxy", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    with pytest.raises(SparkError) as refused:
        check_master(f"sc://127.0.0.1:{refusing}/;user_id=me;token=secret")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("port", ["0", "99999"])
def test_a_port_that_cannot_be_is_refused_too(port):
    with pytest.raises(SparkError):
        check_master(f"spark://127.0.0.1:{port}")


def test_an_address_that_says_nothing_is_given_up_in_time(monkeypatch):
    released = Event()

    def hang(*_: object) -> None:
        released.wait(30)
        raise OSError

    monkeypatch.setattr(sessions.socket, "create_connection", hang)
    begin = time.monotonic()
    assert not answers([("black.hole", 7077)], 0.1)
    assert time.monotonic() - begin < 5
    released.set()


def test_no_session_is_started_for_a_cluster_that_does_not_answer(monkeypatch, refusing):
    monkeypatch.setenv("PYSPARK_PYTHON", "python3")
    monkeypatch.setattr(sessions, "running_session", lambda: None)
    monkeypatch.setattr(sessions, "_session_class", lambda: pytest.fail("Spark was started"))
    with pytest.raises(SparkError, match="no Spark answers"):
        sessions.session(master=f"spark://127.0.0.1:{refusing}")
