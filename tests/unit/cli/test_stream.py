"""headgate stream: its output and exit codes."""

import io
import json
from pathlib import Path

import pytest

from headgate.cli.app import run


@pytest.fixture
def created(tmp_path):
    """The path of an empty stream that `headgate stream create` made."""
    path = str(tmp_path / "events")
    assert run(["stream", "create", path, "--indexed", "region"]) == 0
    return path


@pytest.fixture
def typed(monkeypatch):
    """Put lines on standard input."""

    def feed(*lines):
        monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))

    return feed


@pytest.fixture
def filled(created, typed, capsys):
    """The path of a stream with a hundred orders."""
    orders = [
        {
            "payload": f"order {i}",
            "topic": "orders",
            "headers": {"region": "EU" if i % 2 else "US", "amount": i},
        }
        for i in range(100)
    ]
    typed(*map(json.dumps, orders))
    assert run(["stream", "publish", created]) == 0
    assert "published 100 messages" in capsys.readouterr().out
    return created


def scanned(stream, capsys, *more):
    capsys.readouterr()
    assert run(["stream", "scan", stream, "--json", *more]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_one_message_from_the_command_line_keeps_the_kinds_of_its_headers(created, capsys):
    assert (
        run(
            [
                "stream",
                "publish",
                created,
                "hi",
                "--topic",
                "a.b",
                "-H",
                "n:=5",
                "-H",
                "s=5",
                "-H",
                "b:=true",
            ]
        )
        == 0
    )
    (message,) = scanned(created, capsys)
    assert message["headers"] == {"n": 5, "s": "5", "b": True}
    assert (message["offset"], message["topic"], message["payload"]) == (0, "a.b", "hi")


def test_scan_prints_the_matches_and_their_count(filled, capsys):
    found = scanned(filled, capsys, "--filter", "region = 'EU' AND amount > 90")
    assert [message["headers"]["amount"] for message in found] == [91, 93, 95, 97, 99]
    assert (
        run(["stream", "scan", filled, "--filter", "region = 'EU' AND amount > 90", "--count"]) == 0
    )
    assert capsys.readouterr().out == "5\n"


def test_messages_that_scan_prints_can_be_published_again(filled, tmp_path, typed, capsys):
    lines = [json.dumps(message) for message in scanned(filled, capsys)]
    copy = str(tmp_path / "copy")
    assert run(["stream", "create", copy]) == 0
    typed(*lines)
    assert run(["stream", "publish", copy]) == 0
    assert scanned(copy, capsys) == scanned(filled, capsys)


def test_scan_begins_at_any_start_and_ends_at_the_limit(filled, capsys):
    assert [m["offset"] for m in scanned(filled, capsys, "--from", "97")] == [97, 98, 99]
    assert [m["offset"] for m in scanned(filled, capsys, "--from", "last")] == [99]
    assert [m["offset"] for m in scanned(filled, capsys, "--from", "1h", "--limit", "2")] == [0, 1]
    assert scanned(filled, capsys, "--from", "next") == []


def test_headers_only_leaves_the_payload_out(filled, capsys):
    assert all("payload" not in message for message in scanned(filled, capsys, "--headers-only"))


def test_tail_shows_the_last_matches_across_segments(filled, capsys):
    assert run(["stream", "seal", filled, "--all"]) == 0
    assert run(["stream", "publish", filled, "late", "-H", "region=EU", "-H", "amount:=1000"]) == 0
    capsys.readouterr()
    assert run(["stream", "tail", filled, "-n", "3", "--filter", "region = 'EU'", "--json"]) == 0
    shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [message["headers"]["amount"] for message in shown] == [97, 99, 1000]


def test_sealing_changes_no_answer_of_scan(filled, capsys):
    before = scanned(filled, capsys, "--filter", "region = 'EU'")
    assert run(["stream", "seal", filled, "--all"]) == 0
    assert "sealed 00000000000000000000.arrow" in capsys.readouterr().out
    assert scanned(filled, capsys, "--filter", "region = 'EU'", "--stats") == before
    assert run(["stream", "seal", filled]) == 0
    assert "nothing to seal" in capsys.readouterr().out


def test_ls_and_info_show_the_facts_of_a_stream(filled, tmp_path, capsys):
    assert run(["stream", "ls", str(tmp_path), "--json"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert (row["stream"], row["messages"], row["indexed"]) == ("events", 100, ["region"])
    assert run(["stream", "info", filled]) == 0
    assert "next offset" in capsys.readouterr().out


def test_info_shows_the_position_and_lag_of_cursors(filled, capsys):
    from headgate.streams.stream import Stream

    with Stream.open(filled) as opened, opened.consume(cursor="billing") as consumer:
        next(consumer)
        consumer.commit()
    assert run(["stream", "info", filled, "--json"]) == 0
    (cursor,) = json.loads(capsys.readouterr().out)["cursors"]
    assert (cursor["name"], cursor["position"], cursor["lag"]) == ("billing", 1, 99)


def test_dump_shows_chunks_and_columns(filled, capsys):
    assert run(["stream", "dump", filled]) == 0
    out = capsys.readouterr().out
    assert "h.s.region" in out
    assert "crc ok" in out


def test_delete_asks_for_confirmation(filled, monkeypatch, capsys):
    monkeypatch.setattr("typer.confirm", lambda question: False)
    assert run(["stream", "delete", filled]) == 1
    assert run(["stream", "info", filled]) == 0
    assert run(["stream", "delete", filled, "--yes"]) == 0
    assert run(["stream", "info", filled]) == 2
    assert "there is no stream in" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "line 1 is not valid JSON"),
        ("5", "line 1 must be an object"),
        ('{"colour": 1}', "no field 'colour'"),
        ('{"headers": {"x": [1]}}', "header 'x'"),
        ('{"payload_base64": "a"}', "line 1: payload_base64 is not valid base64"),
        ('{"payload_base64": 5}', "line 1: payload_base64 is not valid base64"),
    ],
)
def test_an_invalid_line_is_refused_and_its_batch_is_not_stored(
    created, typed, capsys, line, problem
):
    typed(line)
    assert run(["stream", "publish", created]) == 2
    assert problem in capsys.readouterr().err
    assert scanned(created, capsys) == []


def test_a_filter_with_a_syntax_error_is_refused_with_a_caret(filled, capsys):
    assert run(["stream", "scan", filled, "--filter", "region = "]) == 2
    assert "^" in capsys.readouterr().err


def test_explain_measures_on_a_stream(filled, capsys):
    assert run(["stream", "seal", filled, "--all"]) == 0
    capsys.readouterr()
    assert run(["explain", "region = 'EU' AND amount > 90", "--stream", filled, "--json"]) == 0
    measured = json.loads(capsys.readouterr().out)["measured"]
    assert (measured["chunks"], measured["chunks_some"], measured["rows_matched"]) == (1, 1, 5)
    assert run(["explain", "region = 'nowhere'", "--stream", filled]) == 0
    assert "NONE: skipped" in capsys.readouterr().out


def test_verify_finds_a_flipped_byte_and_repair_cuts_it_out(filled, capsys):
    assert run(["stream", "verify", filled]) == 0
    assert "100 messages" in capsys.readouterr().out
    (log,) = (path for path in Path(filled).iterdir() if path.suffix == ".log")
    damaged = bytearray(log.read_bytes())
    damaged[-20] ^= 0xFF
    log.write_bytes(damaged)
    assert run(["stream", "verify", filled]) == 1
    assert log.name in capsys.readouterr().out
    run(["stream", "verify", filled, "--repair"])
    capsys.readouterr()
    assert run(["stream", "verify", filled]) == 0


def test_info_shows_options_as_a_person_writes_them(tmp_path, capsys):
    run(["stream", "create", str(tmp_path / "s"), "--indexed", "site,kind", "--max-age", "7d"])
    capsys.readouterr()
    assert run(["stream", "info", str(tmp_path / "s")]) == 0
    rows = [line.split("\u2502")[1:3] for line in capsys.readouterr().out.splitlines()]
    shown = {row[0].strip(): row[1].strip() for row in rows if len(row) == 2}
    assert (shown["indexed"], shown["max age"], shown["max bytes"]) == ("site, kind", "7 days", "-")
    assert (shown["linger"], shown["chunk bytes"]) == ("0.001 s", "1,048,576")
