"""What a pipeline is, without Spark: its definition, its file, its figure and its account."""

from typing import TYPE_CHECKING

from headgate.lazy import front_door

if TYPE_CHECKING:
    from headgate.pipelines.account import MESSAGES as MESSAGES
    from headgate.pipelines.account import OBSERVED as OBSERVED
    from headgate.pipelines.account import Account as Account
    from headgate.pipelines.account import Batch as Batch
    from headgate.pipelines.counters import Counters as Counters
    from headgate.pipelines.counters import to_text as to_text
    from headgate.pipelines.definition import DEAD_LETTER as DEAD_LETTER
    from headgate.pipelines.definition import FAIL as FAIL
    from headgate.pipelines.definition import NOWHERE as NOWHERE
    from headgate.pipelines.definition import FormatSource as FormatSource
    from headgate.pipelines.definition import Pipeline as Pipeline
    from headgate.pipelines.definition import QueueSource as QueueSource
    from headgate.pipelines.definition import Source as Source
    from headgate.pipelines.definition import StreamSource as StreamSource
    from headgate.pipelines.definition import Trigger as Trigger
    from headgate.pipelines.file import read_pipeline as read_pipeline
    from headgate.pipelines.formats import KAFKA as KAFKA
    from headgate.pipelines.formats import PARSED as PARSED
    from headgate.pipelines.formats import kafka_jar as kafka_jar
    from headgate.pipelines.formats import notes_on_format as notes_on_format
    from headgate.pipelines.formats import problems_of_format as problems_of_format
    from headgate.pipelines.limits import limit_options as limit_options
    from headgate.pipelines.location import local_path as local_path
    from headgate.pipelines.location import real_place as real_place
    from headgate.pipelines.location import same_place as same_place
    from headgate.pipelines.picture import figure as figure
    from headgate.pipelines.picture import to_lines as to_lines
    from headgate.pipelines.picture import to_mermaid as to_mermaid
    from headgate.pipelines.queue_url import ARCHIVED as ARCHIVED
    from headgate.pipelines.queue_url import QUEUE as QUEUE
    from headgate.pipelines.queue_url import STATES as STATES
    from headgate.pipelines.queue_url import QueuePlace as QueuePlace
    from headgate.pipelines.queue_url import queue_place as queue_place
    from headgate.pipelines.queue_url import states_of as states_of
    from headgate.pipelines.svg import to_svg as to_svg
else:
    __getattr__, __dir__ = front_door(
        __name__,
        {
            "account": ["Account", "Batch", "MESSAGES", "OBSERVED"],
            "counters": ["Counters", "to_text"],
            "definition": [
                "DEAD_LETTER",
                "FAIL",
                "FormatSource",
                "NOWHERE",
                "Pipeline",
                "QueueSource",
                "Source",
                "StreamSource",
                "Trigger",
            ],
            "file": ["read_pipeline"],
            "formats": ["KAFKA", "PARSED", "kafka_jar", "notes_on_format", "problems_of_format"],
            "limits": ["limit_options"],
            "location": ["local_path", "real_place", "same_place"],
            "picture": ["figure", "to_lines", "to_mermaid"],
            "queue_url": [
                "ARCHIVED",
                "QUEUE",
                "QueuePlace",
                "STATES",
                "queue_place",
                "states_of",
            ],
            "svg": ["to_svg"],
        },
    )
