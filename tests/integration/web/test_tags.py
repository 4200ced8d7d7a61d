"""Every method of every path, asked by a user of every tag."""

import httpx
import pytest

from headgate.web.api import TABLES
from headgate.web.identity import IMPLIED

ENDPOINTS = [endpoint for table in TABLES for endpoint in table.endpoints]
TAGS = ("", "management", "policymaker", "monitoring", "administrator")


@pytest.fixture
def tagged(http, running):
    """A client that logs in as a user with a tag and all permissions, by tag."""
    clients = {}
    for tag in TAGS:
        name = f"user-{tag or 'none'}"
        http.put(f"/api/users/{name}", json={"password": "p", "tags": tag})
        http.put(f"/api/permissions/%2F/{name}", json=dict.fromkeys(("configure", "write", "read"), ".*"))  # fmt: skip
        clients[tag] = httpx.Client(base_url=running.http_url, auth=(name, "p"))
    yield clients
    for tag, client in clients.items():
        client.close()
        http.delete(f"/api/users/user-{tag or 'none'}")


def path_of(endpoint):
    """The path of an object that is not there, so that no request changes anything."""
    values = {"{vhost}": "gone", "{kind}": "q", "{port}": "1", "{within}": "1", "{unit}": "days"}
    parts = [
        values.get(part, "gone" if part.startswith("{") else part) for part in endpoint.segments
    ]
    # A stream that is no queue is shown to those who monitor; one that is, to those who may read it.
    return "/" + "/".join(parts) + ("?queue=gone" if parts[-1] == "subscribe" else "")


def is_spared(endpoint):
    """What changes something although its path names nothing that exists."""
    return endpoint.method != "GET" and not any(
        part in endpoint.path for part in ("{vhost}", "{user}", "{connection}", "{username}")
    )


def test_a_request_is_refused_to_users_without_its_tag_and_to_no_others(tagged):
    wrong = []
    for endpoint in ENDPOINTS:
        if is_spared(endpoint) or (endpoint.method == "PUT" and endpoint.segments[1] in ("vhosts", "users")):  # fmt: skip
            continue
        for tag, client in tagged.items():
            answer = client.request(endpoint.method, path_of(endpoint), json={} if endpoint.method != "GET" else None)  # fmt: skip
            allowed = endpoint.needs is None or endpoint.needs in IMPLIED.get(tag, ())
            if (answer.status_code == 401) == allowed:
                wrong.append((endpoint.method, endpoint.path, tag, answer.status_code, answer.text))
    assert wrong == []


# What RabbitMQ 4.0 asks for, from its access control functions: the lowest tag that is let in.
NEEDS = {
    "GET /api/overview": "management",
    "GET /api/nodes": "monitoring",
    "PUT /api/cluster-name": "administrator",
    "GET /api/queues": "management",
    "PUT /api/queues/{vhost}/{queue}": "management",
    "GET /api/connections": "management",
    "GET /api/users": "administrator",
    "PUT /api/users/{user}": "administrator",
    "GET /api/permissions": "administrator",
    "GET /api/vhosts": "management",
    "PUT /api/vhosts/{vhost}": "administrator",
    "GET /api/policies": "management",
    "PUT /api/policies/{vhost}/{name}": "policymaker",
    "DELETE /api/policies/{vhost}/{name}": "policymaker",
    "PUT /api/operator-policies/{vhost}/{name}": "administrator",
    "GET /api/parameters": "policymaker",
    "PUT /api/global-parameters/{name}": "policymaker",
    "GET /api/definitions": "administrator",
    "POST /api/definitions": "administrator",
    "POST /api/users/bulk-delete": "administrator",
    "PUT /api/vhost-limits/{vhost}/{name}": "administrator",
    "GET /api/health/checks/alarms": "management",
    "GET /api/feature-flags": "administrator",
    "GET /api/whoami": "management",
}


def test_the_tags_are_those_of_rabbitmq():
    ours = {f"{endpoint.method} {endpoint.path}": endpoint.needs for endpoint in ENDPOINTS}
    assert {path: ours[path] for path in NEEDS} == NEEDS
