"""The thread that notices commits, with the moments of files and commits written down beforehand."""

import queue as queues
import threading
from pathlib import Path

import pytest

from headgate.queues.database import connect
from headgate.queues.engine import RESULTS, Statement
from headgate.queues.sqlite import watch
from headgate.queues.sqlite.watch import Watcher
from headgate.queues.wakers import Wakers
from tests.patience import PATIENCE, wait_until


class ScriptedFiles:
    """Reports a write once; what comes after it fell together with it. Longer waits are counted."""

    def __init__(self) -> None:
        self.reports = [True]
        self.long_waits = 0
        self.rests = threading.Event()
        self.woken = threading.Event()

    def wait(self, timeout: float) -> bool:
        if self.reports:
            return self.reports.pop()
        if timeout >= watch._POLL_S:
            self.long_waits += 1
            self.rests.set()
            self.woken.wait(PATIENCE)
        return False

    def wake(self) -> None:
        self.woken.set()

    def close(self) -> None:
        pass


class ScriptedDatabase:
    """Says which commit a look sees; queue 1 always has something to claim."""

    filename = "scripted.db"

    def __init__(self, versions: list[int]) -> None:
        self._versions = versions

    def pragma(self, name: str) -> int:
        assert name == "data_version"
        return self._versions.pop(0) if len(self._versions) > 1 else self._versions[0]

    def execute(self, text: str, params: object = ()) -> "ScriptedDatabase":
        self._asked = text
        return self

    def fetchall(self) -> list[tuple[object, ...]]:
        return [(1, 1, None)] if self._asked == watch._QUEUE_STATES else []

    def close(self) -> None:
        pass


@pytest.fixture
def files(monkeypatch):
    scripted = ScriptedFiles()
    monkeypatch.setattr(watch.files, "Watch", lambda *_, **__: scripted)
    return scripted


def test_a_commit_whose_write_was_reported_together_with_the_one_before_is_noticed_at_once(files):
    """Two writers: the second had written, but not committed, when the commit of the first was noticed."""
    told = threading.Semaphore(0)
    waited_at_the_second = []
    wakers = Wakers()

    def wake(queues: object) -> None:
        waited_at_the_second.append(files.long_waits)
        told.release()

    wakers.add(wake)
    database = ScriptedDatabase([1, 1, 2, 2, 2, 2, 3])
    watcher = Watcher(Path("scripted.db"), lambda: database, wakers)
    try:
        assert told.acquire(timeout=PATIENCE)
        assert told.acquire(timeout=PATIENCE)
    finally:
        watcher.close()
    assert waited_at_the_second[1] == 0


def test_a_commit_during_a_claim_wakes_its_consumer_when_it_has_found_nothing(files):
    """While the consumer claims, nobody looks for commits; the first look sees the commit."""
    woken, wakers = threading.Event(), Wakers()
    looked = []

    class Database(ScriptedDatabase):
        def pragma(self, name: str) -> int:
            looked.append(name)
            return super().pragma(name)

    waiter = wakers.join("line", lambda: 1, woken.set)
    waiter.look()
    watcher = Watcher(Path("scripted.db"), lambda: Database([1, 2]), wakers)
    try:
        assert not woken.wait(0.05)
        assert len(looked) == 1  # before the thread was started
        assert waiter.wait()
        assert woken.wait(PATIENCE)
    finally:
        watcher.close()


def test_a_watcher_that_rests_is_closed(files):
    for _ in range(100):
        Watcher(Path("scripted.db"), lambda: ScriptedDatabase([1]), Wakers()).close()


def test_an_earlier_due_time_is_told_although_the_ones_before_it_were_not_looked_at(files):
    """A lease that ends in 5 s is acked while nobody waits: what falls due in 7 s is earlier than the 9 s that a consumer has seen."""
    told, wakers = threading.Event(), Wakers()

    class Database(ScriptedDatabase):
        due = 5

        def fetchall(self) -> list[tuple[object, ...]]:
            return [(1, 0, self.due)] if self._asked == watch._QUEUE_STATES else []

    database = Database([1, 2])
    waiter = wakers.join("line", lambda: 1, told.set)
    waiter.look()
    watcher = Watcher(Path("scripted.db"), lambda: database, wakers)
    try:
        database.due = 7
        assert waiter.wait()
        assert told.wait(PATIENCE)
    finally:
        watcher.close()


def test_a_rollback_wakes_no_consumer(files, monkeypatch):
    monkeypatch.setattr(watch, "_COMMIT_WITHIN_S", 0.01)
    woken = []
    wakers = Wakers()
    wakers.add(woken.append)
    watcher = Watcher(Path("scripted.db"), lambda: ScriptedDatabase([7]), wakers)
    assert files.rests.wait(PATIENCE)
    watcher.close()
    assert woken == []


def test_a_watcher_continues_after_an_unexpected_error(tmp_path, monkeypatch, caplog):
    seen: queues.Queue[bytes] = queues.Queue()
    url = f"sqlite:///{tmp_path}/q.db"
    tell, failures = Watcher._wake_consumers, [RuntimeError("a mistake of ours")]

    def fail_once(watcher):
        if failures:
            raise failures.pop()
        tell(watcher)

    monkeypatch.setattr(Watcher, "_wake_consumers", fail_once)
    with connect(url) as db, connect(url) as other:
        consumed = db.queue("q").consumer(lambda d: seen.put(d.message.payload), mode="notify")
        with consumed:
            for name in (b"a", b"b"):
                other.queue("q").publish(name)
                assert seen.get(timeout=30) == name
    assert not failures
    assert "a mistake of ours" in caplog.text


def test_a_callback_that_fails_does_not_keep_the_others_from_being_called(caplog):
    woken, wakers = [], Wakers()
    wakers.add(lambda queues: 1 / 0)
    wakers.add(woken.append)
    wakers.wake(frozenset({1}))
    assert woken == [{1}]
    assert "could not be woken" in caplog.text


def test_what_is_not_yet_routed_wakes_consumers_of_subscriptions_only(tmp_path):
    url, woken = f"sqlite:///{tmp_path}/q.db", []
    with connect(url) as db, connect(url) as other:
        queue, copies = db.queue("q"), db.subscription("copies", pattern="#")
        insert = Statement("INSERT INTO inbox (queue, payload) VALUES ('q', 'a')")
        db.engine.run(run_step(insert))
        queue.purge()
        lines = [
            db.engine.join(each.name, lambda id=each.info.id: id, lambda: None)
            for each in (queue, copies)
        ]
        db.engine.watch(woken.append)
        other.queue("others").publish(b"a")
        wait_until(lambda: bool(woken))
        assert set(woken) == {frozenset({RESULTS, copies.info.id})}
        for line in lines:
            line.close()


def run_step(step):
    return (yield step)


# ---- a queue that was deleted and created again --------------------------------------------------------


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/q.db"


def create_again(other):
    other.delete("q")
    anew = other.queue("q")
    anew.publish(b"b")


def are_all_waiting(db):
    return all(line.waiting for line in db.engine._wakers._lines.values())


@pytest.fixture
def may_look(monkeypatch):
    """The watcher looks for commits when this is set."""
    look, may_look = Watcher._has_committed, threading.Event()

    def look_late(watcher, *, wait):
        may_look.wait(PATIENCE)
        return look(watcher, wait=wait)

    monkeypatch.setattr(Watcher, "_has_committed", look_late)
    yield may_look
    may_look.set()


def test_a_queue_created_again_before_the_watcher_first_looked_is_not_missed(url, may_look):
    seen: queues.Queue[bytes] = queues.Queue()
    with connect(url) as db, connect(url) as other:
        queue = db.queue("q")
        with queue.consumer(lambda d: seen.put(d.message.payload), mode="notify"):
            wait_until(lambda: are_all_waiting(db))
            create_again(other)
            may_look.set()
            assert seen.get(timeout=PATIENCE) == b"b"


def test_a_queue_created_again_of_which_another_thread_learns_meanwhile_is_not_missed(
    url, may_look, monkeypatch
):
    """The watcher has read the state of the old queue, and wakes those who wait for the new one."""
    read, seen = Watcher._read_queues, queues.Queue()
    with connect(url) as db, connect(url) as other:
        queue = db.queue("q")

        def read_and_learn(watcher, watched):
            found = read(watcher, watched)
            db.find("q")
            return found

        with queue.consumer(lambda d: seen.put(d.message.payload), mode="notify"):
            wait_until(lambda: are_all_waiting(db))
            monkeypatch.setattr(Watcher, "_read_queues", read_and_learn)
            create_again(other)
            may_look.set()
            assert seen.get(timeout=PATIENCE) == b"b"
