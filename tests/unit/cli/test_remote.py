"""What commands against a running broker say without one."""

from __future__ import annotations

import io

import pytest

from headgate.cli.app import run
from headgate.cli.remote.client import ask_new_password, name_object, path_of
from headgate.cli.remote.topology import parse_argument_values
from headgate.errors import HeadgateError

OBJECTS = {
    ("queues", "/", "a/b", "contents"): "queue a/b in vhost /",
    ("exchanges", "shop", "orders"): "exchange orders in vhost shop",
    ("bindings", "/", "e", "orders", "q", "eu"): "exchange orders or queue eu in vhost /",
    ("bindings", "/", "e", "orders", "e", "eu", "k"): "exchange orders or exchange eu in vhost /",
    ("headgate", "queues", "/", "work", "messages"): "queue work in vhost /",
    (
        "headgate",
        "consumers",
        "/",
        "work",
        "c1",
        "filter",
    ): "queue work in vhost /, or its consumer c1",
    ("users", "anna"): "user anna",
    ("policies", "/", "short"): "policy short in vhost /",
    ("topic-permissions", "/", "anna"): "topic permissions /, anna",
}


@pytest.mark.parametrize(("segments", "named"), OBJECTS.items(), ids=lambda value: str(value[0]))
def test_the_object_that_the_broker_lacks_is_named(segments, named):
    assert name_object(path_of(*segments)) == named


def test_an_empty_standard_input_is_no_password(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    with pytest.raises(HeadgateError, match="there is no password on standard input"):
        ask_new_password()


def test_a_line_of_standard_input_is_the_password(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("secret\nand more\n"))
    assert ask_new_password() == "secret"


def test_a_filter_is_the_argument_of_that_name():
    assert parse_argument_values(["x-match=all"], "n > 1") == {
        "x-match": "all",
        "x-filter": "n > 1",
    }


@pytest.mark.parametrize(
    "command",
    [["stream", "scan", "orders"], ["queue", "peek", "orders"], ["stream", "tail", "orders"]],
)
def test_a_filter_without_its_option_is_refused_with_the_option(capsys, command):
    assert run([*command, "region = 'EU'"]) == 2
    assert "a filter is given with --filter" in " ".join(
        capsys.readouterr().err.replace("│", " ").split()
    )


def test_other_arguments_that_are_too_many_are_refused_without_that_hint(capsys):
    assert run(["stream", "verify", "orders", "more"]) == 2
    assert "--filter" not in capsys.readouterr().err


def test_a_stream_understands_the_verbs_of_other_nouns(tmp_path, capsys):
    stream = str(tmp_path / "orders")
    assert run(["stream", "add", stream]) == 0
    assert run(["stream", "consume", stream]) == 0
    assert run(["stream", "rm", stream, "--yes"]) == 0
    assert not (tmp_path / "orders").exists()
    capsys.readouterr()
