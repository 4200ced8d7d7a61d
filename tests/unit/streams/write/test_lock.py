"""The writer's lock: one holder, who says who it is; a dead holder holds nothing."""

import errno
import json
import os
import subprocess
import sys

import pytest

from headgate.errors import StreamLocked
from headgate.streams.write.lock import WriterLock


def test_a_refused_writer_is_told_who_holds_the_lock(tmp_path):
    with WriterLock(tmp_path, "producer a"), pytest.raises(StreamLocked) as caught:
        WriterLock(tmp_path, "producer b")
    assert caught.value.holder["pid"] == os.getpid()
    assert caught.value.holder["purpose"] == "producer a"


def test_a_released_lock_is_free_and_release_is_idempotent(tmp_path):
    lock = WriterLock(tmp_path, "one")
    lock.release()
    lock.release()
    WriterLock(tmp_path, "two").release()


def test_a_holder_can_change_its_purpose(tmp_path):
    with WriterLock(tmp_path, "one") as lock:
        lock.name("two")
        assert json.loads((tmp_path / "lock").read_text())["purpose"] == "two"


def test_a_killed_holder_loses_the_lock(tmp_path):
    code = (
        "import sys, os, signal, pathlib; from headgate.streams.write.lock import WriterLock;"
        "WriterLock(pathlib.Path(sys.argv[1]), 'doomed'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)]).returncode == -9
    assert "doomed" in (tmp_path / "lock").read_text()
    WriterLock(tmp_path, "heir").release()


def test_a_lock_without_a_holder_name_is_held_all_the_same(tmp_path):
    with WriterLock(tmp_path, "x"):
        (tmp_path / "lock").write_text("")
        with pytest.raises(StreamLocked, match="unknown"):
            WriterLock(tmp_path, "y")


def test_a_lock_is_released_although_the_disk_fails(tmp_path, monkeypatch):
    def refuse(fd, length):
        raise OSError(errno.EROFS, "Read-only file system")

    lock = WriterLock(tmp_path, "one")
    monkeypatch.setattr(os, "ftruncate", refuse)
    lock.release()
    WriterLock(tmp_path, "two").release()
