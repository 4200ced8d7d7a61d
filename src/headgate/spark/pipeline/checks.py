"""Checks of a pipeline that need its streams, databases, places and checkpoint, before it runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any, Final

from headgate.checks import suggest
from headgate.errors import HeadgateError, MissingExtra, PipelineError
from headgate.files import replace_file
from headgate.filters import fields_read, parse
from headgate.pipelines import (
    FOLDER,
    DirectoryPlace,
    FormatSource,
    MessagePlace,
    Pipeline,
    QueuePlace,
    QueueSource,
    Source,
    StreamSource,
    check_format,
    is_same_location,
    parse_place,
    queue_place,
)
from headgate.queues import tables_key
from headgate.spark.options import stream_paths
from headgate.spark.sessions import spark_is_installed
from headgate.spark.sink.destination import destination_of, owner_of
from headgate.spark.source.queue_rows import open_rows, queue_id
from headgate.spark.source.queue_scan import has_archive

_SOURCE: Final = "source.json"
_OFFSETS: Final = "offsets"  # Spark's folder in a checkpoint
_LOOP: Final = "messages would circulate for ever"
_MAY_CHANGE: Final = ("filter", "start", "options", "malformed", "fail_on_data_loss")


def check(pipeline: Pipeline) -> None:
    """Raise when the pipeline cannot run, with a list of all problems. Nothing is changed."""
    problems = tuple(problems_of(pipeline))
    if problems:
        raise PipelineError(str(pipeline.file), problems)


def problems_of(pipeline: Pipeline) -> Iterator[str]:
    """Find all problems that keep the pipeline from running."""
    if not spark_is_installed():
        yield str(MissingExtra("spark", "a pipeline"))
    yield from _check_source(pipeline)
    yield from _check_places(pipeline)
    yield from _check_checkpoint(pipeline)


def notes_on(pipeline: Pipeline) -> Iterator[str]:
    """Warnings: settings that are allowed and probably a mistake."""
    for problem in pipeline.topology.validate():
        yield f"{problem.where}: {problem.text}"
    if isinstance(pipeline.source, FormatSource):
        from headgate.spark.pipeline.formats import notes_on_format

        yield from notes_on_format(pipeline.source)
    yield from _notes_on_headers(pipeline)


def _notes_on_headers(pipeline: Pipeline) -> Iterator[str]:
    """Bindings that ask for headers which no message has; known only where the file lists all of them."""
    source, reading = pipeline.source, pipeline.reading
    if not isinstance(source, FormatSource) or source.headers is None:
        return
    if reading.payload is not None or reading.steps:
        return
    known = [name for name, _ in source.headers]
    for binding in pipeline.topology.bindings():
        asked = {name for name in binding.arguments if not name.startswith("x-")}
        fields = fields_read(parse(binding.filter_text or ""))
        asked |= {field.name for field in fields if field.scope == "header"}
        for name in sorted(asked - {*known, "malformed"}):
            yield f"binding {binding}: no message has the header {name}; {suggest(name, known)}"


def _check_source(pipeline: Pipeline) -> Iterator[str]:
    source = pipeline.source
    if isinstance(source, StreamSource):
        yield from _check_streams(pipeline, source)
    elif isinstance(source, QueueSource):
        yield from _check_queue(pipeline, source)
    else:
        yield from check_format(source)


def _check_streams(pipeline: Pipeline, source: StreamSource) -> Iterator[str]:
    for path in source.streams:
        try:
            stream_paths({"path": path})
        except HeadgateError as problem:
            yield f"[source]: stream: {problem}"
        if any(is_same_location(path, to) for to in _target_streams(pipeline)):
            yield f"[source]: {path} is also a place of a sink: {_LOOP}"


def _target_streams(pipeline: Pipeline) -> Iterator[str]:
    for place in _parse_places(pipeline):
        if isinstance(place, DirectoryPlace) and place.kind == "stream":
            yield place.path


def _parse_places(pipeline: Pipeline) -> Iterator[MessagePlace]:
    """The places that can be parsed; the others are reported by `_check_places`."""
    for place in pipeline.places():
        with suppress(HeadgateError):
            yield parse_place(place)


def _check_queue(pipeline: Pipeline, source: QueueSource) -> Iterator[str]:
    place = queue_place(source.queue)
    yield from _check_database(source, place)
    if source.reads_once and pipeline.trigger != "once":
        yield (
            f"[pipeline]: trigger: the messages of a queue ({source.states}) are read once, since consumers take them; "
            'run it with --once or trigger = "once", or follow the archive: states = "archived"'
        )
    targets = [to for to in _parse_places(pipeline) if isinstance(to, QueuePlace)]
    if _queue_key(place) in map(_queue_key, targets):
        yield f"[source]: {place.shown} is also a place of a sink: {_LOOP}"


def _queue_key(place: QueuePlace) -> list[str]:
    """A key that is equal for all spellings of a queue, whatever user and settings they connect with."""
    return [*tables_key(place.url), place.name]


def _check_database(source: QueueSource, place: QueuePlace) -> Iterator[str]:
    try:
        with open_rows(place) as rows:
            number = queue_id(rows, place.name)
            if not source.reads_once and not has_archive(rows, number):
                yield (
                    f"[source]: queue: {place.name!r} keeps no archive, so there would never be a message; let it archive acked "
                    f'messages (headgate queue create {place.name} --archive), or write states = "ready"'
                )
    except HeadgateError as problem:
        yield f"[source]: queue: {problem}"


def _check_places(pipeline: Pipeline) -> Iterator[str]:
    for place in pipeline.places():
        try:
            owner = owner_of(str(pipeline.checkpoint))
            destination_of(place, "", owner, pipeline.layout_of(place)).check()
        except HeadgateError as problem:
            yield f"{_table_of(pipeline, place)}: {problem}"


def _table_of(pipeline: Pipeline, place: str) -> str:
    queues = [f"sink of {sink.queue!r}" for sink in pipeline.sinks if sink.to == place]
    return queues[0] if queues else "[dead_letter]"


# ---- the checkpoint's source --------------------------------------------------------------------------


def claim_checkpoint(pipeline: Pipeline) -> None:
    """Record the source that the checkpoint's positions belong to."""
    folder = pipeline.checkpoint / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / _SOURCE, json.dumps(_identity(pipeline), indent=1).encode())


def delete_unfinished_offsets(pipeline: Pipeline) -> None:
    """Delete files of offsets that an interrupted run did not finish; only while this process holds the checkpoint.

    If they were to be the first offsets, Spark would refuse the checkpoint in every later run.
    """
    for file in (pipeline.checkpoint / _OFFSETS).glob(".*.tmp*"):
        file.unlink(missing_ok=True)


def _check_checkpoint(pipeline: Pipeline) -> Iterator[str]:
    try:
        recorded = json.loads((pipeline.checkpoint / FOLDER / _SOURCE).read_text())
    except FileNotFoundError:
        if (pipeline.checkpoint / "metadata").exists():
            yield (
                f"[pipeline]: checkpoint: {pipeline.checkpoint} is the checkpoint of a query that is no pipeline; "
                "choose another directory"
            )
        return
    except (OSError, ValueError) as problem:
        yield f"[pipeline]: checkpoint: {pipeline.checkpoint} cannot be read: {problem}"
        return
    current = _identity(pipeline)
    changed = [key for key in current if not _is_equal(key, recorded.get(key), current[key])]
    if changed:
        key = changed[0]
        yield (
            f"[pipeline]: checkpoint: {pipeline.checkpoint} was made by another version of this file, with "
            f"{key} = {recorded.get(key)!r}; restore it, or choose another checkpoint to start over"
        )


def _is_equal(key: str, recorded: Any, current: Any) -> bool:
    """Whether this part of the identity is unchanged, whatever the spelling of its locations."""
    if recorded == current or recorded is None or current is None:
        return bool(recorded == current)
    if key == "streams":
        return len(recorded) == len(current) and all(map(is_same_location, recorded, current))
    return key == "path" and is_same_location(recorded, current)


def use_recorded_path(pipeline: Pipeline) -> Pipeline:
    """Spell the path of the source as in the checkpoint: Spark records the files it has read by that spelling."""
    source = pipeline.source
    if not isinstance(source, FormatSource) or source.path is None:
        return pipeline
    try:
        path = json.loads((pipeline.checkpoint / FOLDER / _SOURCE).read_text())["path"]
    except FileNotFoundError:
        return pipeline
    return replace(pipeline, source=replace(source, path=path))


def _identity(pipeline: Pipeline) -> dict[str, Any]:
    """What the checkpoint's positions depend on: name and source, without the keys of the source that may change between runs."""
    own = {"name": pipeline.name, **_source_identity(pipeline.source)}
    return dict(json.loads(json.dumps(own)))


def _source_identity(source: Source) -> dict[str, Any]:
    if isinstance(source, QueueSource):
        return {"queue": _queue_key(queue_place(source.queue)), "states": source.states}
    return {key: value for key, value in asdict(source).items() if key not in _MAY_CHANGE}
