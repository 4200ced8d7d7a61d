"""headgate filter check: its output and its exit codes."""

import json

import pytest

from headgate.cli.app import run


@pytest.fixture
def table(tmp_path):
    def write(*cases):
        path = tmp_path / "cases.json"
        path.write_text(
            json.dumps(cases) if cases and not isinstance(cases[0], str) else "".join(cases)
        )
        return str(path)

    return write


GOOD = {"expr": "a = 1", "message": {"headers": {"a": 1}}, "expect": True}
WRONG = {"expr": "a = 1", "message": {"headers": {"a": "1"}}, "expect": True}
REFUSED = {"expr": "a = ", "message": {}, "expect": "error"}
UNREFUSED = {"expr": "a = 1", "message": {}, "expect": "error"}
TOPIC = {"pattern": "a.#", "topic": "a", "expect": True}


def test_cases_that_all_pass_are_exit_code_0_with_their_count(table, capsys):
    assert run(["filter", "check", table(GOOD, REFUSED, TOPIC)]) == 0
    assert capsys.readouterr().out == "engines: python, arrow, sqlite\n3 passed, 0 failed\n"


def test_a_disagreement_is_printed_with_exit_code_1(table, capsys):
    assert run(["filter", "check", table(GOOD, WRONG, UNREFUSED), "--engine", "python"]) == 1
    out = capsys.readouterr().out
    assert out.splitlines()[-1] == "1 passed, 2 failed"
    assert "Disagreements" in out


def test_json_names_case_engine_and_answers(table, capsys):
    assert run(["filter", "check", table(GOOD, WRONG), "-e", "python,arrow", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert (report["passed"], report["failed"], report["engines"]) == (1, 1, ["python", "arrow"])
    assert report["disagreements"][0] == {
        "case": 2, "engine": "python", "text": "a = 1", "expected": True, "got": False, "detail": "",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("[", "is not JSON"),
        ("{}", "must hold a list"),
        ("[5]", "case 1 must be an object"),
        ('[{"expr": "a"}]', '"expect" must be true, false or "error"'),
        ('[{"expect": true}]', 'needs "expr" and "message"'),
        ('[{"expr": "a", "expect": true, "message": 5}]', '"message" must be an object'),
        ('[{"expr": "a", "expect": true, "message": {"colour": 1}}]', "no field 'colour'"),
        (
            '[{"expr": "a", "expect": true, "message": {"headers": 5}}]',
            "'headers' must be an object",
        ),
        ('[{"expr": "a", "expect": true, "message": {"priority": 999}}]', "case 1: priority"),
    ],
)
def test_a_table_that_cannot_be_read_is_exit_code_2(table, capsys, content, problem):
    assert run(["filter", "check", table(content)]) == 2
    assert problem in capsys.readouterr().err


def test_a_missing_table_is_exit_code_2(tmp_path, capsys):
    assert run(["filter", "check", str(tmp_path / "none.json")]) == 2
    assert "cannot read" in capsys.readouterr().err


def test_an_unknown_engine_is_exit_code_2(table, capsys):
    assert run(["filter", "check", table(GOOD), "-e", "oracle"]) == 2
    assert "there is no engine 'oracle'" in capsys.readouterr().err


def test_every_field_of_a_message_is_honoured(table):
    message = {
        "topic": "a.b", "priority": 7, "timestamp": 5, "id": "i", "filter_value": "v", "key": "k",
        "properties": {"subject": "s"}, "headers": {"list": [1], "gone": None}, "payload": "text",
    }  # fmt: skip
    expr = (
        "sys.topic = 'a.b' AND sys.priority = 7 AND sys.timestamp = 5 AND sys.id = 'i' AND sys.filter_value = 'v' AND "
        "sys.key = 'k' AND p.subject = 's' AND EXISTS(list) AND list IS NULL AND NOT EXISTS(gone)"
    )
    assert run(["filter", "check", table({"expr": expr, "message": message, "expect": True})]) == 0
