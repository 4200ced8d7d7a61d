"""`headgate work` as a service manager runs it: signals, handlers that fail, hang or kill their process, logs, metrics."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from headgate.logs import LogSettings
from headgate.queues import Database, Queue, State, connect
from headgate.worker import Control, WorkAccount, WorkerOptions, processes
from tests import patience

JOBS = """
import asyncio, os, re, time

def note(text):
    with open("seen", "a") as file:
        file.write(text + "\\n")

def begin(delivery):
    text = delivery.message.payload.decode()
    note(f"{text} {os.getpid()}")
    if text == "fails":
        raise ValueError("not today")
    if text == "dies":
        os._exit(9)
    if text == "blocks":
        re.match(r"(a+)+$", "a" * 64 + "b")  # does not return, and lets no other thread run
    return text

def handle(delivery):
    text = begin(delivery)
    while (text == "waits" and not os.path.exists("go")) or text == "hangs":
        time.sleep(0.01)

async def handle_async(delivery):
    text = begin(delivery)
    while (text == "waits" and not os.path.exists("go")) or text == "hangs":
        await asyncio.sleep(0.01)

number = 17
"""
HEADGATE = [sys.executable, "-c", "from headgate.cli import main; main()"]

# Workers are processes that start processes: on a busy machine that takes a while.
PATIENCE = 4 * patience.PATIENCE
wait_until = partial(patience.wait_until, seconds=PATIENCE)

each_kind = pytest.mark.parametrize(
    "kind",
    [["jobs:handle"], ["jobs:handle_async"], ["jobs:handle", "--processes", "1"]],
    ids=["threads", "tasks", "processes"],
)

Work = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/queues.db"


@pytest.fixture
def db(url: str) -> Iterator[Database]:
    with connect(url) as opened:
        yield opened


@pytest.fixture
def orders(db: Database) -> Queue:
    return db.queue("orders", max_attempts=2)


@pytest.fixture
def work(tmp_path: Path, url: str) -> Iterator[Work]:
    """Start `headgate work` with these arguments, in a directory with the module `jobs`."""
    (tmp_path / "jobs.py").write_text(JOBS)
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        command = [*HEADGATE, "work", "--db", url, *arguments, "--queue", "orders"]
        with (tmp_path / "log").open("w") as log:
            process = subprocess.Popen(command, cwd=tmp_path, stderr=log, text=True)
        started.append(process)
        return process

    yield start
    (tmp_path / "go").touch()
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture
def seen(tmp_path: Path) -> Callable[[], list[str]]:
    """What the handler was called with, each with its process."""

    def read() -> list[str]:
        file = tmp_path / "seen"
        return file.read_text().splitlines() if file.exists() else []

    return read


@pytest.fixture
def log(tmp_path: Path) -> Callable[[], str]:
    return lambda: (tmp_path / "log").read_text()


def states(queue: Queue) -> list[tuple[bytes, State, int]]:
    return [(each.message.payload, each.state, each.attempts) for each in queue.browse()]


# ---- signals -------------------------------------------------------------------------------------------


@each_kind
def test_the_first_sigterm_finishes_what_is_in_hand_and_takes_nothing_new(
    work, kind, orders, seen, log, tmp_path
):
    orders.publish_many([b"waits", b"next"])
    process = work(*kind)
    wait_until(lambda: len(seen()) == 1)
    process.send_signal(signal.SIGTERM)
    wait_until(lambda: "finishing the messages in hand" in log())
    (tmp_path / "go").touch()
    assert process.wait(PATIENCE) == 0
    assert len(seen()) == 1
    assert states(orders) == [(b"next", State.READY, 0)]
    assert "ended: 1 handled, 0 failed" in log()


@each_kind
def test_the_second_sigterm_gives_back_what_is_in_hand(work, kind, orders, seen, log):
    orders.publish(b"hangs")
    process = work(*kind)
    wait_until(lambda: len(seen()) == 1)
    process.send_signal(signal.SIGTERM)
    wait_until(lambda: "finishing the messages in hand" in log())
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 1
    assert states(orders) == [(b"hangs", State.READY, 0)]


def test_after_the_shutdown_timeout_one_signal_is_enough(work, orders, seen, log):
    orders.publish(b"hangs")
    process = work("jobs:handle", "--shutdown-timeout", "50ms")
    wait_until(lambda: len(seen()) == 1)
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE) == 1
    assert states(orders) == [(b"hangs", State.READY, 0)]
    assert "have not returned within 0.05 s" in log()


def test_an_idle_worker_ends_at_once(work, orders, log):
    process = work("jobs:handle", "-c", "3")
    wait_until(lambda: "working on orders" in log())
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0


# ---- handlers that do not do as they should ------------------------------------------------------------


@each_kind
def test_a_handler_that_hangs_has_failed_and_the_worker_goes_on(work, kind, orders, seen):
    orders.publish(b"hangs")
    process = work(*kind, "--timeout", "100ms", "--retry-first", "1h")
    wait_until(lambda: states(orders) == [(b"hangs", State.DELAYED, 1)])
    orders.publish(b"next")
    wait_until(lambda: len(seen()) == 2)
    wait_until(lambda: states(orders) == [(b"hangs", State.DELAYED, 1)])
    (first, next_one) = (line.split() for line in seen())
    assert next_one[0] == "next"
    assert (first[1] != next_one[1]) == ("--processes" in kind)  # a new process, or the same one
    [failed] = orders.browse()
    assert failed.reason == "TimeoutError: the handler has not returned within 0.1 s"
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0


def test_a_message_that_kills_its_process_becomes_a_dead_letter_and_the_process_is_replaced(
    work, orders, seen, log
):
    orders.publish(b"dies")
    process = work("jobs:handle", "--processes", "1", "--lease", "100ms")
    wait_until(lambda: [each.message.payload for each in orders.dead()] == [b"dies"])
    orders.publish(b"next")
    wait_until(lambda: states(orders) == [(b"dies", State.DEAD, 2)])
    assert [line.split()[0] for line in seen()] == ["dies", "dies", "next"]
    assert len({line.split()[1] for line in seen()}) == 3
    assert "ended with 9: replaced in 0.5 s" in log()
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0


def test_once_with_a_message_that_kills_its_process_is_a_failure(work, orders):
    orders.publish(b"dies")
    process = work("jobs:handle", "--processes", "1", "--lease", "100ms", "--once")
    assert process.wait(PATIENCE) == 1


def test_a_process_in_which_no_thread_runs_any_more_is_killed_and_replaced(
    work, orders, seen, url, tmp_path, monkeypatch
):
    monkeypatch.setattr(processes, "SILENCE_S", 2.5)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    orders.publish(b"blocks")
    lease = WorkerOptions.__dataclass_fields__["lease"].default / 100
    options = WorkerOptions(handler="jobs:handle", database=url, queues=("orders",), lease=lease,
                            timeout=lease / 2, once=True)  # fmt: skip
    account = WorkAccount()
    processes.run_processes(options, 1, LogSettings(), account, Control())
    assert account.replaced == 2
    assert {line.split()[0] for line in seen()} == {"blocks"}
    assert states(orders) == [(b"blocks", State.DEAD, 2)]


def test_children_end_when_their_parent_is_killed(work, orders, seen, tmp_path):
    orders.publish_many([b"a", b"waits"])
    process = work("jobs:handle", "--processes", "2")
    wait_until(lambda: len(seen()) == 2)
    children = {int(line.split()[1]) for line in seen()}
    process.kill()
    (tmp_path / "go").touch()
    wait_until(lambda: not any(map(is_running, children)))
    assert states(orders) == []


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


# ---- once ----------------------------------------------------------------------------------------------


@each_kind
def test_once_handles_what_is_ready_and_ends(work, kind, orders, seen):
    orders.publish_many([b"%d" % at for at in range(20)])
    assert work(*kind, "--once", "--concurrency", "2").wait(PATIENCE) == 0
    assert sorted(int(line.split()[0]) for line in seen()) == list(range(20))
    assert states(orders) == []


@each_kind
def test_once_ends_with_exit_code_1_when_a_handler_failed(work, kind, orders, log):
    orders.publish_many([b"fails", b"a"])
    assert work(*kind, "--once", "--retry-first", "1h").wait(PATIENCE) == 1
    assert states(orders) == [(b"fails", State.DELAYED, 1)]
    assert "ValueError: not today" in log()


@pytest.mark.postgres
@each_kind
def test_a_worker_on_postgresql_handles_what_is_ready(
    work, kind, postgres_url, postgres_schema, seen
):
    url = f"{postgres_url}{'&' if '?' in postgres_url else '?'}schema={postgres_schema}"
    with connect(url) as db:
        orders = db.queue("orders", max_attempts=2)
        orders.publish_many([b"fails", *(b"%d" % at for at in range(20))])
        process = work(*kind, "--once", "-c", "3", "--retry-first", "1h", "--db", url)
        assert process.wait(PATIENCE) == 1
        assert len(seen()) == 21
        assert states(orders) == [(b"fails", State.DELAYED, 1)]


def test_only_messages_that_match_the_filter_are_handled(work, orders, seen):
    orders.publish(b"eu", headers={"region": "EU"})
    orders.publish(b"us", headers={"region": "US"})
    assert work("jobs:handle", "--once", "--filter", "region = 'EU'").wait(PATIENCE) == 0
    assert [line.split()[0] for line in seen()] == ["eu"]


def test_several_queues_are_worked_on(work, db, orders, seen):
    db.queue("mails").publish(b"mail")
    orders.publish(b"order")
    assert work("jobs:handle", "--once", "--queue", "mails").wait(PATIENCE) == 0
    assert {line.split()[0] for line in seen()} == {"mail", "order"}


@each_kind
def test_a_worker_publishes_what_is_scheduled(work, kind, db, orders, seen):
    pytest.importorskip("cronsim")
    db.schedule("tick", "* * * * * *", b"tick", queue="orders")
    process = work(*kind)
    wait_until(lambda: len(seen()) >= 2)
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0
    assert {line.split()[0] for line in seen()} == {"tick"}


# ---- what an operator reads ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["jobs"], "a handler is written module:function"),
        (["nosuch:handle"], "there is no module 'nosuch'"),
        (["jobs:nosuch"], "jobs has no 'nosuch'; check the spelling"),
        (["jobs:number"], "jobs:number is no function but int"),
        (["jobs:nosuch", "--processes", "2"], "jobs has no 'nosuch'; check the spelling"),
        (["jobs:handle", "--queue", "nosuch"], "there is no queue or subscription 'nosuch'"),
        (["jobs:handle", "--filter", "region ="], "ends too early"),
        (["jobs:handle", "--log-format", "xml"], "the log format is one of text, "),
        (["jobs:handle", "--metrics", "here"], "a port or host:port, not 'here'"),
        (["jobs:handle", "--timeout", "soon"], "'soon' is not a duration"),
    ],
)
def test_what_cannot_begin_is_exit_code_2_with_the_reason(work, orders, log, arguments, problem):
    assert work(*arguments).wait(PATIENCE) == 2
    assert problem in log()
    assert "Traceback" not in log()


def test_logs_are_json_objects_with_the_facts_of_a_message(work, orders, log):
    orders.publish_many([b"fails", b"a"])
    process = work("jobs:handle", "--once", "--log-format", "json", "--log-level", "debug",
                   "--retry-first", "1h")  # fmt: skip
    assert process.wait(PATIENCE) == 1
    lines = [json.loads(line) for line in log().splitlines()]
    [failed] = [line for line in lines if line["message"].startswith("handler failed")]
    assert (failed["level"], failed["queue"], failed["attempt"]) == ("warning", "orders", 1)
    assert "ValueError: not today" in failed["exception"]
    outcomes = [line["outcome"] for line in lines if "outcome" in line]
    assert outcomes == ["failed", "done"]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:]{8}\.\d{3}Z", line["time"]) for line in lines)


@pytest.mark.parametrize("kind", [[], ["--processes", "2"]], ids=["here", "processes"])
def test_metrics_tell_what_was_done_and_how_much_waits(work, orders, log, kind):
    orders.publish_many([b"fails", b"a", b"b"])
    work("jobs:handle", *kind, "--metrics", "0", "--retry-first", "1h")
    wait_until(lambda: "metrics on" in log())
    address = re.search(r"http://\S+", log())[0]
    wanted = [
        'headgate_worker_messages_total{outcome="done",queue="orders"} 2.0',
        'headgate_worker_messages_total{outcome="failed",queue="orders"} 1.0',
        'headgate_worker_handler_seconds_count{queue="orders"} 3.0',
        f"headgate_worker_processes {float(len(kind) or 1)}",
        'headgate_queue_messages{queue="orders",state="delayed"} 1.0',
    ]

    def fetch() -> str:
        with urllib.request.urlopen(address, timeout=PATIENCE) as answer:
            return answer.read().decode()

    wait_until(lambda: all(line in fetch() for line in wanted))


def test_a_worker_without_prometheus_says_what_to_install(orders, url, tmp_path):
    (tmp_path / "jobs.py").write_text(JOBS)
    hide = (
        "import sys; sys.modules['prometheus_client'] = None; from headgate.cli import main; main()"
    )
    command = [sys.executable, "-c", hide, "work", "jobs:handle", "--db", url, "-q", "orders"]
    done = subprocess.run(
        [*command, "--metrics", "0"], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 2
    assert "headgate[server]" in done.stderr
    assert subprocess.run([*command, "--once"], cwd=tmp_path, timeout=PATIENCE).returncode == 0
