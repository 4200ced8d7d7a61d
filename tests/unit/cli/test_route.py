"""headgate route: its tables, its JSON and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from headgate.cli.route import route
from headgate.errors import HeadgateError

EXAMPLE = str(Path(__file__).parent.parent.parent.parent / "examples" / "topology.toml")


def run(*arguments: str):
    app = typer.Typer()
    app.command()(route)
    return CliRunner().invoke(app, ["--topology", EXAMPLE, *arguments], env={"COLUMNS": "200"})


def test_route_prints_the_receivers_and_why_other_bindings_failed():
    result = run(
        "--exchange",
        "orders",
        "--topic",
        "orders.us.created",
        "--header",
        "region=US",
        "--header",
        "type=created",
    )
    assert result.exit_code == 0
    assert "received by: anything-new" in result.output
    assert "header 'region' is 'US', not 'EU'" in result.output
    assert "header 'tenant' is absent" in result.output


def test_a_message_that_no_queue_receives_is_exit_code_1():
    result = run("--exchange", "large", "--header", "amount:=1000", "--header", "region=EU")
    assert result.exit_code == 1
    assert "no queue: the message is unroutable" in result.output
    assert "amount > 1000 is FALSE: amount is 1000" in result.output


def test_route_prints_its_answer_as_json():
    result = run(
        "--exchange", "orders", "--header", "amount:=2000", "--header", "region=UK", "--json"
    )
    found = json.loads(result.output)
    assert found["queues"] == ["large-orders"]
    assert found["via"] == ["orders", "large"]
    assert not found["unroutable"]
    by_queue = {entry["destination"]: entry for entry in found["bindings"]}
    assert by_queue["large-orders"]["matched"]
    assert by_queue["eu-created"]["why_not"] == "header 'region' is 'UK', not 'EU'"


def test_limit_shortens_the_list_of_bindings_that_failed():
    result = run("--exchange", "orders", "--header", "region=XX", "--limit", "2")
    assert "… and 3 more" in result.output


def test_a_header_that_is_an_object_is_compared_by_value_and_markup_is_printed_unchanged():
    result = run("--exchange", "orders", "--header", 'tenant:={"k": "[bold]"}')
    assert result.exit_code == 0
    assert "tenant NOT LIKE 'test-%' is UNKNOWN" in result.output


@pytest.mark.parametrize(
    "arguments", [["--exchange", "none"], ["--exchange", "orders", "--header", "nothing"]]
)
def test_an_invalid_exchange_or_file_raises_an_error_of_headgate(arguments):
    assert isinstance(run(*arguments).exception, HeadgateError)
