"""Lines of the log, in each format."""

import json
import logging

import pytest

from headgate.logs import LogSettings, log_as


def write(form, capsys, message="login refused", *arguments, **facts):
    with log_as(LogSettings(form)):
        logging.getLogger("headgate.x").warning(message, *arguments, extra=facts)
    return capsys.readouterr().err


@pytest.mark.parametrize("form", ["text", "keyvalue"])
def test_a_line_for_persons_has_the_facts_too(capsys, form):
    line = write(form, capsys, why="user 'ann'", peer="10.0.0.1")
    assert line.endswith("why=\"user 'ann'\" peer=10.0.0.1\n")
    assert json.loads(write("json", capsys, why="x"))["why"] == "x"


@pytest.mark.parametrize("form", ["text", "keyvalue", "json"])
def test_what_a_client_sent_does_not_begin_a_line(capsys, form):
    forged = "ann\n2026-01-01T00:00:00.000Z INFO all is well\x1b[2J\r"
    written = write(form, capsys, "refused: %s", forged, user=forged)
    assert len(written.splitlines()) == 1
    assert "\x1b" not in written
