"""What a pipeline is, without Spark: its definition, its file, its figure and its account."""

from typing import TYPE_CHECKING

from headgate.lazy import front_door

if TYPE_CHECKING:
    from headgate.pipelines.account import MESSAGES as MESSAGES
    from headgate.pipelines.account import OBSERVED as OBSERVED
    from headgate.pipelines.account import Account as Account
    from headgate.pipelines.account import Batch as Batch
    from headgate.pipelines.account import Counters as Counters
    from headgate.pipelines.account import as_scan_stats as as_scan_stats
    from headgate.pipelines.account import counters_to_json as counters_to_json
    from headgate.pipelines.account import read_counters as read_counters
    from headgate.pipelines.account import write_account as write_account
    from headgate.pipelines.definition import ARCHIVED as ARCHIVED
    from headgate.pipelines.definition import DEAD_LETTER as DEAD_LETTER
    from headgate.pipelines.definition import FAIL as FAIL
    from headgate.pipelines.definition import STATES as STATES
    from headgate.pipelines.definition import FormatSource as FormatSource
    from headgate.pipelines.definition import PayloadColumns as PayloadColumns
    from headgate.pipelines.definition import Pipeline as Pipeline
    from headgate.pipelines.definition import QueueSource as QueueSource
    from headgate.pipelines.definition import Reading as Reading
    from headgate.pipelines.definition import Sink as Sink
    from headgate.pipelines.definition import Source as Source
    from headgate.pipelines.definition import SqlStep as SqlStep
    from headgate.pipelines.definition import StreamSource as StreamSource
    from headgate.pipelines.definition import Trigger as Trigger
    from headgate.pipelines.definition import parse_states as parse_states
    from headgate.pipelines.figure import figure_of as figure_of
    from headgate.pipelines.figure import to_lines as to_lines
    from headgate.pipelines.figure import to_mermaid as to_mermaid
    from headgate.pipelines.figure import to_svg as to_svg
    from headgate.pipelines.file import read_pipeline as read_pipeline
    from headgate.pipelines.holder import FOLDER as FOLDER
    from headgate.pipelines.holder import Process as Process
    from headgate.pipelines.holder import has_driver as has_driver
    from headgate.pipelines.holder import lock_file as lock_file
    from headgate.pipelines.holder import parse_holder as parse_holder
    from headgate.pipelines.holder import process_of as process_of
    from headgate.pipelines.layout import TableLayout as TableLayout
    from headgate.pipelines.layout import parse_layout as parse_layout
    from headgate.pipelines.layout import split_partitions as split_partitions
    from headgate.pipelines.places import NOWHERE as NOWHERE
    from headgate.pipelines.places import DirectoryPlace as DirectoryPlace
    from headgate.pipelines.places import ExchangePlace as ExchangePlace
    from headgate.pipelines.places import MessagePlace as MessagePlace
    from headgate.pipelines.places import QueuePlace as QueuePlace
    from headgate.pipelines.places import SparkPlace as SparkPlace
    from headgate.pipelines.places import canonical_location as canonical_location
    from headgate.pipelines.places import is_queue as is_queue
    from headgate.pipelines.places import is_same_location as is_same_location
    from headgate.pipelines.places import local_path as local_path
    from headgate.pipelines.places import parse_place as parse_place
    from headgate.pipelines.places import place_kind as place_kind
    from headgate.pipelines.places import queue_place as queue_place
    from headgate.pipelines.sources import KAFKA as KAFKA
    from headgate.pipelines.sources import PARSED_FORMATS as PARSED_FORMATS
    from headgate.pipelines.sources import check_format as check_format
    from headgate.pipelines.sources import limit_options as limit_options
else:
    __getattr__, __dir__ = front_door(
        __name__,
        {
            "account": [
                "Account",
                "Batch",
                "Counters",
                "MESSAGES",
                "OBSERVED",
                "as_scan_stats",
                "counters_to_json",
                "read_counters",
                "write_account",
            ],
            "definition": [
                "ARCHIVED",
                "DEAD_LETTER",
                "FAIL",
                "FormatSource",
                "PayloadColumns",
                "Pipeline",
                "QueueSource",
                "STATES",
                "Reading",
                "Sink",
                "Source",
                "SqlStep",
                "StreamSource",
                "Trigger",
                "parse_states",
            ],
            "figure": ["figure_of", "to_lines", "to_mermaid", "to_svg"],
            "file": ["read_pipeline"],
            "holder": [
                "FOLDER",
                "Process",
                "has_driver",
                "lock_file",
                "parse_holder",
                "process_of",
            ],
            "layout": ["TableLayout", "parse_layout", "split_partitions"],
            "places": [
                "DirectoryPlace",
                "ExchangePlace",
                "MessagePlace",
                "NOWHERE",
                "QueuePlace",
                "SparkPlace",
                "canonical_location",
                "is_queue",
                "is_same_location",
                "local_path",
                "parse_place",
                "place_kind",
                "queue_place",
            ],
            "sources": ["KAFKA", "PARSED_FORMATS", "check_format", "limit_options"],
        },
    )
