"""What every store does: the broker relies on nothing else."""

from __future__ import annotations

import queue
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headgate.store import InMemoryStore, SqliteStore, Store, StoredRow


def record(body: bytes, prefix: bytes = b"") -> bytes:
    return b"%06d" % (6 + len(prefix)) + prefix + body


class Turns:
    """Stands in for the loop of a broker: what other threads post runs when the test says so."""

    def __init__(self) -> None:
        self.posted: queue.Queue[Callable[[], None]] = queue.Queue()

    def post(self, call: Callable[[], None]) -> None:
        self.posted.put(call)

    def until(self, flag: list[object]) -> None:
        while not flag:
            self.posted.get(timeout=10)()


class Bench:
    """A store, and its commits made to wait."""

    def __init__(self, kind: str, path: Path) -> None:
        self.kind, self.path, self.turns = kind, path, Turns()
        self.store: Store = self.open()

    def open(self) -> Store:
        if self.kind == "memory":
            return InMemoryStore(self.turns.post)
        return SqliteStore(self.path, self.turns.post)

    def commit(self) -> None:
        done: list[object] = []
        self.store.commit(lambda: done.append(True))
        self.turns.until(done)

    def again(self) -> Store:
        """The store as it is when it is opened again."""
        if self.kind != "memory":
            self.store.close()
            self.store = self.open()
        return self.store


@pytest.fixture(params=["memory", "sqlite"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(request.param, tmp_path / "store.db")
    yield made
    made.store.close()


def bodies(rows: list[StoredRow]) -> list[bytes]:
    return [row.record[6:] + (row.body or b"") for row in rows]


def test_rows_come_back_in_the_order_of_their_positions(bench):
    for position in range(1, 8):
        bench.store.append(3, position, record(b"%d" % position))
    bench.store.append(4, 1, record(b"of another lane"))
    bench.commit()
    assert [row.position for row in bench.store.page(3, 0, 100, 1 << 20)] == [1, 2, 3, 4, 5, 6, 7]
    assert bodies(bench.store.page(3, 5, 100, 1 << 20)) == [b"6", b"7"]
    assert bodies(bench.store.page(3, 0, 2, 1 << 20)) == [b"1", b"2"]
    assert bodies(bench.store.page(4, 0, 100, 1 << 20)) == [b"of another lane"]


def test_a_page_ends_soon_after_its_bytes(bench):
    for position in range(10):
        bench.store.append(1, position, record(b"x" * 1000))
    bench.commit()
    assert len(bench.store.page(1, -1, 100, 2500)) == 3


def test_positions_may_have_gaps(bench):
    for position in (1, 2, 5, 9, 10):
        bench.store.append(1, position, record(b"%d" % position))
    bench.commit()
    assert bodies(bench.store.page(1, 0, 100, 1 << 20)) == [b"1", b"2", b"5", b"9", b"10"]


def test_what_is_deleted_is_gone_and_deleting_twice_is_harmless(bench):
    for position in range(100):
        bench.store.append(1, position, record(b"%d" % position))
    bench.commit()
    for position in [*range(0, 50), *range(51, 100, 2), 51]:
        bench.store.delete(1, position)
    bench.commit()
    expected = list(range(50, 100, 2))
    assert [row.position for row in bench.again().page(1, -1, 1000, 1 << 20)] == expected


def test_a_row_deleted_before_it_was_committed_was_never_there(bench):
    bench.store.append(1, 1, record(b"gone"))
    bench.store.append(1, 2, record(b"stays"))
    bench.store.append(1, 3, record(b"gone, too"), bench.store.share(b"shared"))
    bench.store.delete(1, 1)
    bench.store.delete(1, 3)
    bench.commit()
    assert bodies(bench.again().page(1, 0, 10, 1 << 20)) == [b"stays"]


def test_clearing_a_lane_keeps_what_is_appended_afterwards(bench):
    bench.store.append(1, 1, record(b"old"))
    bench.store.mark(1, 1)
    bench.commit()
    bench.store.append(1, 2, record(b"not yet committed"))
    bench.store.clear(1)
    bench.store.append(1, 3, record(b"new"))
    bench.store.append(2, 1, record(b"other"))
    bench.commit()
    store = bench.again()
    assert bodies(store.page(1, 0, 10, 1 << 20)) == [b"new"]
    assert bodies(store.page(2, 0, 10, 1 << 20)) == [b"other"]
    assert store.read().marks == {}


def test_a_range_of_committed_rows_is_deleted_and_what_comes_after_it_stays(bench):
    for position in range(1, 10):
        bench.store.append(1, position, record(b"%d" % position))
    bench.commit()
    bench.store.delete_range(1, 3, 7)
    bench.store.append(1, 10, record(b"10"))
    bench.commit()
    assert [row.position for row in bench.again().page(1, 0, 100, 1 << 20)] == [1, 2, 8, 9, 10]


def test_a_replaced_row_keeps_its_position(bench):
    for position in (1, 2, 3):
        bench.store.append(1, position, record(b"%d" % position))
    bench.commit()
    bench.store.replace(1, 2, record(b"two"))
    bench.store.append(1, 4, record(b"4"))
    bench.store.replace(1, 4, record(b"four"))
    bench.commit()
    assert bodies(bench.again().page(1, 0, 10, 1 << 20)) == [b"1", b"two", b"3", b"four"]


def test_a_shared_body_is_there_for_each_row_until_the_last_is_deleted(bench):
    number = bench.store.share(b"body")
    for lane in (1, 2, 3):
        bench.store.append(lane, 7, record(b"", b"%d" % lane), number)
    bench.commit()
    for lane in (1, 2, 3):
        store = bench.again()
        assert store.page(lane, 0, 1, 1) == [
            StoredRow(7, record(b"", b"%d" % lane), b"body", number)
        ]
        assert store.read().lanes[lane].body_bytes == 4
        store.delete(lane, 7)
        bench.commit()
    again = bench.again().share(b"another")
    bench.store.append(1, 8, record(b""), again)
    bench.commit()
    assert bench.store.page(1, 0, 1, 1)[0].body == b"another"


def test_runs_of_shared_bodies_find_their_own(bench):
    for position in range(1, 20):
        number = bench.store.share(b"body %d" % position) if position % 5 else None
        for lane in (1, 2):
            bench.store.append(lane, position, record(b"" if number else b"own"), number)
    bench.commit()
    expected = [b"body %d" % position if position % 5 else b"own" for position in range(1, 20)]
    assert bodies(bench.again().page(1, 0, 100, 1 << 20)) == expected
    assert bodies(bench.store.page(2, 0, 100, 1 << 20)) == expected


def test_marks_and_definitions_survive(bench):
    bench.store.mark(1, 5)
    bench.store.mark(1, 9)
    bench.store.define("queue", "a", b"1")
    bench.store.define("queue", "a", b"2")
    bench.store.define("queue", "b", b"gone")
    bench.commit()
    bench.store.define("queue", "b", None)
    bench.commit()
    contents = bench.again().read()
    assert contents.marks == {1: 9}
    assert contents.definitions == {("queue", "a"): b"2"}


def test_the_facts_of_a_lane_count_rows_and_the_bytes_of_bodies(bench):
    for position in (4, 5, 9):
        bench.store.append(2, position, record(b"x" * position, b"prefix"))
    bench.commit()
    (facts,) = bench.again().read().lanes.values()
    assert (facts.rows, facts.body_bytes, facts.first, facts.last) == (3, 18, 4, 9)


def test_delayed_records_are_paged_in_the_order_in_which_they_fall_due(bench):
    for due, number in ((30, 1), (10, 2), (20, 3), (10, 1)):
        bench.store.delay(due, number, b"%d %d" % (due, number))
    bench.commit()
    store = bench.again()
    assert [row[:2] for row in store.page_delayed((-1, 0), 3, 1000)] == [(10, 1), (10, 2), (20, 3)]
    assert store.page_delayed((20, 3), 3, 1000) == [(30, 1, b"30 1")]
    assert len(store.page_delayed((-1, 0), 3, 5)) == 2
    store.delay(10, 1, None)
    bench.commit()
    assert [row[:2] for row in store.page_delayed((-1, 0), 1, 1000)] == [(10, 2)]
    assert store.read().delayed == 3


def test_commits_are_told_in_order_and_after_they_can_be_read(bench):
    told: list[tuple[int, int]] = []
    for turn in range(20):
        bench.store.append(1, turn, record(b"x"))
        bench.store.commit(
            lambda turn=turn: told.append((turn, len(bench.store.page(1, -1, 100, 1 << 20))))
        )
    while len(told) < 20:
        bench.turns.posted.get(timeout=10)()
    assert [turn for turn, _ in told] == list(range(20))
    assert all(rows > turn for turn, rows in told)


def test_a_failure_after_one_commit_stops_neither_the_others_nor_the_next(tmp_path):
    bench = Bench("sqlite", tmp_path / "store.db")
    told: list[object] = []

    def fail() -> None:
        raise RuntimeError("a connection that is gone")

    bench.store.append(1, 1, record(b"x"))
    bench.store.commit(fail)
    bench.store.append(1, 2, record(b"y"))
    bench.store.commit(lambda: told.append(2))
    bench.turns.until(told)
    assert len(bench.store.page(1, 0, 10, 1 << 20)) == 2
    bench.store.close()


def test_random_changes_agree_with_a_dictionary(bench):
    rng = random.Random(7)
    model: dict[int, dict[int, bytes]] = {1: {}, 2: {}}
    last = 0
    for _ in range(300):
        lane = rng.choice((1, 2))
        rows = model[lane]
        match rng.randrange(6):
            case 0 | 1 | 2:
                last += rng.choice((1, 1, 1, 3))
                rows[last] = rng.randbytes(rng.randrange(20))
                shared = bench.store.share(rows[last]) if rng.random() < 0.3 else None
                own = b"" if shared else rows[last]
                bench.store.append(lane, last, record(own), shared)
            case 3 if rows:
                position = rng.choice(list(rows))
                del rows[position]
                bench.store.delete(lane, position)
            case 4 if rows:
                position = rng.choice(list(rows))
                rows[position] = b"replaced"
                bench.store.replace(lane, position, record(b"replaced"))
            case 5 if rng.random() < 0.1:
                rows.clear()
                bench.store.clear(lane)
        if rng.random() < 0.2:
            bench.commit()
    bench.commit()
    store = bench.again()
    for lane, rows in model.items():
        found = {
            row.position: row.record[6:] + (row.body or b"")
            for row in store.page(lane, -1, 1000, 1 << 20)
        }
        assert found == rows


def test_heads_are_read_in_order_and_without_bodies(bench):
    shared = bench.store.share(b"shared body")
    bench.store.append(1, 1, record(b"body", b"first"))
    bench.store.append(1, 2, record(b"", b"second"), shared)
    bench.store.append(1, 5, record(b"x" * 100_000, b"long"))
    bench.store.append(2, 3, record(b"", b"of another lane"))
    bench.commit()
    heads = bench.store.page_heads(1, 0, 10)
    assert [(head.position, head.prefix[6:]) for head in heads] == [
        (1, b"first"),
        (2, b"second"),
        (5, b"long"),
    ]
    assert [head.position for head in bench.store.page_heads(1, 1, 1)] == [2]


def test_rows_are_read_by_their_positions(bench):
    shared = bench.store.share(b"shared")
    for position in range(1, 8):
        bench.store.append(1, position, record(b"%d" % position))
    bench.store.append(1, 8, record(b""), shared)
    bench.commit()
    rows = bench.store.read_rows(1, [8, 2, 99, 5], 1 << 20)
    assert [row.position for row in rows] == [2, 5, 8]
    assert bodies(rows) == [b"2", b"5", b"shared"]
    assert [row.position for row in bench.store.read_rows(1, [3, 4, 5], 1)] == [3]


def test_notes_say_which_rows_may_have_been_delivered_and_vanish_with_them(bench):
    for position in range(1, 12):
        bench.store.append(1, position, record(b"%d" % position))
    bench.store.append(2, 1, record(b"of another lane"))
    bench.store.note(1, [2, 5])
    bench.commit()
    bench.store.note(1, [6, 7, 9, 10, 99])
    bench.store.note(2, [1])
    bench.commit()
    assert bench.again().read().notes == {1: [2, 5, 6, 7, 9, 10], 2: [1]}
    bench.store.delete(1, 5)
    bench.store.delete_range(1, 6, 7)
    bench.store.forget_notes(1, [9])
    bench.store.clear(2)
    bench.commit()
    assert bench.again().read().notes == {1: [2, 10]}


def test_a_note_of_a_row_that_is_deleted_before_the_commit_is_none(bench):
    bench.store.append(1, 1, record(b"1"))
    bench.store.note(1, [1])
    bench.store.delete(1, 1)
    bench.commit()
    assert bench.store.read().notes == {}
