"""Three filtered readers of one sensor stream; one is in another process, and is killed and resumed.

    python examples/sensor_readers.py

A sensor publishes readings. Two threads follow the stream, one for alarms and one for a site; a third reader writes
what it reads to a file, in a process of its own that is killed in the middle. Its cursor is in the stream: the next
process goes on there, and every reading is in the file once.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from headgate import Stream

READINGS = 3_000
ALARMS = "celsius > 40"
NORTH = "site = 'north' AND celsius BETWEEN 10 AND 20"
SOUTH = "site = 'south'"
LAST = "last"  # the payload that ends a reader


def main() -> int:
    with tempfile.TemporaryDirectory() as place:
        path, report = Path(place) / "readings", Path(place) / "report.txt"
        Stream.create(path, indexed=["site", "sensor"]).close()
        with ThreadPoolExecutor() as threads:
            alarms = threads.submit(read, path, ALARMS)
            north = threads.submit(read, path, NORTH)
            reporter = start_reporter(path, report)
            publish(path, range(READINGS // 2))
            kill_in_the_middle(reporter)
            publish(path, range(READINGS // 2, READINGS), last=True)
            resumed = start_reporter(path, report)
            sys.stdout.writelines(resumed.communicate()[0].splitlines(keepends=True)[:1])
            got = {ALARMS: alarms.result(), NORTH: north.result(), SOUTH: reported(report)}
    expected = {ALARMS: expect(ALARMS), NORTH: expect(NORTH), SOUTH: expect(SOUTH)}
    for filter, payloads in got.items():
        print(f"{filter}: {len(payloads)} readings of {len(expected[filter])}")
    return 0 if got == expected else 1


# ---- the sensor --------------------------------------------------------------------------------------


def headers_of(n: int) -> dict[str, str | int]:
    return {"sensor": f"s{n % 20}", "site": ("north", "south")[n // 100 % 2], "celsius": n % 47}


def publish(path: Path, numbers: range, last: bool = False) -> None:
    """Publish readings; under a name, with the reading's number as its id, none is ever stored twice."""
    with Stream.open(path) as stream, stream.producer("sensor") as producer:
        for n in numbers:
            producer.publish(b"%d" % n, publishing_id=n, headers=headers_of(n))
        if last:
            everywhere = ({"site": "north", "celsius": 15}, {"site": "south", "celsius": 41})
            for n, headers in enumerate(everywhere, numbers.stop):
                producer.publish(LAST.encode(), publishing_id=n, headers=headers)


# ---- the readers -------------------------------------------------------------------------------------


def read(path: Path, filter: str) -> list[str]:
    """Follow the stream to the last reading."""
    payloads: list[str] = []
    with Stream.open(path) as stream, stream.consume(filter, follow=True) as reader:
        for message in reader:
            if message.payload == LAST.encode():
                break
            payloads.append(message.payload.decode())
    return payloads


def report(path: Path, file: Path) -> None:
    """Write readings and their offsets to a file, and commit after every tenth.

    A killed process may have written readings that it has not committed. The next one reads them again, so it first
    looks how far the file goes: the file decides, and the cursor only saves reading.
    """
    done = max((int(line.split()[0]) for line in complete_lines(file)), default=-1)
    with Stream.open(path) as stream, stream.consume(SOUTH, cursor="report", follow=True) as reader:
        print(f"the reporter begins at offset {reader.position}", flush=True)
        with file.open("a") as lines:
            for count, (offset, message) in enumerate(reader.records(), 1):
                if message.payload == LAST.encode():
                    return
                if offset > done:
                    lines.write(f"{offset} {message.payload.decode()}\n")
                if count % 10 == 0:
                    lines.flush()
                    os.fsync(lines.fileno())
                    reader.commit()
                    print(count, flush=True)


def complete_lines(file: Path) -> list[str]:
    """The lines of the file; half a line, which a killed process may leave, is cut off."""
    text = file.read_text() if file.exists() else ""
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        file.write_text(whole)
    return whole.splitlines()


def reported(file: Path) -> list[str]:
    return [line.split()[1] for line in complete_lines(file)]


def expect(filter: str) -> list[str]:
    """The readings that match, in plain Python."""
    tests = {
        ALARMS: lambda h: h["celsius"] > 40,
        NORTH: lambda h: h["site"] == "north" and 10 <= h["celsius"] <= 20,
        SOUTH: lambda h: h["site"] == "south",
    }
    return [str(n) for n in range(READINGS) if tests[filter](headers_of(n))]


# ---- the other process -------------------------------------------------------------------------------


def start_reporter(path: Path, file: Path) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, path, file]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def kill_in_the_middle(reporter: subprocess.Popen[str]) -> None:
    assert reporter.stdout is not None
    said = [reporter.stdout.readline().strip() for _ in range(20)]
    reporter.kill()
    reporter.communicate()
    print(f"{said[0]}, and is killed after {said[-1]} readings")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        report(Path(sys.argv[1]), Path(sys.argv[2]))
    else:
        sys.exit(main())
