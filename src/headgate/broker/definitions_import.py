"""Imports definitions: the whole document is checked before anything changes, then its entries are declared in slices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.broker.definitions import OPERATOR
from headgate.broker.passwords import hash_password
from headgate.broker.policies import Policies
from headgate.broker.refusals import NotImplementedHere, PreconditionFailed, Refusal
from headgate.broker.users import User, make_user, parse_tags
from headgate.broker.vhost import DEFAULT, GENERATED
from headgate.broker.vhost_settings import VhostSettings
from headgate.errors import HeadgateError
from headgate.routing import declaration_arguments, decode_table
from headgate.store import InMemoryStore

if TYPE_CHECKING:
    from headgate.broker.broker import Broker

_Entry = Mapping[str, Any]


class DefinitionEntry(NamedTuple):
    """One entry of a document, and where it stands there."""

    part: str
    number: int
    table: _Entry

    def __str__(self) -> str:
        named = (self.table.get(key) for key in ("name", "user", "source"))
        return f"{self.part}, entry {self.number} ({next(filter(None, named), '?')})"


class DefinitionsImport:
    """One import of a document. `check` may run in any thread, everything else in the thread of the broker."""

    def __init__(self, broker: Broker, document: Any, vhost: str | None = None) -> None:
        if vhost is not None:
            broker.find_vhost(vhost)
        self._broker, self._document, self._vhost = broker, document, vhost
        self._entries: list[DefinitionEntry] = []

    def check(self) -> None:
        """Refuse a document of which an entry cannot be used, hash its passwords; the broker is not changed."""
        entries = list(_list_entries(self._document, self._vhost))
        for entry in entries:
            _check_types(entry)
        self._entries = [_hash_password_of(entry) for entry in entries]
        trial, readers = _make_trial(self._broker, entries), _READERS | {"queues": self._try_queue}
        for entry in self._entries:
            _declare(trial, entry, readers)
        self._check_limits(trial)

    def _check_limits(self, trial: Broker) -> None:
        """Refuse a document with more queues than a virtual host may have, with those that it has."""
        names: dict[str, set[str]] = {}
        for entry in self._entries:
            if entry.part == "queues":
                names.setdefault(entry.table["vhost"], set()).add(entry.table["name"])
        for name, new in names.items():
            vhost = self._broker.vhosts.get(name)
            old = set() if vhost is None else set(vhost.queues)
            tables = (trial.parameters, self._broker.parameters)
            limits = [table.vhost_limits(name).get("max-queues") for table in tables]
            limit = next((limit for limit in limits if limit is not None), -1)
            if -1 < limit < len(new | old) and new - old:
                raise PreconditionFailed(
                    f"queues: vhost '{name}' has {len(old)}, the document adds {len(new - old)}, "
                    f"and the limit max-queues is {limit}; nothing was imported"
                )

    def steps(self) -> Iterator[None]:
        """Declare one entry after another; the caller may stop for a while after each."""
        for done, entry in enumerate(self._entries):
            try:
                _declare(self._broker, entry, _READERS)
            except PreconditionFailed as problem:  # something has changed since the check
                text = f"{problem}; the {done} entries before it were imported"
                raise PreconditionFailed(text) from problem
            yield

    def _try_queue(self, trial: Broker, table: _Entry) -> None:
        try:
            _read_queue(trial, table)
        except NotImplementedHere:
            if self._broker.stream_home is None:
                raise
            vhost = trial.find_vhost(table["vhost"])  # of a stream, the name is enough here
            vhost.declare_queue(table["name"], durable=True, arguments={"x-queue-type": "classic"})


def import_definitions(broker: Broker, document: Any, vhost: str | None = None) -> None:
    """Add what a document defines; what is there and not in it stays. With a virtual host, all of it goes into that one.

    A document with an entry that cannot be used is refused before anything changes.
    """
    imported = DefinitionsImport(broker, document, vhost)
    imported.check()
    for _ in imported.steps():
        pass
    broker.flush()


def _list_entries(document: Any, vhost: str | None) -> Iterator[DefinitionEntry]:
    """The entries of a document, each after those that it refers to."""
    if not isinstance(document, Mapping):
        raise PreconditionFailed("definitions are a JSON object with users, vhosts, queues …")
    for part in _READERS if vhost is None else _OF_VHOSTS:
        entries = document.get(part) or []
        if not isinstance(entries, list):
            raise PreconditionFailed(f"{part} are a list, not {type(entries).__name__}")
        for number, table in enumerate(entries, 1):
            if not isinstance(table, Mapping):
                raise PreconditionFailed(f"{part}, entry {number}: is not an object")
            if part in _OF_VHOSTS:
                table = {**table, "vhost": vhost or table.get("vhost", "/")}
            yield DefinitionEntry(part, number, table)


def _make_trial(broker: Broker, entries: list[DefinitionEntry]) -> Broker:
    """A broker in memory with everything that entries may refer to, for a trial of their declarations."""
    # In another thread than the broker's: dictionaries are copied before one iterates.
    users, checks = list(broker.access.users.values()), dict(broker.parameters.checks)
    settings = {name: vhost.settings for name, vhost in dict(broker.vhosts).items()}
    ends = {
        (str(entry.table["vhost"]), str(entry.table.get(key)))
        for entry in entries
        if entry.part == "bindings"
        for key in ("source", "destination")
    }
    known = [(broker.vhosts[vhost], name) for vhost, name in ends if vhost in broker.vhosts]
    queues = [(vhost.name, name) for vhost, name in known if name in vhost.queues]
    exchanges = [
        (vhost.name, found)
        for vhost, name in known
        if (found := vhost.topology.exchange(name)) is not None
    ]
    trial = type(broker)(InMemoryStore(lambda call: call()), broker.codec, lambda *_: None)
    for name in trial.vhosts.keys() - settings:
        trial.delete_vhost(name)
    for name, given in settings.items():
        trial.add_vhost(name, given)
    for name in trial.access.users.keys() - {user.name for user in users}:
        trial.access.delete_user(name)
    for user in users:
        trial.access.put_user(user)
    trial.parameters.checks.update(checks)
    for vhost, name in queues:
        trial.vhosts[vhost].create_queue(name, {"x-queue-type": "classic"}, False, False)
    for vhost, exchange in exchanges:
        if trial.vhosts[vhost].topology.exchange(exchange.name) is None:
            arguments = dict(declaration_arguments(exchange).get("arguments", {}))
            trial.vhosts[vhost].declare_exchange(exchange.name, exchange.type, arguments=arguments)
    return trial


def _hash_password_of(entry: DefinitionEntry) -> DefinitionEntry:
    """The entry of a user whose password is plain text, with its hash instead; any other as it is."""
    password = entry.table.get("password")
    if entry.part != "users" or not password:
        return entry
    hashed = User("?", hash_password(str(password))).to_json()
    keys = ("password_hash", "hashing_algorithm")
    return entry._replace(table={**entry.table, **{key: hashed[key] for key in keys}})


def _check_types(entry: DefinitionEntry) -> None:
    for key, (kind, said) in _TYPES.items():
        value = entry.table.get(key)
        is_given = key in entry.table and (kind is str or value not in (None, []))
        if is_given and not isinstance(value, kind):
            where = f"{entry.part}, entry {entry.number}"
            raise PreconditionFailed(f"{where}: {key} is {said}, not {type(value).__name__}")


def _declare(
    broker: Broker, entry: DefinitionEntry, readers: Mapping[str, Callable[[Broker, _Entry], None]]
) -> None:
    """Declare one entry; a refusal names the entry."""
    try:
        readers[entry.part](broker, entry.table)
    except KeyError as problem:
        raise PreconditionFailed(f"{entry}: has no {problem}") from problem
    except (HeadgateError, TypeError, ValueError, AttributeError) as problem:
        raise PreconditionFailed(f"{entry}: {problem}") from problem


def _read_user(broker: Broker, entry: _Entry) -> None:
    broker.access.put_user(make_user(entry["name"], entry))


def _read_vhost(broker: Broker, entry: _Entry) -> None:
    metadata = {**(entry.get("metadata") or {})}
    facts = {**metadata, **entry}
    kind = facts.get("default_queue_type")
    settings = VhostSettings(
        str(facts.get("description") or ""),
        parse_tags(facts.get("tags") or []),
        None if kind in (None, "classic", "undefined") else str(kind),
        metadata,
    )
    broker.add_vhost(entry["name"], settings)
    if entry.get("limits"):
        broker.parameters.set_vhost_limits(entry["name"], entry["limits"])


def _read_permission(broker: Broker, entry: _Entry) -> None:
    keys = ("user", "vhost", "configure", "write", "read")
    broker.access.set_permissions(*(entry[key] for key in keys))


def _read_topic_permission(broker: Broker, entry: _Entry) -> None:
    keys = ("user", "vhost", "exchange", "write", "read")
    broker.access.set_topic_permissions(*(entry[key] for key in keys))


def _read_parameter(broker: Broker, entry: _Entry) -> None:
    if entry["component"] == OPERATOR:
        value = {**entry["value"], "vhost": entry["vhost"], "name": entry["name"]}
        _set_policy(broker.operator_policies, value)
    else:
        names = (entry["vhost"], entry["component"], entry["name"])
        broker.parameters.set(*names, entry["value"])


def _read_global_parameter(broker: Broker, entry: _Entry) -> None:
    broker.parameters.set_global(entry["name"], entry["value"])


def _read_policy(broker: Broker, entry: _Entry) -> None:
    _set_policy(broker.policies, entry)


def _set_policy(policies: Policies, entry: _Entry) -> None:
    policies.set(
        entry["vhost"],
        entry["name"],
        entry["pattern"],
        entry["definition"],
        priority=entry.get("priority", 0),
        apply_to=entry.get("apply-to", "all"),
    )


def _read_queue(broker: Broker, entry: _Entry) -> None:
    vhost = broker.find_vhost(entry["vhost"])
    name = entry["name"]
    if name not in vhost.queues:
        declare = vhost.create_queue if name.startswith(GENERATED) else vhost.declare_queue
        declare(
            name,
            arguments=decode_table(entry.get("arguments") or {}, "arguments"),
            durable=bool(entry.get("durable", True)),
            auto_delete=bool(entry.get("auto_delete", False)),
        )


def _read_exchange(broker: Broker, entry: _Entry) -> None:
    vhost = broker.find_vhost(entry["vhost"])
    if vhost.topology.exchange(entry["name"]) is None:
        vhost.declare_exchange(
            entry["name"],
            entry["type"],
            durable=bool(entry.get("durable", True)),
            auto_delete=bool(entry.get("auto_delete", False)),
            internal=bool(entry.get("internal", False)),
            arguments=decode_table(entry.get("arguments") or {}, "arguments"),
        )


def _read_binding(broker: Broker, entry: _Entry) -> None:
    if entry["source"] == DEFAULT:
        return  # which every queue has
    kind = entry.get("destination_type", "queue")
    if kind not in ("queue", "exchange"):
        raise Refusal(f"destination_type is queue or exchange, not {kind!r}")
    broker.find_vhost(entry["vhost"]).bind(
        entry["source"],
        entry["destination"],
        entry.get("routing_key", ""),
        decode_table(entry.get("arguments") or {}, "arguments"),
        to_exchange=kind == "exchange",
    )


_OF_VHOSTS: Final = ("parameters", "policies", "queues", "exchanges", "bindings")
_TEXTS: Final = (
    *("name", "vhost", "user", "exchange", "component", "configure", "write", "read", "pattern"),
    *("apply-to", "type", "source", "destination", "destination_type", "routing_key"),
)
_TYPES: Final[dict[str, tuple[type, str]]] = {
    **dict.fromkeys(_TEXTS, (str, "text")),
    **dict.fromkeys(("durable", "auto_delete", "internal"), (bool, "true or false")),
    **dict.fromkeys(("arguments", "metadata", "definition"), (Mapping, "an object")),
}
# Each part stands after those that it refers to.
_READERS: Final[dict[str, Callable[[Broker, _Entry], None]]] = {
    "users": _read_user,
    "vhosts": _read_vhost,
    "permissions": _read_permission,
    "topic_permissions": _read_topic_permission,
    "parameters": _read_parameter,
    "global_parameters": _read_global_parameter,
    "policies": _read_policy,
    "queues": _read_queue,
    "exchanges": _read_exchange,
    "bindings": _read_binding,
}
