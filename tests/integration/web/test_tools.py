"""Tools that exist, and the requests of those that cannot be run here, written down as data."""

import asyncio

import httpx
import kombu
import pika
import pyrabbit2
import pytest
from flower.utils.broker import RabbitMQ as FlowerBroker


def test_pyrabbit2_administers_the_broker(http, running, amqp):
    client = pyrabbit2.Client(f"127.0.0.1:{running.http_port}", "guest", "guest")
    assert client.is_alive()
    assert client.get_whoami()["name"] == "guest"
    assert client.get_overview()["rabbitmq_version"].startswith("4.")
    assert client.get_nodes()[0]["running"]
    client.create_vhost("tools")
    assert "tools" in client.get_vhost_names()
    client.create_user("tool", "secret", tags="monitoring")
    assert "tool" in [user["name"] for user in client.get_users()]
    client.set_vhost_permissions("tools", "guest", ".*", ".*", ".*")
    assert client.get_vhost_permissions("tools")[0]["user"] == "guest"
    client.create_exchange("tools", "shop", "topic")
    assert client.get_exchange("tools", "shop")["type"] == "topic"
    client.create_queue("tools", "orders", durable=True)
    client.create_binding("tools", "shop", "orders", "a.#")
    assert [b["routing_key"] for b in client.get_queue_bindings("tools", "orders")] == ["orders", "a.#"]  # fmt: skip
    assert client.publish("tools", "shop", "a.b", "hello")
    assert client.get_queue_depth("tools", "orders") == 1
    [message] = client.get_messages("tools", "orders", count=1, requeue=True)
    assert message["payload"] == "hello"
    client.purge_queue("tools", "orders")
    assert client.get_queue_depth("tools", "orders") == 0
    client.delete_binding("tools", "shop", "orders", "a.%23")
    client.delete_queue("tools", "orders")
    client.delete_exchange("tools", "shop")
    assert client.get_connections()[0]["user"] == "guest"
    client.delete_user("tool")
    client.delete_vhost("tools")
    assert "tools" not in client.get_vhost_names()


def test_flower_reads_the_lengths_of_celerys_queues(http, running):
    http.put("/api/queues/%2F/celery", json={"durable": True})
    api = f"http://guest:guest@127.0.0.1:{running.http_port}/api/"

    async def ask():
        return await FlowerBroker(running.url, api).queues(["celery"])

    assert [(q["name"], q["messages"]) for q in asyncio.run(ask())] == [("celery", 0)]


def test_kombu_reads_the_length_of_a_queue(running):
    with kombu.Connection(running.url) as connection:
        queue = kombu.Queue("lengths", channel=connection)
        queue.declare()
        producer = kombu.Producer(connection)
        for _ in range(3):
            producer.publish("x", routing_key="lengths")
        assert queue.queue_declare(passive=True).message_count == 3
        queue.delete()


# Method, path, body; expected status; and columns that the tool reads, as paths of keys.
KEDA = [  # scalers/rabbitmq_scaler.go: by HTTP, one queue, or many by a pattern
    ("GET", "/api/queues/%2F/work", None, 200, ["messages", "message_stats.publish_details.rate", "name", "consumers", "messages_unacknowledged", "messages_ready"]),
    ("GET", "/api/queues/%2F?page=1&use_regex=true&pagination=false&name=%5Ework%24&page_size=100", None, 200, ["items.0.messages", "items.0.name", "items.0.message_stats.publish_details.rate", "filtered_count"]),
]  # fmt: skip
NSERVICEBUS = [  # NServiceBus.Transport.RabbitMQ, ManagementClient: validates delivery limits, and sets its policy
    ("GET", "/api/overview", None, 200, ["rabbitmq_version", "product_name", "product_version", "management_version", "disable_stats", "node", "cluster_name"]),
    ("GET", "/api/queues/%2F/nsb", None, 200, ["name", "type", "arguments", "policy", "operator_policy", "effective_policy_definition"]),
    ("GET", "/api/feature-flags", None, 200, ["0.name", "0.state"]),
    ("PUT", "/api/policies/%2F/nsb.nsb.delivery-limit", {"pattern": "nsb", "definition": {"delivery-limit": -1}, "priority": 0, "apply-to": "quorum_queues", "name": "nsb.nsb.delivery-limit"}, 201, []),
    ("GET", "/api/policies/%2F/nsb.nsb.delivery-limit", None, 200, ["pattern", "definition", "apply-to", "priority"]),
    ("DELETE", "/api/policies/%2F/nsb.nsb.delivery-limit", None, 204, []),
    ("GET", "/api/bindings/%2F?page=1&page_size=500", None, 200, ["items", "page", "page_count"]),
    ("GET", "/api/exchanges/%2F?page=1&page_size=500", None, 200, ["items.0.name", "page_count"]),
]  # fmt: skip
RABBITMQADMIN = [  # the Python tool that the management plugin serves: list, show, declare, publish, get, export
    ("GET", "/api/overview?columns=rabbitmq_version,cluster_name,queue_totals.messages,object_totals.queues", None, 200, ["rabbitmq_version", "queue_totals.messages", "object_totals.queues"]),
    ("GET", "/api/queues?columns=name,messages&sort=messages&sort_reverse=true", None, 200, ["0.name"]),
    ("PUT", "/api/exchanges/%2F/admin", {"auto_delete": "false", "durable": "true", "type": "direct", "name": "admin", "internal": "false", "arguments": {}, "vhost": "/"}, 201, []),
    ("PUT", "/api/queues/%2F/admin", {"auto_delete": "false", "durable": "true", "name": "admin", "arguments": {}, "vhost": "/"}, 201, []),
    ("POST", "/api/bindings/%2F/e/admin/q/admin", {"routing_key": "k", "arguments": {}, "vhost": "/", "destination_type": "q"}, 201, []),
    ("POST", "/api/exchanges/%2F/admin/publish", {"routing_key": "k", "payload": "p", "payload_encoding": "string", "properties": {}, "props": {}, "exchange": "admin", "vhost": "/", "name": "admin"}, 200, ["routed"]),
    ("POST", "/api/queues/%2F/admin/get", {"count": "1", "ackmode": "ack_requeue_false", "payload_file": None, "encoding": "auto", "queue": "admin", "requeue": "true"}, 200, ["0.payload", "0.routing_key", "0.exchange", "0.message_count", "0.payload_bytes", "0.payload_encoding", "0.redelivered", "0.properties"]),
    ("DELETE", "/api/bindings/%2F/e/admin/q/admin/k", None, 204, []),
    ("DELETE", "/api/queues/%2F/admin/contents", None, 204, []),
    ("DELETE", "/api/queues/%2F/admin", None, 204, []),
    ("DELETE", "/api/exchanges/%2F/admin", None, 204, []),
    ("GET", "/api/vhosts?columns=name,messages", None, 200, ["0.name"]),
    ("GET", "/api/nodes?columns=name,type,mem_used", None, 200, ["0.name", "0.mem_used"]),
    ("GET", "/api/connections?columns=name,user,channels", None, 200, []),
    ("GET", "/api/users?columns=name,tags", None, 200, ["0.name", "0.tags"]),
    ("GET", "/api/permissions", None, 200, ["0.user", "0.configure"]),
    ("GET", "/api/parameters", None, 200, []),
    ("GET", "/api/policies", None, 200, []),
    ("POST", "/api/rebalance/queues", None, 204, []),
    ("PUT", "/api/vhosts/adm", {"name": "adm", "tracing": "false", "vhost": "/"}, 201, []),
    ("PUT", "/api/users/adm", {"name": "adm", "password": "p", "tags": "monitoring", "vhost": "/"}, 201, []),
    ("PUT", "/api/users/adm2", {"name": "adm2", "password_hash": "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR", "hashing_algorithm": "rabbit_password_hashing_sha256", "tags": "", "vhost": "/"}, 201, []),
    ("PUT", "/api/permissions/adm/adm", {"vhost": "adm", "user": "adm", "configure": ".*", "write": ".*", "read": ".*"}, 201, []),
    ("PUT", "/api/vhost-limits/adm/max-connections", {"vhost": "adm", "name": "max-connections", "value": 5}, 204, []),
    ("GET", "/api/vhost-limits", None, 200, ["0.vhost", "0.value.max-connections"]),
    ("PUT", "/api/policies/%2F/adm", {"name": "adm", "pattern": "^adm", "definition": {"max-length": 10}, "priority": 1, "apply-to": "queues", "vhost": "/"}, 201, []),
    ("PUT", "/api/operator-policies/%2F/adm", {"name": "adm", "pattern": "^adm", "definition": {"max-length": 7}, "priority": 1, "apply-to": "queues", "vhost": "/"}, 201, []),
    ("GET", "/api/operator-policies", None, 200, ["0.definition.max-length"]),
    ("PUT", "/api/parameters/team/%2F/adm", {"component": "team", "name": "adm", "value": {"a": 1}, "vhost": "/"}, 201, []),
    ("GET", "/api/definitions", None, 200, ["queues", "users.0.name", "rabbitmq_version"]),
    ("GET", "/api/definitions/%2F", None, 200, ["queues", "policies.0.name"]),
    ("POST", "/api/definitions/adm", {"queues": [{"name": "q", "durable": True, "auto_delete": False, "arguments": {}}]}, 204, []),
    ("DELETE", "/api/parameters/team/%2F/adm", None, 204, []),
    ("DELETE", "/api/operator-policies/%2F/adm", None, 204, []),
    ("DELETE", "/api/policies/%2F/adm", None, 204, []),
    ("DELETE", "/api/vhost-limits/adm/max-connections", None, 204, []),
    ("DELETE", "/api/permissions/adm/adm", None, 204, []),
    ("DELETE", "/api/users/adm", None, 204, []),
    ("DELETE", "/api/users/adm2", None, 204, []),
    ("DELETE", "/api/vhosts/adm", None, 204, []),
    ("DELETE", "/api/connections/nobody", None, 404, []),
]  # fmt: skip


def dig(document, path):
    for name in path.split("."):
        document = document[int(name)] if isinstance(document, list) else document[name]
    return document


@pytest.mark.parametrize("requests", [KEDA, NSERVICEBUS, RABBITMQADMIN], ids=["KEDA", "NServiceBus", "rabbitmqadmin"])  # fmt: skip
def test_a_tool_is_answered_as_it_expects(http, requests):
    for name, arguments in (("work", {}), ("nsb", {"x-queue-type": "quorum"})):
        http.put(f"/api/queues/%2F/{name}", json={"arguments": arguments})
    for method, path, body, status, columns in requests:
        answer = http.request(method, path, json=body)
        assert answer.status_code == status, (method, path, answer.text)
        for column in columns:
            dig(answer.json(), column)


def test_a_lost_broker_is_an_error_that_httpx_shows():
    with pytest.raises(httpx.HTTPError):
        httpx.get("http://127.0.0.1:1/api/overview")


def test_pika_sees_the_reason_that_an_operator_gave(http, amqp):
    [connection] = http.get("/api/connections/username/guest").json()
    assert http.delete("/api/connections/username/guest", headers={"X-Reason": "bye"}).status_code == 204  # fmt: skip
    with pytest.raises(pika.exceptions.ConnectionClosed, match="bye"):
        amqp.process_data_events(time_limit=5)
    assert connection["user"] == "guest"
