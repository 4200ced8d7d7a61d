"""Runtime parameters: values that operators set by component and name, in one virtual host or for all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.broker.refusals import NotFound, PreconditionFailed
from headgate.broker.stored_table import StoredDefinitions, StoredTable
from headgate.broker.users import VHOST_LIMITS, check_limits, check_name

if TYPE_CHECKING:
    from headgate.broker.broker import Broker

LIMITS: Final = "vhost-limits"  # the component, and `limits` is the name
POLICIES: Final = ("policy", "operator_policy")


class Parameter(NamedTuple):
    """A parameter of a virtual host."""

    vhost: str
    component: str
    name: str
    value: Any


class Parameters:
    """Parameters of virtual hosts, and global ones. Those of a component may be checked and watched."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._of_vhosts: StoredTable[tuple[str, str, str], Any] = StoredTable(
            broker.store, "parameter", _same, _same
        )  # by virtual host, component and name
        self._of_all: StoredTable[str, Any] = StoredTable(
            broker.store, "global-parameter", _same, _same
        )
        # By component: called with the parameter before it is set; refuses what cannot be used.
        self.checks: dict[str, Callable[[Parameter], None]] = {LIMITS: _check_vhost_limits}
        # By component: called after a parameter was set; its value is None when it was cleared.
        self.watchers: dict[str, Callable[[Parameter], None]] = {}

    def restore(self, definitions: StoredDefinitions) -> None:
        """Take over what an earlier run stored."""
        self._of_vhosts.restore(definitions)
        self._of_all.restore(definitions)

    def list(self, vhost: str | None = None, component: str | None = None) -> list[Parameter]:
        """Parameters, of one virtual host or component if one is given."""
        return [
            Parameter(*key, value)
            for key, value in self._of_vhosts.items()
            if vhost in (None, key[0]) and component in (None, key[1])
        ]

    def get(self, vhost: str, component: str, name: str) -> Parameter:
        key = (vhost, component, name)
        if key not in self._of_vhosts:
            raise NotFound("parameter", f"{component}/{name}", vhost)
        return Parameter(*key, self._of_vhosts[key])

    def set(self, vhost: str, component: str, name: str, value: Any) -> None:
        """Set a parameter; policies have verbs of their own."""
        self._broker.find_vhost(vhost)
        if component in POLICIES:
            raise PreconditionFailed("policies may not be set using this method")
        for kind, text in (("component", component), ("parameter", name)):
            check_name(kind, text)
        parameter = Parameter(vhost, component, name, value)
        if component in self.checks:
            self.checks[component](parameter)
        self._of_vhosts.put((vhost, component, name), value)
        self._tell(parameter)

    def clear(self, vhost: str, component: str, name: str) -> None:
        parameter = self.get(vhost, component, name)
        self._of_vhosts.remove((vhost, component, name))
        self._tell(parameter._replace(value=None))

    def forget_vhost(self, vhost: str) -> None:
        """Clear all parameters of a virtual host."""
        for parameter in self.list(vhost):
            self.clear(*parameter[:3])

    # ---- global ones

    @property
    def of_all(self) -> Mapping[str, Any]:
        """The global parameters."""
        return self._of_all

    def set_global(self, name: str, value: Any) -> None:
        check_name("parameter", name)
        self._of_all.put(name, value)

    def clear_global(self, name: str) -> None:
        if name not in self._of_all:
            raise NotFound("global parameter", name)
        self._of_all.remove(name)

    # ---- limits of virtual hosts

    def vhost_limits(self, vhost: str) -> Mapping[str, int]:
        """The limits of a virtual host: `max-connections` and `max-queues`, where they are set."""
        limits: Mapping[str, int] = self._of_vhosts.get((vhost, LIMITS, "limits"), {})
        return limits

    def check_queue_limit(self, vhost: str, queue: str, count: int) -> None:
        """Refuse one queue too many beside those that are there, in RabbitMQ's words."""
        limit = self.vhost_limits(vhost).get("max-queues", -1)
        if 0 <= limit <= count:
            raise PreconditionFailed(
                f"cannot declare queue '{queue}': queue limit in vhost '{vhost}' ({limit}) is reached"
            )

    def set_vhost_limits(self, vhost: str, limits: Mapping[str, int]) -> None:
        """Set limits of a virtual host; others stay as they are."""
        self.set(vhost, LIMITS, "limits", {**self.vhost_limits(vhost), **limits})

    def clear_vhost_limits(self, vhost: str, limit: str | None = None) -> None:
        """Remove one limit of a virtual host, or all."""
        limits = self.vhost_limits(vhost)
        left = {key: value for key, value in limits.items() if limit not in (None, key)}
        if left:
            self.set(vhost, LIMITS, "limits", left)
        elif limits:
            self.clear(vhost, LIMITS, "limits")

    def _tell(self, parameter: Parameter) -> None:
        watcher = self.watchers.get(parameter.component)
        if watcher is not None:
            watcher(parameter)


def _check_vhost_limits(parameter: Parameter) -> None:
    check_limits(parameter.value, VHOST_LIMITS)


def _same(value: Any) -> Any:
    return value
