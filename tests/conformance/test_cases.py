"""Tables of cases through every engine: our own, and the shared ones where they lie beside the repository."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headgate.check.cases import check_cases, load_cases
from headgate.check.engines import LOCAL, open_engine
from headgate.check.spark import SparkCheck
from headgate.cli.app import run

HERE = Path(__file__).parent.parent
OWN = HERE / "data" / "filter_cases.json"
SHARED = HERE.parent.parent / "shared" / "cases"
TABLES = [
    OWN,
    *(
        path
        for name in ("filters.json", "topic_patterns.json")
        if (path := SHARED / name).is_file()
    ),
]
tables = pytest.mark.parametrize("table", TABLES, ids=lambda path: path.name)


def assert_all_pass(table: Path, engine) -> None:
    report = check_cases(load_cases(table), engine)
    assert report.passed == len(json.loads(table.read_text()))
    assert report.disagreements == ()


@tables
@pytest.mark.parametrize("name", LOCAL)
def test_local_engines_answer_as_expected(table, name):
    with open_engine(name) as engine:
        assert_all_pass(table, engine)


@tables
@pytest.mark.postgres
def test_postgres_answers_as_expected(table, postgres_url):
    with open_engine("postgres", postgres_url=postgres_url) as engine:
        assert_all_pass(table, engine)


@tables
@pytest.mark.spark
def test_spark_answers_as_expected(table, spark):
    with SparkCheck(spark) as engine:
        assert_all_pass(table, engine)


@tables
def test_the_command_line_prints_the_score_last(table, capsys):
    count = len(json.loads(table.read_text()))
    assert run(["filter", "check", str(table)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"{count} passed, 0 failed"


def test_every_difference_from_related_languages_has_a_case():
    law = (HERE.parent / "FILTERS.md").read_text().split("## Differences from related languages")[1]
    rows = [line.split("|")[1].strip() for line in law.splitlines() if line.startswith("| ")][1:]
    sources = {case["source"] for case in json.loads(OWN.read_text())}
    assert len(rows) >= 15
    assert [row for row in rows if f"differences: {row}" not in sources] == []
