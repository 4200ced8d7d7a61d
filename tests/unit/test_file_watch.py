"""Waking: by the kernel, by others in this process, or by looking."""

import threading
from contextlib import closing, suppress
from pathlib import Path

import pytest

from headgate import file_watch as wake
from headgate.file_watch import Announcer, Watch
from tests.forked import in_child


@pytest.fixture(params=["inotify", "no instance", "no watch"])
def watch(request, tmp_path, monkeypatch):
    if request.param == "no instance":
        monkeypatch.setattr(wake, "_watcher", wake._Watcher())
        monkeypatch.setattr(wake, "_open_inotify", lambda: None)
    if request.param == "no watch":
        monkeypatch.setattr(wake, "_add_watch", lambda inotify, directory: None)
    with Watch(tmp_path) as watch:
        yield watch


def instances() -> int:
    """The inotify instances of this process."""
    found = 0
    for file in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            found += "inotify" in str(file.readlink())
    return found


def watching_threads() -> int:
    return sum(thread.name == "headgate file watch" for thread in threading.enumerate())


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


def test_an_announcer_wakes_where_the_kernel_does_not(tmp_path, monkeypatch):
    monkeypatch.setattr(wake, "_add_watch", lambda inotify, directory: None)
    monkeypatch.setattr(wake, "_FIRST_POLL", 1000.0)
    with Watch(tmp_path) as watch, closing(Announcer(tmp_path)) as announcer:
        assert watch.wait(0)  # it may have changed until then
        assert not watch.wait(0)
        announcer.notify()
        assert watch.wait(20)
        assert watch.take_changed() == {str(tmp_path)}


def test_the_kernel_reports_nothing_of_a_directory_while_it_is_announced(tmp_path):
    with Watch(tmp_path) as watch:
        with closing(Announcer(tmp_path)):
            assert watch.wait(0)
            (tmp_path / "a").write_bytes(b"1")
            assert not watch.wait(0.01)
        assert watch.wait(0)
        assert not watch.wait(0)
        (tmp_path / "b").write_bytes(b"1")
        assert watch.wait(20)


def test_a_directory_under_two_names_is_announced_under_one(tmp_path):
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to(real)
    with Watch(real) as one, Watch(link) as other, closing(Announcer(real)):
        assert one.wait(0)
        (real / "a").write_bytes(b"1")
        assert other.wait(20)
        assert other.take_changed() == {str(link)}
        assert not one.wait(0)


def test_changes_are_told_by_directory_to_all_their_watches(tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
    a, b = tmp_path / "a", tmp_path / "b"
    with Watch(a, b) as both, Watch(b) as second:
        (a / "1").write_bytes(b"1")
        assert both.wait(20)
        assert both.take_changed() == {str(a)}
        assert not second.wait(0)
        (b / "1").write_bytes(b"1")
        assert second.wait(20)
        assert both.wait(20)
        assert both.take_changed() == {str(b)}


def test_many_watches_share_one_instance_and_one_thread_which_end_with_the_last(tmp_path):
    before = instances(), watching_threads()  # of streams that other tests have left open
    watches = []
    for number in range(300):
        (tmp_path / str(number)).mkdir()
        watches.append(Watch(tmp_path / str(number)))
    assert not any(watch.wait(0) for watch in watches)
    assert not watches[0].wait(0.001)
    assert (instances(), watching_threads()) == (1, 1)
    (tmp_path / "299" / "a").write_bytes(b"1")
    assert watches[299].wait(20)
    assert not watches[0].wait(0)
    for watch in watches:
        watch.close()
    assert (instances(), watching_threads()) == before


def test_a_watch_can_call_a_function_instead_of_being_waited_for(tmp_path):
    called = threading.Event()
    with Watch(tmp_path, on_change=called.set):
        (tmp_path / "a").write_bytes(b"1")
        assert called.wait(20)


def test_a_callback_that_fails_keeps_nobody_else_from_being_told(tmp_path, caplog):
    called = threading.Event()

    def fail():
        raise RuntimeError("a mistake")

    with Watch(tmp_path, on_change=fail), Watch(tmp_path, on_change=called.set):
        for number in range(2):
            called.clear()
            (tmp_path / str(number)).write_bytes(b"1")
            assert called.wait(20)
    assert "a mistake" in caplog.text


def test_reports_are_left_to_the_kernel_while_nobody_wants_to_know_more(tmp_path, monkeypatch):
    monkeypatch.setattr(wake, "_watcher", wake._Watcher())
    read, watcher = threading.Semaphore(0), wake._watcher
    read_reports = watcher.read
    monkeypatch.setattr(watcher, "read", lambda: (read_reports(), read.release()))
    with Watch(tmp_path) as watch:
        watcher.start()
        (tmp_path / "a").write_bytes(b"1")
        while not watcher._reader.rests:
            assert read.acquire(timeout=20)
        while read.acquire(timeout=0.02):
            pass
        (tmp_path / "b").write_bytes(b"2")
        assert not read.acquire(timeout=0.05)
        assert watch.wait(20)
        assert watch.take_changed() == {str(tmp_path)}
        assert watch.wait(20)  # the second change
        while watch.wait(0.02):
            pass
        (tmp_path / "c").write_bytes(b"3")
        assert watch.wait(20)


def test_a_removed_directory_wakes_and_so_does_its_successor(tmp_path):
    folder = tmp_path / "d"
    folder.mkdir()
    with Watch(folder) as watch:
        folder.rmdir()
        assert watch.wait(20)
        folder.mkdir()
        (folder / "a").write_bytes(b"1")
        assert watch.wait(20)


def test_dropped_events_wake_everybody(tmp_path, monkeypatch):
    overflow = wake._EVENT.pack(-1, wake._IN_Q_OVERFLOW, 0, 0)
    with Watch(tmp_path) as watch:
        content = [overflow]

        def read(fd, size):
            if not content:
                raise BlockingIOError
            return content.pop()

        with monkeypatch.context() as patch:
            patch.setattr(wake.os, "read", read)
            assert watch.wait(0)
        assert watch.take_changed() is None


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_child_watches_by_itself(tmp_path):
    with Watch(tmp_path) as watch, closing(Announcer(tmp_path)):
        watch.wait(0)
        assert not watch.wait(0.001)  # the thread runs

        def change_and_wait():
            assert not watch.wait(0)
            (tmp_path / "a").write_bytes(b"1")  # announced in the parent, not here
            return watch.wait(20), watching_threads(), instances()

        assert in_child(change_and_wait) == "(True, 1, 1)"
        assert not watch.wait(0)


def test_a_closed_watch_stays_closed(tmp_path):
    watch = Watch(tmp_path)
    watch.close()
    watch.close()
    watch.wake()
    with closing(Announcer(tmp_path)) as announcer:
        announcer.notify()
    assert str(tmp_path) not in wake._watcher._folders
