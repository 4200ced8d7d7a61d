"""What a task must know to route: written beside the checkpoint once, read by every worker once.

A data source hands its workers options, and options are text. So they carry the name of a file whose name is the
digest of what is in it, and a worker that has seen the digest has the index built already.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from headgate.errors import PipelineError
from headgate.files import replace_file
from headgate.pipelines import FAIL, NOWHERE, FormatSource, Pipeline
from headgate.routing import Topology, from_toml, to_toml
from headgate.spark.sink.checkpoint import owner_of
from headgate.spark.sink.destination import Destination
from headgate.spark.sink.destinations import parse

FOLDER: Final = "headgate"  # of ours, in the checkpoint


@dataclass(frozen=True, slots=True)
class RoutingPlan:
    """Which queues a message goes to, and which places the messages of a queue go to."""

    topology: str  # as TOML
    exchange: str
    places: Sequence[str]
    outlets: Mapping[str, Sequence[int]]  # by queue, the numbers of its places
    checkpoint: str
    unroutable: int | None = None
    filter: str | None = None  # what the source has not looked at itself
    malformed: str = FAIL  # what becomes of records that are no messages


def plan_of(pipeline: Pipeline) -> RoutingPlan:
    """The plan of a pipeline."""
    last, source = pipeline.dead_letter, pipeline.source
    return RoutingPlan(
        to_toml(pipeline.topology.definitions()),
        pipeline.exchange,
        pipeline.places(),
        pipeline.outlets(),
        str(pipeline.checkpoint),
        None if last is None or last == NOWHERE else pipeline.places().index(last),
        source.filter if isinstance(source, FormatSource) else None,
        pipeline.malformed,
    )


def save_plan(plan: RoutingPlan, folder: Path) -> Path:
    """Write the plan into the folder, under its digest."""
    text = json.dumps(asdict(plan), sort_keys=True)
    path = folder / f"plan-{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(path, text.encode())
    return path


def load_plan(path: str | Path) -> RoutingPlan:
    """The plan in that file."""
    try:
        return RoutingPlan(**json.loads(Path(path).read_text()))
    except (OSError, ValueError, TypeError) as problem:
        raise PipelineError(
            str(path),
            (
                f"the routing plan cannot be read here: {problem}; driver and executors must share "
                "the file system the checkpoint is on",
            ),
        ) from problem


@lru_cache(maxsize=4)
def topology_of(text: str) -> Topology:
    """The topology a plan carries; building it is most of what a new worker does."""
    return Topology.from_definitions(from_toml(text))


def destinations_of(places: Iterable[str], checkpoint: str) -> list[Destination]:
    """Where each place stages and commits."""
    owner = owner_of(checkpoint)
    return [parse(place, "", owner) for place in places]
