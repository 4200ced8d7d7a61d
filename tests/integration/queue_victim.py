"""A process of its own that uses a queue, and may be killed: `queue_victim.py URL OPTIONS ACTION ARGUMENT`."""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from typing import Any

from headgate.queues.clock import Clock
from headgate.queues.database import connect
from headgate.queues.queue import Queue


def hold(queue: Queue, lease_s: float) -> None:
    """Claim one, say so, and never settle it."""
    [delivery] = queue.claim(1, timedelta(seconds=lease_s))
    print(json.dumps([delivery.id, delivery.token, delivery.attempts]), flush=True)
    sys.stdin.read()


def compete(queue: Queue, filter: str | None) -> None:
    """Take all there is, and say what it was."""
    done: list[Any] = []
    found: list[int] = []
    while done := queue.ack_and_claim(done, 7, filter=filter):
        found += [int(delivery.message.payload) for delivery in done]
    print(json.dumps(found), flush=True)


def main() -> None:
    url, options, action, argument = sys.argv[1], *map(json.loads, sys.argv[2:5])
    if now := options.pop("now", None):
        wall_us, elapsed_us, boot = now
        options["clock"] = Clock(lambda: wall_us, lambda: elapsed_us, lambda: boot)
    with connect(url, **options) as db:
        {"hold": hold, "compete": compete}[action](db.queue("orders"), argument)


if __name__ == "__main__":
    main()
