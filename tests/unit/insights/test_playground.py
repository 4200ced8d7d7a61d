"""A filter tried on messages."""

import ast
import json
import shlex
import sqlite3
from contextlib import closing

from headgate.cli.app import run
from headgate.insights import (
    Sighting,
    SnippetPlace,
    explain_filter,
    filter_snippets,
    find_problem,
    try_filter,
)
from headgate.message import Message
from headgate.queues import connect
from headgate.streams import Stream

BIG = Sighting(1, Message(b"", headers={"region": "EU", "amount": 1200}))
SMALL = Sighting(2, Message(b"", headers={"region": "EU", "amount": 70}))
BARE = Sighting(3, Message(b"", headers={"amount": 5000}))


def test_the_first_term_that_failed_is_named_with_the_values_it_read():
    big, small, bare = try_filter("region = 'EU' AND amount > 1000", [BIG, SMALL, BARE])
    assert big.matches
    assert small.failed is not None
    assert (small.failed.text, small.failed.answer) == ("amount > 1000", "FALSE")
    assert small.failed.because == "amount is 70"
    assert bare.failed is not None
    assert (bare.failed.answer, bare.failed.because) == ("UNKNOWN", "region is absent")


def test_a_bad_filter_has_a_problem_with_its_place():
    assert find_problem("region = 'EU'") is None
    problem = find_problem("region = = 'EU'")
    assert problem is not None
    assert problem.at == 9
    assert problem.expected


FILTER = "region = 'EU' AND amount > 1000"


def snippets(kind, name, **where):
    return filter_snippets(explain_filter(FILTER), SnippetPlace(kind, name, **where))


def run_command(text, capsys):
    words = shlex.split(text)
    assert words.pop(0) == "headgate"
    assert run([word for word in words if word != "--follow"]) == 0
    return capsys.readouterr().out


def run_program(text):
    printed = []
    exec(text, {"print": printed.append})
    return printed


def test_what_is_copied_for_a_stream_runs(tmp_path, capsys):
    with Stream.create(tmp_path / "my orders") as stream, stream.producer() as producer:
        for seen in (BIG, SMALL):
            producer.publish(b"big" if seen is BIG else b"small", headers=seen.message.headers)
    found = snippets("stream", str(tmp_path / "my orders"))
    shown = run_command(found["Command line"], capsys)
    assert "big" in shown
    assert "small" not in shown
    assert [message.payload for message in run_program(found["Python"])] == [b"big"]
    compile(found["Spark"], "spark", "exec")
    assert "pika" not in found  # it is no queue of a broker


def test_what_is_copied_for_a_queue_on_sql_runs(tmp_path, capsys):
    url = f"sqlite:///{tmp_path}/queue.db"
    with connect(url) as database:
        queue = database.queue("my orders")
        for seen in (BIG, SMALL):
            queue.publish(b"big" if seen is BIG else b"small", headers=seen.message.headers)
    found = snippets("sql", "my orders", database=url)
    shown = run_command(found["Command line"], capsys)
    assert "big" in shown
    assert "small" not in shown
    assert [message.payload for message in run_program(found["Python"])] == [b"big"]
    compile(found["Spark"], "spark", "exec")


def test_a_copied_condition_of_sqlite_runs_with_its_parameters():
    where, parameters = snippets("", "orders")["SQLite"].splitlines()
    rows = [(json.dumps(dict(seen.message.headers)),) for seen in (BIG, SMALL, BARE)]
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute("CREATE TABLE message (headers TEXT)")
        database.executemany("INSERT INTO message VALUES (?)", rows)
        given = ast.literal_eval(parameters.removeprefix("-- parameters: "))
        assert (
            database.execute(f"SELECT headers FROM message {where}", given).fetchall() == rows[:1]
        )


def test_a_word_of_a_command_stays_one_word():
    for text in (FILTER, "a = 'x$y'", 'name = "x"', "a = 'back`tick'", "plain", "a = 'b\\c'"):
        command = filter_snippets(explain_filter("a = 1"), SnippetPlace("stream", text))
        assert shlex.split(command["Command line"])[3] == text
