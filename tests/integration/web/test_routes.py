"""Every route of the API and every page, asked by users who may and by users who may not.

The table below names each method of each path, the tag that it needs as RabbitMQ 4.0 asks for it, and what its user needs in the
virtual host. A route that is not in it fails the test: its author says who may ask for it.
"""

import itertools
from urllib.parse import quote, unquote

import httpx
import pika
import pytest

from headgate.broker import hash_quickly
from headgate.web.api import TABLES
from headgate.web.identity import IMPLIED
from headgate.web.pages import Site, make_pages

ENDPOINTS = {f"{e.method} {e.path}": e for table in TABLES for e in table.endpoints}
TAGS = ("", "management", "policymaker", "monitoring", "administrator")
KINDS = ("configure", "write", "read")
# By tag, and by what else is needed: a permission (`enter`: any), or that the connection is one's `own`.
ROUTES = {
    (None, ""): """
        GET /api/auth
        GET /api/headgate/openapi.json
    """,
    ("administrator", ""): """
        PUT /api/cluster-name
        GET /api/definitions
        POST /api/definitions
        GET /api/definitions/{vhost}
        POST /api/definitions/{vhost}
        GET /api/feature-flags
        PUT /api/feature-flags/{name}/enable
        DELETE /api/headgate/sql-queues/{queue}/contents
        DELETE /api/headgate/sql-queues/{queue}/dead
        PUT /api/headgate/sql-queues/{queue}/filter
        POST /api/headgate/sql-queues/{queue}/publish
        POST /api/headgate/sql-queues/{queue}/requeue
        DELETE /api/operator-policies/{vhost}/{name}
        PUT /api/operator-policies/{vhost}/{name}
        GET /api/permissions
        DELETE /api/permissions/{vhost}/{user}
        GET /api/permissions/{vhost}/{user}
        PUT /api/permissions/{vhost}/{user}
        POST /api/rebalance/queues
        GET /api/topic-permissions
        DELETE /api/topic-permissions/{vhost}/{user}
        GET /api/topic-permissions/{vhost}/{user}
        PUT /api/topic-permissions/{vhost}/{user}
        DELETE /api/topic-permissions/{vhost}/{user}/{exchange}
        GET /api/user-limits
        GET /api/user-limits/{user}
        DELETE /api/user-limits/{user}/{name}
        PUT /api/user-limits/{user}/{name}
        GET /api/users
        POST /api/users/bulk-delete
        GET /api/users/without-permissions
        DELETE /api/users/{user}
        GET /api/users/{user}
        PUT /api/users/{user}
        GET /api/users/{user}/permissions
        GET /api/users/{user}/queues
        GET /api/users/{user}/topic-permissions
        DELETE /api/vhost-limits/{vhost}/{name}
        PUT /api/vhost-limits/{vhost}/{name}
        DELETE /api/vhosts/{vhost}
        PUT /api/vhosts/{vhost}
        GET /api/vhosts/{vhost}/permissions
        POST /api/vhosts/{vhost}/start/{node}
        GET /api/vhosts/{vhost}/topic-permissions
    """,
    ("management", ""): """
        GET /api/auth/hash_password/{password}
        GET /api/bindings
        GET /api/channels
        GET /api/cluster-name
        GET /api/connections
        DELETE /api/connections/username/{username}
        GET /api/connections/username/{username}
        GET /api/consumers
        GET /api/exchanges
        GET /api/extensions
        GET /api/headgate/consumers
        POST /api/headgate/filters/check
        POST /api/headgate/filters/explain
        GET /api/headgate/streams
        GET /api/headgate/subscribe
        GET /api/health/checks/alarms
        GET /api/health/checks/below-node-connection-limit
        GET /api/health/checks/certificate-expiration/{within}/{unit}
        GET /api/health/checks/is-in-service
        GET /api/health/checks/local-alarms
        GET /api/health/checks/metadata-store/initialized
        GET /api/health/checks/metadata-store/initialized/with-data
        GET /api/health/checks/node-is-mirror-sync-critical
        GET /api/health/checks/node-is-quorum-critical
        GET /api/health/checks/port-listener/{port}
        GET /api/health/checks/protocol-listener/{protocols}
        GET /api/health/checks/quorum-queues-without-elected-leaders/all-vhosts
        GET /api/health/checks/ready-to-serve-clients
        GET /api/health/checks/virtual-hosts
        GET /api/healthchecks/node
        GET /api/healthchecks/node/{node}
        GET /api/operator-policies
        GET /api/overview
        GET /api/policies
        GET /api/queues
        GET /api/queues/detailed
        GET /api/version
        GET /api/vhosts
        GET /api/whoami
    """,
    ("management", "configure"): """
        DELETE /api/exchanges/{vhost}/{exchange}
        PUT /api/exchanges/{vhost}/{exchange}
        DELETE /api/queues/{vhost}/{queue}
        PUT /api/queues/{vhost}/{queue}
    """,
    ("management", "enter"): """
        GET /api/aliveness-test/{vhost}
        GET /api/bindings/{vhost}
        GET /api/bindings/{vhost}/e/{source}/{kind}/{destination}
        GET /api/bindings/{vhost}/e/{source}/{kind}/{destination}/{props}
        GET /api/consumers/{vhost}
        GET /api/exchanges/{vhost}
        GET /api/exchanges/{vhost}/{exchange}
        GET /api/exchanges/{vhost}/{exchange}/bindings/destination
        GET /api/exchanges/{vhost}/{exchange}/bindings/source
        GET /api/headgate/consumers/{vhost}
        GET /api/headgate/streams/{vhost}
        POST /api/headgate/trace/{vhost}
        GET /api/operator-policies/{vhost}
        GET /api/policies/{vhost}
        GET /api/queues/quorum/{vhost}/{queue}/status
        GET /api/queues/{vhost}
        GET /api/queues/{vhost}/{queue}
        POST /api/queues/{vhost}/{queue}/actions
        GET /api/queues/{vhost}/{queue}/bindings
        GET /api/vhosts/{vhost}
        GET /api/vhosts/{vhost}/channels
        GET /api/vhosts/{vhost}/connections
    """,
    ("management", "own"): """
        GET /api/channels/{channel}
        DELETE /api/connections/{connection}
        GET /api/connections/{connection}
        GET /api/connections/{connection}/channels
    """,
    ("management", "read"): """
        PUT /api/headgate/consumers/{vhost}/{queue}/{tag}/filter
        GET /api/headgate/queues/{vhost}/{queue}/messages
        DELETE /api/queues/{vhost}/{queue}/contents
        POST /api/queues/{vhost}/{queue}/get
    """,
    ("management", "write"): """
        POST /api/exchanges/{vhost}/{exchange}/publish
    """,
    ("management", "write read"): """
        POST /api/bindings/{vhost}/e/{source}/{kind}/{destination}
        DELETE /api/bindings/{vhost}/e/{source}/{kind}/{destination}/{props}
        DELETE /api/headgate/queues/{vhost}/{queue}/messages/{position}
        POST /api/headgate/queues/{vhost}/{queue}/messages/{position}/requeue
    """,
    ("monitoring", ""): """
        GET /api/deprecated-features
        GET /api/deprecated-features/used
        GET /api/headgate/statistics
        GET /api/nodes
        GET /api/nodes/{node}
        GET /api/nodes/{node}/memory
        GET /api/shovels
        GET /api/vhost-limits
        GET /api/vhost-limits/{vhost}
    """,
    ("monitoring", "enter"): """
        GET /api/shovels/{vhost}
    """,
    ("policymaker", ""): """
        GET /api/global-parameters
        DELETE /api/global-parameters/{name}
        GET /api/global-parameters/{name}
        PUT /api/global-parameters/{name}
        GET /api/parameters
        GET /api/parameters/{component}
    """,
    ("policymaker", "enter"): """
        GET /api/operator-policies/{vhost}/{name}
        GET /api/parameters/{component}/{vhost}
        DELETE /api/parameters/{component}/{vhost}/{name}
        GET /api/parameters/{component}/{vhost}/{name}
        PUT /api/parameters/{component}/{vhost}/{name}
        DELETE /api/policies/{vhost}/{name}
        GET /api/policies/{vhost}/{name}
        PUT /api/policies/{vhost}/{name}
    """,
}
NEEDS = {
    " ".join(line.split()): needs
    for needs, lines in ROUTES.items()
    for line in lines.splitlines()
    if line.strip()
}
# What changes something although its path names nothing that exists.
SPARED = {
    path for path in NEEDS
    if not path.startswith("GET") and (
        path.split()[1].split("/")[2] in ("cluster-name", "rebalance", "definitions", "global-parameters")
        or path in ("PUT /api/vhosts/{vhost}", "PUT /api/users/{user}", "POST /api/users/bulk-delete")
    )
}  # fmt: skip
BODIES = {
    "PUT exchanges": {"type": "direct"},
    "PUT policies": {"pattern": "x", "definition": {"max-length": 9}},
    "PUT headgate": {"filter": None},
    "PUT parameters": {"value": {}},
    "POST exchanges": {"routing_key": "none", "properties": {}, "payload": "m", "payload_encoding": "string"},
    "POST queues": {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"},
    "POST trace": {"exchange": "secret-x"},
}  # fmt: skip


def test_every_route_is_in_the_table():
    ours = {path: endpoint.needs for path, endpoint in ENDPOINTS.items()}
    assert ours == {path: tag for path, (tag, _) in NEEDS.items()}
    bare = [path for path, (tag, within) in NEEDS.items()
            if "{vhost}" in path and not within and tag in ("management", "policymaker")]  # fmt: skip
    assert bare == []


def ask(client, path, values):
    """Ask for a path whose varying parts have these values."""
    method, template = path.split()
    parts = [values.get(part, "gone") if part[:1] == "{" else part for part in template.split("/")]
    body = BODIES.get(f"{method} {parts[2]}", BODIES.get(f"{method} {parts[3]}" if len(parts) > 3 else "", {}))  # fmt: skip
    where = "/".join(part.replace("/", "%2F").replace(" ", "%20") for part in parts)
    query = "?queue=gone" if where.endswith("subscribe") else ""
    return client.request(method, where + query, json=None if method == "GET" else body)


@pytest.fixture
def add_user(http, running):
    """A function that makes a user with tags and permissions, and returns a client that logs in as it."""
    made = []

    def add(name, tags, vhost, *permissions):
        http.put(f"/api/users/{name}", json={"password": "p", "tags": tags})
        if permissions:
            patterns = dict(zip(KINDS, permissions, strict=True))
            assert http.put(f"/api/permissions/{vhost}/{name}", json=patterns).status_code < 300
        made.append((name, httpx.Client(base_url=running.http_url, auth=(name, "p"), timeout=30)))
        return made[-1][1]

    yield add
    for name, client in made:
        client.close()
        http.delete(f"/api/users/{name}")


def test_a_route_is_refused_to_users_without_its_tag_and_to_no_others(add_user):
    wrong = []
    clients = {tag: add_user(f"user-{tag}", tag, "%2F", ".*", ".*", ".*") for tag in TAGS}
    named = {"{port}": "1", "{within}": "1", "{unit}": "days"}
    for (path, (needed, _)), tag in itertools.product(NEEDS.items(), TAGS):
        if path in SPARED and needed in IMPLIED.get(tag, ()):
            continue
        answer = ask(clients[tag], path, named)
        allowed = needed is None or needed in IMPLIED.get(tag, ())
        if (answer.status_code == 401) == allowed or answer.status_code == 500:
            wrong.append((path, tag, answer.status_code, answer.text))
    assert wrong == []


@pytest.fixture
def secret(http, running):
    """A virtual host with one of everything, and a connection of guest to it; the values of paths that name them."""
    http.put("/api/vhosts/secret")
    url = running.url.removesuffix("/%2F").removesuffix("/") + "/secret"
    connection = pika.BlockingConnection(pika.URLParameters(url))
    connection.channel().basic_qos(prefetch_count=1)
    [opened] = [row["name"] for row in http.get("/api/connections").json() if row["vhost"] == "secret"]  # fmt: skip
    yield {
        "{vhost}": "secret", "{queue}": "secret-q", "{exchange}": "secret-x", "{source}": "secret-x", "{kind}": "q",
        "{destination}": "secret-q", "{props}": "k", "{name}": "secret-p", "{component}": "c", "{position}": "1",
        "{tag}": "t", "{connection}": opened, "{channel}": f"{opened} (1)", "{username}": "guest", "{user}": "guest",
    }  # fmt: skip
    connection.close()
    http.delete("/api/vhosts/secret")


def fill(http):
    """Declare what a request may have deleted."""
    http.put("/api/queues/secret/secret-q")
    http.put("/api/exchanges/secret/secret-x", json={"type": "direct"})
    http.post("/api/bindings/secret/e/secret-x/q/secret-q", json={"routing_key": "k"})
    for kind in ("policies", "operator-policies"):
        body = {"pattern": "^none$", "definition": {"max-length": 9}}
        http.put(f"/api/{kind}/secret/secret-p", json=body)
    http.put("/api/parameters/c/secret/secret-p", json={"value": {"secret-key": 1}})


def test_who_may_not_enter_a_virtual_host_is_refused_everything_in_it(http, add_user, secret):
    fill(http)
    outside = add_user("outside", "policymaker", "%2F", ".*", ".*", ".*")
    answers = {
        path: ask(outside, path, secret)
        for path, (tag, within) in NEEDS.items()
        if within and tag != "monitoring"
    }
    assert {path: a.status_code for path, a in answers.items() if a.status_code != 401} == {}


def test_lists_and_pages_do_not_show_what_their_user_may_not_see(http, running, add_user, secret):
    fill(http)
    outside = add_user("outside", "policymaker", "%2F", ".*", ".*", ".*")
    paths = [path.split()[1] for path in NEEDS if path.startswith("GET") and "{" not in path]
    paths += [route.path for route in make_pages(Site(broker=running.broker))]
    shown = {
        path: answer.text
        for path in paths
        if path not in ("/live", "/api/headgate/subscribe", "/static")
        and "secret" in (answer := outside.get(path)).text
    }
    assert shown == {}


def test_pages_ask_for_a_login(running):
    with httpx.Client(base_url=running.http_url) as anybody:
        for route in make_pages(Site(broker=running.broker)):
            answer = anybody.get(route.path)
            is_open = route.path in ("/login", "/static")
            assert is_open or answer.status_code in (303, 401), route.path


def test_a_route_needs_the_permissions_of_its_method_and_no_others(http, add_user, secret):
    wrong = []
    routes = {
        path: within.split() for path, (_, within) in NEEDS.items() if within not in ("", "own")
    }
    for given in ((), *itertools.combinations(KINDS, 1), *itertools.combinations(KINDS, 2)):
        client = add_user("inside", "policymaker,monitoring", "secret", *(".*" if kind in given else "" for kind in KINDS))  # fmt: skip
        for path, needed in routes.items():
            fill(http)
            allowed = needed == ["enter"] or all(kind in given for kind in needed)
            answer = ask(client, path, secret)
            if (answer.status_code == 401) == allowed or answer.status_code == 500:
                wrong.append((path, given, answer.status_code, answer.text))
    assert wrong == []


def test_over_http_nothing_can_be_done_through_exchanges_and_headers_that_amqp_refuses(
    http, add_user, secret
):
    """Ways around a permission: an alternate exchange, a forged header of a dead letter, the filter of another's consumer."""
    fill(http)
    http.put("/api/queues/secret/own")
    client = add_user("inside", "management", "secret", "^own", "^own$|^amq.default$", "^own")
    body = {"type": "direct", "arguments": {"alternate-exchange": "secret-x"}}
    assert client.put("/api/exchanges/secret/own-x", json=body).status_code == 401
    body["arguments"] = {"alternate-exchange": "own"}
    assert client.put("/api/exchanges/secret/own-x", json=body).status_code == 201
    forged = {"headers": {"x-first-death-queue": "secret-q"}}
    message = {"routing_key": "own", "properties": forged, "payload": "m", "payload_encoding": "string"}  # fmt: skip
    assert http.post("/api/exchanges/secret/amq.default/publish", json=message).json()["routed"]
    [seen] = client.get("/api/headgate/queues/secret/own/messages").json()["items"]
    http.put("/api/permissions/secret/inside", json={"configure": "^own", "write": "^own", "read": "^own"})  # fmt: skip
    place = f"/api/headgate/queues/secret/own/messages/{seen['position']}"
    answer = client.post(f"{place}/requeue")
    assert (answer.status_code, "amq.default" in answer.text) == (401, True)
    assert client.delete(place).status_code == 204


def test_the_filter_of_a_consumer_is_changed_by_its_user_or_an_administrator(http, amqp, add_user):
    http.put("/api/queues/%2F/orders")
    amqp.channel().basic_consume("orders", lambda *_: None, consumer_tag="one")
    other = add_user("other", "management", "%2F", ".*", ".*", ".*")
    place = "/api/headgate/consumers/%2F/orders/one/filter"
    assert other.put(place, json={"filter": "n = 1"}).status_code == 401
    assert other.get("/api/headgate/consumers").json() == []
    assert http.put(place, json={"filter": "n = 1"}).status_code == 204


def test_a_pattern_that_takes_exponential_time_is_given_up(http, add_user):
    pytest.importorskip("regex")
    slow, name = "(a|aa)+$", "a" * 100 + "b"
    http.put(f"/api/queues/%2F/{name}")
    asked = {"page": 1, "name": slow, "use_regex": "true"}
    assert http.get("/api/queues", params=asked).json()["filtered_count"] == 0
    body = {"pattern": slow, "definition": {"max-length": 9}}
    assert http.put("/api/policies/%2F/slow", json=body).status_code == 201
    assert http.get(f"/api/queues/%2F/{name}").json()["policy"] is None
    for refused in ("(" * 5_000 + ")" * 5_000, "(", "a{2,1}"):
        answer = http.put("/api/policies/%2F/bad", json={**body, "pattern": refused})
        assert answer.status_code == 400, refused[:10]
    http.delete("/api/policies/%2F/slow")
    client = add_user("slow", "management", "%2F", slow, slow, slow)
    assert client.put(f"/api/queues/%2F/{name}").status_code == 401


@pytest.mark.parametrize(
    "body", ['{"value": NaN}', '{"value": [Infinity]}', '{"value": -Infinity}']
)
def test_numbers_that_json_does_not_have_are_refused(http, body):
    answer = http.put("/api/global-parameters/p", content=body)
    assert (answer.status_code, answer.json()["error"]) == (400, "bad_request")
    assert http.get("/api/global-parameters/p").status_code == 404


def test_an_alarm_stops_those_who_publish_over_http_too(http, running):
    message = {"routing_key": "q", "properties": {}, "payload": "m", "payload_encoding": "string"}
    for is_on, status in ((True, 503), (False, 200)):
        running.call(lambda is_on=is_on: running.broker.alarms.set("memory", is_on))
        answer = http.post("/api/exchanges/%2F/amq.default/publish", json=message)
        assert answer.status_code == status, answer.text


def test_the_reason_of_a_closed_connection_may_be_long(http, amqp):
    [opened] = http.get("/api/connections").json()
    place = f"/api/connections/{quote(opened['name'])}"
    assert http.delete(place, headers={"x-reason": "r" * 10_000}).status_code == 204
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="rrr"):
        amqp.process_data_events(30)


@pytest.mark.parametrize("name", ["a%0Ab", "a%0A", "%0A", "a%0D%E2%80%A8b"])
def test_a_name_may_hold_a_line_break(http, name):
    assert http.put(f"/api/queues/%2F/{name}").status_code == 201
    assert http.get(f"/api/queues/%2F/{name}").json()["name"] == unquote(name)
    assert http.delete(f"/api/queues/%2F/{name}").status_code == 204


def test_changes_are_written_down_without_secrets(http, add_user, caplog):
    caplog.set_level("INFO", "headgate.audit")
    client = add_user("clerk", "policymaker", "%2F", ".*", ".*", ".*")
    shovel = {"src-uri": "amqp://u:hidden@old", "src-queue": "q", "dest-uri": "amqp://u:hidden@127.0.0.1:1", "dest-queue": "q"}  # fmt: skip
    client.put("/api/policies/%2F/p", json={"pattern": "x", "definition": {"max-length": 9}})
    client.put("/api/policies/%2F/p", json={"pattern": "(", "definition": {"max-length": 9}})
    client.put("/api/parameters/shovel/%2F/s", json={"value": shovel})
    client.delete("/api/parameters/shovel/%2F/s")
    client.delete("/api/policies/%2F/p")
    client.put("/api/users/thief", json={"password": "hidden", "tags": "administrator"})
    http.put(
        "/api/users/ann", json={"password_hash": hash_quickly("hidden").to_text(), "tags": "x"}
    )
    http.get("/api/auth/hash_password/hidden")
    http.post("/api/definitions", json={"users": [{"name": "ann", "password": "hidden", "tags": ""}]})  # fmt: skip
    http.delete("/api/users/ann")
    lines = [(r.user, r.method, r.path, r.given, r.message) for r in caplog.records if r.name == "headgate.audit"]  # fmt: skip
    policy = '{"pattern": "x", "definition": {"max-length": 9}}'
    assert lines[2:] == [
        ("clerk", "PUT", "/api/policies///p", policy, "changed"),
        ("clerk", "PUT", "/api/policies///p", policy.replace("x", "(", 1), "change refused"),
        ("clerk", "PUT", "/api/parameters/shovel///s", "{}", "changed"),
        ("clerk", "DELETE", "/api/parameters/shovel///s", "{}", "changed"),
        ("clerk", "DELETE", "/api/policies///p", "{}", "changed"),
        ("clerk", "PUT", "/api/users/thief", "{}", "change refused"),
        ("guest", "PUT", "/api/users/ann", '{"tags": "x"}', "changed"),
        ("guest", "POST", "/api/definitions", "{}", "changed"),
        ("guest", "DELETE", "/api/users/ann", "{}", "changed"),
    ]
    assert {r.address for r in caplog.records if r.name == "headgate.audit"} == {"127.0.0.1"}
    assert "hidden" not in str([r.__dict__ for r in caplog.records])
