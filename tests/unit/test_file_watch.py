"""Waking: by the kernel, by others in this process, or by looking."""

import threading

import pytest

from headgate import file_watch as wake
from headgate.file_watch import Watch, notify


@pytest.fixture(params=["inotify", "polling"])
def watch(request, tmp_path, monkeypatch):
    if request.param == "polling":
        monkeypatch.setattr(wake, "_open_inotify", lambda directories: (None, {}))
    with Watch(tmp_path) as watch:
        yield watch


def test_a_wait_times_out_without_a_change(watch):
    assert not watch.wait(0)
    assert not watch.wait(0.01)


def test_a_file_that_is_made_written_renamed_or_removed_wakes(watch, tmp_path):
    file = tmp_path / "a"
    for change in (
        lambda: file.write_bytes(b"1"),
        lambda: file.write_bytes(b"22"),
        lambda: file.rename(tmp_path / "b"),
        lambda: (tmp_path / "b").unlink(),
    ):
        change()
        assert watch.wait(20)
        while watch.wait(0.01):
            pass


def test_a_change_between_two_waits_is_not_lost(watch, tmp_path):
    (tmp_path / "a").write_bytes(b"1")
    assert watch.wait(20)


def test_another_thread_wakes_a_wait(watch):
    thread = threading.Thread(target=watch.wake)
    thread.start()
    assert watch.wait(20)
    thread.join()


def test_many_wakes_end_one_wait(watch):
    for _ in range(100_000):
        watch.wake()
    assert watch.wait(0)
    while watch.wait(0):
        pass
    assert not watch.wait(0)


def test_only_files_with_an_accepted_name_wake(tmp_path):
    with Watch(tmp_path, accepts=lambda name: name.endswith(".idx")) as watch:
        (tmp_path / "a.log").write_bytes(b"1")
        assert not watch.wait(0.01)
        (tmp_path / "a.idx").write_bytes(b"1")
        assert watch.wait(20)


def test_notify_reaches_watches_without_inotify(tmp_path, monkeypatch):
    monkeypatch.setattr(wake, "_open_inotify", lambda directories: (None, {}))
    monkeypatch.setattr(wake, "_FIRST_POLL", 1000.0)
    with Watch(tmp_path) as watch:
        notify(tmp_path)
        assert watch.wait(20)


def test_a_closed_watch_stays_closed(tmp_path):
    watch = Watch(tmp_path)
    watch.close()
    watch.close()
    watch.wake()
    notify(tmp_path)
    assert str(tmp_path) not in wake._waiting
