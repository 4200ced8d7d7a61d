"""A routing pipeline with three sinks, run as a process of its own, to be killed in part or as a whole."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

from headgate.message import Message
from headgate.queues.database import connect
from headgate.streams.stream import Stream

BATCH = 150
ROUND = 8 * BATCH  # messages that every run finds new
SLOWEST_S = 300.0  # for a whole run on a busy machine
# Every message enters `entry`; `by-topic` gets what is for Europe, and the filter looks at what is expensive.
PIPELINE = """
[pipeline]
name = "killed"
checkpoint = "checkpoint"
max_messages_per_trigger = {batch}
partitions = 3
[source]
stream = "in"
[[exchange]]
name = "entry"
type = "headers"
[[exchange]]
name = "by-topic"
type = "topic"
[[exchange]]
name = "expensive"
type = "filter"
[[binding]]
from = "entry"
queue = "urgent"
match = "all"
headers = {{ region = "EU", urgent = true }}
[[binding]]
from = "entry"
exchange = "by-topic"
headers = {{ region = "EU" }}
[[binding]]
from = "by-topic"
queue = "orders"
key = "orders.*.new"
[[binding]]
from = "entry"
exchange = "expensive"
[[binding]]
from = "expensive"
queue = "large"
filter = "amount > 700 AND region <> 'US'"
[[sink]]
queue = "urgent"
to = "stream:urgent"
[[sink]]
queue = "orders"
to = "queue:sqlite:///orders.db"
[[sink]]
queue = "large"
to = "queue:{postgres}"
"""


def message(n: int) -> Message:
    region = ("EU", "US", "AP")[n % 3]
    headers = {"region": region, "urgent": n % 2 == 0, "amount": n * 37 % 1000}
    return Message(b"%d" % n, f"orders.{n % 5}.{('new', 'paid')[n // 3 % 2]}", headers)


def wanted(queue: str, count: int) -> list[bytes]:
    """What the queue must get, said in plain words."""
    rule: Callable[[int], bool] = {
        "urgent": lambda n: n % 3 == 0 and n % 2 == 0,
        "orders": lambda n: n % 3 == 0 and n // 3 % 2 == 0,
        "large": lambda n: n % 3 != 1 and n * 37 % 1000 > 700,
    }[queue]
    return sorted(b"%d" % n for n in range(count) if rule(n))


@dataclass(frozen=True)
class Pipelines:
    """A folder with a pipeline and everything it writes to."""

    folder: Path
    postgres: str  # its URL with the name of the queue

    @classmethod
    def make(cls, folder: Path, url: str) -> Pipelines:
        made = cls(folder, f"{url}#large-{os.getpid()}-{folder.name}")
        (folder / "pipeline.toml").write_text(PIPELINE.format(batch=BATCH, postgres=made.postgres))
        Stream.create(folder / "in", chunk_messages=20).close()
        return made

    def publish(self) -> None:
        """Some more messages."""
        with Stream.open(self.folder / "in") as stream, stream.producer() as sender:
            first = stream.next_offset
            for n in range(first, first + ROUND):
                sender.publish(message(n))

    @property
    def sent(self) -> int:
        with Stream.open(self.folder / "in") as stream:
            return stream.next_offset

    def stored(self, queue: str) -> list[bytes]:
        if queue == "urgent":
            with Stream.open(self.folder / "urgent") as stream:
                return sorted(each.payload for each in stream.consume())
        url, name = f"sqlite:///{self.folder}/orders.db", "orders"
        if queue == "large":
            url, _, name = self.postgres.partition("#")
        with connect(url) as database:
            return sorted(each.message.payload for each in database.find(name).browse(page=1000))

    def staged(self) -> list[Path]:
        return [path for path in self.folder.rglob("*.arrow") if "staged" in str(path.parent)]

    @contextmanager
    def running(self, master: str) -> Iterator[subprocess.Popen[bytes]]:
        """The pipeline at work until all is read; none of its processes is left afterwards."""
        command = ["-c", "from headgate.cli import main; main()", "pipeline", "run"]
        command += [str(self.folder / "pipeline.toml"), "--once", "--json", "--master", master]
        environ = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
        if not master.startswith("local["):  # a cluster has no fork server
            environ["PYSPARK_PYTHON"] = sys.executable
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, *command],
                stdout=subprocess.PIPE,
                stderr=log,
                env=environ,
                start_new_session=True,
                cwd=self.folder,
            )
        try:
            yield process
        finally:
            kill_session(process)

    def log(self) -> str:
        return (self.folder / "log").read_text()[-4000:]


def after_some_batches(process: subprocess.Popen[bytes], random: Random) -> bool:
    """Until it told of a few batches, and a bit; False when it ended before."""
    assert process.stdout is not None
    for _ in range(random.randint(1, 3)):
        line = process.stdout.readline()
        if not line:
            return False
        assert json.loads(line)
    with suppress(subprocess.TimeoutExpired):
        process.wait(random.uniform(0, 0.5))  # a batch takes a fifth of a second
    return process.poll() is None


def finish(process: subprocess.Popen[bytes]) -> int:
    process.communicate(timeout=SLOWEST_S)
    return process.returncode


def kill_session(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL for the driver, its JVM and all their workers at once."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for pid in descendants(process.pid):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def kill_one(process: subprocess.Popen[bytes], word: str, random: Random) -> bool:
    """SIGKILL for one of its descendants whose command line has the word in it."""
    found = [pid for pid in descendants(process.pid) if word in command_line(pid)]
    if not found:
        return False
    with suppress(ProcessLookupError):
        os.kill(random.choice(found), signal.SIGKILL)
    return True


def descendants(pid: int) -> list[int]:
    """Its children, theirs, and so on."""
    parents = {}
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError, IndexError):
            parents[int(entry.name)] = int(
                (entry / "stat").read_text().rpartition(")")[2].split()[1]
            )
    found, last = [], {pid}
    while last:
        last = {child for child, parent in parents.items() if parent in last}
        found += sorted(last)
    return found


def command_line(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return ""
