"""headgate queue ack, nack, archive, prune, pause, resume, rm and outbox relay."""

import io
import os
import signal
import threading
from contextlib import closing

import apsw
import pytest

from headgate.cli.app import run
from headgate.cli.stop_signals import StopSignals, watch_stop_signals
from headgate.queues import State
from headgate.queues.database import connect


@pytest.fixture(autouse=True)
def orders_queue(database_url):
    """A queue `orders` with an archive, and three messages in it."""
    assert run(["queue", "create", "orders", "--archive"]) == 0
    for payload in ("a", "b", "c"):
        assert run(["queue", "publish", "orders", payload, "-H", f"name={payload}"]) == 0


@pytest.fixture
def claim(capsys):
    """Claim some messages, and return the lines that were printed."""

    def claim_lines(limit: int) -> str:
        capsys.readouterr()
        assert run(["queue", "claim", "orders", "-n", str(limit), "--json"]) == 0
        return capsys.readouterr().out

    return claim_lines


def payloads(found):
    return [message["payload"] for message in found]


def test_lines_that_claim_printed_are_acked_and_in_the_archive(claim, monkeypatch, run_json):
    monkeypatch.setattr("sys.stdin", io.StringIO(claim(2) + "\n"))
    assert run(["queue", "ack", "orders"]) == 0
    assert payloads(run_json("queue", "archive", "orders")) == ["a", "b"]
    assert payloads(run_json("queue", "archive", "orders", "--filter", "name = 'b'")) == ["b"]
    assert payloads(run_json("queue", "archive", "orders", "-n", "1")) == ["a"]
    assert payloads(run_json("queue", "browse", "orders")) == ["c"]


def test_a_receipt_can_be_an_argument(claim, capsys, run_json):
    (claimed,) = run_json("queue", "claim", "orders")
    receipt = f"{claimed['delivery']['id']}:{claimed['delivery']['token']}"
    assert run(["queue", "ack", "orders", receipt]) == 0
    assert "acked 1 message" in capsys.readouterr().out
    assert payloads(run_json("queue", "browse", "orders")) == ["b", "c"]


def test_the_others_are_acked_when_the_lease_of_one_had_ended(
    claim, monkeypatch, capsys, database_url, run_json
):
    lines = claim(2)
    with connect(database_url) as db:
        (first, _) = db.find("orders").browse(State.LEASED)
        db.find("orders").delivery(first.id, 1).release()
    monkeypatch.setattr("sys.stdin", io.StringIO(lines))
    assert run(["queue", "ack", "orders"]) == 1
    said = capsys.readouterr()
    assert "acked 1 message" in said.out
    assert f"the lease had ended or the message is gone: {first.id}" in said.err
    assert payloads(run_json("queue", "browse", "orders")) == ["a", "c"]


def test_nack_retries_after_the_delay_or_makes_a_dead_letter(claim, monkeypatch, run_json):
    monkeypatch.setattr("sys.stdin", io.StringIO(claim(1)))
    assert run(["queue", "nack", "orders", "--delay", "1h", "--reason", "not yet"]) == 0
    (delayed,) = run_json("queue", "browse", "orders", "--state", "delayed")
    assert (delayed["payload"], delayed["delivery"]["reason"]) == ("a", "not yet")
    monkeypatch.setattr("sys.stdin", io.StringIO(claim(1)))
    assert run(["queue", "nack", "orders", "--dead", "--reason", "never"]) == 0
    (dead,) = run_json("queue", "dead", "ls", "orders")
    assert (dead["payload"], dead["delivery"]["reason"]) == ("b", "never")


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "line 1 is not valid JSON"),
        ("17", "line 1 has no delivery"),
        ('{"payload": "a"}', "line 1 has no delivery"),
        ('{"delivery": {"id": 1}}', "line 1: a delivery has an id and a token"),
        ('{"delivery": {"id": 1, "token": "1"}}', "line 1: a delivery has an id and a token"),
        ('{"delivery": {"id": 1, "token": 99999999999999999999}}', "64-bit integer"),
    ],
)
def test_lines_that_are_no_receipts_are_exit_code_2(line, problem, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.StringIO(line))
    assert run(["queue", "ack", "orders"]) == 2
    assert problem in capsys.readouterr().err


@pytest.mark.parametrize("receipt", ["17", "a:b", "1:2:3", ":"])
def test_arguments_that_are_no_receipts_are_exit_code_2(receipt, capsys):
    assert run(["queue", "ack", "orders", receipt]) == 2
    assert "write ID:TOKEN" in capsys.readouterr().err


def test_a_queue_without_an_archive_says_how_to_begin_one(capsys):
    assert run(["queue", "create", "mails"]) == 0
    assert run(["queue", "archive", "mails"]) == 0
    assert "headgate queue create mails --archive" in capsys.readouterr().err


def test_a_paused_queue_gives_nothing_until_it_is_resumed(run_json):
    assert run(["queue", "pause", "orders"]) == 0
    assert run_json("queue", "claim", "orders", code=1) == []
    assert run(["queue", "resume", "orders"]) == 0
    assert len(run_json("queue", "claim", "orders")) == 1


def test_a_rate_limit_is_set_and_lifted(run_json, capsys):
    assert run(["queue", "limit", "orders", "2/1h"]) == 0
    assert run_json("queue", "info", "orders")[0]["rate_limit"] == "2/3600s"
    assert len(run_json("queue", "claim", "orders", "-n", "9")) == 2
    assert run(["queue", "limit", "orders", "none"]) == 0
    assert len(run_json("queue", "claim", "orders", "-n", "9")) == 1
    for rate in ("fast", "0/1s", "1/0s", "2/soon"):
        assert run(["queue", "limit", "orders", rate]) == 2


def test_a_result_is_printed_when_it_is_there(capsys, database_url):
    assert run(["queue", "create", "sums"]) == 0
    capsys.readouterr()
    assert run(["queue", "publish", "sums", "[1, 2]", "--result"]) == 0
    id = capsys.readouterr().out.split()[-1]
    assert run(["queue", "result", id]) == 1
    assert "pending" in capsys.readouterr().err
    with connect(database_url) as db:
        db.find("sums").consumer(lambda d: {"sum": sum(d.message.json())}).drain()
    assert run(["queue", "result", id, "--wait", "10s"]) == 0
    assert capsys.readouterr().out == '{"sum": 3}\n'
    assert run(["queue", "result", "12345"]) == 2
    assert "has no result" in capsys.readouterr().err


def test_unique_and_expiring_messages_are_published(run_json):
    for _ in range(2):
        assert run(["queue", "publish", "orders", "u", "--unique", "k", "--ttl", "1h"]) == 0
    assert payloads(run_json("queue", "browse", "orders")) == ["a", "b", "c", "u"]
    assert run(["queue", "publish", "orders", "--unique", "k"]) == 2


def test_prune_deletes_only_what_is_older(capsys, run_json):
    assert run(["queue", "prune", "orders", "--older-than", "1h", "--yes"]) == 0
    assert "pruned 0 messages" in capsys.readouterr().out
    assert run(["queue", "prune", "orders", "--older-than", "0s", "--yes"]) == 0
    assert "pruned 3 messages" in capsys.readouterr().out


def test_rm_says_how_much_it_would_delete_and_asks(monkeypatch, run_json):
    asked = []
    monkeypatch.setattr("typer.confirm", lambda question: asked.append(question) or False)
    assert run(["queue", "rm", "orders"]) == 1
    assert asked == ["Delete orders with 3 messages?"]
    assert run(["queue", "rm", "orders", "--yes"]) == 0
    assert run_json("queue", "ls") == []


def test_the_relay_moves_what_is_committed(tmp_path, capsys, database_url, run_json):
    with connect(database_url) as db, closing(apsw.Connection(f"{tmp_path}/queues.db")) as own:
        db.outbox(own).publish("orders", b"d")
    assert run(["queue", "outbox", "relay", "--once"]) == 0
    assert "moved 1 entry" in capsys.readouterr().out
    assert payloads(run_json("queue", "browse", "orders")) == ["a", "b", "c", "d"]


def test_the_relay_runs_until_sigterm(tmp_path, monkeypatch, database_url, run_json):
    with connect(database_url) as db, closing(apsw.Connection(f"{tmp_path}/queues.db")) as own:
        db.outbox(own).publish("orders", b"d")
        moved = threading.Event()
        db.add_callback("#", lambda message: moved.set(), id="test")
        waiting = StopSignals.wait

        def wait_for_the_move(self, timeout=None):
            threading.Thread(
                target=lambda: moved.wait(30) and os.kill(os.getpid(), signal.SIGTERM)
            ).start()
            return waiting(self, timeout)

        monkeypatch.setattr(StopSignals, "wait", wait_for_the_move)
        assert run(["queue", "outbox", "relay"]) == 0
        assert moved.is_set()


def test_signals_past_the_last_one_that_is_expected_end_the_command():
    before = signal.getsignal(signal.SIGTERM)
    with watch_stop_signals(most=2) as signals:
        assert not signals.wait(timeout=0)
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        assert signals.wait(30)
        assert signals.wait(30)
        assert signals.count == 2
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before
