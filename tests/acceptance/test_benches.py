"""The tables of benchmarks in the README and the docs, and the programs that measure and write them."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest

from headgate.cli import bench as command
from headgate.cli.app import run

ROOT = Path(__file__).parent.parent.parent
RESULTS = ROOT / "benches/results/latest.json"


@pytest.fixture
def benches(monkeypatch):
    """The modules that all benches share."""
    monkeypatch.syspath_prepend(ROOT / "benches")
    names = ("figures", "reports", "reasons", "headlines")
    yield SimpleNamespace(**{name: import_module(name) for name in names})
    for name in names:
        sys.modules.pop(name, None)


@pytest.fixture
def bench(benches):
    return benches.figures.Recorder("streams")


def report_of(benches, bench, **changes):
    known = benches.reports.load(RESULTS).runs["streams"]
    made = benches.reports.Run(**{**asdict(known), "quick": False, "finished": True, **changes})
    return benches.reports.Report({bench.group: made}, tuple(bench.figures))


PAGE = ROOT / "docs/reference/benchmarks.md"


@pytest.mark.parametrize("document", [ROOT / "README.md", PAGE], ids=lambda path: path.name)
def test_a_table_is_written_from_the_results(benches, document, tmp_path):
    again = tmp_path / document.name
    shutil.copy(document, again)
    benches.headlines.write_tables(benches.reports.load(RESULTS), again)
    assert again.read_text() == document.read_text()


def test_the_readme_shows_six_to_eight_figures_and_none_beside_a_naive_scan(benches):
    report = benches.reports.load(RESULTS)
    rows = benches.headlines.readme_section(report).split("\n\n")[0].splitlines()[2:]
    assert 6 <= len(rows) <= 8
    assert not any("a scan over" in row for row in rows)


def test_every_row_of_the_readme_is_a_headline(benches):
    texts = [line.text for line in benches.headlines.HEADLINES]
    assert len(set(texts)) == len(texts)
    assert set(benches.headlines.IN_README) <= set(texts)


def test_the_results_have_every_bench_and_every_figure_once(benches):
    found = benches.reports.load(RESULTS)
    assert tuple(found.runs) == benches.reports.ORDER
    keys = [figure.key for figure in found.figures]
    assert len(set(keys)) == len(keys)


def test_a_saved_report_is_loaded_again(benches, bench, tmp_path):
    sent = bench.add("publish", 2e6, "/s CPU", benches.figures.at_least(1e6), clock=1.5e6, note="x")
    bench.versus(sent, "JSON lines", 5e5)
    bench.add("empty claims a message", 2.0, "")
    report = report_of(benches, bench)
    benches.reports.save(report, tmp_path / "figures.json")
    assert benches.reports.load(tmp_path / "figures.json") == report


def test_a_ratio_says_how_many_times_better_ours_is(benches, bench):
    rate = bench.add("publish", 2e6, "/s CPU")
    size = bench.add("bytes", 100.0, "B")
    assert bench.versus(rate, "JSON lines", 5e5).ratio == 4
    assert bench.versus(size, "JSON lines", 250.0).ratio == 2.5


def test_a_missed_target_is_marked_in_every_output(benches, bench, capsys):
    bench.add("publish, one by one", 1e5, "/s CPU", benches.figures.at_least(5e5))
    bench.add("publish to wake, p50", 1.0, "ms", benches.figures.at_most(5))
    assert "MISSED" in capsys.readouterr().out.splitlines()[0]
    assert benches.reports.verdict(bench.figures) == "1 of 2 targets missed: publish, one by one"
    rows = benches.headlines.select_figures(bench.figures)
    missed, met = benches.headlines.table(rows).splitlines()[2:]
    assert "**missed**" in missed
    assert "missed" not in met


def test_a_missed_target_is_shown_with_its_reason(benches, bench, monkeypatch):
    sent = bench.add("publish", 1e5, "/s")
    bench.versus(sent, "JSON lines", 2e5, benches.figures.at_least(1))
    bench.add("delay", 9.0, "ms", benches.figures.at_most(5))
    bench.add("memory", 1.0, "kB", benches.figures.at_most(5))
    reason = {("streams", "publish", "JSON lines"): "JSON lines keep no index"}
    monkeypatch.setattr(benches.headlines, "REASONS", reason)
    said, _, _, _, *rows = benches.headlines.missed_targets(bench.figures).splitlines()
    assert said == "2 of 3 targets missed."
    assert rows == [
        "| streams: publish against JSON lines | 0.5 × | ≥ 1 × | JSON lines keep no index |",
        "| streams: delay | 9 ms | ≤ 5 ms | not examined yet |",
    ]
    assert benches.headlines.unexplained(bench.figures) == ["delay"]


def test_every_missed_target_of_the_results_has_a_reason(benches):
    figures = benches.reports.load(RESULTS).figures
    assert benches.headlines.unexplained(figures) == []
    assert set(benches.headlines.REASONS) <= {figure.key for figure in figures}


def test_a_quick_unfinished_or_partial_run_is_marked(benches, bench):
    def said_of(**changes):
        return benches.headlines.circumstances(report_of(benches, bench, **changes).runs)

    known = benches.reports.load(RESULTS).with_newer(report_of(benches, bench))
    assert "**" not in benches.headlines.circumstances(known.runs)
    assert "quick run" in said_of(quick=True)
    assert "Not finished: streams" in said_of(finished=False)
    assert "Not measured: filters, routing, queues, broker, broker_filters, spark" in " ".join(
        said_of().split()
    )


def test_a_part_measured_again_replaces_only_its_own_figures(benches, bench):
    again = benches.figures.Recorder("streams")
    for name, value in (("seal", 1.0), ("scan", 1.0)):
        bench.add(name, value, "/s")
    again.add("scan", 2.0, "/s")
    old = report_of(benches, bench)
    part = report_of(benches, again, command="python benches/streams.py --only scan")
    whole = report_of(benches, again, command="python benches/streams.py")
    assert [(f.name, f.value) for f in old.with_newer(part).figures] == [("seal", 1), ("scan", 2)]
    assert [(f.name, f.value) for f in old.with_newer(whole).figures] == [("scan", 2)]


def test_a_bench_that_fails_keeps_its_figures(benches, bench, tmp_path):
    options = benches.reports.options("A bench.", seed=1)
    given = options.parse_args(["--json", str(tmp_path / "figures.json")])
    bench.add("publish", 1.0, "/s")
    with pytest.raises(SystemExit), benches.reports.recorded(bench, given):
        sys.exit("wrong answer")
    found = benches.reports.load(tmp_path / "figures.json")
    assert [figure.name for figure in found.figures] == ["publish"]
    assert not found.runs["streams"].finished


BENCH = """
import os, signal
from figures import Recorder
from reports import options, recorded

given = options("A bench.").parse_args()
bench = Recorder({group!r})
with recorded(bench, given):
    bench.add("a figure", 1.0, "/s")
    {then}
"""


@pytest.fixture
def runner(tmp_path):
    """Run the benches with these groups; return the output, the exit code and the file of figures."""

    def run_groups(**groups):
        place, found = tmp_path / "benches", tmp_path / "found.json"
        place.mkdir()
        for name in ("__main__", "figures", "reports", "reasons", "headlines"):
            shutil.copy(ROOT / f"benches/{name}.py", place)
        for group, then in groups.items():
            (place / f"{group}.py").write_text(BENCH.format(group=group, then=then))
        only = [text for group in groups for text in ("--only", group)]
        command = [sys.executable, place, "--json", found, *only]
        # A job in the background ignores SIGINT, and what it starts inherits that.
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        return done.stdout, done.returncode, found

    return run_groups


def test_the_other_groups_run_after_one_that_fails(benches, runner):
    said, code, found = runner(streams="pass", queues="raise OSError('no server')", spark="pass")
    assert code == 1
    assert "queues did not finish: exit code 1, its error is above; figures kept: 1" in said
    assert said.rstrip().endswith("Did not finish: queues")
    report = benches.reports.load(found)
    assert {group: run.finished for group, run in report.runs.items()} == {
        "streams": True,
        "queues": False,
        "spark": True,
    }
    assert [figure.group for figure in report.figures] == ["streams", "queues", "spark"]


def test_an_interrupted_run_keeps_its_figures(benches, runner):
    interrupt = "os.kill(os.getppid(), signal.SIGINT); raise KeyboardInterrupt"
    said, code, found = runner(streams="pass", queues=interrupt, spark="pass")
    assert code == 1
    assert "queues did not finish: it was interrupted" in said
    assert said.rstrip().endswith("Did not finish: queues, spark")
    groups = [figure.group for figure in benches.reports.load(found).figures]
    assert groups == ["streams", "queues"]


def test_a_missing_file_of_figures_is_refused(tmp_path):
    command = [sys.executable, ROOT / "benches", "--show", tmp_path / "gone.json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "there is no file" in done.stderr


def test_the_command_writes_the_table_from_a_file_of_figures(tmp_path):
    document = tmp_path / "page.md"
    document.write_text(
        "before\n<!-- benchmarks: written by `make bench` -->\nTHE LAST TABLE\n<!-- end of benchmarks -->\nafter\n"
    )
    assert run(["bench", "--show", str(RESULTS), "--into", str(document)]) == 0
    written = document.read_text()
    assert "THE LAST TABLE" not in written
    assert written.startswith("before\n")
    assert written.endswith("\nafter\n")
    assert written[7:-7] in PAGE.read_text()


def test_a_document_without_the_markers_is_refused_before_anything_is_measured(tmp_path):
    document = tmp_path / "page.md"
    document.write_text("no place for a table\n")
    command = [sys.executable, ROOT / "benches", "--into", document]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "end of benchmarks" in done.stderr
    assert document.read_text() == "no place for a table\n"


def test_bench_without_a_clone_says_where_the_benches_are(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command, "_CLONE", tmp_path)
    assert run(["bench", "--quick"]) == 2
    assert "clone the repository and run `make bench`" in capsys.readouterr().err
