"""Killed at any step of a commit to several places and started again: each place has each message once."""

from __future__ import annotations

import subprocess
import sys

import pyarrow.parquet as pq
import pytest

from headgate.queues.database import connect
from headgate.streams.stream import Stream
from headgate.streams.upkeep.verification import verify
from tests.integration import staged_victim

PLACES = ("s", "q.db", "p", "merged", "folders")


@pytest.fixture(params=["places", "tables"])
def folders(request, tmp_path):
    """One folder for every step that a commit was killed at, and the batch was repeated after."""
    command = [sys.executable, staged_victim.__file__, str(tmp_path), request.param]
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    found = list(tmp_path.iterdir())
    assert len(found) > 20  # steps of a commit
    return found


def test_a_commit_killed_at_any_step_and_repeated_arrives_once_everywhere(folders):
    for folder in folders:
        found = [path for name in PLACES if (path := folder / name).exists()]
        assert len(found) in (2, 3)
        for path in found:
            assert stored_in(path) == [b"a", b"b", b"c"], path
        left = [path for path in folder.rglob("victim/*") if path.is_file()]
        assert left == [], folder.name


def stored_in(path):
    match path.name:
        case "s":
            assert verify(path).problems == ()
            with Stream.open(path) as stream:
                return [message.payload for message in stream.consume()]
        case "q.db":
            with connect(f"sqlite:///{path}") as database:
                return [each.message.payload for each in database.find("q").browse()]
        case "merged" | "folders":
            assert len(list(path.rglob("part-*.parquet"))) == 1
    return pq.read_table(path)["payload"].to_pylist()
