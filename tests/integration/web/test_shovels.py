"""Shovels that run in the broker, set and listed over HTTP."""

from __future__ import annotations

import httpx
import pika

from headgate.testing import Broker
from tests.patience import wait_until

PARAMETER = "/api/parameters/shovel/%2F/orders"


def parameter(url: str, **more: object) -> dict[str, object]:
    value = {"src-uri": url, "src-queue": "old", "dest-uri": url, "dest-queue": "new", **more}
    return {"value": value}


def publish(amqp: pika.BlockingConnection, count: int) -> None:
    channel = amqp.channel()
    channel.confirm_delivery()
    channel.queue_declare("old", durable=True)
    for number in range(count):
        channel.basic_publish("", "old", b"%d" % number)


def test_a_shovel_that_is_set_moves_messages_until_it_is_cleared(
    running: Broker, http: httpx.Client, amqp: pika.BlockingConnection
) -> None:
    publish(amqp, 20)
    assert http.put(PARAMETER, json=parameter(running.url)).status_code == 201
    wait_until(lambda: [row["moved"] for row in http.get("/api/shovels").json()] == [20])
    (row,) = http.get("/api/shovels/%2F").json()
    assert (row["name"], row["vhost"], row["type"], row["state"]) == (
        "orders", "/", "dynamic", "running",
    )  # fmt: skip
    assert len(row["timestamp"]) == len("2026-01-01 00:00:00")
    assert (row["src_queue"], row["dest_queue"]) == ("old", "new")
    assert row["src_uri"].startswith("amqp://guest@")
    assert "guest:guest" not in http.get("/api/shovels").text
    channel = amqp.channel()
    assert [int(channel.basic_get("new", auto_ack=True)[2]) for _ in range(20)] == list(range(20))
    assert http.delete(PARAMETER).status_code == 204
    assert http.get("/api/shovels").json() == []


def test_one_that_cannot_connect_says_why_and_not_its_password(http: httpx.Client) -> None:
    url = "amqp://guest:not-told@127.0.0.1:1/"
    assert http.put(PARAMETER, json=parameter(url)).status_code == 201
    wait_until(lambda: any("reason" in row for row in http.get("/api/shovels").json()))
    (row,) = http.get("/api/shovels").json()
    assert row["state"] in ("starting", "terminated")
    assert "not-told" not in http.get("/api/shovels").text
    http.delete(PARAMETER)


def test_shovels_of_an_unknown_virtual_host_are_not_found(http: httpx.Client) -> None:
    assert http.get("/api/shovels/nowhere").status_code == 404
