"""Which queues a message goes to: exchanges, bindings, and the topology they make up. Pure."""

from typing import TYPE_CHECKING

from headgate.lazy import front_door

if TYPE_CHECKING:
    from headgate.routing.advice import BindingAdvice as BindingAdvice
    from headgate.routing.advice import TopologyProblem as TopologyProblem
    from headgate.routing.answers import Routed as Routed
    from headgate.routing.answers import Unresolved as Unresolved
    from headgate.routing.batches import RoutedBatch as RoutedBatch
    from headgate.routing.bindings import X_FILTER as X_FILTER
    from headgate.routing.bindings import Binding as Binding
    from headgate.routing.bindings import describe_condition as describe_condition
    from headgate.routing.declarations import DELAYED as DELAYED
    from headgate.routing.declarations import DELAYED_TYPE as DELAYED_TYPE
    from headgate.routing.declarations import Exchange as Exchange
    from headgate.routing.declarations import ExchangeType as ExchangeType
    from headgate.routing.declarations import QueueDeclaration as QueueDeclaration
    from headgate.routing.declarations import declaration_arguments as declaration_arguments
    from headgate.routing.definitions.document import decode_table as decode_table
    from headgate.routing.definitions.document import encode_value as encode_value
    from headgate.routing.definitions.toml import EXCHANGE_KEYS as EXCHANGE_KEYS
    from headgate.routing.definitions.toml import from_toml as from_toml
    from headgate.routing.definitions.toml import read_binding as read_binding
    from headgate.routing.definitions.toml import read_declaration as read_declaration
    from headgate.routing.definitions.toml import to_toml as to_toml
    from headgate.routing.demand import demand_of as demand_of
    from headgate.routing.explain import Explained as Explained
    from headgate.routing.explain import Reason as Reason
    from headgate.routing.explain import failing_term as failing_term
    from headgate.routing.topology import Topology as Topology
    from headgate.routing.values import Envelope as Envelope
else:
    __getattr__, __dir__ = front_door(
        __name__,
        {
            "advice": ["BindingAdvice", "TopologyProblem"],
            "answers": ["Routed", "Unresolved"],
            "batches": ["RoutedBatch"],
            "bindings": ["Binding", "X_FILTER", "describe_condition"],
            "declarations": [
                "DELAYED",
                "DELAYED_TYPE",
                "Exchange",
                "ExchangeType",
                "QueueDeclaration",
                "declaration_arguments",
            ],
            "definitions.document": ["decode_table", "encode_value"],
            "definitions.toml": [
                "EXCHANGE_KEYS",
                "from_toml",
                "read_binding",
                "read_declaration",
                "to_toml",
            ],
            "demand": ["demand_of"],
            "explain": ["Explained", "Reason", "failing_term"],
            "topology": ["Topology"],
            "values": ["Envelope"],
        },
    )
