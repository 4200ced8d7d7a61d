"""A command that fails prints what failed and what to do, and never a traceback."""

import errno
import os
import socket
import subprocess
import sys
from io import BytesIO, TextIOWrapper
from typing import Annotated

import pytest
import typer

from headgate.cli import app as cli
from headgate.cli.app import describe_failure, run
from headgate.errors import HeadgateError, StreamLocked, StreamWriteError
from headgate.message import Message
from headgate.streams.stream import Stream

LONG = "n" * 300


@pytest.fixture
def failing(monkeypatch):
    """Replace the command line by one whose only command fails with a given exception."""

    def prepare(problem: BaseException) -> None:
        def made() -> typer.Typer:
            app = typer.Typer(pretty_exceptions_enable=False)

            @app.command()
            def fail(rest: Annotated[list[str] | None, typer.Argument()] = None) -> None:
                raise problem

            return app

        monkeypatch.setattr(cli, "build_app", made)

    return prepare


PROBLEMS = [
    (OSError(errno.ENOSPC, "No space left on device", "/x/y"),
     "error: /x/y: No space left on device; free some space and try again; what was confirmed is safe"),
    (OSError(errno.ENAMETOOLONG, "File name too long", LONG), f"error: {LONG}: File name too long; choose a shorter name"),
    (PermissionError(errno.EACCES, "Permission denied", "/x"), "error: /x: Permission denied; let this user"),
    (OSError(errno.EROFS, "Read-only file system", "/x"), "choose a place that can be written"),
    (OSError(errno.EMFILE, "Too many open files"), "error: Too many open files; raise the limit of open files"),
    (ModuleNotFoundError("No module named 'pyspark'", name="pyspark"), "pip install 'headgate[spark]'"),
    (ImportError("cannot import name 'X' from 'pyspark.sql'", name="pyspark.sql"), "needs a newer pyspark: pip install --upgrade"),
    (ModuleNotFoundError("No module named 'psycopg'", name="psycopg.rows"), "pip install 'headgate[postgres]'"),
    (ModuleNotFoundError("No module named 'x'", name="x"), "unexpected ModuleNotFoundError: No module named 'x'"),
    (KeyError("region"), "error: unexpected KeyError: 'region'; this should not happen"),
    (ValueError("first\nsecond"), "error: unexpected ValueError: first; this should not happen"),
    (ValueError(), "error: unexpected ValueError: it has no message"),
    (RecursionError("maximum recursion depth exceeded"), "unexpected RecursionError"),
    (MemoryError(), "unexpected MemoryError"),
    (HeadgateError("nomod:x: h:two: [red] 12"), "error: nomod:x: h:two: [red] 12"),
    (OSError("cannot load library"), "unexpected OSError: cannot load library"),
    (StreamLocked("/s", {}), "error: "),
]  # fmt: skip


@pytest.mark.parametrize(("problem", "said"), PROBLEMS, ids=lambda v: type(v).__name__)
def test_a_failure_is_printed_on_one_line_with_exit_code_2(failing, capsys, problem, said):
    failing(problem)
    assert run([]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert "Traceback" not in told


@pytest.mark.parametrize("arguments", [["--debug", "a"], ["a", "--debug"]])
def test_debug_prints_the_traceback_and_the_error_line(failing, capsys, arguments):
    failing(KeyError("region"))
    assert run(arguments) == 2
    told = capsys.readouterr().err
    assert "Traceback (most recent call last)" in told
    assert told.rstrip().splitlines()[-1].startswith("error: unexpected KeyError: 'region'")


@pytest.mark.parametrize(
    ("arguments", "debugged"), [(["--", "--debug"], False), (["--debug", "--", "y"], True)]
)
def test_debug_after_two_dashes_is_an_argument(failing, capsys, arguments, debugged):
    failing(KeyError("region"))
    assert run(arguments) == 2
    assert ("Traceback" in capsys.readouterr().err) is debugged


def test_the_help_names_debug(capsys):
    assert run(["--help"]) == 0
    assert "--debug" in capsys.readouterr().out


def test_an_error_of_spark_is_described_by_its_java_message():
    class Py4JJavaError(Exception):
        __module__ = "py4j.protocol"

    problem = Py4JJavaError(
        "An error occurred while calling None.org.apache.spark.sql.classic.SparkSession.\n"
        ": org.apache.spark.SparkException: Could not parse Master URL: 'bogus://x'\n\tat org.apache"
    )
    assert describe_failure(problem) == (
        "Spark failed: Could not parse Master URL: 'bogus://x'; --debug prints the traceback"
    )


@pytest.mark.parametrize(
    "command",
    [
        ["stream", "info", LONG],
        ["stream", "create", LONG],
        ["stream", "publish", LONG, "x"],
        ["stream", "ls", LONG],
        ["stream", "ls", "nowhere"],
        ["stream", "verify", "file"],
        ["stream", "create", "file"],
        ["stream", "create", "file/below"],
        ["queue", "create", "q", "--db", f"sqlite:///{LONG}.db"],
        ["queue", "create", "q", "--db", "sqlite:///nowhere/q.db"],
        ["queue", "create", "q", "--db", "sqlite:///file/q.db"],
        ["queue", "ls", "--db", f"sqlite:///{LONG}.db"],
        ["queue", "ls", "--db", "sqlite:///file"],
        ["queue", "ls", "--db", "sqlite:///file/q.db"],
        ["queue", "ls", "--db", "sqlite:///."],
        ["queue", "ls", "--db", "sqlite:///q.db?journal=off"],
        ["queue", "ls", "--db", "sqlite:///q.db?synchronous=sometimes"],
        ["queue", "ls", "--db", "postgresql://[::1/x"],
        ["queue", "ls", "--db", "bogus://x"],
        ["route", "--topology", f"{LONG}.toml", "--exchange", "x"],
        ["route", "--topology", "file", "--exchange", "x"],
        ["filter", "check", LONG],
        ["filter", "check", "."],
        ["pipeline", "check", LONG],
        ["pipeline", "check", "."],
        ["pipeline", "show", "nowhere.toml"],
        ["pipeline", "run", "nowhere.toml"],
        ["explain", "region ="],
        ["explain", "a = 1", "--stream", LONG],
        ["bogus"],
    ],
    ids=lambda command: " ".join(command)[:50],
)
def test_invalid_names_are_reported_on_one_line(tmp_path, monkeypatch, capsys, command):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("no database, no stream and no topology")
    assert run(command) == 2
    told = capsys.readouterr().err
    assert "Traceback" not in told
    assert "unexpected" not in told


@pytest.mark.parametrize("command", ["publish", "seal", "trim", "delete"])
def test_writing_to_a_read_only_stream_is_reported(tmp_path, monkeypatch, capsys, command):
    Stream.create(tmp_path / "s").close()
    more = {"publish": ["x"], "trim": ["--max-age", "1d"], "delete": ["--yes"]}.get(command, [])
    refuse_to_write(monkeypatch)
    assert run(["stream", command, str(tmp_path / "s"), *more]) == 2
    assert "cannot be written: Read-only file system" in capsys.readouterr().err


def test_a_producer_of_a_read_only_stream_raises_a_stream_error(tmp_path, monkeypatch):
    with Stream.create(tmp_path / "s") as stream:
        refuse_to_write(monkeypatch)
        with pytest.raises(StreamWriteError, match="cannot be written"):
            stream.producer()


def refuse_to_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail like a read-only disk, also for root."""
    real = os.open

    def refusing(path, flags, *more, **named):
        if flags & (os.O_RDWR | os.O_WRONLY | os.O_CREAT):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), os.fspath(path))
        return real(path, flags, *more, **named)

    monkeypatch.setattr(os, "open", refusing)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no full device")
def test_output_that_cannot_be_written_is_reported_once(monkeypatch, capsys):
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert run(["--version"]) == 2
        monkeypatch.undo()
        full.flush()  # dropped: it fails no more
    assert "No space left on device" in capsys.readouterr().err


DEEP = "[" * 100_000
ODD_FILES = {
    "deep.json": DEEP,
    "deep.toml": f"a = {DEEP}",
    "long.toml": "a = " + "9" * 5_000,
}


@pytest.mark.parametrize("name", ODD_FILES)
@pytest.mark.parametrize(
    "command",
    [
        ["filter", "check"],
        ["route", "--exchange", "x", "--topology"],
        ["pipeline", "check"],
    ],
    ids=lambda command: command[0],
)
def test_a_file_that_cannot_be_parsed_is_reported_by_its_format(tmp_path, capsys, command, name):
    path = tmp_path / name
    path.write_text(ODD_FILES[name])
    assert run([*command, str(path)]) == 2
    said = capsys.readouterr().err
    assert "this should not happen" not in said
    assert "TOML" in said or "JSON" in said


def test_a_settings_file_that_cannot_be_parsed_is_reported(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for text in (ODD_FILES["deep.toml"], ODD_FILES["long.toml"]):
        (tmp_path / "headgate.toml").write_text(text)
        assert run(["queue", "ls"]) == 2
        assert "headgate.toml is not valid TOML" in capsys.readouterr().err


ODD_ARGUMENTS = [
    (["queue", "create", "\udcff"], "without NUL and lone surrogates"),
    (["queue", "publish", "q", "x", "--delay", "9" * 30 + "d"], "too long a duration"),
    (["queue", "publish", "q", "x", "-H", f"a:={DEEP}"], "is not valid JSON"),
    (["queue", "browse", "q", "--limit", "-1"], "--limit"),
]


@pytest.mark.parametrize(("arguments", "said"), ODD_ARGUMENTS)
def test_an_invalid_argument_is_refused_with_the_reason(tmp_path, capsys, arguments, said):
    database = ["--db", f"sqlite:///{tmp_path}/q.db"]
    run(["queue", "create", "q", *database])
    assert run([*arguments, *database]) == 2
    assert said in capsys.readouterr().err


def test_a_scan_with_a_negative_or_huge_limit_is_refused(tmp_path, capsys):
    Stream.create(tmp_path / "s").close()
    for limit in ("-1", "9" * 30):
        assert run(["stream", "scan", str(tmp_path / "s"), "--limit", limit]) == 2
        assert "--limit" in capsys.readouterr().err


def test_characters_that_the_terminal_lacks_are_printed_as_escapes(tmp_path, monkeypatch):
    printed = BytesIO()
    monkeypatch.setattr(sys, "stdout", TextIOWrapper(printed, encoding="ascii"))
    path = tmp_path / "s"
    with Stream.create(path) as stream, stream.producer() as producer:
        producer.publish(Message("né 😀".encode()))
    assert run(["stream", "scan", str(path)]) == 0
    assert rb"n\xe9 \U0001f600" in printed.getvalue()


def test_a_command_runs_with_closed_standard_streams(tmp_path, monkeypatch):
    Stream.create(tmp_path / "s").close()
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    assert run(["stream", "info", str(tmp_path / "s")]) == 0
    assert run(["stream", "info", str(tmp_path / "none")]) == 2
    for opened in (sys.stdin, sys.stdout, sys.stderr):
        opened.close()


def test_ctrl_c_while_a_command_is_loaded_prints_no_traceback(monkeypatch, capsys):
    def interrupt() -> typer.Typer:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "build_app", interrupt)
    assert run(["stream", "ls"]) == 130
    assert capsys.readouterr() == ("", "")


def test_a_reader_that_closes_the_pipe_is_not_a_failure(tmp_path):
    with Stream.create(tmp_path / "s") as stream, stream.producer() as producer:
        producer.publish_many([Message(b"x" * 100) for _ in range(5_000)])  # more than a pipe holds
    command = [sys.executable, "-c", "from headgate.cli import main; main()", "stream", "scan", "s"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=tmp_path, stdout=pipe, stderr=pipe) as scanning:
        assert scanning.stdout is not None
        assert scanning.stderr is not None
        scanning.stdout.readline()
        scanning.stdout.close()
        assert scanning.stderr.read() == b""
        assert scanning.wait(30) == 0


@pytest.mark.parametrize(
    "command",
    [
        ["sub", "add", "large", "amount > 1", "--queue", "orders"],
        ["schedule", "add", "daily", "@daily", "--queue", "orders"],
    ],
    ids=["sub", "schedule"],
)
def test_a_mistyped_database_of_a_queue_is_not_created(tmp_path, capsys, command):
    assert run([*command, "--db", f"sqlite:///{tmp_path}/odrers.db"]) == 2
    assert "there is no database" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_place_of_a_directory_is_named(tmp_path, capsys):
    file = tmp_path / "orders.db"
    file.touch()
    assert run(["stream", "info", str(file)]) == 2
    assert "a stream is a directory, and this is a file" in capsys.readouterr().err
    assert run(["serve", "--data", str(file)]) == 2
    assert f"{file} is not a directory" in capsys.readouterr().err


def test_an_offset_that_no_message_has_yet_is_reported_with_the_option_that_helps(tmp_path, capsys):
    Stream.create(tmp_path / "s").close()
    assert run(["stream", "scan", str(tmp_path / "s"), "--from", "99"]) == 2
    said = capsys.readouterr().err
    assert "no message had this offset yet" in said
    assert "--on-lost next" in said


@pytest.mark.parametrize(
    ("command", "option"),
    [
        (["serve", "--memory", "--http-port", "0", "--amqp-port"], "--amqp-port"),
        (["serve", "--memory", "--amqp-port", "0", "--http-port"], "--http-port"),
        (["web", "--data", ".", "--port"], "--port"),
    ],
)
def test_a_port_in_use_is_named_with_the_option_that_takes_another(capsys, command, option):
    pytest.importorskip("uvicorn")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert run([*command, str(port)]) == 2
    [said] = capsys.readouterr().err.splitlines()[-1:]
    assert said.startswith(
        f"error: cannot listen on 127.0.0.1:{port}: Address already in use; give another "
    )
    assert option in said
