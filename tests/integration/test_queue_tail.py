"""headgate queue tail: prints new messages until it is interrupted."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.queues.database import connect
from tests.patience import wait_until

TAIL = "import sys; from headgate.cli.app import run; sys.exit(run(sys.argv[1:]))"


@pytest.fixture
def hangups() -> Iterator[None]:
    """Programs that a test starts get SIGHUP, also where `nohup` has ignored it for the tests."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_tail_shows_new_messages_that_match_and_deletes_its_subscription(
    tmp_path: Path, number, hangups
):
    url = f"sqlite:///{tmp_path}/queues.db"
    command = ["queue", "tail", "orders", "--db", url, "--filter", "region = 'EU'", "--json"]
    with connect(url) as db:
        orders = db.queue("orders")
        orders.publish(b"before", headers={"region": "EU"})
        with subprocess.Popen(
            [sys.executable, "-c", TAIL, *command], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            try:
                wait_until(lambda: len(db.queues()) == 2)
                orders.publish(b"elsewhere", headers={"region": "US"})
                orders.publish(b"now", headers={"region": "EU"})
                assert [one.message.payload for one in orders.claim(10)] == [
                    b"before",
                    b"elsewhere",
                    b"now",
                ]
                assert json.loads(process.stdout.readline())["payload"] == "now"
                process.send_signal(number)
                assert process.stdout.read() == ""
                assert process.wait() == 0
            finally:
                process.kill()
        assert [info.name for info in db.queues()] == ["orders"]
