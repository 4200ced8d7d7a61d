"""The demo ends by itself, and all its numbers are right."""

from __future__ import annotations

import json
from html.parser import HTMLParser

import pytest

from headgate.cli.app import run
from headgate.cli.demo.cast import NOTHING, ONE_CUSTOMER, RARE, READERS, ROUTED
from headgate.cli.demo.orders import order_events
from headgate.cli.demo.story import messages_of


@pytest.mark.spark
def test_every_subscriber_of_the_demo_receives_what_the_reference_selects(
    spark, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert run(["demo", "--messages", "9000", "--seed", "3", "--json", "--directory", "data"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["received"]) == len(ROUTED) + 1 + 2 + 3 * len(READERS) + 1
    assert all(entry["exact"] and entry["expected"] == entry["got"] for entry in found["received"])
    assert sum(entry["got"] for entry in found["received"]) > 9000
    assert {entry["state"] for entry in found["skipped"]} == {"hot", "sealed", "cold"}
    for reader in (RARE, ONE_CUSTOMER, NOTHING):  # filters skip already where nothing is sealed
        (hot,) = [
            entry["stats"]
            for entry in found["skipped"]
            if (entry["subscriber"], entry["state"]) == (reader.name, "hot")
        ]
        assert hot["chunks_none"] > hot["chunks_some"]
        assert hot["bytes_read"] < hot["bytes_total"] / 2
    check_page((tmp_path / "demo-report.html").read_text())


def check_page(text):
    """Self-contained: nothing is fetched from anywhere."""
    assert "Every number equals the reference" in text
    page = Links()
    page.feed(text)
    assert page.fetched == []


class Links(HTMLParser):
    def __init__(self):
        super().__init__()
        self.fetched = []

    def handle_starttag(self, tag, attrs):
        self.fetched += [value for name, value in attrs if name in ("src", "href")]


def test_the_same_seed_makes_the_same_orders():
    assert messages_of(order_events(5000, 7)) == messages_of(order_events(5000, 7))
    assert messages_of(order_events(5000, 7)) != messages_of(order_events(5000, 8))


def test_the_demo_refuses_a_directory_that_is_not_empty(tmp_path, capsys):
    (tmp_path / "mine").write_text("keep")
    assert run(["demo", "--messages", "1000", "--directory", str(tmp_path)]) == 2
    assert (tmp_path / "mine").read_text() == "keep"
    assert "not empty" in capsys.readouterr().err
