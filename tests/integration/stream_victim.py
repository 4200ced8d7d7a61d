"""A writer that is killed: works on a stream at random and dies at its n-th touch of the disk.

    python stream_victim.py <stream> <seed> <die at> <ids.json>

Every function that changes the disk counts; at the n-th the process kills itself with SIGKILL, before it, after it, or
half way through a write. It prints confirmed messages on stdout, one JSON line each. To make it do more, add a function to
ACTIONS.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from datetime import timedelta
from random import Random
from typing import Any

import pyarrow as pa

from headgate.message import Message
from headgate.streams.cold.compaction import compact
from headgate.streams.stream import Stream

OPTIONS = {
    "indexed": ["kind"],
    "segment_bytes": 12_000,
    "chunk_messages": 16,
    "linger": timedelta(milliseconds=1),
    "fsync_interval": timedelta(milliseconds=3),
}


class Death:
    """Counts every touch of the disk, and strikes at the n-th."""

    def __init__(self, at: int, rng: Random) -> None:
        self._left, self._rng = at, rng
        for name in ("fsync", "fdatasync", "ftruncate", "replace", "rename", "unlink"):
            setattr(os, name, self._deadly(getattr(os, name)))
        os.pwritev = self._deadly_writev(os.pwritev)  # type: ignore[assignment]
        for name in ("pwrite", "write"):
            setattr(os, name, self._deadly_write(getattr(os, name)))

    def _strikes(self) -> bool:
        self._left -= 1
        return self._left == 0

    def _deadly(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            if self._strikes():
                if self._rng.random() < 0.5:
                    real(*arguments, **named)
                die()
            return real(*arguments, **named)

        return call

    def _deadly_writev(self, real: Callable[..., int]) -> Callable[..., int]:
        def call(fd: int, parts: list[Any], position: int) -> int:
            if self._strikes():
                content = b"".join(bytes(memoryview(part)) for part in parts)
                real(fd, [content[: self._rng.randint(0, len(content))]], position)
                die()
            return real(fd, parts, position)

        return call

    def _deadly_write(self, real: Callable[..., int]) -> Callable[..., int]:
        def call(fd: int, content: Any, *position: int) -> int:
            if fd > 2 and len(content) > 1 and self._strikes():  # neither its output nor a wake-up
                real(fd, bytes(content)[: self._rng.randint(0, len(content))], *position)
                die()
            return real(fd, content, *position)

        return call


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Victim:
    def __init__(self, path: str, rng: Random, ids: dict[str, int], run: str) -> None:
        self.path, self.rng, self.ids, self.run = path, rng, ids, run
        self.number = 0
        self.stream = self.opened()

    def opened(self) -> Stream:
        stream = Stream.open(self.path)
        stream.reconfigure(fsync=self.rng.choice(["always", "interval", "never"]))
        return stream

    def tell(self, *keys: str) -> None:
        """These messages are confirmed."""
        os.write(1, json.dumps(keys).encode() + b"\n")

    def message(self, key: str) -> Message:
        filler = "x" * self.rng.choice((0, 10, 300))
        return Message(key.encode(), headers={"kind": key[0], "filler": filler})

    # ---- what it does --------------------------------------------------------------------------------

    def send_named(self) -> None:
        name = self.rng.choice("abc")
        first = max(self.ids.get(name, -1) + 1 - self.rng.choice((0, 0, 3, 20)), 0)
        count = self.rng.randint(1, 40)
        keys = [f"{name}:{i}" for i in range(first, first + count)]
        with self.stream.producer(name) as producer:
            if self.rng.random() < 0.5:
                producer.publish_many(map(self.message, keys), first_publishing_id=first)
            else:
                for publishing_id, key in enumerate(keys, first):
                    producer.publish(self.message(key), publishing_id=publishing_id)
            producer.flush()
        self.ids[name] = max(self.ids.get(name, -1), first + count - 1)
        self.tell(*keys)

    def send_unnamed(self) -> None:
        keys = [self.key("u") for _ in range(self.rng.randint(1, 20))]
        with self.stream.producer() as producer:
            for key in keys:
                producer.publish(self.message(key))
        self.tell(*keys)

    def append(self) -> None:
        keys = [self.key("t") for _ in range(self.rng.randint(1, 200))]
        self.stream.append(
            pa.table({"payload": [k.encode() for k in keys], "kind": ["t"] * len(keys)})
        )
        self.tell(*keys)

    def deposit(self) -> None:
        number = self.ids.get("spark", -1) + self.rng.choice((0, 1, 1, 1))
        if number < 0:
            return
        rows = 1 + number * 37 % 150  # a deposit that is repeated has equal rows
        keys = [f"d:{number}:{i}" for i in range(rows)]
        table = pa.table({"payload": [k.encode() for k in keys], "kind": ["d"] * rows})
        self.stream.deposit("spark", number, table)
        self.ids["spark"] = max(self.ids.get("spark", -1), number)
        self.tell(*keys)

    def seal(self) -> None:
        self.stream.seal(all=self.rng.random() < 0.5)

    def compact(self) -> None:
        compact(self.path, created_us=0)

    def trim(self) -> None:
        first, end = self.stream.first_offset, self.stream.next_offset
        self.stream.trim(before_offset=first + (end - first) // 4)

    def reopen(self) -> None:
        self.stream.close()
        self.stream = self.opened()

    def key(self, kind: str) -> str:
        self.number += 1
        return f"{kind}:{self.run}:{self.number}"


ACTIONS: dict[Callable[[Victim], None], int] = {
    Victim.send_named: 8,
    Victim.send_unnamed: 3,
    Victim.append: 2,
    Victim.deposit: 3,
    Victim.seal: 2,
    Victim.compact: 2,
    Victim.trim: 1,
    Victim.reopen: 1,
}


def main() -> None:
    path, seed, die_at, ids = sys.argv[1:]
    rng = Random(seed)
    Death(int(die_at), rng)
    victim = Victim(path, rng, json.loads(ids), seed)
    for _ in range(40):
        rng.choices(list(ACTIONS), list(ACTIONS.values()))[0](victim)
    victim.stream.close()


if __name__ == "__main__":
    main()
