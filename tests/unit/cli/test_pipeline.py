"""headgate pipeline: check and show, and errors of run before Spark is started."""

from __future__ import annotations

import os
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from headgate.cli.app import run
from headgate.cli.pipeline import final_table, live_table
from headgate.insights import pipeline_facts
from headgate.pipelines.account import Account, Batch, Counters
from headgate.pipelines.file import read_pipeline
from headgate.spark.pipeline.lock import CheckpointLock
from headgate.streams.stream import Stream

GOOD = """
[source]
stream = "events"
[exchange]
type = "topic"
[[binding]]
queue = "all"
key = "#"
[[sink]]
queue = "all"
to = "none:"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "p.toml"
    made.write_text(GOOD)
    Stream.create(tmp_path / "events").close()
    return made


def test_check_says_that_a_valid_pipeline_can_run(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["pipeline", "check", str(file)]) == 0
    assert "can run (1 binding, 0 places)" in capsys.readouterr().out


def test_all_problems_of_a_pipeline_file_are_reported_with_exit_code_2(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(GOOD.replace("stream =", "stram =").replace("none:", "nun:"))
    for verb in ("check", "show", "run"):
        assert run(["pipeline", verb, str(file)]) == 2
        said = capsys.readouterr().err
        assert "p.toml: 2 problems" in said
        assert "[[sink]] 1: to: 'nun:' is no place for messages" in said


def test_run_does_not_start_spark_for_a_checkpoint_that_another_driver_has(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.spark.sessions.session", None)
    lock = CheckpointLock(read_pipeline(file).checkpoint)
    try:
        assert run(["pipeline", "run", str(file), "--once"]) == 2
    finally:
        lock.release()
    assert f"in use by another driver (pid {os.getpid()}" in capsys.readouterr().err


def test_run_does_not_start_spark_for_a_stream_that_is_missing(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(GOOD.replace('"events"', '"gone"'))
    assert run(["pipeline", "run", str(file), "--once"]) == 2
    assert "there is no stream in" in capsys.readouterr().err


def test_show_draws_in_three_ways(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pipeline", "show", str(file)]) == 0
    assert "└─ exchange pipeline (topic)" in capsys.readouterr().out
    assert run(["pipeline", "show", str(file), "--mermaid"]) == 0
    assert capsys.readouterr().out.startswith("flowchart LR\n")
    assert run(["pipeline", "show", str(file), "--svg", str(file.with_suffix(".svg"))]) == 0
    assert file.with_suffix(".svg").read_text().startswith("<svg")


def test_once_and_continuous_exclude_each_other(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["pipeline", "run", str(file), "--once", "--continuous"]) == 2
    assert "exclude each other" in capsys.readouterr().err


def test_the_tables_show_scanned_routed_and_skipped_messages_by_queue() -> None:
    queues = {f"q{n:02}": 100 - n for n in range(25)}
    counted = Counters(
        scanned=1000, read=90, routed=80, unroutable=10, chunks_skipped=4, bytes_read=1024, bytes_total=10240, queues=queues
    )  # fmt: skip
    account = Account("p[1]", 3, counted, 7, Batch(2, 0.5, counted, 7))
    console = Console(width=100, record=True, file=StringIO())
    console.print(live_table(pipeline_facts(account, 2.0)))
    live = console.export_text()
    console.print(final_table(pipeline_facts(account, 2.0)))
    final = console.export_text()
    assert "p[1]" in live
    assert "batch 2: 0.50 s, 2,000 messages/s" in live
    assert "5 more queues" in live
    assert "q24" not in live
    assert "q24" in final
    assert "9.0 KiB of 10.0 KiB not read" in final
    assert "3 batches in 2.0 s" in final


@pytest.mark.parametrize("setting", ["executor.memory=4g", "spark.executor.memory", "spark.x="])
def test_an_invalid_setting_of_spark_is_refused_before_spark_starts(
    setting: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["pipeline", "run", str(file), "--conf", setting]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"--conf {setting} is not a setting of Spark" in said
    assert "spark.executor.memory=4g" in said


def test_check_warns_of_what_a_binding_asks_and_no_message_of_the_stream_has(tmp_path, capsys):
    with Stream.create(tmp_path / "events") as events, events.producer() as producer:
        producer.publish(b"", headers={"region": "EU", "amount": 5})
    file = tmp_path / "p.toml"
    file.write_text(
        '[source]\nstream = "events"\n[exchange]\ntype = "headers"\n'
        '[[binding]]\nqueue = "q"\narguments = { regoin = "EU" }\nfilter = "amout > 5"\n'
        '[[sink]]\nqueue = "q"\nto = "none:"\n'
    )
    assert run(["pipeline", "check", str(file)]) == 0
    said = capsys.readouterr().out
    assert "note: no message of events has the header regoin; did you mean region?" in said
    assert "note: no message of events has the header amout; did you mean amount?" in said
