"""headgate schedule: its output and exit codes."""

import pytest

from headgate.cli.app import run

pytest.importorskip("cronsim")


@pytest.fixture(autouse=True)
def orders_queue(database_url):
    assert run(["queue", "create", "orders"]) == 0


def test_a_schedule_is_added_listed_run_and_deleted(run_json, capsys):
    added = ["schedule", "add", "tick", "* * * * * *", "now", "--queue", "orders", "-H", "n:=1"]
    assert run([*added, "--missed", "all"]) == 0
    assert "tick runs next at 2" in capsys.readouterr().out
    (listed,) = run_json("schedule", "ls")
    assert (listed["cron"], listed["queue"], listed["missed"]) == ("* * * * * *", "orders", "all")
    while not run_json("queue", "peek", "orders"):  # a second passes
        assert run(["schedule", "run", "--once"]) == 0
    (published, *_) = run_json("queue", "peek", "orders")
    assert (published["payload"], published["headers"]["n"]) == ("now", 1)
    assert published["headers"]["schedule"] == "tick"
    assert run(["schedules", "ls"]) == 0
    assert "tick" in capsys.readouterr().out
    assert run(["schedule", "rm", "tick"]) == 0
    assert run(["schedule", "rm", "tick"]) == 2
    assert run_json("schedule", "ls") == []


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["* * *", "--queue", "orders"], "is no cron expression"),
        (["@daily", "--queue", "nosuch"], "there is no queue or subscription 'nosuch'"),
        (["@daily"], "say where to publish"),
        (["@daily", "--topic", "x", "--timezone", "Nowhere"], "there is no time zone 'Nowhere'"),
        (["@daily", "--topic", "x", "--missed", "few"], "missed is one of skip, one, all"),
    ],
)
def test_a_schedule_that_cannot_run_is_refused(arguments, problem, capsys):
    cron, *options = arguments
    assert run(["schedule", "add", "s", cron, "", *options]) == 2
    assert problem in capsys.readouterr().err
