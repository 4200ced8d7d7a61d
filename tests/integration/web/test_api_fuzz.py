"""Requests that no tool sends: every answer is one of the client's mistakes or a success, never a failure of the broker."""

import json
import random

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings

from headgate.web.api import TABLES

ENDPOINTS = [endpoint for table in TABLES for endpoint in table.endpoints]
WORDS = ["/", "guest", "q", "amq.direct", "", "..", "%", "\x00", "é", "a" * 300, "~", "-1", "0", "e", "q~x", "\ud7ff", "name", "max-queues"]  # fmt: skip
VALUES = [None, True, 0, -1, 1 << 70, 1.5, "", "x", "true", "\x00", [], [1, "x"], {}, {"a": {"b": [None]}}, "a" * 300]  # fmt: skip
KEYS = ["durable", "auto_delete", "arguments", "type", "routing_key", "payload", "payload_encoding", "properties", "count", "ackmode", "encoding", "truncate", "tags", "password", "password_hash", "hashing_algorithm", "configure", "write", "read", "pattern", "definition", "priority", "apply-to", "value", "users", "filter", "headers", "exchange", "name", "description", "default_queue_type", "limits", "action", "topic"]  # fmt: skip
GOOD = {"payload_encoding": "string", "ackmode": "ack_requeue_true", "encoding": "auto", "count": 1, "type": "topic", "pattern": ".*", "definition": {"max-length": 1}, "routing_key": "k", "payload": "p", "properties": {}, "tags": "", "filter": "a = 1", "exchange": "amq.topic"}  # fmt: skip
QUERIES = ["", "page=1", "page=x&page_size=9", "sort=messages&columns=name", "sort=a.b.c", "columns=,,.", "page=1&name=%5B&use_regex=true", "limit=x", "after=-1", "if-unused=true", "disable_stats=true"]  # fmt: skip
SPARED = ("/api/users/{user}", "/api/vhosts/{vhost}", "/api/permissions/{vhost}/{user}", "/api/users/bulk-delete")  # of guest and "/"  # fmt: skip


def quote(text):
    return "".join(f"%{octet:02X}" for octet in text.encode(errors="surrogatepass"))


def random_body(source):
    kind = source.random()
    if kind < 0.1:
        return source.choice([b"", b"{", b"null", b'"x"', b"[]", b"\xff", b"[" * 5000, b'{"a":"\\ud800"}'])  # fmt: skip
    names = source.sample(KEYS, source.randrange(1, 8))
    body = {name: source.choice(VALUES) for name in names}
    if kind > 0.5:
        body = {**GOOD, **body}
    return json.dumps(body).encode()


@pytest.mark.parametrize("seed", range(4))
def test_random_requests_are_never_a_failure_of_the_broker(http, seed, caplog):
    source = random.Random(seed)
    for _ in range(400):
        endpoint = source.choice(ENDPOINTS)
        path = endpoint.path
        spare = endpoint.method != "GET" and path in SPARED
        for part in endpoint.segments:
            if part.startswith("{"):
                words = ["fuzz", "fuzz2"] if spare else WORDS
                path = path.replace(part, quote(source.choice(words)), 1)
        content = random_body(source) if endpoint.method != "GET" else None
        answer = http.request(endpoint.method, f"{path}?{source.choice(QUERIES)}", content=content)
        is_check = "/health/" in path
        assert answer.status_code < 500 or is_check, (endpoint.method, path, content, answer.text)
        if answer.status_code >= 400 and not is_check:
            assert {"error", "reason"} <= answer.json().keys() or "detail" in answer.json()
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []
    assert http.get("/api/whoami").status_code == 200


@pytest.fixture(scope="module")
def api_schema(running):
    return schemathesis.openapi.from_url(f"{running.http_url}/api/headgate/openapi.json")


schema = schemathesis.pytest.from_fixture("api_schema")


@schema.exclude(path_regex=r"/users|/vhosts|/permissions").parametrize()
@settings(
    max_examples=5,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_generated_requests_are_answered_as_the_openapi_document_says(case):
    answer = case.call(auth=("guest", "guest"))
    assert answer.status_code < 500 or "/health/" in case.path
