"""The broker, whatever the protocol: virtual hosts, queues, consumers, dead letters, one store."""

from typing import TYPE_CHECKING

from headgate.lazy import front_door

if TYPE_CHECKING:
    from headgate.broker.access import ADMINISTRATOR as ADMINISTRATOR
    from headgate.broker.access import AccessControl as AccessControl
    from headgate.broker.access import TokenReader as TokenReader
    from headgate.broker.access import is_loopback as is_loopback
    from headgate.broker.alarms import used_bytes as used_bytes
    from headgate.broker.broker import DEFAULT_VHOST as DEFAULT_VHOST
    from headgate.broker.broker import Broker as Broker
    from headgate.broker.consumer import BrokerConsumer as BrokerConsumer
    from headgate.broker.contract import BrokerQueue as BrokerQueue
    from headgate.broker.dead_letters import carbon_keys as carbon_keys
    from headgate.broker.definitions import export_definitions as export_definitions
    from headgate.broker.definitions_import import DefinitionsImport as DefinitionsImport
    from headgate.broker.definitions_import import import_definitions as import_definitions
    from headgate.broker.inspection import delete_entry as delete_entry
    from headgate.broker.inspection import find_entry as find_entry
    from headgate.broker.inspection import latest_entries as latest_entries
    from headgate.broker.inspection import requeue_dead_letter as requeue_dead_letter
    from headgate.broker.message import BrokerMessage as BrokerMessage
    from headgate.broker.message import QueueEntry as QueueEntry
    from headgate.broker.name_patterns import read_pattern as read_pattern
    from headgate.broker.parameters import Parameter as Parameter
    from headgate.broker.parameters import Parameters as Parameters
    from headgate.broker.passwords import PasswordHash as PasswordHash
    from headgate.broker.passwords import hash_password as hash_password
    from headgate.broker.passwords import hash_quickly as hash_quickly
    from headgate.broker.policies import APPLY_TO as APPLY_TO
    from headgate.broker.policies import Policies as Policies
    from headgate.broker.policies import Policy as Policy
    from headgate.broker.policies import effective_policy as effective_policy
    from headgate.broker.queue_definition import QUEUE_TYPES as QUEUE_TYPES
    from headgate.broker.queue_definition import type_name as type_name
    from headgate.broker.queue_filters import count_matching as count_matching
    from headgate.broker.refusals import AccessRefused as AccessRefused
    from headgate.broker.refusals import ConnectionRefusal as ConnectionRefusal
    from headgate.broker.refusals import NotAllowed as NotAllowed
    from headgate.broker.refusals import NotFound as NotFound
    from headgate.broker.refusals import NotImplementedHere as NotImplementedHere
    from headgate.broker.refusals import PreconditionFailed as PreconditionFailed
    from headgate.broker.refusals import Refusal as Refusal
    from headgate.broker.refusals import ResourceLocked as ResourceLocked
    from headgate.broker.routes import Route as Route
    from headgate.broker.sessions import Session as Session
    from headgate.broker.sessions import Sessions as Sessions
    from headgate.broker.statistics import CHANNEL_COUNTERS as CHANNEL_COUNTERS
    from headgate.broker.statistics import CONNECTION_COUNTERS as CONNECTION_COUNTERS
    from headgate.broker.statistics import EXCHANGE_COUNTERS as EXCHANGE_COUNTERS
    from headgate.broker.statistics import QUEUE_COUNTERS as QUEUE_COUNTERS
    from headgate.broker.statistics import QUEUE_GAUGES as QUEUE_GAUGES
    from headgate.broker.statistics import VHOST_COUNTERS as VHOST_COUNTERS
    from headgate.broker.statistics import Sampled as Sampled
    from headgate.broker.statistics import Statistics as Statistics
    from headgate.broker.stored_table import StoredTable as StoredTable
    from headgate.broker.stream_arguments import FILTER_VALUE as FILTER_VALUE
    from headgate.broker.stream_arguments import stored_filter_value as stored_filter_value
    from headgate.broker.stream_home import StreamHome as StreamHome
    from headgate.broker.stream_queue import StreamQueue as StreamQueue
    from headgate.broker.traffic import ChannelTraffic as ChannelTraffic
    from headgate.broker.traffic import ClientChannel as ClientChannel
    from headgate.broker.traffic import OpenConnection as OpenConnection
    from headgate.broker.users import Grants as Grants
    from headgate.broker.users import Login as Login
    from headgate.broker.users import LoginRefused as LoginRefused
    from headgate.broker.users import Permission as Permission
    from headgate.broker.users import PermissionKind as PermissionKind
    from headgate.broker.users import TopicPermission as TopicPermission
    from headgate.broker.users import User as User
    from headgate.broker.users import make_user as make_user
    from headgate.broker.users import parse_tags as parse_tags
    from headgate.broker.vhost import VirtualHost as VirtualHost
    from headgate.broker.vhost_settings import VhostSettings as VhostSettings
else:
    __getattr__, __dir__ = front_door(
        __name__,
        {
            "alarms": ["used_bytes"],
            "broker": ["DEFAULT_VHOST", "Broker"],
            "consumer": ["BrokerConsumer"],
            "contract": ["BrokerQueue"],
            "dead_letters": ["carbon_keys"],
            "queue_definition": ["QUEUE_TYPES", "type_name"],
            "inspection": ["delete_entry", "find_entry", "latest_entries", "requeue_dead_letter"],
            "definitions": ["export_definitions"],
            "definitions_import": ["DefinitionsImport", "import_definitions"],
            "message": ["BrokerMessage", "QueueEntry"],
            "refusals": [
                "AccessRefused",
                "ConnectionRefusal",
                "NotAllowed",
                "NotFound",
                "NotImplementedHere",
                "PreconditionFailed",
                "Refusal",
                "ResourceLocked",
            ],
            "queue_filters": ["count_matching"],
            "statistics": [
                "CHANNEL_COUNTERS",
                "CONNECTION_COUNTERS",
                "EXCHANGE_COUNTERS",
                "QUEUE_COUNTERS",
                "QUEUE_GAUGES",
                "VHOST_COUNTERS",
                "Sampled",
                "Statistics",
            ],
            "traffic": ["ChannelTraffic", "ClientChannel", "OpenConnection"],
            "stream_arguments": ["FILTER_VALUE", "stored_filter_value"],
            "stream_home": ["StreamHome"],
            "stream_queue": ["StreamQueue"],
            "routes": ["Route"],
            "vhost": ["VirtualHost"],
            "vhost_settings": ["VhostSettings"],
            "access": ["ADMINISTRATOR", "AccessControl", "TokenReader", "is_loopback"],
            "name_patterns": ["read_pattern"],
            "parameters": ["Parameter", "Parameters"],
            "passwords": ["PasswordHash", "hash_password", "hash_quickly"],
            "policies": ["APPLY_TO", "Policies", "Policy", "effective_policy"],
            "sessions": ["Session", "Sessions"],
            "stored_table": ["StoredTable"],
            "users": [
                "Grants",
                "Login",
                "LoginRefused",
                "Permission",
                "PermissionKind",
                "TopicPermission",
                "User",
                "make_user",
                "parse_tags",
            ],
        },
    )
