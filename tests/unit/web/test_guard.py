"""Every request passes the guard: login, origin, size; and every answer has its headers."""

import asyncio
import base64

import httpx
import pytest

from headgate.amqp import AmqpCodec
from headgate.broker import Broker
from headgate.store import InMemoryStore
from headgate.web import make_app

HOST = "http://broker:15672"


@pytest.fixture
def ask():
    """Ask an app in this process: method, path and the arguments of httpx."""
    runner = asyncio.Runner()
    loop = runner.get_loop()
    broker = Broker(InMemoryStore(loop.call_soon), AmqpCodec(), loop.call_later)
    transport = httpx.ASGITransport(make_app(broker), client=("127.0.0.1", 4711))
    client = httpx.AsyncClient(transport=transport, base_url=HOST)

    def ask(method, path, **more):
        return runner.run(client.request(method, path, **more))

    ask.client = client
    yield ask
    runner.run(client.aclose())
    runner.close()


GUEST = ("guest", "guest")


def test_a_user_with_the_right_password_is_let_in(ask):
    answer = ask("GET", "/api/whoami", auth=GUEST)
    assert (answer.status_code, answer.json()["name"]) == (200, "guest")
    assert answer.json()["tags"] == ["administrator"]


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "Basic",
        "Basic !!!",
        "Basic " + base64.b64encode(b"guest").decode(),
        "Basic " + base64.b64encode(b"guest:wrong").decode(),
        "Basic " + base64.b64encode(b"\xff:\xff").decode(),
        "Bearer x",
    ],
)
def test_a_request_without_a_login_is_refused_in_the_shape_of_rabbitmq(ask, authorization):
    headers = {} if authorization is None else {"authorization": authorization}
    answer = ask("GET", "/api/whoami", headers=headers)
    assert answer.status_code == 401
    assert answer.json() == {"error": "not_authorised", "reason": "Login failed"}
    assert answer.headers["www-authenticate"].startswith("Basic realm=")


def test_every_answer_has_the_security_headers(ask):
    for path in ("/api/whoami", "/api/nothing", "/nowhere"):
        headers = ask("GET", path, auth=GUEST).headers
        assert "'unsafe-inline'" not in headers["content-security-policy"]
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"
        assert "access-control-allow-origin" not in headers


def test_an_unknown_path_is_not_found_in_the_shape_of_its_part(ask):
    answer = ask("GET", "/api/nothing", auth=GUEST)
    assert answer.json() == {"error": "Object Not Found", "reason": "Not Found"}
    ours = ask("GET", "/api/headgate/nothing", auth=GUEST)
    assert ours.headers["content-type"] == "application/problem+json"
    assert ours.json()["status"] == 404


def test_a_method_that_a_path_does_not_have_is_answered_with_those_it_has(ask):
    answer = ask("DELETE", "/api/whoami", auth=GUEST)
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD, OPTIONS")
    assert ask("OPTIONS", "/api/whoami").status_code == 200


def test_a_body_that_is_too_large_is_refused(ask):
    answer = ask("PUT", "/api/whoami", auth=GUEST, content=b"x" * 20_000_001)
    assert (answer.status_code, answer.json()["error"]) == (413, "payload_too_large")


async def _parts(count):
    for _ in range(count):
        yield b"x" * 1_000_000


def test_a_body_of_unknown_length_is_cut_off(ask):
    answer = ask("POST", "/login", content=_parts(21))
    assert answer.status_code == 413


def log_in(ask, **more):
    form = {"username": "guest", "password": "guest", **more}
    return ask("POST", "/login", data=form, headers={"origin": HOST})


def test_a_login_begins_a_session_that_only_our_own_pages_use(ask):
    answer = log_in(ask, next="/queues")
    assert (answer.status_code, answer.headers["location"]) == (303, "/queues")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert ask("GET", "/api/whoami").status_code == 200
    assert ask("POST", "/logout").status_code == 403  # without an origin
    elsewhere = {"origin": "http://evil.example"}
    assert ask("POST", "/logout", headers=elsewhere).status_code == 403
    assert ask("POST", "/logout", headers={"sec-fetch-site": "cross-site"}).status_code == 403
    assert ask("POST", "/logout", headers={"origin": HOST}).status_code == 303
    assert ask("GET", "/api/whoami").status_code == 401


def test_a_page_of_another_site_changes_nothing_also_with_a_password_the_browser_remembers(ask):
    headers = {"origin": "http://evil.example"}
    assert ask("POST", "/api/whoami", auth=GUEST, headers=headers).status_code == 403


def test_a_wrong_password_begins_no_session(ask):
    answer = ask("POST", "/login", data={"username": "guest", "password": "x"})
    assert (answer.status_code, "set-cookie" in answer.headers) == (401, False)


@pytest.mark.parametrize("path", ["//evil.example", "/\\evil.example", "http://evil.example", "x"])
def test_a_login_sends_nobody_to_another_site(ask, path):
    assert log_in(ask, next=path).headers["location"] == "/"
