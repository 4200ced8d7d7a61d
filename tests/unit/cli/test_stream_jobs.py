"""headgate stream stats, advise, replay and set: errors, tables and charts. Spark is not started."""

from __future__ import annotations

import json
import shlex
from xml.etree import ElementTree

import pytest
from rich.console import Console

from headgate.cli.app import run
from headgate.cli.stream_tables import bar, print_advice, stats_tables
from headgate.insights import advice_commands, describe_advice, describe_stats
from headgate.message import Message
from headgate.spark.jobs.advice import (
    DesignOutlook,
    Outlook,
    RestrictionOutlook,
    SizeOutlook,
    StreamAdvice,
    advice_chart,
)
from headgate.spark.jobs.stats import measure_ranges, stats_from_json
from headgate.spark.jobs.tasks import segment_ranges
from headgate.streams.options import StreamOptions, load_options
from headgate.streams.stream import Stream


@pytest.fixture
def events(tmp_path):
    """The path of a stream with a hundred messages; it has a space."""
    path = tmp_path / "my events"
    with Stream.create(path) as made, made.producer() as producer:
        for i in range(100):
            producer.publish(
                Message(b"x" * i, headers={"region": "EU" if i % 4 else "US", "n": i / 2})
            )
    return path


def advice(path, **changes):
    found = {
        "path": str(path),
        "stats": stats_from_json(measure_ranges(segment_ranges(path))),
        "sampled": 1,
        "segments": 1,
        "current": StreamOptions(),
        "indexed": ("region", "x-kind"),
        "filter_size": 256,
        "outlooks": (
            Outlook("region = 'EU'", 0.75, 0.0, 0.1, 0.25),
            Outlook("a < 1 & b", 0.1, 0.2, 0.3, 0.75),
        ),
        "tried": (DesignOutlook((), 0.1), DesignOutlook(("region",), 0.5)),
        "sizes": (
            SizeOutlook("indexed", "region = 'EU'", 64, 0.05),
            SizeOutlook("indexed", "region = 'EU'", 256, 0.1),
            SizeOutlook("filter value", "region = …", 16, 0.5),
        ),
        "restrictions": (RestrictionOutlook("region", ("EU", "US"), 700.0, 0.5, 0.01),),
        "sealed_space": 0.001,
        "hot_space": 0.02,
    }
    return StreamAdvice(**{**found, **changes})


def printed(show):
    console = Console(width=110, highlight=False)
    with console.capture() as capture:
        show(console)
    return capture.get()


def shown(found):
    return printed(lambda console: print_advice(found, console))


def test_stats_are_printed_for_people_and_for_programs(events):
    stats = stats_from_json(measure_ranges(segment_ranges(events)))
    text = printed(lambda console: console.print(stats_tables("events", stats)))
    assert "region" in text
    assert "EU 75.0%" in text
    known = json.loads(json.dumps(describe_stats(stats)))
    assert known["messages"] == 100
    assert known["fields"]["h.n"]["kinds"] == {"float": {"present": 100, "low": 0.0, "high": 49.5}}
    assert known["fields"]["h.region"]["top"][0] == {"value": "EU", "messages": 75}


def test_advice_ends_with_commands_that_apply_it(events):
    found = advice(events)
    text = shown(found)
    for line in advice_commands(found):
        assert f"  {line}" in text
        assert run(shlex.split(line)[1:]) == 0
    options = load_options(events)
    assert options.indexed == ("region", "x-kind")
    assert options.filter_size == 256
    assert options.restrict_same_values == {"region": ("EU", "US")}
    assert "50.0% is skipped on average (now 10.0%)" in " ".join(text.split())


def test_advice_for_a_stream_that_follows_it_already_says_so(events):
    current = StreamOptions(indexed=("x-kind", "region"), filter_size=256)
    assert "has these options already" in shown(advice(events, current=current))


def test_advice_names_segments_that_are_sealed_already(events):
    with Stream.open(events) as opened:
        opened.seal(all=True)
    text = " ".join(shown(advice(events)).split())
    assert "1 of the simulated segments are sealed already" in text


def test_advice_is_printed_as_json(events):
    known = json.loads(json.dumps(describe_advice(advice(events))))
    assert known["expected_skipped"] == 0.5
    assert known["filters"][1]["sealed"] == 0.75
    assert known["restrictions"][0]["advised"] is True


def test_a_chart_is_valid_svg_with_any_characters_in_the_filters(events):
    drawn = ElementTree.fromstring(advice_chart(advice(events)))
    texts = {element.text for element in drawn.iter() if element.tag.endswith("text")}
    assert {"a < 1 & b", "75.0%", "256"} <= texts
    bars = [e for e in drawn.iter() if e.get("class") == "sealed" and e.get("height") == "11"]
    widths = [float(bar.get("width")) for bar in bars]
    assert widths[1] == pytest.approx(3 * widths[0])


@pytest.mark.parametrize(("share", "length"), [(0.0, 0), (1.0, 24), (0.5, 12), (2.0, 24)])
def test_a_bar_is_as_long_as_its_share(share, length):
    assert bar(share) == "█" * length


def test_set_changes_only_the_named_options(events, capsys):
    assert run(["stream", "set", str(events), "--indexed", "region", "--max-age", "7d"]) == 0
    assert load_options(events).indexed == ("region",)
    assert load_options(events).max_age.days == 7
    assert run(["stream", "set", str(events), "--indexed", ""]) == 0
    assert load_options(events).indexed == ()
    assert load_options(events).max_age.days == 7
    assert run(["stream", "set", str(events)]) == 2
    assert "say what to change" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["stats", "nowhere"], "there is no stream"),
        (["advise", "nowhere"], "there is no stream"),
        (["advise", "nowhere", "--weigh", "much"], "uniform or use"),
        (["replay", "nowhere", "--to", "parquet:x"], "there is no stream"),
    ],
)
def test_invalid_arguments_are_refused_before_spark_is_started(words, problem, capsys, monkeypatch):
    monkeypatch.setattr("headgate.spark.sessions.session", lambda **_: pytest.fail("Spark started"))
    assert run(["stream", *words]) == 2
    assert problem in " ".join(capsys.readouterr().err.split())
