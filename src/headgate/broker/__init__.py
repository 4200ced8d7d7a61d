"""The broker, whatever the protocol: virtual hosts, queues, consumers, dead letters, one store."""

from typing import TYPE_CHECKING

from headgate.lazy import front_door

if TYPE_CHECKING:
    from headgate.broker.broker import BOUND as BOUND
    from headgate.broker.broker import DEFAULT_VHOST as DEFAULT_VHOST
    from headgate.broker.broker import Broker as Broker
    from headgate.broker.consumer import BrokerConsumer as BrokerConsumer
    from headgate.broker.contract import BrokerQueue as BrokerQueue
    from headgate.broker.definition import type_name as type_name
    from headgate.broker.message import BrokerMessage as BrokerMessage
    from headgate.broker.message import QueueEntry as QueueEntry
    from headgate.broker.refusals import AccessRefused as AccessRefused
    from headgate.broker.refusals import ConnectionRefusal as ConnectionRefusal
    from headgate.broker.refusals import NotAllowed as NotAllowed
    from headgate.broker.refusals import NotFound as NotFound
    from headgate.broker.refusals import NotImplementedHere as NotImplementedHere
    from headgate.broker.refusals import PreconditionFailed as PreconditionFailed
    from headgate.broker.refusals import Refusal as Refusal
    from headgate.broker.refusals import ResourceLocked as ResourceLocked
    from headgate.broker.statistics import Statistics as Statistics
    from headgate.broker.traffic import ChannelTraffic as ChannelTraffic
    from headgate.broker.traffic import ClientChannel as ClientChannel
    from headgate.broker.traffic import OpenConnection as OpenConnection
    from headgate.broker.vhost import Route as Route
    from headgate.broker.vhost import VirtualHost as VirtualHost
else:
    __getattr__, __dir__ = front_door(
        __name__,
        {
            "broker": ["BOUND", "DEFAULT_VHOST", "Broker"],
            "consumer": ["BrokerConsumer"],
            "contract": ["BrokerQueue"],
            "definition": ["type_name"],
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
            "statistics": ["Statistics"],
            "traffic": ["ChannelTraffic", "ClientChannel", "OpenConnection"],
            "vhost": ["Route", "VirtualHost"],
        },
    )
