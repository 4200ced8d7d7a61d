"""What RabbitMQ 4.0.5 answered to recorded conversations, and what our broker answers; each difference has a reason."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve()
CASES = HERE.parents[2] / "data" / "amqp_behaviours.json"
RUNNER = HERE.parents[4] / "shared" / "cases" / "behave.py"

DIFFERENT = {
    "connection/method-on-unopened-channel": "504, where RabbitMQ forgets that the channel was never opened",
    "connection/unknown-class": "503, where RabbitMQ drops the socket",
    "stream/offset-bogus-string": "406, where RabbitMQ answers 541",
    "stream/offset-list": "406, where RabbitMQ answers 541",
}
CATEGORIES = sorted({case["category"] for case in json.loads(CASES.read_text())["cases"]})


@pytest.mark.skipif(not RUNNER.exists(), reason=f"the runner is not there: {RUNNER.name}")
@pytest.mark.parametrize("category", CATEGORIES)
def test_the_broker_answers_as_rabbitmq_does(category, broker, tmp_path):
    document = json.loads(CASES.read_text())
    document["cases"] = [case for case in document["cases"] if case["category"] == category]
    chosen = tmp_path / "cases.json"
    chosen.write_text(json.dumps(document))
    found = subprocess.run(
        [sys.executable, str(RUNNER), "check", str(chosen), "-v"],
        env={**os.environ, "AMQP_HOST": "127.0.0.1", "AMQP_PORT": str(broker.port)},
        cwd=RUNNER.parent,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    different = {line.split()[1] for line in found.stdout.splitlines() if line.startswith("DIFF")}
    expected = {case for case in DIFFERENT if case.startswith(f"{category}/")}
    assert different == expected, found.stdout + found.stderr
