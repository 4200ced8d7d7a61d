"""The guide to Spark's Declarative Pipelines, run as it is written: a source, a materialized view and our sink."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.dataset as ds
import pyspark
import pytest

from headgate.spark.java import find_java
from headgate.streams.stream import Stream
from tests.acceptance.document_blocks import ROOT, blocks

pytestmark = [pytest.mark.spark, pytest.mark.slow]

GUIDE = ROOT / "docs/how-to/declarative-pipelines.md"
STORAGE = "file:///tmp/orders-storage"


def run_pipeline(folder: Path) -> None:
    """Run it with the Python, the Spark and the Java of these tests."""
    environment = {
        **os.environ,
        "JAVA_HOME": str(find_java().home),
        "SPARK_HOME": pyspark.__path__[0],
        "PYSPARK_PYTHON": sys.executable,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    command = [Path(sys.executable).parent / "spark-pipelines", "run"]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def amounts(path: Path) -> list[object]:
    with Stream.open(path) as stream:
        return sorted(message.headers["amount"] for message in stream.consume())  # type: ignore[type-var]


def rows(table: Path) -> list[dict[str, object]]:
    return ds.dataset(table).to_table().to_pylist()


def test_the_guide_runs(tmp_path, monkeypatch, full):
    pytest.importorskip("yaml")
    if not full:
        pytest.skip("a program of Spark's takes its time: HEADGATE_FULL=1")
    monkeypatch.chdir(tmp_path)
    for block in blocks(GUIDE):
        if block.file_name:
            block.write_file(tmp_path)
        elif block.language == "python":
            exec(block.text, {})
    spec = tmp_path / "spark-pipeline.yml"
    assert STORAGE in spec.read_text()
    spec.write_text(spec.read_text().replace(STORAGE, (tmp_path / "storage").as_uri()))
    run_pipeline(tmp_path)
    large = [n for n in range(901, 1000) if n % 2]
    assert amounts(tmp_path / "data/large") == large
    totals = {row["region"]: row["total"] for row in rows(tmp_path / "spark-warehouse/totals")}
    orders = [n for n in range(1000) if n % 2]
    assert totals == {
        "US": sum(n for n in orders if n % 3 == 0),
        "EU": sum(n for n in orders if n % 3),
    }
