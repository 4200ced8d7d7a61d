"""The pages as somebody attacks them: other sites, names that lead elsewhere, users who may only look, slow clients."""

import json
import socket
from contextlib import contextmanager, suppress
from threading import Thread

import httpx
import pika
import pytest

from headgate.broker import User, hash_quickly
from headgate.streams import Stream
from headgate.testing import Broker
from headgate.web.api import TABLES

MARKUP = "<img src=x onerror=alert(1)>'\"{{7*7}}"
NAMES = ("..%2F..%2Fetc%2Fpasswd", "..", "%00", "a%0Ab", "%2e%2e%2fx", "%252e%252e%252fx", "/etc/passwd", "a" * 3000)  # fmt: skip


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    """A broker with a stream, a queue, and a user who may only look."""
    data = tmp_path_factory.mktemp("data")
    with Stream.create(data / "orders") as stream, stream.producer() as producer:
        producer.publish(b"x", headers={"n": 1})
    with Broker(data) as broker:

        def add():
            access = broker.broker.access
            access.put_user(User("looker", hash_quickly("secret"), ("monitoring",)))
            access.set_permissions("looker", "/", "", "", "")  # who may read may also purge

        broker.call(add)
        with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
            connection.channel().queue_declare("kept", durable=True)
            connection.channel().basic_publish("", "kept", b"x")
            yield broker


@contextmanager
def log_in(broker, name="guest", password="guest"):
    """A browser that has logged in by the form."""
    url = broker.http_url
    with httpx.Client(base_url=url, headers={"Origin": url}, timeout=20) as client:
        form = {"username": name, "password": password}
        assert client.post("/login", data=form).status_code == 303
        yield client


def changes():
    """The method and a path of everything that the API can change."""
    found = {
        (endpoint.method, endpoint.path)
        for table in TABLES
        for endpoint in table.endpoints
        if endpoint.method not in ("GET", "HEAD")
    }
    values = {"vhost": "%2F", "queue": "kept", "exchange": "amq.topic", "position": "1", "username": "guest"}  # fmt: skip
    for method, path in sorted(found):
        parts = [
            values.get(part.strip("{}").partition(":")[0], "kept") if part.startswith("{") else part
            for part in path.split("/")
        ]
        yield method, "/".join(parts)


def test_every_change_with_a_session_from_another_site_or_from_none_is_refused(target):
    with log_in(target) as browser:
        tried = list(changes())
        assert len(tried) > 20
        for method, path in tried:
            for foreign in ({"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}, {}):  # fmt: skip
                request = browser.build_request(method, path, json={})
                del request.headers["origin"]
                request.headers.update(foreign)
                assert browser.send(request).status_code == 403, (method, path, foreign)


def test_a_user_who_may_only_look_changes_nothing(target):
    allowed = {"/api/auth/hash_password/kept"}  # which changes nothing
    with log_in(target, "looker", "secret") as browser:
        before = httpx.get(f"{target.http_url}/api/definitions", auth=("guest", "guest")).json()
        for method, path in changes():
            answer = browser.request(method, path, json={"password": "x", "tags": "administrator"})
            assert answer.status_code >= 400 or path in allowed, (method, path, answer.text)
        after = httpx.get(f"{target.http_url}/api/definitions", auth=("guest", "guest")).json()
    assert after == before


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "path",
    ["/stream?name={}", "/queue?vhost=%2F&name={}", "/sql-queue?name={}", "/message?of=stream:{}&at=0", "/download?of=stream:{}&at=0", "/fragments/heat?of=stream:{}", "/static/{}", "/api/headgate/subscribe?stream={}"],
)  # fmt: skip
def test_a_name_leads_nowhere_else(target, path, name):
    if (path, name) == ("/static/{}", ".."):
        return  # a client asks for the directory above then
    answer = httpx.get(target.http_url + path.format(name), auth=("guest", "guest"))
    assert 400 <= answer.status_code < 500
    assert "root:" not in answer.text


@pytest.mark.parametrize(
    "path",
    ["/stream", "/queue", "/sql-queue", "/playground", "/exchanges", "/queues", "/message", "/login", "/fragments/heat", "/download"],
)  # fmt: skip
def test_markup_in_any_part_of_the_query_stays_text(target, path):
    names = ("name", "vhost", "filter", "of", "q", "from", "since", "state", "before", "at", "as", "next", "failed", "exchange", "key", "headers", "sort", "budget", "start")  # fmt: skip
    with log_in(target) as browser:
        for name in names:
            known = {"name": "orders"} if path == "/stream" else {}
            answer = browser.get(path, params={**known, name: MARKUP})
            assert answer.status_code < 500, (path, name)
            assert "<img src=x" not in answer.text, (path, name)


def test_a_token_that_the_visitor_brought_does_not_become_a_session(target):
    with httpx.Client(base_url=target.http_url, headers={"Origin": target.http_url}) as browser:
        browser.cookies.set("headgate_session", "chosen-by-somebody")
        answer = browser.post("/login", data={"username": "guest", "password": "guest"})
        given = answer.cookies["headgate_session"]
    assert given != "chosen-by-somebody"
    with httpx.Client(base_url=target.http_url, cookies={"headgate_session": "chosen-by-somebody"}) as other:  # fmt: skip
        assert other.get("/queues").status_code == 303


def test_a_form_with_very_many_fields_is_refused_before_it_is_read(target):
    answer = httpx.post(f"{target.http_url}/login", content=b"a=&" * 50_000, timeout=10)
    assert answer.status_code == 413
    answer = httpx.post(f"{target.http_url}/login", content=b"a=&" * 5_000, timeout=10)
    assert answer.status_code == 400


def test_a_form_that_never_ends_is_not_waited_for(target, monkeypatch):
    monkeypatch.setattr("headgate.web.endpoints.BODY_S", 0.2)
    with socket.create_connection(("127.0.0.1", target.http_port), timeout=10) as slow:
        slow.sendall(b"POST /login HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nu")
        assert slow.recv(100).startswith(b"HTTP/1.1 408")


def test_the_second_request_of_a_connection_must_not_take_for_ever_either(target, monkeypatch):
    monkeypatch.setattr("headgate.web.listener.REQUEST_S", 0.3)
    with socket.create_connection(("127.0.0.1", target.http_port), timeout=10) as slow:
        slow.sendall(b"GET /static/theme.js HTTP/1.1\r\nHost: x\r\n\r\n")
        while b"localStorage" not in (received := slow.recv(10_000)):
            assert received
        slow.sendall(b"GET /queues HTTP/1.1\r\nHo")
        with suppress(ConnectionResetError):
            assert slow.recv(100) == b""


def test_live_numbers_end_with_the_session(target, monkeypatch):
    monkeypatch.setattr("headgate.web.pages.live.EVERY_S", 0.1)
    with log_in(target) as browser, log_in(target) as other:
        other.cookies = browser.cookies
        with browser.stream("GET", "/live", timeout=10) as answer:
            lines = answer.iter_lines()
            assert next(lines).startswith("data: ")
            assert other.post("/logout").status_code == 303
            assert len(list(lines)) < 100  # it ends


def test_messages_are_sent_no_more_to_a_user_who_may_not_read_them_any_more(target, monkeypatch):
    monkeypatch.setattr("headgate.web.subscribe.IDLE_S", 0.1)

    def add():
        target.broker.access.put_user(User("leaving", hash_quickly("secret"), ("monitoring",)))

    target.call(add)
    url = f"{target.http_url}/api/headgate/subscribe"
    query = {"stream": "orders", "from": "first"}
    with httpx.stream("GET", url, params=query, auth=("leaving", "secret"), timeout=10) as answer:
        lines = answer.iter_lines()
        assert any(line.startswith("data: ") for line in lines)
        target.call(lambda: target.broker.access.delete_user("leaving"))
        assert not any(line.startswith("data: ") for line in lines)  # and it ends


def test_a_client_that_reads_nothing_costs_little_memory(tmp_path, monkeypatch):
    body = b"x" * 100_000
    with Stream.create(tmp_path / "large") as stream, stream.producer() as producer:
        for _ in range(600):
            producer.publish(body)
    with Broker(tmp_path) as broker:
        made = _count_events(monkeypatch)
        with socket.create_connection(("127.0.0.1", broker.http_port), timeout=10) as silent:
            silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            silent.sendall(b"GET /api/headgate/subscribe?stream=large&from=first HTTP/1.1\r\nHost: x\r\nAuthorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\n\r\n")  # fmt: skip
            silent.recv(100)
            for _ in range(20):  # others are served meanwhile
                assert httpx.get(
                    f"{broker.http_url}/api/whoami", auth=("guest", "guest")
                ).is_success
        assert len(made) < 200


def _count_events(monkeypatch):
    """The offsets of the messages that became events."""
    from headgate.web import subscribe

    made, original = [], subscribe._event
    monkeypatch.setattr(subscribe, "_event", lambda r: made.append(r.offset) or original(r))
    return made


def test_many_open_pages_are_served_and_counted(target):
    def watch():
        with log_in(target) as browser, browser.stream("GET", "/live", timeout=10) as answer:
            assert json.loads(next(answer.iter_lines())[6:])["texts"]

    threads = [Thread(target=watch) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_live_numbers_are_those_of_the_virtual_hosts_that_a_user_may_see(target):
    def add():
        target.broker.access.put_user(User("outside", hash_quickly("secret"), ("management",)))

    target.call(add)
    found = {}
    for name, password in (("guest", "guest"), ("outside", "secret")):
        with log_in(target, name, password) as browser, browser.stream("GET", "/live") as answer:
            found[name] = json.loads(next(answer.iter_lines())[6:])["texts"]["ready"]
    assert found == {"guest": "1", "outside": "0"}
