"""The writer's lock: one holder, who says who it is; a dead holder holds nothing."""

import errno
import json
import os
import subprocess
import sys

import pytest

from headgate.errors import StreamLocked
from headgate.streams.write.lock import WriterLock


def test_the_second_is_told_who_the_first_is(tmp_path):
    with WriterLock(tmp_path, "producer a"), pytest.raises(StreamLocked) as caught:
        WriterLock(tmp_path, "producer b")
    assert caught.value.holder["pid"] == os.getpid()
    assert caught.value.holder["purpose"] == "producer a"


def test_released_is_free_and_release_is_idempotent(tmp_path):
    lock = WriterLock(tmp_path, "one")
    lock.release()
    lock.release()
    WriterLock(tmp_path, "two").release()


def test_a_holder_can_say_something_new(tmp_path):
    with WriterLock(tmp_path, "one") as lock:
        lock.name("two")
        assert json.loads((tmp_path / "lock").read_text())["purpose"] == "two"


def test_a_holder_that_was_killed_holds_nothing(tmp_path):
    code = (
        "import sys, os, signal, pathlib; from headgate.streams.write.lock import WriterLock;"
        "WriterLock(pathlib.Path(sys.argv[1]), 'doomed'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)]).returncode == -9
    assert "doomed" in (tmp_path / "lock").read_text()
    WriterLock(tmp_path, "heir").release()


def test_a_holder_without_a_name_is_still_a_holder(tmp_path):
    with WriterLock(tmp_path, "x"):
        (tmp_path / "lock").write_text("")
        with pytest.raises(StreamLocked, match="has not said who it is"):
            WriterLock(tmp_path, "y")


def test_a_disk_that_fails_does_not_keep_the_lock(tmp_path, monkeypatch):
    def refuse(fd, length):
        raise OSError(errno.EROFS, "Read-only file system")

    lock = WriterLock(tmp_path, "one")
    monkeypatch.setattr(os, "ftruncate", refuse)
    lock.release()
    WriterLock(tmp_path, "two").release()
