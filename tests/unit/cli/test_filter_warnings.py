"""Commands with a filter warn on stderr of names and kinds that no message has; what they print stays as it is."""

import json

import pytest

import headgate
from headgate.cli.app import run
from headgate.streams import Stream

REGOIN = "warning: no message of orders has the header regoin; did you mean region?\n"


@pytest.fixture
def orders(tmp_path, database_url):
    """The path of a stream, and a queue of the same name."""
    with Stream.create(tmp_path / "orders") as stream, stream.producer() as producer:
        producer.publish(b"x", headers={"region": "EU", "amount": 1200})
    with headgate.connect(database_url) as db:
        db.queue("orders").publish(b"x", headers={"region": "EU", "amount": 1200})
    return str(tmp_path / "orders")


def test_reading_a_stream_warns(orders, capsys):
    for verb in ("scan", "tail"):
        assert run(["stream", verb, orders, "--filter", "regoin = 'EU'", "--json"]) == 0
        assert capsys.readouterr() == ("", REGOIN)
    assert run(["stream", "scan", orders, "--filter", "region = 'EU'", "--count"]) == 0
    assert capsys.readouterr() == ("1\n", "")


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["claim", "orders", "--filter"], 1),
        (["peek", "orders", "--filter"], 0),
        (["browse", "orders", "--filter"], 0),
        (["dead", "ls", "orders", "--filter"], 0),
    ],
)
def test_reading_a_queue_warns(orders, capsys, command, code):
    assert run(["queue", *command, "regoin = 'EU'"]) == code
    assert capsys.readouterr() == ("", REGOIN)


def test_advice_and_subscriptions_warn(orders, capsys):
    run(["queue", "index", "advise", "orders", "amount = '1200'"])
    assert "warning: amount is compared with text" in capsys.readouterr().err
    assert run(["sub", "add", "eu", "regoin = 'EU'", "--queue", "orders"]) == 0
    assert capsys.readouterr().err == REGOIN
    assert run(["sub", "set-filter", "eu", "a = 1 AND a = 2"]) == 0
    assert "it matches nothing" in capsys.readouterr().err


def test_explain_warns_with_a_stream_or_a_queue(orders, capsys):
    for where in (["--stream", orders], ["--queue", "orders"]):
        assert run(["explain", "regoin = 'EU'", *where, "--json"]) == 0
        warnings = json.loads(capsys.readouterr().out)["warnings"]
        assert any(warning in REGOIN for warning in warnings)
    assert run(["explain", "regoin = 'EU'", "--stream", orders]) == 0
    assert "did you mean region?" in capsys.readouterr().out


def test_a_pipeline_check_and_a_worker_warn(orders, capsys, tmp_path, monkeypatch):
    file = tmp_path / "p.toml"
    file.write_text(
        f"""
        [source]
        stream = "{orders}"
        filter = "regoin = 'EU'"
        [exchange]
        type = "fanout"
        [[binding]]
        queue = "all"
        [[sink]]
        queue = "all"
        to = "stream:{tmp_path}/out"
        """
    )
    assert run(["pipeline", "check", str(file)]) == 0
    assert "note: no message of orders has the header regoin" in capsys.readouterr().out
    (tmp_path / "shop_of_warnings.py").write_text("def handle(delivery): pass")
    monkeypatch.syspath_prepend(tmp_path)
    command = ["work", "shop_of_warnings:handle", "--queue", "orders", "--once"]
    assert run([*command, "--filter", "regoin = 'EU'"]) == 0
    assert REGOIN in capsys.readouterr().err


def test_the_filter_of_a_subscription_is_an_argument_or_an_option(database_url, capsys):
    assert run(["sub", "add", "eu", "--filter", "region = 'EU'"]) == 0
    assert capsys.readouterr().out == "eu gets region = 'EU'\n"
    assert run(["sub", "set-filter", "eu", "--filter", "region = 'US'"]) == 0
    assert capsys.readouterr().out == "eu gets region = 'US'\n"
    assert run(["sub", "add", "us", "region = 'US'", "--filter", "region = 'EU'"]) == 2
    assert "give the filter once" in capsys.readouterr().err
