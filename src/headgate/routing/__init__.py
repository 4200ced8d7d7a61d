"""Which queues a message goes to: exchanges, bindings, and the topology they make up. Pure."""

from typing import TYPE_CHECKING

from headgate.lazy import front_door

if TYPE_CHECKING:
    from headgate.routing.batches import RoutedBatch as RoutedBatch
    from headgate.routing.bindings import X_FILTER as X_FILTER
    from headgate.routing.bindings import X_MATCH as X_MATCH
    from headgate.routing.bindings import Binding as Binding
    from headgate.routing.explain import Explained as Explained
    from headgate.routing.explain import Reason as Reason
    from headgate.routing.toml_file import EXCHANGE_KEYS as EXCHANGE_KEYS
    from headgate.routing.toml_file import as_toml as as_toml
    from headgate.routing.toml_file import bound as bound
    from headgate.routing.toml_file import declared as declared
    from headgate.routing.toml_file import from_toml as from_toml
    from headgate.routing.topology import Topology as Topology
    from headgate.routing.values import Envelope as Envelope
else:
    __getattr__, __dir__ = front_door(
        __name__,
        {
            "batches": ["RoutedBatch"],
            "bindings": ["Binding", "X_FILTER", "X_MATCH"],
            "explain": ["Explained", "Reason"],
            "toml_file": ["EXCHANGE_KEYS", "as_toml", "bound", "declared", "from_toml"],
            "topology": ["Topology"],
            "values": ["Envelope"],
        },
    )
