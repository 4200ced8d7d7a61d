"""headgate queue and headgate sub: their output and exit codes."""

import io
import json
from contextlib import closing

import apsw
import pytest

from headgate.cli.app import run
from headgate.queues.database import connect


@pytest.fixture(autouse=True)
def orders_queue(database_url):
    """A queue `orders` in the database that commands use."""
    assert run(["queue", "create", "orders", "--filter-header", "type", "--max-attempts", "1"]) == 0


def publish(payload, *more):
    assert run(["queue", "publish", "orders", payload, *more]) == 0


def test_a_published_message_is_claimed_by_filter_and_acked(run_json):
    publish("first", "-H", "type=created")
    publish("second", "-H", "type=paid", "-H", "amount:=5")
    (claimed,) = run_json("queue", "claim", "orders", "--filter", "type = 'paid'", "--ack")
    assert (claimed["payload"], claimed["headers"]) == ("second", {"type": "paid", "amount": 5})
    assert claimed["delivery"]["attempts"] == 1
    assert [m["payload"] for m in run_json("queue", "browse", "orders")] == ["first"]


def test_a_claim_that_finds_nothing_is_exit_code_1(run_json):
    assert run_json("queue", "claim", "orders", code=1) == []


def test_urgent_messages_come_first_and_delayed_ones_wait(run_json):
    publish("later", "--delay", "1h")
    publish("calm")
    publish("urgent", "--priority", "9")
    assert [m["payload"] for m in run_json("queue", "peek", "orders")] == ["urgent", "calm"]
    (delayed,) = run_json("queue", "browse", "orders", "--state", "delayed")
    assert delayed["payload"] == "later"


def test_lines_of_json_are_published_together(monkeypatch, run_json):
    lines = "".join(
        json.dumps({"payload": f"m{i}", "headers": {"type": "bulk"}}) + "\n" for i in range(5)
    )
    monkeypatch.setattr("sys.stdin", io.StringIO(lines))
    assert run(["queue", "publish", "orders"]) == 0
    assert len(run_json("queue", "peek", "orders", "--filter", "type = 'bulk'")) == 5


def test_messages_printed_as_json_can_be_published_again(monkeypatch, capsys, run_json):
    publish("first", "-H", "type=created")
    capsys.readouterr()
    assert run(["queue", "claim", "orders", "--ack", "--json"]) == 0
    monkeypatch.setattr("sys.stdin", io.StringIO(capsys.readouterr().out))
    assert run(["queue", "publish", "orders"]) == 0
    (again,) = run_json("queue", "peek", "orders")
    assert (again["payload"], again["headers"]) == ("first", {"type": "created"})


def test_an_invalid_line_is_reported_by_its_number(monkeypatch, capsys, run_json):
    monkeypatch.setattr("sys.stdin", io.StringIO('{"payload": "a"}\n\n{\n'))
    assert run(["queue", "publish", "orders"]) == 2
    assert "line 3 is not valid JSON" in capsys.readouterr().err
    assert run_json("queue", "peek", "orders") == []


def test_names_that_look_like_markup_are_printed_unchanged(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "200")
    assert run(["sub", "add", "[red]", "note LIKE '[bold]%'"]) == 0
    for noun in ("queue", "sub"):
        capsys.readouterr()
        assert run([noun, "ls"]) == 0
        shown = capsys.readouterr().out
        assert "[red]" in shown
        assert "note LIKE '[bold]%'" in shown


def test_ls_info_and_stats_agree(run_json):
    publish("x")
    (row,) = run_json("queue", "ls")
    (info,) = run_json("queue", "info", "orders")
    (stats,) = run_json("queue", "stats", "orders")
    assert row["ready"] == info["ready"] == stats["ready"] == 1
    assert row["filter_headers"] == ["type"]
    assert info["oldest_ready_s"] >= 0
    for command in (["queue", "ls"], ["queue", "info", "orders"], ["queue", "stats", "orders"]):
        assert run(command) == 0


def test_purge_asks_for_confirmation(monkeypatch, capsys):
    publish("x")
    monkeypatch.setattr("typer.confirm", lambda question: False)
    assert run(["queue", "purge", "orders"]) == 1
    assert run(["queue", "purge", "orders", "--yes"]) == 0
    assert "purged 1 messages" in capsys.readouterr().out


def test_dead_letters_are_listed_and_requeued(run_json, database_url):
    publish("poison")
    with connect(database_url) as database:
        database.queue("orders").claim()[0].nack(reason="it burns")
    (dead,) = run_json("queue", "dead", "ls", "orders")
    assert (dead["payload"], dead["delivery"]["reason"]) == ("poison", "it burns")
    assert run(["queue", "dead", "requeue", "orders"]) == 0
    assert len(run_json("queue", "peek", "orders")) == 1


def test_index_advice_names_a_header_and_adding_it_avoids_the_scan(run_json):
    publish("x", "-H", "colour=red")
    (advice,) = run_json("queue", "index", "advise", "orders", "colour = 'red'", code=1)
    assert advice["suggestions"] == ["colour"]
    assert run(["queue", "index", "add", "orders", "colour"]) == 0
    (advice,) = run_json("queue", "index", "advise", "orders", "colour = 'red'")
    assert not advice["scans"]


def test_a_subscription_gets_its_own_deliveries_and_changes_its_filter_in_place(run_json):
    assert run(["sub", "add", "eu", "region = 'EU'"]) == 0
    publish("a", "-H", "region=EU")
    assert run(["sub", "set-filter", "eu", "region = 'US'"]) == 0
    publish("b", "-H", "region=EU")
    publish("c", "-H", "region=US")
    (row,) = run_json("sub", "ls")
    assert (row["filter"], row["version"], row["ready"]) == ("region = 'US'", 2, 2)
    claimed = run_json("queue", "claim", "eu", "-n", "9", "--ack")
    assert [m["payload"] for m in claimed] == ["a", "c"]


def test_a_paused_subscription_keeps_new_messages(run_json):
    assert run(["sub", "add", "all", "--pattern", "orders.#"]) == 0
    assert run(["sub", "pause", "all"]) == 0
    publish("a", "--topic", "orders.eu")
    assert run_json("queue", "claim", "all", code=1) == []
    assert run(["sub", "resume", "all"]) == 0
    assert len(run_json("queue", "claim", "all")) == 1
    assert run(["sub", "delete", "all", "--yes"]) == 0
    assert run_json("sub", "ls") == []


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        (["queue", "claim", "nosuch"], "there is no queue or subscription 'nosuch'"),
        (["queue", "claim", "orders", "--filter", "type ="], "ends too early"),
        (["queue", "browse", "orders", "--state", "asleep"], "there is no state 'asleep'"),
        (["queue", "ls", "--db", "mysql://x"], "cannot connect to"),
        (["sub", "pause", "orders"], "is a queue, not a subscription"),
        (["sub", "add", "s", "x = 1", "--from", "last"], "next or first, not at 'last'"),
        (["queue", "publish", "orders", "x", "-H", "broken"], "name=text or name:=json"),
    ],
)
def test_invalid_commands_are_exit_code_2_with_the_reason(command, problem, capsys):
    assert run(command) == 2
    assert problem in capsys.readouterr().err


def test_entries_that_a_relay_could_not_move_are_listed_and_retried(
    tmp_path, capsys, run_json, database_url
):
    with connect(database_url) as db:
        with closing(apsw.Connection(f"{tmp_path}/queues.db")) as connection:
            db.outbox(connection).publish("nowhere", b"a")
        db.relay().run_once()
        (parked,) = run_json("queue", "outbox", "ls")
        assert (parked["queue"], "there is no queue" in parked["problem"]) == ("nowhere", True)
        assert run(["queue", "outbox", "ls"]) == 0
        assert run(["queue", "outbox", "retry", str(parked["id"])]) == 0
        assert "1 entries" in capsys.readouterr().out
        assert run_json("queue", "outbox", "ls") == []


def test_listing_the_outbox_of_a_missing_file_does_not_create_it(tmp_path, capsys):
    assert run(["queue", "outbox", "ls", "--file", f"{tmp_path}/app.db"]) == 2
    assert "no such file" in capsys.readouterr().err
    assert not (tmp_path / "app.db").exists()
