"""headgate queue and headgate sub: their output and exit codes."""

import io
import json
import os
import sqlite3
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
    assert "purged 1 message" in capsys.readouterr().out


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
        assert "to be moved again: 1" in capsys.readouterr().out
        assert run_json("queue", "outbox", "ls") == []


def test_listing_the_outbox_of_a_missing_file_does_not_create_it(tmp_path, capsys):
    assert run(["queue", "outbox", "ls", "--file", f"{tmp_path}/app.db"]) == 2
    assert "no such file" in capsys.readouterr().err
    assert not (tmp_path / "app.db").exists()


def test_a_person_sees_why_a_letter_is_dead_and_what_acks_a_claim(capsys):
    publish("bad")
    publish("good")
    with connect(os.environ["HEADGATE_DATABASE"]) as db:
        db.find("orders").claim(1)[0].nack(reason="no address")
    capsys.readouterr()
    run(["queue", "dead", "ls", "orders"])
    assert "bad  (dead after 1 attempt: no address)" in capsys.readouterr().out
    run(["queue", "claim", "orders"])
    receipt = capsys.readouterr().out.split()[0]
    assert run(["queue", "ack", "orders", receipt]) == 0
    assert capsys.readouterr().out == "acked 1 message\n"
    run(["queue", "stats", "orders"])
    ready, delayed, leased, dead = capsys.readouterr().out.splitlines()[3].split("\u2502")[1:-1]
    assert [ready.strip(), delayed.strip(), leased.strip(), dead.strip()] == ["0", "0", "0", "1"]


def test_a_misspelt_queue_gets_the_nearest_name(capsys):
    assert run(["queue", "info", "ordesr"]) == 2
    assert "no queue or subscription 'ordesr'; did you mean 'orders'?" in capsys.readouterr().err


def test_a_rate_may_leave_out_the_one(run_json):
    assert run(["queue", "limit", "orders", "5/s"]) == 0
    assert run_json("queue", "info", "orders")[0]["rate_limit"] == "5/1s"


def test_names_of_headers_may_be_listed_with_commas(run_json, capsys):
    assert run(["queue", "create", "listed", "--filter-header", "type, region"]) == 0
    assert run_json("queue", "info", "listed")[0]["filter_headers"] == ["type", "region"]
    run(["queue", "info", "listed"])
    assert "type, region" in capsys.readouterr().out


def test_the_outbox_counts_what_waits_for_a_relay(tmp_path, capsys):
    file = tmp_path / "shop.db"
    with connect(os.environ["HEADGATE_DATABASE"]) as db, closing(sqlite3.connect(file)) as shop:
        db.outbox(shop).publish("orders", b"one")
        shop.commit()
    capsys.readouterr()
    assert run(["queue", "outbox", "ls", "--file", str(file)]) == 0
    assert capsys.readouterr().out == "1 entry waits for a relay\n"
    assert run(["queue", "outbox", "relay", "--once", "--file", f"{file}x"]) == 2
    assert "there is no such file" in capsys.readouterr().err


def test_a_table_whose_words_would_be_cut_is_printed_row_by_row(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    run(["schedule", "ls"])
    assert "cron" in capsys.readouterr().out
    run(["schedule", "add", "report", "30 4 * * 1-5", "daily", "--queue", "orders"])
    capsys.readouterr()
    run(["schedule", "ls"])
    printed = capsys.readouterr().out
    assert "\u2026" not in printed
    assert "30 4 * * 1-5" in printed
    assert "T04:30:00.000Z" in printed
    monkeypatch.delenv("COLUMNS")
    run(["schedule", "ls"])
    assert len(capsys.readouterr().out.splitlines()) == 5  # read by a program: a line for each row
