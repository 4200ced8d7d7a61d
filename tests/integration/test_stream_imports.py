"""What a consumer of a stream loads, and when: no message waits for it."""

from __future__ import annotations

import ast
import subprocess
import sys

from headgate import Message, Stream

READER = """
import sys
from headgate import Stream
tail = Stream.open(sys.argv[1]).consume("n >= 0", follow=True)
known = {name.partition(".")[0] for name in sys.modules}
next(iter(tail))
print(sorted({name.partition(".")[0] for name in sys.modules} - known))
"""


def test_the_first_message_waits_for_no_package(tmp_path):
    with Stream.create(tmp_path / "s") as stream, stream.producer() as producer:
        producer.publish(Message(headers={"n": 1}))
    found = subprocess.run(
        [sys.executable, "-c", READER, str(tmp_path / "s")],
        capture_output=True,
        text=True,
        check=True,
    )
    packages = {"pandas", "numpy", "dateutil", "apsw", "lark", "duckdb", "polars"}
    assert packages.isdisjoint(ast.literal_eval(found.stdout)), found.stdout
