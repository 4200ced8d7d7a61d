"""A process of its own that uses a queue, and may be killed: `queue_victim.py URL OPTIONS ACTION ARGUMENT`."""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import json
import os
import random
import signal
import sys
import threading
import time
from datetime import timedelta
from types import FrameType
from typing import Any

from headgate import aio
from headgate.clock import Clock
from headgate.queues.database import connect
from headgate.queues.engine import State
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


def consume(queue: Queue, poison: str) -> None:
    """Handle everything, and say so; at the poison, die as if killed."""
    with queue.consumer(lambda delivery: _swallow(delivery.message.payload, poison)):
        while any(standing.state != State.DEAD for standing in queue.browse()):
            time.sleep(0.01)


def consume_awaited(url: str, options: dict[str, Any], poison: str) -> None:
    """The same, with the asyncio face."""

    async def consumed() -> None:
        async with await aio.connect(url, **options) as db:
            queue = await db.queue("orders")
            async with queue.consumer(lambda delivery: _swallow(delivery.message.payload, poison)):
                while [s async for s in queue.browse() if s.state != State.DEAD]:
                    await asyncio.sleep(0.01)

    asyncio.run(consumed())


def interrupted(queue: Queue, count: int) -> None:
    """Publish, claim and settle under so many Ctrl-C; say how many others cannot go on afterwards."""
    chance, over = random.Random(count), threading.Event()

    def interrupt() -> None:
        for _ in range(count):
            time.sleep(chance.uniform(0.0001, 0.004))
            os.kill(os.getpid(), signal.SIGINT)
        over.set()

    signal.signal(signal.SIGINT, _interrupt_headgate)
    threading.Thread(target=interrupt, daemon=True).start()
    while not over.is_set():
        with contextlib.suppress(KeyboardInterrupt):
            queue.publish_many([b"a", b"b"])
            queue.publish(b"c")
            for delivery in queue.claim(3):
                delivery.ack()
    others = [threading.Thread(target=queue.publish, args=(b"d",), daemon=True) for _ in range(64)]
    for other in others:
        other.start()
    deadline = time.monotonic() + 20
    for other in others:
        other.join(max(deadline - time.monotonic(), 0))
    stuck = sum(other.is_alive() for other in others)
    if stuck:
        faulthandler.dump_traceback()  # says where
    print(json.dumps(stuck), flush=True)
    os._exit(0)


def _interrupt_headgate(number: int, frame: FrameType | None) -> None:
    """Ctrl-C, also while Headgate tidies up after the last one, but never in this file."""
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith("headgate."):
            raise KeyboardInterrupt
        frame = frame.f_back


def _swallow(payload: bytes, poison: str) -> None:
    print(payload.decode(), flush=True)
    if payload.decode() == poison:
        os._exit(9)


def main() -> None:
    url, options, action, argument = sys.argv[1], *map(json.loads, sys.argv[2:5])
    if now := options.pop("now", None):
        wall_us, elapsed_us, boot = now
        options["clock"] = Clock(lambda: wall_us, lambda: elapsed_us, lambda: boot)
    if action == "consume_awaited":
        consume_awaited(url, options, argument)
        return
    with connect(url, **options) as db:
        actions = {"hold": hold, "compete": compete, "consume": consume, "interrupted": interrupted}
        actions[action](db.queue("orders"), argument)


if __name__ == "__main__":
    main()
