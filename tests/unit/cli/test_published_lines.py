"""headgate queue publish and headgate stream publish: options together with JSON lines."""

import io

import pytest

from headgate.cli.app import run

LINES = """
{"payload": "plain"}
{"payload": "own", "topic": "orders.us", "headers": {"region": "US", "express": null}, "priority": 3}
"""
OPTIONS = ["--topic", "orders.eu", "-H", "region=EU", "-H", "express:=true", "--priority", "7"]
EXPECTED = {
    "plain": ("orders.eu", {"region": "EU", "express": True}, 7),
    "own": ("orders.us", {"region": "US"}, 3),
}


@pytest.fixture(autouse=True)
def lines_for_orders(database_url, monkeypatch):
    """A queue `orders`, and lines on standard input."""
    monkeypatch.setattr("sys.stdin", io.StringIO(LINES))
    assert run(["queue", "create", "orders"]) == 0


def described(messages):
    return {
        m["payload"]: (m["topic"], m.get("headers", {}), m.get("priority", 0)) for m in messages
    }


def test_options_fill_in_missing_fields_of_lines_for_a_queue(run_json):
    assert run(["queue", "publish", "orders", *OPTIONS]) == 0
    assert described(run_json("queue", "browse", "orders")) == EXPECTED


def test_options_fill_in_missing_fields_of_lines_for_a_stream(tmp_path, run_json):
    stream = str(tmp_path / "stream")
    assert run(["stream", "create", stream]) == 0
    assert run(["stream", "publish", stream, *OPTIONS]) == 0
    assert described(run_json("stream", "scan", stream)) == EXPECTED


def test_a_line_without_a_topic_has_the_queues_name_as_its_topic(run_json):
    assert run(["queue", "publish", "orders"]) == 0
    topics = {topic for topic, _, _ in described(run_json("queue", "browse", "orders")).values()}
    assert topics == {"orders", "orders.us"}


def test_delay_and_group_apply_to_every_line(run_json):
    assert run(["queue", "publish", "orders", "--delay", "1h", "--group", "g"]) == 0
    delayed = run_json("queue", "browse", "orders", "--state", "delayed")
    assert [each["delivery"]["group"] for each in delayed] == ["g", "g"]


def test_a_dedup_key_for_many_lines_is_refused_and_nothing_is_published(capsys, run_json):
    assert run(["queue", "publish", "orders", "--dedup-key", "k"]) == 2
    assert "a dedup key is for one message" in capsys.readouterr().err
    assert run_json("queue", "browse", "orders") == []


def test_headers_that_are_not_an_object_are_reported_with_their_line(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.StringIO('{"payload": "a", "headers": ["x"]}\n'))
    assert run(["queue", "publish", "orders", "-H", "a=b"]) == 2
    assert "line 1: headers must be an object" in capsys.readouterr().err


def test_a_file_that_is_published_again_under_its_producers_name_is_stored_once(
    tmp_path, capsys, monkeypatch, run_json
):
    stream = str(tmp_path / "stream")
    assert run(["stream", "create", stream]) == 0
    numbered = ["stream", "publish", stream, "--raw", "--producer", "import", "--first-id", "0"]
    for lines, said in (
        ("a\nb\n", "published 2 messages\n"),
        ("a\nb\nc\n", "published 1 message; 2 more were stored before\n"),
    ):
        monkeypatch.setattr("sys.stdin", io.StringIO(lines))
        capsys.readouterr()
        assert run(numbered) == 0
        assert capsys.readouterr().out.endswith(said)
    assert [m["payload"] for m in run_json("stream", "scan", stream)] == ["a", "b", "c"]


def test_first_id_without_a_producer_is_refused(tmp_path, capsys):
    assert run(["stream", "publish", str(tmp_path), "x", "--first-id", "0"]) == 2
    assert "name it with --producer" in capsys.readouterr().err
