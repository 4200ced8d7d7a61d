"""Read-only answers about streams, queues, routes, filters, pipelines and the machine, as plain values.

The command line, the pages, the HTTP API and metrics ask the same functions. Asking changes nothing.
"""

from typing import TYPE_CHECKING

from headgate.lazy import front_door

if TYPE_CHECKING:
    from headgate.insights.attention import Attention as Attention
    from headgate.insights.attention import count_dead_letters as count_dead_letters
    from headgate.insights.attention import count_unmatched as count_unmatched
    from headgate.insights.attention import dead_letter_queues as dead_letter_queues
    from headgate.insights.attention import find_attention as find_attention
    from headgate.insights.attention import find_sql_attention as find_sql_attention
    from headgate.insights.attention import sample_unacknowledged as sample_unacknowledged
    from headgate.insights.broker import BrokerFacts as BrokerFacts
    from headgate.insights.broker import BrokerQueueFacts as BrokerQueueFacts
    from headgate.insights.broker import ChannelFacts as ChannelFacts
    from headgate.insights.broker import ConnectionFacts as ConnectionFacts
    from headgate.insights.broker import ConsumerFacts as ConsumerFacts
    from headgate.insights.broker import ExchangeFacts as ExchangeFacts
    from headgate.insights.broker import Flow as Flow
    from headgate.insights.broker import VhostFacts as VhostFacts
    from headgate.insights.broker import bindings_of_queue as bindings_of_queue
    from headgate.insights.broker import broker_facts as broker_facts
    from headgate.insights.broker import connection_facts as connection_facts
    from headgate.insights.broker import default_binding as default_binding
    from headgate.insights.broker import exchange_facts as exchange_facts
    from headgate.insights.broker import list_bindings as list_bindings
    from headgate.insights.broker import list_channels as list_channels
    from headgate.insights.broker import list_connections as list_connections
    from headgate.insights.broker import list_consumers as list_consumers
    from headgate.insights.broker import list_exchanges as list_exchanges
    from headgate.insights.broker import matching_backlog as matching_backlog
    from headgate.insights.broker import queue_facts_of as queue_facts_of
    from headgate.insights.broker import queues_by_name as queues_by_name
    from headgate.insights.broker import refresh as refresh
    from headgate.insights.broker import vhost_facts as vhost_facts
    from headgate.insights.broker_messages import message_in_broker_queue as message_in_broker_queue
    from headgate.insights.broker_messages import newest_in_broker_queue as newest_in_broker_queue
    from headgate.insights.broker_messages import oldest_in_broker_queue as oldest_in_broker_queue
    from headgate.insights.fields import KnownFields as KnownFields
    from headgate.insights.fields import queue_fields as queue_fields
    from headgate.insights.fields import stream_fields as stream_fields
    from headgate.insights.fields import warn_of_filter as warn_of_filter
    from headgate.insights.filters import FilterFacts as FilterFacts
    from headgate.insights.filters import explain_filter as explain_filter
    from headgate.insights.health import Finding as Finding
    from headgate.insights.health import Health as Health
    from headgate.insights.health import diagnose as diagnose
    from headgate.insights.heat import HeatCell as HeatCell
    from headgate.insights.heat import HeatStrip as HeatStrip
    from headgate.insights.heat import heat_strip as heat_strip
    from headgate.insights.jobs import PERCENTILES as PERCENTILES
    from headgate.insights.jobs import advice_commands as advice_commands
    from headgate.insights.jobs import describe_advice as describe_advice
    from headgate.insights.jobs import describe_stats as describe_stats
    from headgate.insights.messages import MessagePage as MessagePage
    from headgate.insights.messages import Sighting as Sighting
    from headgate.insights.messages import common_values as common_values
    from headgate.insights.messages import message_at as message_at
    from headgate.insights.messages import message_in_queue as message_in_queue
    from headgate.insights.messages import messages_from as messages_from
    from headgate.insights.messages import newest_in_queue as newest_in_queue
    from headgate.insights.messages import newest_in_stream as newest_in_stream
    from headgate.insights.messages import published_since as published_since
    from headgate.insights.node import ListeningPort as ListeningPort
    from headgate.insights.node import NodeFacts as NodeFacts
    from headgate.insights.node import NodeOptions as NodeOptions
    from headgate.insights.node import active_alarms as active_alarms
    from headgate.insights.node import node_facts as node_facts
    from headgate.insights.pipeline_states import PipelineState as PipelineState
    from headgate.insights.pipeline_states import SparkQuery as SparkQuery
    from headgate.insights.pipeline_states import list_pipelines as list_pipelines
    from headgate.insights.pipeline_states import list_spark_queries as list_spark_queries
    from headgate.insights.pipelines import BatchFacts as BatchFacts
    from headgate.insights.pipelines import PipelineCheck as PipelineCheck
    from headgate.insights.pipelines import PipelineFacts as PipelineFacts
    from headgate.insights.pipelines import check_pipeline as check_pipeline
    from headgate.insights.pipelines import pipeline_facts as pipeline_facts
    from headgate.insights.playground import FailedTerm as FailedTerm
    from headgate.insights.playground import FilterProblem as FilterProblem
    from headgate.insights.playground import SnippetPlace as SnippetPlace
    from headgate.insights.playground import TriedMessage as TriedMessage
    from headgate.insights.playground import filter_snippets as filter_snippets
    from headgate.insights.playground import find_problem as find_problem
    from headgate.insights.playground import try_filter as try_filter
    from headgate.insights.queues import QueueFacts as QueueFacts
    from headgate.insights.queues import QueueSamples as QueueSamples
    from headgate.insights.queues import list_queues as list_queues
    from headgate.insights.queues import list_subscriptions as list_subscriptions
    from headgate.insights.queues import queue_facts as queue_facts
    from headgate.insights.routes import BindingFacts as BindingFacts
    from headgate.insights.routes import RouteFacts as RouteFacts
    from headgate.insights.routes import explain_route as explain_route
    from headgate.insights.streams import CursorFacts as CursorFacts
    from headgate.insights.streams import StreamDetails as StreamDetails
    from headgate.insights.streams import StreamFacts as StreamFacts
    from headgate.insights.streams import find_last_matches as find_last_matches
    from headgate.insights.streams import find_stream as find_stream
    from headgate.insights.streams import list_stream_names as list_stream_names
    from headgate.insights.streams import list_streams as list_streams
    from headgate.insights.streams import stored_bytes as stored_bytes
    from headgate.insights.streams import stream_details as stream_details
    from headgate.insights.streams import stream_facts as stream_facts
    from headgate.insights.streams import time_bounds as time_bounds
    from headgate.insights.units import size_text as size_text
    from headgate.insights.units import time_text as time_text
else:
    __getattr__, __dir__ = front_door(
        __name__,
        {
            "attention": [
                "Attention",
                "count_dead_letters",
                "dead_letter_queues",
                "count_unmatched",
                "find_attention",
                "find_sql_attention",
                "sample_unacknowledged",
            ],
            "broker_messages": [
                "message_in_broker_queue",
                "newest_in_broker_queue",
                "oldest_in_broker_queue",
            ],
            "broker": [
                "BrokerFacts",
                "BrokerQueueFacts",
                "ChannelFacts",
                "ConnectionFacts",
                "ConsumerFacts",
                "ExchangeFacts",
                "Flow",
                "VhostFacts",
                "bindings_of_queue",
                "broker_facts",
                "connection_facts",
                "default_binding",
                "exchange_facts",
                "list_bindings",
                "list_channels",
                "list_connections",
                "list_consumers",
                "list_exchanges",
                "matching_backlog",
                "queue_facts_of",
                "queues_by_name",
                "refresh",
                "vhost_facts",
            ],
            "fields": ["KnownFields", "queue_fields", "stream_fields", "warn_of_filter"],
            "filters": ["FilterFacts", "explain_filter"],
            "health": ["Finding", "Health", "diagnose"],
            "heat": ["HeatCell", "HeatStrip", "heat_strip"],
            "messages": [
                "MessagePage",
                "Sighting",
                "common_values",
                "message_at",
                "message_in_queue",
                "messages_from",
                "newest_in_queue",
                "newest_in_stream",
                "published_since",
            ],
            "playground": [
                "FailedTerm",
                "FilterProblem",
                "SnippetPlace",
                "TriedMessage",
                "filter_snippets",
                "find_problem",
                "try_filter",
            ],
            "jobs": ["PERCENTILES", "advice_commands", "describe_advice", "describe_stats"],
            "node": ["ListeningPort", "NodeFacts", "NodeOptions", "active_alarms", "node_facts"],
            "pipeline_states": [
                "PipelineState",
                "SparkQuery",
                "list_pipelines",
                "list_spark_queries",
            ],
            "pipelines": [
                "BatchFacts",
                "PipelineCheck",
                "PipelineFacts",
                "check_pipeline",
                "pipeline_facts",
            ],
            "queues": [
                "QueueFacts",
                "QueueSamples",
                "list_queues",
                "list_subscriptions",
                "queue_facts",
            ],
            "routes": ["BindingFacts", "RouteFacts", "explain_route"],
            "streams": [
                "CursorFacts",
                "StreamDetails",
                "StreamFacts",
                "find_last_matches",
                "find_stream",
                "list_stream_names",
                "list_streams",
                "stored_bytes",
                "stream_details",
                "stream_facts",
                "time_bounds",
            ],
            "units": ["size_text", "time_text"],
        },
    )
