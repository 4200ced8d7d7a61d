"""Of the consumers in a line, a commit wakes one, and no wake-up is lost."""

from __future__ import annotations

import random
import threading

import pytest

from headgate.queues import wakers as module
from headgate.queues.wakers import Waiter, Wakers
from tests.patience import PATIENCE

QUEUE = frozenset({1})


@pytest.fixture
def wakers() -> Wakers:
    return Wakers()


class Member:
    """A consumer in the line, and how often it was woken."""

    def __init__(self, wakers: Wakers, line: object = "line", queue: int = 1) -> None:
        self.woken = 0
        self.waiter: Waiter = wakers.join(line, lambda: queue, self._wake)

    def _wake(self) -> None:
        self.woken += 1

    def rest(self) -> Member:
        """Claim, find nothing, wait."""
        self.waiter.look()
        assert self.waiter.wait()
        return self


def test_a_commit_wakes_one_of_a_line_and_one_of_each_line(wakers):
    line = [Member(wakers).rest() for _ in range(10)]
    other, elsewhere = Member(wakers, "other").rest(), Member(wakers, "third", queue=2).rest()
    wakers.wake(QUEUE)
    assert sum(member.woken for member in line) == 1
    assert (other.woken, elsewhere.woken) == (1, 0)
    wakers.wake(None)
    assert elsewhere.woken == 1


def test_commits_matter_while_a_member_waits_or_a_callback_is_registered(wakers):
    assert not wakers.are_awaited()
    member = Member(wakers)
    member.waiter.look()
    assert not wakers.are_awaited()
    member.waiter.wait()
    assert wakers.are_awaited()
    wakers.wake(QUEUE)
    assert not wakers.are_awaited()
    registration = wakers.add(lambda queues: None)
    assert wakers.are_awaited()
    registration.close()
    assert not wakers.are_awaited()


def test_a_rest_ends_when_a_member_begins_to_wait(wakers):
    member, ended = Member(wakers), threading.Event()

    def rest():
        assert wakers.rest(lambda: False)
        ended.set()

    thread = threading.Thread(target=rest)
    thread.start()
    assert not ended.wait(0.02)
    member.rest()
    assert ended.wait(PATIENCE)
    thread.join()
    assert not wakers.rest(lambda: False)


def test_no_second_one_is_woken_while_the_first_has_not_begun_to_claim(wakers):
    line = [Member(wakers).rest() for _ in range(3)]
    for _ in range(5):
        wakers.wake(QUEUE)
    assert sum(member.woken for member in line) == 1


def test_another_one_is_woken_when_the_first_does_not_come(wakers, monkeypatch):
    line = [Member(wakers).rest() for _ in range(3)]
    wakers.wake(QUEUE)
    monkeypatch.setattr(module, "_COMES_WITHIN_S", -1.0)
    wakers.wake(QUEUE)
    assert sorted(member.woken for member in line) == [0, 1, 1]


def test_one_that_claims_when_a_commit_comes_claims_once_more(wakers):
    member, waiting = Member(wakers), Member(wakers).rest()
    member.waiter.look()
    wakers.wake(QUEUE)
    assert (member.woken, waiting.woken) == (1, 0)
    assert not member.waiter.wait()
    member.rest()


def test_one_that_finds_messages_wakes_the_next(wakers):
    first, second = Member(wakers).rest(), Member(wakers).rest()
    wakers.wake(QUEUE)
    second.waiter.look()
    second.waiter.leave()
    assert (first.woken, second.woken) == (1, 1)


@pytest.mark.parametrize("was_woken", [True, False])
def test_one_that_ends_wakes_the_next(wakers, was_woken):
    first, second = Member(wakers).rest(), Member(wakers).rest()
    if was_woken:
        wakers.wake(QUEUE)
    second.waiter.close()
    second.waiter.close()
    assert first.woken == 1


def test_one_that_cannot_be_woken_is_left_out(wakers, caplog):
    first = Member(wakers).rest()
    closed_loop = wakers.join("line", lambda: 1, lambda: False)
    failing = wakers.join("line", lambda: 1, lambda: 1 / 0)
    for waiter in (closed_loop, failing):
        waiter.look()
        assert waiter.wait()
    wakers.wake(QUEUE)
    assert first.woken == 1
    assert "could not be woken" in caplog.text


def test_one_is_told_of_an_earlier_due_time_and_goes_on_waiting(wakers):
    line = [Member(wakers).rest() for _ in range(3)]
    wakers.set_due_time(QUEUE)
    assert [member.woken for member in line] == [0, 0, 1]
    assert not line[2].waiter.is_called
    wakers.wake(QUEUE)
    assert [member.woken for member in line] == [0, 0, 2]


def test_one_that_claims_when_a_due_time_becomes_earlier_claims_once_more(wakers):
    member = Member(wakers)
    member.waiter.look()
    wakers.set_due_time(QUEUE)
    assert member.waiter.is_called


def test_a_line_ends_with_its_last_member(wakers):
    members = [Member(wakers) for _ in range(2)]
    for member in members:
        member.waiter.close()
    assert wakers._lines == {}


def test_no_wake_up_is_lost_among_threads(wakers, seed):
    """Every message is taken although nobody polls: a waiter that misses its turn would wait for good."""
    stored, taken, lock = [0], [0], threading.Lock()
    done, total = threading.Event(), 3_000

    def consume() -> None:
        event = threading.Event()
        waiter = wakers.join("line", lambda: 1, event.set)
        while not done.is_set():
            event.clear()
            waiter.look()
            with lock:
                found = stored[0] > 0
                if found:
                    stored[0] -= 1
                    taken[0] += 1
                    if taken[0] == total:
                        done.set()
            if found:
                waiter.leave()
            elif waiter.wait():
                event.wait()
        waiter.close()

    threads = [threading.Thread(target=consume, daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    rng = random.Random(seed)
    for _ in range(total):
        with lock:
            stored[0] += 1
        wakers.wake(QUEUE)
        if rng.random() < 0.01:
            done.wait(0.001)
    assert done.wait(PATIENCE)
    for thread in threads:  # each that ends wakes the next
        thread.join(PATIENCE)
        assert not thread.is_alive()


# ---- other processes -----------------------------------------------------------------------------------


def test_a_line_that_came_too_late_lets_others_go_first_until_it_finds_something(wakers):
    member = Member(wakers).rest()
    wakers.wake(QUEUE)
    assert member.waiter.delay_s is None
    member.rest()  # another process was faster
    wakers.wake(QUEUE)
    assert module._LATE_S <= member.waiter.delay_s <= 2 * module._LATE_S
    assert member.waiter.look_later()
    assert member.waiter.delay_s is None
    member.waiter.leave()  # with a message
    member.rest()
    wakers.wake(QUEUE)
    assert member.waiter.delay_s is None


def test_a_line_at_work_lets_others_go_first_unless_they_leave_something(wakers):
    working, idle = Member(wakers).rest(), Member(wakers).rest()
    working.waiter.look()
    working.waiter.leave()
    assert idle.woken == 1
    assert idle.waiter.delay_s == 0  # it looks first
    idle.rest()
    wakers.wake(QUEUE)
    assert idle.waiter.delay_s > 2 * module._LATE_S  # idle ones, though late, go first
    assert idle.waiter.look_later()
    idle.waiter.note_left()
    idle.waiter.leave()
    idle.rest()
    wakers.wake(QUEUE)
    assert idle.waiter.delay_s is None


def late_by(wakers: Wakers, member: Member) -> float:
    """Wake a late member by a commit, and return how long it has to wait."""
    wakers.wake(QUEUE)
    assert member.waiter.delay_s is not None
    assert member.waiter.look_later()
    return member.waiter._line.late_s


def test_a_late_line_waits_longer_while_it_claims_in_vain_what_it_saw(wakers):
    member = Member(wakers).rest()
    wakers.wake(QUEUE)
    member.rest()
    found = []
    for _ in range(8):  # the claim of another process takes longer than the wait
        found.append(late_by(wakers, member))
        member.waiter.note_left()
        member.rest()
    assert found[:4] == [module._LATE_S * times for times in (1, 2, 4, 8)]
    assert found[-1] == module._LATEST_S
    assert 2.5 * module._LATEST_S < module._COMES_WITHIN_S


def test_a_late_line_waits_less_again_while_others_are_faster(wakers):
    member = Member(wakers).rest()
    wakers.wake(QUEUE)
    member.rest()
    late_by(wakers, member)
    member.waiter.note_left()
    member.rest()
    found = []
    for _ in range(50):
        found.append(late_by(wakers, member))
        member.waiter.note_taken()
        assert member.waiter.wait()
    assert found == sorted(found, reverse=True)
    assert found[0] == 2 * module._LATE_S
    assert found[-1] == module._LATE_S


def test_a_line_that_claims_in_vain_what_it_saw_does_not_take_itself_for_alone(wakers):
    working, idle = Member(wakers).rest(), Member(wakers).rest()
    working.waiter.look()
    working.waiter.leave()
    idle.rest()
    wakers.wake(QUEUE)
    idle.waiter.note_left()
    idle.rest()
    assert idle.waiter._line.alone_until == 0


def test_the_one_that_is_told_to_end_does_not_look_again(wakers):
    member = Member(wakers).rest()
    wakers.wake(QUEUE)
    member.rest()
    wakers.wake(QUEUE)
    member.waiter.call()
    assert not member.waiter.look_later()


def test_a_commit_while_a_late_one_looks_is_not_lost(wakers):
    member = Member(wakers).rest()
    wakers.wake(QUEUE)
    member.rest()
    wakers.wake(QUEUE)
    assert member.waiter.look_later()
    wakers.wake(QUEUE)
    assert not member.waiter.wait()
