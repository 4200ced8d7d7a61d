"""The progress of the pipelines below a directory, read from their files and checkpoints, without Spark."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headgate.errors import HeadgateError
from headgate.pipelines import (
    Counters,
    Pipeline,
    StreamSource,
    figure_of,
    has_driver,
    read_counters,
    read_pipeline,
    to_lines,
)
from headgate.streams import OPTIONS_FILE, Stream

MOST_FILES: Final = 200
_MARK: Final = "[pipeline]"


@dataclass(frozen=True, slots=True)
class PipelineState:
    """A pipeline, and what its checkpoint says; `problem` is why its file cannot be read."""

    file: Path
    name: str
    source: str = ""
    sinks: tuple[str, ...] = ()
    is_running: bool = False  # on this machine
    batches: int = 0  # that were committed
    last_commit_us: int | None = None
    positions: Mapping[str, int] | None = None  # the next offset of each stream
    lag: int | None = None  # messages yet to be read, where the source is streams
    drawing: tuple[str, ...] = ()
    counters: Counters | None = None  # of the last run
    problem: str | None = None


def list_pipelines(directory: Path) -> list[PipelineState]:
    """The pipelines whose files are in a directory or below."""
    return [_read_state(file) for file in _pipeline_files(directory)]


def _pipeline_files(directory: Path) -> Iterator[Path]:
    for file in sorted(directory.glob("**/*.toml"))[:MOST_FILES]:
        with suppress(OSError, UnicodeDecodeError):
            if _MARK in file.read_text("utf-8"):
                yield file


def _read_state(file: Path) -> PipelineState:
    try:
        pipeline = read_pipeline(file)
    except HeadgateError as problem:
        return PipelineState(file, file.stem, problem=str(problem))
    commits = _numbers(pipeline.checkpoint / "commits")
    positions = _positions(pipeline.checkpoint, commits[-1]) if commits else None
    last = pipeline.checkpoint / "commits" / str(commits[-1]) if commits else None
    source = pipeline.source
    return PipelineState(
        file=file,
        name=pipeline.name,
        source=", ".join(source.streams) if isinstance(source, StreamSource) else str(source),
        sinks=tuple(f"{sink.queue} → {sink.to}" for sink in pipeline.sinks),
        is_running=has_driver(pipeline.checkpoint),
        batches=commits[-1] + 1 if commits else 0,
        last_commit_us=None if last is None else int(last.stat().st_mtime * 1e6),
        positions=positions,
        lag=_lag(pipeline, positions or {}),
        drawing=tuple(to_lines(figure_of(pipeline))),
        counters=read_counters(pipeline.checkpoint),
    )


@dataclass(frozen=True, slots=True)
class SparkQuery:
    """A query of Spark that reads a stream, by its checkpoint."""

    name: str  # the path of its checkpoint
    position: int
    lag: int  # messages between the position and the end of the stream
    batches: int
    last_commit_us: int


def list_spark_queries(directory: Path, stream: Path) -> list[SparkQuery]:
    """The queries with a checkpoint in a directory or below that read a stream."""
    with Stream.open(stream) as opened:
        end = opened.next_offset
    found = []
    for checkpoint in _checkpoints(directory):
        commits = _numbers(checkpoint / "commits")
        positions = _positions(checkpoint, commits[-1]) if commits else None
        read = {Path(name).resolve(): offset for name, offset in (positions or {}).items()}
        position = read.get(stream.resolve())
        if position is not None:
            changed = (checkpoint / "commits" / str(commits[-1])).stat().st_mtime
            name = str(checkpoint.relative_to(directory))
            lag = max(end - position, 0)
            found.append(SparkQuery(name, position, lag, commits[-1] + 1, int(changed * 1e6)))
    return found


def _checkpoints(directory: Path) -> list[Path]:
    """The checkpoints of Spark below a directory; streams are not searched."""
    found: list[Path] = []
    for place, directories, files in os.walk(directory):
        if {"commits", "offsets"} <= set(directories):
            found.append(Path(place))
            directories.clear()
        if OPTIONS_FILE in files or len(found) >= MOST_FILES:
            directories.clear()
        directories.sort()
    return found


def _numbers(directory: Path) -> list[int]:
    """The numbers of batches, which are the names of the files there."""
    if not directory.is_dir():
        return []
    return sorted(int(path.name) for path in directory.iterdir() if path.name.isdigit())


def _positions(checkpoint: Path, batch: int) -> dict[str, int] | None:
    """The next offset of each stream behind a batch, as Spark wrote it: a line of JSON behind two others."""
    try:
        lines = (checkpoint / "offsets" / str(batch)).read_text("utf-8").splitlines()
        found = json.loads(lines[2])
    except (OSError, ValueError, IndexError):
        return None
    if not isinstance(found, dict):
        return None
    return {str(name): value for name, value in found.items() if isinstance(value, int)}


def _lag(pipeline: Pipeline, positions: Mapping[str, int]) -> int | None:
    source = pipeline.source
    if not isinstance(source, StreamSource):
        return None
    read = {Path(name).resolve(): offset for name, offset in positions.items()}
    total = 0
    for name in source.streams:
        try:
            with Stream.open(name) as stream:
                total += stream.next_offset - read.get(Path(name).resolve(), stream.first_offset)
        except HeadgateError:
            return None
    return max(total, 0)
