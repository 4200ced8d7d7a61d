"""RabbitMQ's HTTP API: what tools ask, and the shape of what they are told."""

import base64

import httpx
import pika
import pytest

QUEUE = "/api/queues/%2F/orders"


@pytest.fixture
def orders(http):
    assert http.put(QUEUE, json={"durable": True}).status_code == 201
    return QUEUE


def publish(http, key="orders", payload="order 1", exchange="amq.default", **properties):
    body = {
        "routing_key": key,
        "payload": payload,
        "payload_encoding": "string",
        "properties": properties,
    }
    return http.post(f"/api/exchanges/%2F/{exchange}/publish", json=body)


def take(http, queue=QUEUE, count=10, ackmode="ack_requeue_false", **more):
    body = {"count": count, "ackmode": ackmode, "encoding": "auto", **more}
    return http.post(f"{queue}/get", json=body)


def test_a_queue_is_declared_looked_at_and_deleted(http):
    arguments = {"x-max-length": 5}
    body = {"durable": True, "auto_delete": False, "arguments": arguments}
    assert http.put(QUEUE, json=body).status_code == 201
    assert http.put(QUEUE, json=body).status_code == 204
    refused = http.put(QUEUE, json={"durable": False})
    assert refused.status_code == 400
    assert refused.json()["error"] == "bad_request"
    assert "inequivalent arg 'durable'" in refused.json()["reason"]
    queue = http.get(QUEUE).json()
    assert queue["arguments"] == arguments
    assert (queue["name"], queue["vhost"], queue["type"]) == ("orders", "/", "classic")
    assert (queue["messages"], queue["consumers"], queue["state"]) == (0, 0, "running")
    assert http.delete(QUEUE).status_code == 204
    assert http.get(QUEUE).status_code == 404
    assert http.delete(QUEUE).status_code == 404


def test_messages_are_published_and_taken(http, orders):
    assert publish(http, headers={"n": 1}, delivery_mode=2).json() == {"routed": True}
    assert publish(http, key="nowhere").json() == {"routed": False}
    [looked_at] = take(http, ackmode="ack_requeue_true").json()
    assert looked_at["payload"] == "order 1"
    assert looked_at["properties"] == {"headers": {"n": 1}, "delivery_mode": 2}
    assert (looked_at["redelivered"], looked_at["message_count"]) == (False, 0)
    [taken] = take(http, truncate=3).json()
    assert (taken["payload"], taken["payload_bytes"], taken["redelivered"]) == ("ord", 7, True)
    assert take(http).json() == []


def test_a_payload_that_is_not_text_is_base64(http, orders):
    payload = base64.b64encode(b"\xff\x00").decode()
    body = {"routing_key": "orders", "payload": payload, "properties": {}, "payload_encoding": "base64"}  # fmt: skip
    http.post("/api/exchanges/%2F/amq.default/publish", json=body)
    [taken] = take(http).json()
    assert (taken["payload"], taken["payload_encoding"]) == (payload, "base64")


@pytest.mark.parametrize(
    "body",
    [
        {"count": 1, "ackmode": "maybe", "encoding": "auto"},
        {"count": 1, "ackmode": "ack_requeue_true"},
        {"count": "x", "ackmode": "ack_requeue_true", "encoding": "auto"},
        {"count": -1, "ackmode": "ack_requeue_true", "encoding": "auto"},
        {"count": 1, "ackmode": "ack_requeue_true", "encoding": "rot13"},
        [],
        "text",
    ],
)
def test_a_request_for_messages_that_makes_no_sense_is_refused(http, orders, body):
    answer = http.post(f"{QUEUE}/get", json=body)
    assert (answer.status_code, answer.json()["error"]) == (400, "bad_request")


@pytest.mark.parametrize(
    "properties",
    [
        {"priority": "high"},
        {"priority": 1000},
        {"delivery_mode": [2]},
        {"expiration": "soon"},
        {"headers": [1]},
        {"headers": {"n": 1 << 70}},
        {"colour": "red"},
        {"timestamp": -1},
        {"message_id": "x" * 300},
        {"user_id": "somebody"},
    ],
    ids=str,
)
def test_properties_that_amqp_does_not_have_are_refused(http, orders, properties):
    assert publish(http, **properties).status_code == 400


def test_a_queue_is_purged(http, orders):
    for _ in range(3):
        publish(http)
    assert http.delete(f"{QUEUE}/contents").status_code == 204
    assert http.get(QUEUE).json()["messages"] == 0


def test_the_numbers_of_a_queue_are_up_to_date(http, orders, amqp):
    channel = amqp.channel()
    for _ in range(4):
        channel.basic_publish("", "orders", b"x")
    channel.basic_get("orders")
    queue = http.get(QUEUE).json()
    assert (queue["messages"], queue["messages_ready"], queue["messages_unacknowledged"]) == (4, 3, 1)  # fmt: skip
    assert queue["message_stats"]["publish"] == 4
    assert queue["message_stats"]["deliver_get"] == 1
    assert queue["message_stats"]["publish_details"] == {"rate": 0.0}
    [row] = http.get("/api/queues").json()
    assert row["messages"] == 4
    channel.basic_publish("", "orders", b"x")
    channel.queue_declare("orders", passive=True)
    [row] = http.get("/api/queues").json()
    assert row["messages"] == 5
    overview = http.get("/api/overview").json()
    assert overview["queue_totals"]["messages"] == 5
    assert overview["object_totals"]["connections"] == 1


def test_lists_are_cut_into_pages(http):
    for number in range(25):
        http.put(f"/api/queues/%2F/q{number:02}", json={})
    page = http.get("/api/queues?page=2&page_size=10").json()
    assert [row["name"] for row in page["items"]][:2] == ["q10", "q11"]
    counts = {key: value for key, value in page.items() if key != "items"}
    assert counts == {
        "total_count": 25,
        "item_count": 10,
        "filtered_count": 25,
        "page": 2,
        "page_size": 10,
        "page_count": 3,
    }
    named = http.get("/api/queues?page=1&name=Q1&columns=name").json()
    assert [row["name"] for row in named["items"]] == [f"q1{n}" for n in range(10)]
    assert named["filtered_count"] == 10
    by_pattern = http.get("/api/queues/%2F?page=1&name=[12]$&use_regex=true").json()
    assert [row["name"] for row in by_pattern["items"]] == ["q01", "q02", "q11", "q12", "q21", "q22"]  # fmt: skip
    assert http.get("/api/queues?page=9&page_size=10").json()["items"] == []


@pytest.mark.parametrize("query", ["page=0", "page=x", "page=1&page_size=501", "page=1&page_size=-1", "page=1&name=(&use_regex=true"])  # fmt: skip
def test_pages_that_make_no_sense_are_refused(http, query):
    assert http.get(f"/api/queues?{query}").status_code == 400


def test_lists_are_sorted_and_have_the_columns_that_one_asks_for(http):
    for name, count in (("a", 2), ("b", 0), ("c", 1)):
        http.put(f"/api/queues/%2F/{name}", json={})
        for _ in range(count):
            publish(http, key=name)
    rows = http.get(
        "/api/queues?sort=messages&sort_reverse=true&columns=name,message_stats.publish"
    )
    assert rows.json() == [
        {"name": "a", "message_stats": {"publish": 2}},
        {"name": "c", "message_stats": {"publish": 1}},
        {"name": "b", "message_stats": {"publish": 0}},
    ]
    basic = http.get("/api/queues?disable_stats=true&enable_queue_totals=true").json()
    assert [row["messages"] for row in basic] == [2, 0, 1]
    assert "message_stats" not in basic[0]
    assert "messages" not in http.get("/api/queues?disable_stats=true").json()[0]


def test_exchanges_and_bindings(http, orders):
    exchange = "/api/exchanges/%2F/shop"
    assert http.put(exchange, json={"type": "topic", "durable": True}).status_code == 201
    assert http.put(exchange, json={"type": "topic", "durable": True}).status_code == 204
    assert http.put(exchange, json={"type": "fanout"}).status_code == 400
    assert http.put("/api/exchanges/%2F/other", json={"type": "odd"}).status_code == 400
    bindings = "/api/bindings/%2F/e/shop/q/orders"
    made = http.post(bindings, json={"routing_key": "a.*", "arguments": {"x": 1}})
    assert made.status_code == 201
    [row] = http.get(bindings).json()
    assert (row["routing_key"], row["arguments"]) == ("a.*", {"x": 1})
    assert http.get(made.headers["location"]).json() == row
    assert http.post(bindings, json={}).status_code == 201
    keys = [row["properties_key"] for row in http.get(bindings).json()]
    assert "~" in keys
    assert http.delete(f"{bindings}/~").status_code == 204
    assert http.delete(f"{bindings}/~").status_code == 404
    assert [b["source"] for b in http.get(f"{QUEUE}/bindings").json()] == ["", "shop"]
    assert len(http.get(f"{exchange}/bindings/source").json()) == 1
    assert http.get(f"{exchange}/bindings/destination").json() == []
    assert publish(http, key="a.b", exchange="shop").json() == {"routed": True}
    assert http.get(exchange).json()["message_stats"]["publish_in"] == 1
    assert http.delete(exchange).status_code == 204
    assert http.delete("/api/exchanges/%2F/amq.direct").status_code == 401


def test_a_name_may_hold_a_slash(http):
    assert http.put("/api/queues/%2F/a%2Fb", json={}).status_code == 201
    assert http.get("/api/queues/%2F/a%2Fb").json()["name"] == "a/b"


def test_a_connection_is_listed_and_closed_with_a_reason(http, amqp):
    amqp.channel().basic_qos(prefetch_count=7)
    [connection] = http.get("/api/connections").json()
    assert (connection["user"], connection["vhost"], connection["state"]) == ("guest", "/", "running")  # fmt: skip
    assert connection["client_properties"]["product"].startswith("Pika")
    place = f"/api/connections/{connection['name'].replace(' ', '%20').replace('>', '%3E')}"
    assert http.get(place).json()["name"] == connection["name"]
    [channel] = http.get(f"{place}/channels").json()
    assert (channel["number"], channel["prefetch_count"]) == (1, 7)
    assert http.get("/api/channels").json()[0]["name"] == channel["name"]
    assert http.get(f"/api/channels/{channel['name']}").json()["consumer_details"] == []
    assert http.delete(place, headers={"X-Reason": "maintenance"}).status_code == 204
    with pytest.raises(pika.exceptions.ConnectionClosed, match="maintenance"):
        amqp.process_data_events(time_limit=5)


def test_consumers_are_listed(http, orders, amqp):
    channel = amqp.channel()
    channel.basic_consume("orders", lambda *_: None, consumer_tag="one", arguments={"x-priority": 3})  # fmt: skip
    [consumer] = http.get("/api/consumers").json()
    assert (consumer["consumer_tag"], consumer["ack_required"]) == ("one", True)
    assert consumer["queue"] == {"name": "orders", "vhost": "/"}
    assert http.get(QUEUE).json()["consumer_details"][0]["consumer_tag"] == "one"


def test_users_and_permissions(http, running):
    user = "/api/users/anna"
    assert http.put(user, json={"password": "secret", "tags": "management"}).status_code == 201
    assert http.put(user, json={"password": "secret", "tags": ["monitoring"]}).status_code == 204
    row = http.get(user).json()
    assert (row["name"], row["tags"]) == ("anna", ["monitoring"])
    assert "secret" not in str(row)
    assert "anna" in [u["name"] for u in http.get("/api/users/without-permissions").json()]
    place = "/api/permissions/%2F/anna"
    patterns = {"configure": "^anna", "write": ".*", "read": ".*"}
    assert http.put(place, json=patterns).status_code == 201
    assert http.get(place).json() == {"user": "anna", "vhost": "/", **patterns}
    with httpx.Client(base_url=running.http_url, auth=("anna", "secret")) as anna:
        assert anna.get("/api/whoami").json()["name"] == "anna"
        assert anna.get("/api/users").status_code == 401
        assert anna.get("/api/nodes").status_code == 200
        assert anna.put("/api/queues/%2F/anna-1", json={}).status_code == 201
        refused = anna.put("/api/queues/%2F/other", json={})
        assert (refused.status_code, refused.json()["error"]) == (401, "not_authorised")
        http.put("/api/vhosts/away")
        assert anna.get("/api/queues/away").status_code == 401
        assert "away" in [v["name"] for v in anna.get("/api/vhosts").json()]
    assert http.post("/api/users/bulk-delete", json={"users": ["anna"]}).status_code == 204
    assert http.get(user).status_code == 404
    http.delete("/api/vhosts/away")


def test_vhosts_and_limits(http):
    place = "/api/vhosts/shop"
    assert http.put(place, json={"description": "d", "tags": "a,b"}).status_code == 201
    row = http.get(place).json()
    assert (row["description"], row["tags"]) == ("d", ["a", "b"])
    assert http.put("/api/vhost-limits/shop/max-queues", json={"value": 5}).status_code == 204
    assert http.get("/api/vhost-limits/shop").json() == [{"vhost": "shop", "value": {"max-queues": 5}}]  # fmt: skip
    assert http.put("/api/vhost-limits/shop/odd", json={"value": 5}).status_code == 400
    assert http.delete("/api/vhost-limits/shop/max-queues").status_code == 204
    assert http.get("/api/vhosts/shop/permissions").json()[0]["user"] == "guest"
    assert http.delete(place).status_code == 204
    assert http.get("/api/queues/shop").status_code == 404


def test_policies_take_effect_in_what_a_queue_shows(http, orders):
    place = "/api/policies/%2F/short"
    policy = {"pattern": "^ord", "definition": {"max-length": 3}, "apply-to": "queues"}
    http.get("/api/queues")
    assert http.put(place, json=policy).status_code == 201
    queue = http.get("/api/queues").json()[0]
    assert (queue["policy"], queue["effective_policy_definition"]) == ("short", {"max-length": 3})
    assert http.put(place, json={"pattern": "("}).status_code == 400
    assert http.put(place, json={"pattern": "(", "definition": {}}).status_code == 400
    assert http.get("/api/policies/%2F").json()[0]["name"] == "short"
    assert http.delete(place).status_code == 204
    assert http.get("/api/queues").json()[0]["policy"] is None


def test_parameters(http):
    place = "/api/parameters/shop/%2F/colour"
    assert http.put(place, json={"value": {"r": 1}}).status_code == 201
    assert http.get("/api/parameters/shop").json() == [{"vhost": "/", "component": "shop", "name": "colour", "value": {"r": 1}}]  # fmt: skip
    assert http.delete(place).status_code == 204
    assert http.put("/api/global-parameters/x", json={"value": 1}).status_code == 201
    assert http.get("/api/global-parameters/x").json()["value"] == 1
    assert http.delete("/api/global-parameters/x").status_code == 204


def test_health_checks(http, running):
    for check in ("alarms", "local-alarms", "virtual-hosts", "node-is-quorum-critical", "protocol-listener/amqp,http", f"port-listener/{running.port}"):  # fmt: skip
        answer = http.get(f"/api/health/checks/{check}")
        assert (answer.status_code, answer.json()["status"]) == (200, "ok"), check
    failed = http.get("/api/health/checks/port-listener/1")
    assert (failed.status_code, failed.json()["status"]) == (503, "failed")
    assert http.get("/api/aliveness-test/%2F").json() == {"status": "ok"}


def test_the_node_tells_its_memory_and_disk(http):
    [node] = http.get("/api/nodes").json()
    assert node["running"] is True
    assert node["mem_used"] > 1_000_000
    assert http.get(f"/api/nodes/{node['name']}").json()["name"] == node["name"]


def test_an_exclusive_queue_belongs_to_its_connection(http, amqp):
    name = amqp.channel().queue_declare("", exclusive=True).method.queue
    row = http.get(f"/api/queues/%2F/{name}").json()
    assert row["exclusive"] is True
    assert row["owner_pid_details"]["name"].startswith("127.0.0.1:")
    assert http.delete(f"/api/queues/%2F/{name}").status_code == 400


def test_what_headgate_adds(http, orders):
    explained = http.post("/api/headgate/filters/explain", json={"filter": "amount > 5"})
    assert explained.status_code == 200
    wrong = http.post("/api/headgate/filters/explain", json={"filter": "amount >"})
    assert wrong.status_code == 400
    assert wrong.headers["content-type"] == "application/problem+json"
    body = {"filter": "amount > 5", "headers": {"amount": 7}}
    assert http.post("/api/headgate/filters/check", json=body).json()["matches"] is True
    body = {"filter": "amount > 5", "headers": {}}
    assert http.post("/api/headgate/filters/check", json=body).json()["answer"] is None
    assert http.get("/api/headgate/statistics").json()["total"]["queues"] == 1
    assert http.get("/api/headgate/openapi.json").json()["openapi"] == "3.1.0"


def test_a_queue_is_browsed_with_a_filter_and_nothing_is_taken(http, orders):
    for amount in range(10):
        publish(http, payload=f"order {amount}", headers={"amount": amount})
    place = "/api/headgate/queues/%2F/orders/messages"
    page = http.get(place, params={"filter": "amount > 6", "limit": 2}).json()
    assert [row["headers"]["amount"] for row in page["items"]] == [9, 8]
    rest = http.get(place, params={"filter": "amount > 6", "before": page["following"]}).json()
    assert [row["payload"] for row in rest["items"]] == ["order 7"]
    assert rest["following"] is None
    assert http.get(QUEUE).json()["messages_ready"] == 10
    assert take(http, count=1).json()[0]["redelivered"] is False
    for query in ("limit=0", "limit=x", "before=-1", "filter=amount%20%3E"):
        assert http.get(f"{place}?{query}").status_code == 400


def test_a_filter_finds_in_a_queue_what_it_finds_for_a_consumer(http, orders, amqp):
    wanted = "sys.timestamp >= TIMESTAMP '2026-01-01T00:00:00Z' AND p.type = 'order' AND sys.priority = 3"
    channel, got = amqp.channel(), []
    sent = pika.BasicProperties(timestamp=1_800_000_000, type="order", priority=3, user_id="guest")
    for properties in (sent, pika.BasicProperties(type="order", priority=3)):
        channel.basic_publish("", "orders", b"x", properties)
    look = {"x-filter": wanted, "x-browse": True}
    channel.basic_consume("orders", lambda *a: got.append(a[2]), auto_ack=True, arguments=look)
    while not got:
        amqp.process_data_events(10)
    page = http.get("/api/headgate/queues/%2F/orders/messages", params={"filter": wanted}).json()
    shown = {"type": "order", "user_id": "guest", "creation_time": 1_800_000_000_000}
    assert [row["properties"] for row in page["items"]] == [shown]
    channel.close()


def test_a_stream_queue_is_browsed_and_listed_with_its_directory(http):
    stream = "/api/queues/%2F/history"
    arguments = {"x-queue-type": "stream"}
    assert http.put(stream, json={"arguments": arguments, "durable": True}).status_code == 201
    for number in range(5):
        publish(http, key="history", headers={"n": number})
    page = http.get("/api/headgate/queues/%2F/history/messages?filter=n%20%3E%202").json()
    assert [row["headers"]["n"] for row in page["items"]] == [4, 3]
    [row] = http.get("/api/headgate/streams").json()
    assert (row["name"], row["messages"]) == ("history", 5)
    assert row["directory"].endswith("history")
    assert http.get(stream).json()["type"] == "stream"


def test_what_a_stream_delivered_is_counted_once(http, amqp):
    stream = "/api/queues/%2F/history"
    http.put(stream, json={"arguments": {"x-queue-type": "stream"}, "durable": True})
    for _ in range(5):
        publish(http, key="history")
    channel, got = amqp.channel(), []
    channel.basic_qos(prefetch_count=3)
    start = {"x-stream-offset": "first"}
    channel.basic_consume("history", lambda *a: got.append(a[3]), arguments=start)
    while len(got) < 3:
        amqp.process_data_events(10)
    row = http.get(stream).json()
    assert (row["messages"], row["messages_ready"], row["messages_unacknowledged"]) == (5, 5, 3)
    [row] = http.get("/api/queues?columns=name,messages").json()
    assert row["messages"] == 5
    channel.close()


def test_a_message_is_traced_without_being_published(http, orders):
    bindings = "/api/bindings/%2F/e/amq.topic/q/orders"
    http.post(bindings, json={"routing_key": "a.#", "arguments": {"x-filter": "n > 5"}})
    trace = {"exchange": "amq.topic", "routing_key": "a.b", "headers": {"n": 7}}
    found = http.post("/api/headgate/trace/%2F", json=trace).json()
    assert [queue["name"] for queue in found["queues"]] == ["orders"]
    assert (found["routed"], found["bindings"][0]["matched"]) == (True, True)
    missed = http.post("/api/headgate/trace/%2F", json={**trace, "headers": {"n": 1}}).json()
    assert (missed["queues"], missed["routed"]) == ([], False)
    assert "n" in missed["bindings"][0]["why_not"]
    nowhere = {"exchange": "nowhere"}
    assert http.post("/api/headgate/trace/%2F", json=nowhere).status_code == 404
    assert http.get(QUEUE).json()["messages"] == 0


def test_a_list_of_many_bindings_comes_whole_and_in_order(http, orders, amqp):
    channel = amqp.channel()
    for number in range(1_200):
        channel.queue_bind("orders", "amq.direct", f"k{number:04}")
    rows = [row for row in http.get("/api/bindings/%2F").json() if row["source"] == "amq.direct"]
    assert [row["routing_key"] for row in rows] == [f"k{number:04}" for number in range(1_200)]
    page = http.get("/api/bindings/%2F?page=2&page_size=500").json()
    assert (page["item_count"], page["page_count"]) == (500, 3)


def test_the_filter_of_a_consumer_is_changed_while_it_consumes(http, orders, amqp):
    got = []
    channel = amqp.channel()
    channel.basic_consume(
        "orders",
        lambda _channel, _method, properties, _body: got.append(properties.headers["n"]),
        auto_ack=True,
        consumer_tag="one",
        arguments={"x-filter": "n > 5"},
    )
    for number in (1, 6):
        publish(http, headers={"n": number})
    while not got:
        amqp.process_data_events(time_limit=1)
    [consumer] = http.get("/api/consumers").json()
    assert consumer["filter"] == "n > 5"
    place = "/api/headgate/consumers/%2F/orders/one/filter"
    assert http.put(place, json={"filter": "n <"}).status_code == 400
    assert http.put(place, json={}).status_code == 400
    assert http.put(place, json={"filter": "n = 1"}).status_code == 204
    while len(got) < 2:
        amqp.process_data_events(time_limit=1)
    assert got == [6, 1]
    assert http.put(place.replace("one", "two"), json={"filter": None}).status_code == 404
