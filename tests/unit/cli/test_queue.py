"""headgate queue and headgate sub: what a person types, and what comes back."""

import io
import json
from contextlib import closing

import apsw
import pytest

from headgate.cli.app import run
from headgate.queues.database import connect


@pytest.fixture(autouse=True)
def database(tmp_path, monkeypatch):
    monkeypatch.setenv("HEADGATE_DATABASE", f"sqlite:///{tmp_path}/queues.db")
    assert run(["queue", "create", "orders", "--filter-header", "type", "--max-attempts", "1"]) == 0


def answer(capsys, *command, code=0):
    capsys.readouterr()
    assert run([*command, "--json"]) == code
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def publish(payload, *more):
    assert run(["queue", "publish", "orders", payload, *more]) == 0


def test_what_is_published_is_claimed_by_filter_and_acked(capsys):
    publish("first", "-H", "type=created")
    publish("second", "-H", "type=paid", "-H", "amount:=5")
    (claimed,) = answer(capsys, "queue", "claim", "orders", "--filter", "type = 'paid'", "--ack")
    assert (claimed["payload"], claimed["headers"]) == ("second", {"type": "paid", "amount": 5})
    assert claimed["delivery"]["attempts"] == 1
    assert [m["payload"] for m in answer(capsys, "queue", "browse", "orders")] == ["first"]


def test_a_claim_that_finds_nothing_is_exit_code_1(capsys):
    assert answer(capsys, "queue", "claim", "orders", code=1) == []


def test_urgent_messages_come_first_and_delayed_ones_wait(capsys):
    publish("later", "--delay", "1h")
    publish("calm")
    publish("urgent", "--priority", "9")
    assert [m["payload"] for m in answer(capsys, "queue", "peek", "orders")] == ["urgent", "calm"]
    (delayed,) = answer(capsys, "queue", "browse", "orders", "--state", "delayed")
    assert delayed["payload"] == "later"


def test_lines_of_json_are_published_together(monkeypatch, capsys):
    lines = "".join(
        json.dumps({"payload": f"m{i}", "headers": {"type": "bulk"}}) + "\n" for i in range(5)
    )
    monkeypatch.setattr("sys.stdin", io.StringIO(lines))
    assert run(["queue", "publish", "orders"]) == 0
    assert len(answer(capsys, "queue", "peek", "orders", "--filter", "type = 'bulk'")) == 5


def test_what_was_printed_as_json_can_be_published_again(monkeypatch, capsys):
    publish("first", "-H", "type=created")
    capsys.readouterr()
    assert run(["queue", "claim", "orders", "--ack", "--json"]) == 0
    monkeypatch.setattr("sys.stdin", io.StringIO(capsys.readouterr().out))
    assert run(["queue", "publish", "orders"]) == 0
    (again,) = answer(capsys, "queue", "peek", "orders")
    assert (again["payload"], again["headers"]) == ("first", {"type": "created"})


def test_a_bad_line_is_named_by_its_number_in_the_input(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.StringIO('{"payload": "a"}\n\n{\n'))
    assert run(["queue", "publish", "orders"]) == 2
    assert "line 3 is not valid JSON" in capsys.readouterr().err
    assert answer(capsys, "queue", "peek", "orders") == []


def test_what_looks_like_markup_is_shown_as_it_is(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "200")
    assert run(["sub", "add", "[red]", "note LIKE '[bold]%'"]) == 0
    for noun in ("queue", "sub"):
        capsys.readouterr()
        assert run([noun, "ls"]) == 0
        shown = capsys.readouterr().out
        assert "[red]" in shown
        assert "note LIKE '[bold]%'" in shown


def test_ls_info_and_stats_agree(capsys):
    publish("x")
    (row,) = answer(capsys, "queue", "ls")
    (info,) = answer(capsys, "queue", "info", "orders")
    (stats,) = answer(capsys, "queue", "stats", "orders")
    assert row["ready"] == info["ready"] == stats["ready"] == 1
    assert row["filter_headers"] == ["type"]
    assert info["oldest_ready_s"] >= 0
    for command in (["queue", "ls"], ["queue", "info", "orders"], ["queue", "stats", "orders"]):
        assert run(command) == 0


def test_purging_asks_first(monkeypatch, capsys):
    publish("x")
    monkeypatch.setattr("typer.confirm", lambda question: False)
    assert run(["queue", "purge", "orders"]) == 1
    assert run(["queue", "purge", "orders", "--yes"]) == 0
    assert "purged 1 messages" in capsys.readouterr().out


def test_dead_letters_are_listed_and_given_another_life(capsys):
    from headgate.queues.database import connect
    from headgate.settings import load_settings

    publish("poison")
    with connect(load_settings().database) as database:
        database.queue("orders").claim()[0].nack(reason="it burns")
    (dead,) = answer(capsys, "queue", "dead", "ls", "orders")
    assert (dead["payload"], dead["delivery"]["reason"]) == ("poison", "it burns")
    assert run(["queue", "dead", "requeue", "orders"]) == 0
    assert len(answer(capsys, "queue", "peek", "orders")) == 1


def test_advice_names_the_header_to_declare_and_adding_it_helps(capsys):
    publish("x", "-H", "colour=red")
    (advice,) = answer(capsys, "queue", "index", "advise", "orders", "colour = 'red'", code=1)
    assert advice["suggestions"] == ["colour"]
    assert run(["queue", "index", "add", "orders", "colour"]) == 0
    (advice,) = answer(capsys, "queue", "index", "advise", "orders", "colour = 'red'")
    assert not advice["scans"]


def test_a_subscription_gets_its_own_deliveries_and_changes_its_filter_in_place(capsys):
    assert run(["sub", "add", "eu", "region = 'EU'"]) == 0
    publish("a", "-H", "region=EU")
    assert run(["sub", "set-filter", "eu", "region = 'US'"]) == 0
    publish("b", "-H", "region=EU")
    publish("c", "-H", "region=US")
    (row,) = answer(capsys, "sub", "ls")
    assert (row["filter"], row["version"], row["ready"]) == ("region = 'US'", 2, 2)
    claimed = answer(capsys, "queue", "claim", "eu", "-n", "9", "--ack")
    assert [m["payload"] for m in claimed] == ["a", "c"]


def test_a_paused_subscription_keeps_what_arrives(capsys):
    assert run(["sub", "add", "all", "--pattern", "orders.#"]) == 0
    assert run(["sub", "pause", "all"]) == 0
    publish("a", "--topic", "orders.eu")
    assert answer(capsys, "queue", "claim", "all", code=1) == []
    assert run(["sub", "resume", "all"]) == 0
    assert len(answer(capsys, "queue", "claim", "all")) == 1
    assert run(["sub", "delete", "all", "--yes"]) == 0
    assert answer(capsys, "sub", "ls") == []


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
def test_mistakes_are_exit_code_2_and_say_what_is_wrong(command, problem, capsys):
    assert run(command) == 2
    assert problem in capsys.readouterr().err


def test_what_a_relay_could_not_move_is_listed_and_tried_again(tmp_path, capsys):
    with connect(f"sqlite:///{tmp_path}/queues.db") as db:
        with closing(apsw.Connection(f"{tmp_path}/queues.db")) as connection:
            db.outbox(connection).publish("nowhere", b"a")
        db.relay().run_once()
        (parked,) = answer(capsys, "queue", "outbox", "ls")
        assert (parked["queue"], "there is no queue" in parked["problem"]) == ("nowhere", True)
        assert run(["queue", "outbox", "ls"]) == 0
        assert run(["queue", "outbox", "retry", str(parked["id"])]) == 0
        assert "1 entries" in capsys.readouterr().out
        assert answer(capsys, "queue", "outbox", "ls") == []


def test_the_outbox_of_a_file_that_is_not_there_is_not_created(tmp_path, capsys):
    assert run(["queue", "outbox", "ls", "--file", f"{tmp_path}/app.db"]) == 2
    assert "no such file" in capsys.readouterr().err
    assert not (tmp_path / "app.db").exists()
