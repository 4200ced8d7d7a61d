"""What can only be known of a pipeline by looking at the world: its streams, its places, its checkpoint."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from typing import Any, Final

from headgate.errors import HeadgateError, MissingExtra, PipelineError
from headgate.files import replace_file
from headgate.pipelines import (
    QUEUE,
    FormatSource,
    Pipeline,
    QueuePlace,
    QueueSource,
    Source,
    StreamSource,
    notes_on_format,
    problems_of_format,
    queue_place,
    same_place,
)
from headgate.queues import tables_of
from headgate.spark.options import stream_paths
from headgate.spark.pipeline.plan import FOLDER, destinations_of
from headgate.spark.sessions import spark_is_installed
from headgate.spark.source.queue_orders import followable
from headgate.spark.source.queue_rows import open_rows, queue_id

_SOURCE: Final = "source.json"
_MAY_CHANGE: Final = ("filter", "start", "options", "malformed", "fail_on_data_loss")


def check(pipeline: Pipeline) -> None:
    """Refuse a pipeline that cannot run, with everything that stands in its way. Nothing is changed."""
    problems = tuple(problems_of(pipeline))
    if problems:
        raise PipelineError(str(pipeline.file), problems)


def problems_of(pipeline: Pipeline) -> Iterator[str]:
    if not spark_is_installed():
        yield str(MissingExtra("spark", "a pipeline"))
    yield from _of_source(pipeline)
    yield from _of_places(pipeline)
    yield from _of_checkpoint(pipeline)


def notes_on(pipeline: Pipeline) -> Iterator[str]:
    """What is allowed and can hardly be meant."""
    for problem in pipeline.topology.validate():
        yield f"{problem.where}: {problem.text}"
    if isinstance(pipeline.source, FormatSource):
        yield from notes_on_format(pipeline.source)


def _of_source(pipeline: Pipeline) -> Iterator[str]:
    source = pipeline.source
    if isinstance(source, StreamSource):
        yield from _of_streams(pipeline, source)
    elif isinstance(source, QueueSource):
        yield from _of_queue(pipeline, source)
    else:
        yield from problems_of_format(source)


def _of_streams(pipeline: Pipeline, source: StreamSource) -> Iterator[str]:
    for path in source.streams:
        try:
            stream_paths({"path": path})
        except HeadgateError as problem:
            yield f"[source]: stream: {problem}"
        if any(same_place(path, to) for to in _streams_of(pipeline.places())):
            yield f"[source]: {path} is also a place messages go to: they would go round for ever"


def _streams_of(places: Iterable[str]) -> Iterator[str]:
    return (to.removeprefix("stream:") for to in places if to.startswith("stream:"))


def _of_queue(pipeline: Pipeline, source: QueueSource) -> Iterator[str]:
    place = queue_place(source.queue)
    yield from _of_database(source, place)
    if source.looks_once and pipeline.trigger != "once":
        yield (
            f"[pipeline]: trigger: what a queue holds ({source.states}) is looked at once, since its consumers take it away; "
            'run it with --once or trigger = "once", or follow the archive: states = "archived"'
        )
    if _tables(place) in [_tables(queue_place(to)) for to in pipeline.places() if _is_queue(to)]:
        yield f"[source]: {place.shown} is also a place messages go to: they would go round for ever"


def _is_queue(place: str) -> bool:
    return place.startswith(QUEUE)


def _tables(place: QueuePlace) -> list[str]:
    """Where the queue is, however it is spelled and whoever asks."""
    return [*tables_of(place.url), place.name]


def _of_database(source: QueueSource, place: QueuePlace) -> Iterator[str]:
    try:
        with open_rows(place) as rows:
            number = queue_id(rows, place.name)
            if not source.looks_once and not followable(rows, number):
                yield (
                    f"[source]: queue: {place.name!r} keeps no archive, so nothing would ever come; let it keep what is "
                    f'acked (headgate queue create {place.name} --archive), or write states = "ready"'
                )
    except HeadgateError as problem:
        yield f"[source]: queue: {problem}"


def _of_places(pipeline: Pipeline) -> Iterator[str]:
    for place in pipeline.places():
        try:
            for destination in destinations_of([place], str(pipeline.checkpoint)):
                destination.check()
        except HeadgateError as problem:
            yield f"{_owner(pipeline, place)}: {problem}"


def _owner(pipeline: Pipeline, place: str) -> str:
    queues = [f"sink of {sink.queue!r}" for sink in pipeline.sinks if sink.to == place]
    return queues[0] if queues else "[dead_letter]"


# ---- whose checkpoint it is --------------------------------------------------------------------------


def claim_checkpoint(pipeline: Pipeline) -> None:
    """Write down what the checkpoint's positions are positions in."""
    folder = pipeline.checkpoint / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / _SOURCE, json.dumps(_identity(pipeline), indent=1).encode())


def _of_checkpoint(pipeline: Pipeline) -> Iterator[str]:
    try:
        known = json.loads((pipeline.checkpoint / FOLDER / _SOURCE).read_text())
    except FileNotFoundError:
        if (pipeline.checkpoint / "metadata").exists():
            yield (
                f"[pipeline]: checkpoint: {pipeline.checkpoint} belongs to a query that is no pipeline; "
                "choose another directory"
            )
        return
    except (OSError, ValueError) as problem:
        yield f"[pipeline]: checkpoint: {pipeline.checkpoint} cannot be read: {problem}"
        return
    mine = _identity(pipeline)
    changed = [key for key in mine if not _same(key, known.get(key), mine[key])]
    if changed:
        key = changed[0]
        yield (
            f"[pipeline]: checkpoint: {pipeline.checkpoint} was made by another version of this file, with "
            f"{key} = {known.get(key)!r}; give it back, or choose another checkpoint to begin anew"
        )


def _same(key: str, known: Any, mine: Any) -> bool:
    """Whether this part of the identity is what the checkpoint knows, however its places are spelled."""
    if known == mine or known is None or mine is None:
        return bool(known == mine)
    if key == "streams":
        return len(known) == len(mine) and all(map(same_place, known, mine))
    return key == "path" and same_place(known, mine)


def as_known(pipeline: Pipeline) -> Pipeline:
    """The pipeline with the path of its source spelled as in its checkpoint: Spark remembers files it has read by that."""
    source = pipeline.source
    if not isinstance(source, FormatSource) or source.path is None:
        return pipeline
    try:
        path = json.loads((pipeline.checkpoint / FOLDER / _SOURCE).read_text())["path"]
    except FileNotFoundError:
        return pipeline
    return replace(pipeline, source=replace(source, path=path))


def _identity(pipeline: Pipeline) -> dict[str, Any]:
    """What positions depend on. Filters, bindings and sinks may change from one run to the next."""
    return dict(json.loads(json.dumps({"name": pipeline.name, **_kept(pipeline.source)})))


def _kept(source: Source) -> dict[str, Any]:
    if isinstance(source, QueueSource):
        return {"queue": _tables(queue_place(source.queue)), "states": source.states}
    known = asdict(source).items()
    return {key: value for key, value in known if key not in _MAY_CHANGE}
