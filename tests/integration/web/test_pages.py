"""The pages of a shop broker: who may see them, what they show, and what cannot be done to them."""

import html
import re
import shlex
import time

import httpx
import pika
import pytest

from headgate.broker import User, hash_quickly
from headgate.cli.app import run
from headgate.testing import Broker
from headgate.web.pages import Site

PAGES = (
    "/",
    "/queues",
    "/queue?vhost=%2F&name=orders",
    "/exchanges",
    "/exchanges?vhost=/&exchange=amq.topic&key=a.b",
    "/consumers",
    "/connections",
    "/channels",
    "/policies",
    "/users",
    "/vhosts",
    "/definitions",
    "/streams",
    "/sql-queues",
    "/pipelines",
    "/playground?of=queue:%252F/orders&filter=amount+%3E+1000",
)
ATTACK = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """A broker with a queue, a consumer with a filter, a dead letter, and markup in every name."""
    with Broker(tmp_path_factory.mktemp("data")) as broker:
        with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
            channel = connection.channel()
            channel.queue_declare("dead")
            dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
            channel.queue_declare("orders", arguments=dead)
            channel.queue_declare(ATTACK)
            channel.queue_bind("orders", "amq.topic", "a.#")
            properties = pika.BasicProperties(headers={"amount": 1200, ATTACK: ATTACK})
            for name in ("orders", ATTACK):
                channel.basic_publish("", name, ATTACK.encode(), properties)
            channel.basic_publish(
                "", "orders", b"second", pika.BasicProperties(headers={"amount": 7})
            )
            yield broker


@pytest.fixture
def client(shop):
    """Logged in by the form, as a browser is."""
    with httpx.Client(base_url=shop.http_url, headers={"Origin": shop.http_url}) as client:
        answer = client.post("/login", data={"username": "guest", "password": "guest"})
        assert answer.status_code == 303
        yield client


@pytest.mark.parametrize("path", PAGES)
def test_every_page_needs_a_login_and_then_is_shown(shop, client, path):
    refused = httpx.get(shop.http_url + path)
    assert (refused.status_code, refused.headers["location"][:12]) == (303, "/login?next=")
    answer = client.get(path)
    assert answer.status_code == 200
    assert ATTACK not in answer.text
    assert "unsafe-inline" not in answer.headers["content-security-policy"]
    assert len(answer.content) < 300_000


def test_the_session_cookie_is_for_our_own_pages_only(shop):
    answer = httpx.post(f"{shop.http_url}/login", data={"username": "guest", "password": "guest"})
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie


def test_a_wrong_password_leads_back_to_the_form(shop):
    answer = httpx.post(
        f"{shop.http_url}/login",
        data={"username": "guest", "password": "no", "next": "//evil.example"},
        headers={"Accept": "text/html"},
    )
    assert answer.headers["location"] == "/login?failed=1&next=%2F"


def test_messages_are_seen_without_being_taken(client):
    for _ in range(2):
        page = client.get(
            "/queue", params={"vhost": "/", "name": "orders", "filter": "amount > 1000"}
        )
        assert page.text.count("/message?") == 1
        assert "&lt;img" in page.text
    body = client.get("/download", params={"of": "queue:%2F/orders", "at": 1})
    assert body.content == ATTACK.encode()
    assert body.headers["content-disposition"].startswith("attachment")


def test_messages_are_found_by_when_they_were_published_and_the_oldest_is_told(shop, client):
    now = int(time.time())
    stream = {"durable": True, "arguments": {"x-queue-type": "stream"}}
    with pika.BlockingConnection(pika.URLParameters(shop.url)) as connection:
        channel = connection.channel()
        channel.queue_declare("dated")
        channel.queue_declare("history", **stream)
        for age, body in ((7_200, b"old"), (60, b"young"), (None, b"unknown")):
            properties = pika.BasicProperties(timestamp=None if age is None else now - age)
            channel.basic_publish("", "dated", body, properties)
        channel.confirm_delivery()
        channel.basic_publish("", "history", b"arrived now")

    def shown(name, since):
        page = client.get("/queue", params={"vhost": "/", "name": name, "since": since}).text
        return [body for body in ("old", "young", "unknown", "arrived now") if f">{body}<" in page]

    assert shown("dated", "") == ["old", "young", "unknown"]
    assert shown("dated", "10m") == ["young"]
    assert shown("history", "10m") == ["arrived now"]
    assert shown("history", "2100-01-01T00:00:00Z") == []
    page = client.get("/queue", params={"vhost": "/", "name": "dated"}).text
    assert "<b>2 h</b><span>oldest ready" in page
    for wrong in ("soon", "42", "99999999d"):
        query = {"vhost": "/", "name": "dated", "since": wrong}
        assert client.get("/queue", params=query).status_code == 400


def test_a_queue_leads_to_its_dead_letters_and_the_overview_to_what_nobody_reads(client):
    page = client.get("/queue", params={"vhost": "/", "name": "orders"}).text
    assert 'href="/queue?vhost=%2F&amp;name=dead">Dead letters: 0</a>' in page
    assert "1 message and no consumer" in client.get("/").text


def test_the_playground_tries_a_filter_on_a_queue(client):
    page = client.get("/playground", params={"of": "queue:%2F/orders", "filter": "amount > 1000"})
    assert "1 of 2 recent messages match" in page.text
    assert "FALSE: amount is 7" in page.text


def test_the_route_of_a_message_is_traced(client):
    page = client.get("/exchanges", params={"exchange": "amq.topic", "key": "b", "vhost": "/"})
    assert "No queue would receive it" in page.text
    assert "does not match" in page.text


def test_a_user_without_tags_sees_nothing_and_a_plain_one_no_settings(shop):
    def add():
        access = shop.broker.access
        access.put_user(User("plain", hash_quickly("secret"), ("management",)))
        access.put_user(User("none", hash_quickly("secret")))
        access.set_permissions("plain", "/", "", "", "^dead$")

    shop.call(add)
    with httpx.Client(base_url=shop.http_url, auth=("plain", "secret")) as plain:
        assert plain.get("/queues").status_code == 200
        assert plain.get("/users").status_code == 403
        page = plain.get("/queue", params={"vhost": "/", "name": "orders"})
        assert "/message?" not in page.text
        assert "You may not read this queue" in page.text
        assert "data-api" not in page.text  # nothing that it may change
        page = plain.get("/queue", params={"vhost": "/", "name": "dead"})
        assert re.findall('data-api="([^"]*)"', page.text) == [
            "DELETE /api/queues/%2F/dead/contents"
        ]
        policy = {"pattern": "x", "definition": {"max-length": 1}}
        place = f"{shop.http_url}/api/policies/%2F/short"
        httpx.put(place, json=policy, auth=("guest", "guest"))
        assert "short" in plain.get("/policies").text
        assert "data-api" not in plain.get("/policies").text
        assert plain.get("/message", params={"of": "queue:%2F/orders", "at": 1}).status_code == 403
    with httpx.Client(base_url=shop.http_url, auth=("none", "secret")) as none:
        assert none.get("/queues").status_code == 303


@pytest.mark.parametrize("origin", ["https://evil.example", None])
def test_a_change_from_another_site_is_refused(shop, client, origin):
    headers = {} if origin is None else {"Origin": origin}
    request = client.build_request("DELETE", "/api/queues/%2F/orders/contents")
    request.headers.pop("origin", None)
    request.headers.update(headers)
    assert client.send(request).status_code == 403


def test_logging_out_ends_the_session(client):
    assert client.get("/queues").status_code == 200
    client.post("/logout")
    assert client.get("/queues").status_code == 303


@pytest.mark.parametrize("by", ["user", "definitions"])
def test_a_changed_password_ends_the_sessions_of_its_user(shop, client, by):
    def set_password(password, by="user"):
        body = {"password": password, "tags": "management"}
        method, path = "PUT", "/api/users/anna"
        if by == "definitions":
            method, path = "POST", "/api/definitions"
            body = {"users": [{"name": "anna", **body}]}
        answer = httpx.request(method, shop.http_url + path, json=body, auth=("guest", "guest"))
        assert answer.is_success

    set_password("first")
    with httpx.Client(base_url=shop.http_url, headers={"Origin": shop.http_url}) as browser:
        browser.post("/login", data={"username": "anna", "password": "first"})
        assert browser.get("/queues").status_code == 200
        set_password("second", by)
        assert browser.get("/queues").status_code == 303
    assert client.get("/queues").status_code == 200  # of another user


def test_live_numbers_come_as_events(shop, client):
    with client.stream("GET", "/live", timeout=10) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        first = next(line for line in answer.iter_lines() if line)
    assert first.startswith("data: {")
    assert '"ready"' in first


def test_a_consumer_is_shown_with_the_messages_that_wait_for_it(shop, client):
    with pika.BlockingConnection(pika.URLParameters(shop.url)) as connection:
        channel = connection.channel()
        channel.queue_declare("waiting")
        channel.basic_qos(prefetch_count=1)
        arguments = {"x-filter": "amount > 1000"}
        channel.basic_consume("waiting", lambda *_: None, consumer_tag="slow", arguments=arguments)
        for amount in (1200, 7, 1300, 1400):
            headers = pika.BasicProperties(headers={"amount": amount})
            channel.basic_publish("", "waiting", b"x", headers)
        connection.process_data_events(0.1)
        page = client.get("/queue", params={"vhost": "/", "name": "waiting"}).text
        [row] = re.findall(
            r'<td class="name">slow</td>.*?<td class="wide with-form"', page, re.DOTALL
        )
        assert re.findall(r'<td class="number">([^<]*)</td>', row)[-1] == "2"
        consumers = client.get("/consumers").text
        assert "<td>2</td>" in re.sub(r"<td[^>]*>", "<td>", consumers)
        for sorted_by in (page, consumers):
            assert 'data-key="0.75">75.0%' in sorted_by
        for tags, is_shown in ((("management",), False), (("monitoring",), True)):
            shop.call(lambda tags=tags: _put_reader(shop, tags))
            answer = httpx.get(
                f"{shop.http_url}/queue?vhost=/&name=waiting", auth=("reader", "secret")
            )
            assert ('<td class="name">slow</td>' in answer.text) is is_shown
            assert ("1 consumer of other users" in answer.text) is not is_shown


def _put_reader(shop, tags):
    shop.broker.access.put_user(User("reader", hash_quickly("secret"), tags))
    shop.broker.access.set_permissions("reader", "/", "", "", ".*")


def test_what_is_copied_for_a_queue_of_the_broker_runs(client, capsys):
    filter = "amount = 1200 AND region IS NULL"
    page = client.get("/playground", params={"of": "queue:%2F/orders", "filter": filter}).text
    copied = re.findall(r'class="snippet"><span>([^<]*)</span><pre>(.*?)</pre>', page, re.DOTALL)
    copied = {title: html.unescape(text) for title, text in copied}
    program, *words = shlex.split(copied["Command line"])
    assert program == "headgate"
    assert run(words) == 0
    assert "onerror" in capsys.readouterr().out
    seen = []

    def stop(body):
        seen.append(body)
        raise InterruptedError

    with pytest.raises(InterruptedError):
        exec(copied["pika"], {"print": stop})
    assert seen == [ATTACK.encode()]


def test_the_password_of_a_database_is_not_shown():
    site = Site(database="postgresql://shop:secret@localhost/orders")
    assert "secret" not in site.about + site.database_text
    assert "localhost/orders" in site.about
