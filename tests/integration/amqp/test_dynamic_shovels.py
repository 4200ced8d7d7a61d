"""A runtime parameter of the component `shovel` moves messages, as in RabbitMQ."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from headgate.amqp import AmqpClient
from headgate.broker import PreconditionFailed, import_definitions
from headgate.server import Server, ServerOptions

EXPORTED = Path(__file__).parents[2] / "data" / "rabbitmq_definitions.json"


@asynccontextmanager
async def serving(data: Path | None = None) -> AsyncIterator[tuple[Server, str]]:
    server = Server(ServerOptions(data=data, amqp_port=0, http_port=None))
    await server.start()
    try:
        yield server, f"amqp://guest:guest@127.0.0.1:{server.amqp_port}/"
    finally:
        await server.stop()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not holds():
            await asyncio.sleep(0.005)


async def publish(url: str, queue: str, count: int) -> None:
    async with await AmqpClient.connect(url) as client:
        await client.call("queue.declare", 0, queue, False, True, False, False, False, {})
        confirmed = [
            client.publish("", queue, b"\x10\0\2", b"%d" % number) for number in range(count)
        ]
        await asyncio.gather(*confirmed)


def test_a_queue_is_emptied_and_the_parameter_is_gone() -> None:
    async def go() -> None:
        async with serving() as (old, old_url), serving() as (new, new_url):
            await publish(old_url, "orders", 50)
            value = {
                "src-uri": old_url,
                "src-queue": "orders",
                "dest-uri": [new_url],
                "dest-queue": "moved",
                "src-delete-after": "queue-length",
                "ack-mode": "on-confirm",
            }
            new.broker.parameters.set("/", "shovel", "once", value)
            await until(lambda: not new.broker.parameters.list(component="shovel"))
            assert len(new.broker.vhosts["/"].queues["moved"]) == 50
            assert len(old.broker.vhosts["/"].queues["orders"]) == 0
            assert new.shovels.states() == []

    asyncio.run(go())


def test_a_shovel_goes_on_after_a_restart_and_ends_with_its_parameter(tmp_path: Path) -> None:
    async def go() -> None:
        async with serving() as (old, old_url):
            await publish(old_url, "orders", 3)
            async with serving(tmp_path) as (new, new_url):
                port = new.amqp_port
                value = {"src-uri": old_url, "src-queue": "orders", "dest-uri": new_url}
                new.broker.parameters.set("/", "shovel", "always", {**value, "dest-queue": "moved"})
                moved = new.broker.vhosts["/"].queues
                await until(lambda: "moved" in moved and len(moved["moved"]) == 3)
                await until(lambda: old.broker.vhosts["/"].queues["orders"].unacked == 0)
            again = Server(ServerOptions(data=tmp_path, amqp_port=port, http_port=None))
            await again.start()
            try:
                await publish(old_url, "orders", 2)
                await until(lambda: len(again.broker.vhosts["/"].queues["moved"]) == 5)
                again.broker.parameters.clear("/", "shovel", "always")
                await until(lambda: not old.broker.vhosts["/"].queues["orders"].consumers)
                assert again.shovels.states() == []
            finally:
                await again.stop()

    asyncio.run(go())


def test_an_address_without_a_host_is_that_of_the_broker_itself() -> None:
    async def go() -> None:
        async with serving() as (server, url):
            server.broker.add_vhost("shop")
            server.broker.access.set_permissions("guest", "shop", ".*", ".*", ".*")
            await publish(url, "orders", 3)
            value = {
                "src-uri": ["amqp://"],
                "src-queue": "orders",
                "src-consumer-args": {"x-priority": 7},
                "src-queue-args": {"x-queue-type": "quorum"},  # it is there, as a classic queue
                "dest-uri": "amqp://guest:guest@/shop",
                "dest-queue": "moved",
                "dest-queue-args": {"x-queue-type": "quorum", "x-delivery-limit": 3},
                "publish-properties": {"delivery_mode": 2},
                "add-timestamp-header": True,
            }
            server.broker.parameters.set("/", "shovel", "s", value)
            queues = server.broker.vhosts["shop"].queues
            await until(lambda: "moved" in queues and len(queues["moved"]) == 3)
            assert queues["moved"].arguments == value["dest-queue-args"]
            [consumer] = server.broker.vhosts["/"].queues["orders"].consumers
            assert consumer.priority == 7
            [state] = server.shovels.states()
            assert state.to_json()["dest_uri"] == f"amqp://guest@127.0.0.1:{server.amqp_port}/shop"

    asyncio.run(go())


def test_a_broker_starts_also_where_one_of_its_shovels_cannot_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def go() -> None:
        async with serving() as (other, _):
            port = other.amqp_port
            value = {"src-uri": f"amqp://127.0.0.1:{port}", "src-queue": "q", "dest-uri": "amqp://", "dest-queue": "q"}  # fmt: skip
            async with serving(tmp_path) as (server, _):
                server.broker.parameters.set("/", "shovel", "s", value)
        again = Server(ServerOptions(data=tmp_path, amqp_port=port, http_port=None))
        await again.start()  # both ends are one queue now
        try:
            assert again.shovels.states() == []
            assert len(again.broker.parameters.list(component="shovel")) == 1
            [record] = [r for r in caplog.records if r.message == "a shovel cannot run"]
            assert "would never end" in record.why  # type: ignore[attr-defined]
        finally:
            await again.stop()

    asyncio.run(go())


def test_an_export_of_rabbitmq_is_imported_by_a_broker_that_runs_shovels() -> None:
    async def go() -> None:
        async with serving() as (server, _):
            import_definitions(server.broker, json.loads(EXPORTED.read_text()))
            assert [state.name for state in server.shovels.states()] == ["a to b"]

    asyncio.run(go())


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([], "is an object"),
        (
            {"src-uri": "amqp://", "dest-uri": "amqp://", "src-queue": "q", "dest-queue-args": 1},
            "dest-queue-args cannot be 1",
        ),
        ({"src-uri": "amqps://", "dest-uri": "amqp://", "src-queue": "q"}, "address is amqp"),
        ({"src-uri": "amqp://h", "dest-uri": "amqp://h", "src-queue": "q", "typo": 1}, "typo"),
        ({"src-uri": "amqp://h", "src-queue": "q"}, "dest-uri must be the address"),
        ({"src-uri": "amqp://h", "dest-uri": "amqp://h"}, "from a queue or from an exchange"),
        (
            {
                "src-uri": "amqp://h",
                "dest-uri": "amqp://h",
                "src-queue": "q",
                "src-prefetch-count": 0,
            },
            "src-prefetch-count cannot be 0",
        ),
        ({"src-uri": "amqp://[::1", "dest-uri": "amqp://h", "src-queue": "q"}, "address is amqp"),
        (
            {
                "src-uri": "amqp://a:b@h",
                "dest-uri": "amqp://a:b@h:5672/%2F",
                "src-queue": "q",
                "dest-queue": "q",
            },
            "to itself would never end",
        ),
    ],
)
def test_a_parameter_of_which_no_shovel_can_be_made_is_refused(value: Any, said: str) -> None:
    async def go() -> None:
        async with serving() as (server, _):
            with pytest.raises(PreconditionFailed, match=said):
                server.broker.parameters.set("/", "shovel", "bad", value)

    asyncio.run(go())


def test_a_shovel_outlives_its_source_queue_and_its_virtual_host_ends_it() -> None:
    async def go() -> None:
        async with serving() as (old, old_url), serving() as (new, new_url):
            new.broker.add_vhost("v")
            value = {"src-uri": old_url, "src-queue": "orders", "dest-uri": new_url}
            settings = {**value, "dest-queue": "moved", "reconnect-delay": 0.01}
            new.broker.parameters.set("v", "shovel", "s", settings)
            queues = old.broker.vhosts["/"].queues
            await until(lambda: "orders" in queues and len(queues["orders"].consumers) == 1)
            first = queues["orders"]
            old.broker.vhosts["/"].delete_queue(first)
            await until(lambda: queues.get("orders", first) is not first)  # declared again
            await publish(old_url, "orders", 3)
            await until(lambda: len(new.broker.vhosts["/"].queues["moved"]) == 3)
            new.broker.delete_vhost("v")
            await until(lambda: not new.shovels.states())
            await until(lambda: not queues["orders"].consumers)

    asyncio.run(go())


def test_a_shovel_that_fails_in_any_way_says_so() -> None:
    async def go() -> None:
        async with serving() as (server, url):
            value = {"src-uri": f"amqp://{'x' * 70}/", "src-queue": "q", "dest-uri": url, "dest-queue": "m"}  # fmt: skip
            server.broker.parameters.set("/", "shovel", "s", value)
            await until(lambda: "cannot be reached" in server.shovels.states()[0].state)
            refused = {**value, "src-uri": url.replace("guest@", "wrong@"), "reconnect-delay": 0}
            server.broker.parameters.set("/", "shovel", "s", refused)
            await until(lambda: server.shovels.states()[0].state.startswith("failed"))
            assert "wrong" not in str(server.shovels.states()[0].to_json())
            assert server.shovels.states()[0].to_json()["state"] == "terminated"

    asyncio.run(go())
