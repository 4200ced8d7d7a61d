"""headgate explain: its text, its JSON and its warnings."""

import json

import pytest

import headgate
from headgate.cli.app import run


def explained(filter, capsys):
    assert run(["explain", filter, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_explain_prints_the_tree_the_sql_the_probes_and_the_spark_expression(capsys):
    assert run(["explain", "NOT (region <> 'EU' OR amount <= 1000)"]) == 0
    out = capsys.readouterr().out
    for part in (
        "└─ amount <= 1000",
        "Normal form",
        "region = 'EU' AND amount > 1000",
        "SQLite",
        "PostgreSQL",
        "Spark",
    ):
        assert part in out
    for part in (
        "parameters: ['EU', 1000]",
        "CREATE INDEX",
        "headers['region'].s = 'EU'",
        "region='EU'",
    ):
        assert part in out


def test_explain_prints_its_plan_as_json(capsys):
    plan = explained("region = 'EU' AND amount > 1000", capsys)
    assert plan["normal_form"] == "region = 'EU' AND amount > 1000"
    assert [term["routing"] for term in plan["terms"]] == ["index key", "checked after the index"]
    assert plan["sql"]["postgres"]["parameters"] == ["EU", 1000.0]
    assert "$1" in plan["sql"]["postgres"]["where"]
    assert plan["sql"]["sqlite"]["residual"] is None
    assert plan["bloom_probes"] == ["region='EU'"]
    assert plan["warnings"] == []


def test_a_term_that_an_engine_cannot_decide_is_named_with_its_reason(capsys):
    plan = explained("a = 1 AND sys.topic MATCHES 'a.*.b.#'", capsys)
    assert plan["sql"]["sqlite"]["residual"] == "sys.topic MATCHES 'a.*.b.#'"
    assert "regular expressions" in plan["sql"]["sqlite"]["reasons"][0]
    assert plan["sql"]["postgres"]["residual"] is None


@pytest.mark.parametrize(
    ("filter", "warning"),
    [
        ("version = 2", "a header sent as the text '2' does not match"),
        ("version = '2'", "a header sent as a number does not match"),
        ("a IN (1, 'x')", "each matches only headers of its own kind"),
        ("a NOT IN (1, 'x')", "never TRUE"),
        ("a > 5 AND a LIKE 'x%'", "compared as number and string"),
        ("region <> 'EU'", "does not match messages without region"),
        ("a = 1 AND a = 2", "matches nothing"),
        ("a IS NULL OR a IS NOT NULL", "matches everything"),
        ("sys.timestamp > 1750000000000", "in microseconds since 1970"),
    ],
)
def test_a_filter_that_is_probably_a_mistake_has_a_warning(filter, warning, capsys):
    assert any(warning in said for said in explained(filter, capsys)["warnings"])


def test_a_filter_with_a_syntax_error_is_exit_code_2_with_a_caret(capsys):
    assert run(["explain", "region = "]) == 2
    assert "  region = \n           ^" in capsys.readouterr().err


def test_the_command_line_without_arguments_prints_its_nouns(capsys):
    run([])
    captured = capsys.readouterr()
    assert "explain" in captured.out + captured.err
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"headgate {headgate.__version__}\n"
