"""Killed at any step of a commit to three places and started again: each place has each message once."""

from __future__ import annotations

import subprocess
import sys

import pyarrow.parquet as pq

from headgate.queues.database import connect
from headgate.streams.stream import Stream
from headgate.streams.upkeep.verification import verify
from tests.integration import staged_victim


def test_a_commit_killed_at_any_step_and_repeated_arrives_once_everywhere(tmp_path):
    done = subprocess.run(
        [sys.executable, staged_victim.__file__, str(tmp_path)], capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    folders = list(tmp_path.iterdir())
    assert len(folders) > 20  # steps of a commit
    for folder in folders:
        with Stream.open(folder / "s") as stream:
            in_stream = [message.payload for message in stream.consume()]
        with connect(f"sqlite:///{folder}/q.db") as database:
            in_queue = [each.message.payload for each in database.find("q").browse()]
        in_files = pq.read_table(folder / "p")["payload"].to_pylist()
        assert in_stream == in_queue == in_files == [b"a", b"b", b"c"], folder.name
        assert verify(folder / "s").problems == ()
        left = [path for path in folder.rglob("victim/*") if path.is_file()]
        assert left == [], folder.name
