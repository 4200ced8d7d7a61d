"""Exchanges and bindings over HTTP: look, declare, bind, delete, publish."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import quote, unquote_plus

from starlette.responses import Response

from headgate.amqp import make_message
from headgate.broker import VirtualHost
from headgate.insights import (
    active_alarms,
    bindings_of_queue,
    default_binding,
    exchange_facts,
    list_bindings,
    list_exchanges,
    refresh,
)
from headgate.routing import Binding, Exchange
from headgate.web.api.bodies import boolean, table, text
from headgate.web.api.listing import (
    QUERY,
    in_slices,
    list_long,
    list_rows,
    pick_columns,
    read_columns,
)
from headgate.web.api.shapes import JsonObject, binding_row, exchange_row, properties_key
from headgate.web.endpoints import Call, EndpointTable
from headgate.web.problems import HttpProblem, bad_request, missing

api = EndpointTable()

KINDS: Final = {"q": "queue", "e": "exchange"}
BINDING_ORDER: Final = ("vhost", "source", "destination", "routing_key", "properties_key")
DECLARATION: Final = {
    "type": "object",
    "required": ["type"],
    "properties": {
        "type": {"type": "string"},
        "durable": {"type": "boolean"},
        "auto_delete": {"type": "boolean"},
        "internal": {"type": "boolean"},
        "arguments": {"type": "object"},
    },
}
PUBLISH: Final = {
    "type": "object",
    "required": ["routing_key", "properties", "payload", "payload_encoding"],
    "properties": {
        "routing_key": {"type": "string"},
        "properties": {"type": "object"},
        "payload": {"type": "string"},
        "payload_encoding": {"enum": ["string", "base64"]},
    },
}
BIND: Final = {
    "type": "object",
    "properties": {"routing_key": {"type": "string"}, "arguments": {"type": "object"}},
}


def exchange_name(call: Call, part: str = "exchange") -> str:
    """The name of the exchange in the path, where the default exchange is `amq.default`."""
    name = call.values[part]
    return "" if name == "amq.default" else name


def find_exchange(call: Call) -> tuple[VirtualHost, Exchange]:
    vhost = call.vhost()
    exchange = vhost.topology.exchange(exchange_name(call))
    if exchange is None:
        raise missing()
    return vhost, exchange


@api.get("/api/exchanges", query=QUERY)
@api.get("/api/exchanges/{vhost}", query=QUERY)
async def get_exchanges(call: Call) -> Any:
    """Exchanges, with what was published to them."""
    refresh(call.broker)
    return await list_long(call, await in_slices(map(exchange_row, list_exchanges(call.vhosts()))))


@api.get("/api/exchanges/{vhost}/{exchange}", query=("columns",))
def get_exchange(call: Call) -> Any:
    """One exchange."""
    refresh(call.broker)
    row = exchange_row(exchange_facts(*find_exchange(call)))
    return pick_columns({**row, "incoming": [], "outgoing": []}, read_columns(call.query))


@api.put(
    "/api/exchanges/{vhost}/{exchange}", body=DECLARATION, told=("type", "durable", "arguments")
)
def declare_exchange(call: Call) -> Response:
    """Declare an exchange; one that exists must have been declared alike."""
    vhost, name, given = call.vhost(), exchange_name(call), call.document()
    if len(name.encode()) > 255:
        raise bad_request("the name of an exchange has at most 255 bytes")
    call.broker.access.check(call.login, vhost.name, "configure", "exchange", name)
    arguments = table(given, "arguments")
    existed = vhost.topology.exchange(name) is not None
    alternate = arguments.get("alternate-exchange")
    if isinstance(alternate, str) and not existed:
        call.broker.access.check(call.login, vhost.name, "read", "exchange", name)
        call.broker.access.check(call.login, vhost.name, "write", "exchange", alternate)
    vhost.declare_exchange(
        name,
        text(given, "type"),
        durable=boolean(given, "durable", True),
        auto_delete=boolean(given, "auto_delete", False),
        internal=boolean(given, "internal", False),
        arguments=arguments,
    )
    return Response(status_code=204 if existed else 201)


@api.delete("/api/exchanges/{vhost}/{exchange}", query=("if-unused",))
def delete_exchange(call: Call) -> None:
    """Delete an exchange with its bindings."""
    vhost, exchange = find_exchange(call)
    call.broker.access.check(call.login, vhost.name, "configure", "exchange", exchange.name)
    vhost.delete_exchange(exchange.name, if_unused=call.query.get("if-unused") == "true")


@api.post("/api/exchanges/{vhost}/{exchange}/publish", body=PUBLISH, told=None)
def publish(call: Call) -> JsonObject:
    """Publish one message; the answer says whether a queue took it. Refused while an alarm stops publishers."""
    vhost, exchange = find_exchange(call)
    if alarms := active_alarms(call.broker):
        raise HttpProblem(503, f"publishers are stopped by an alarm: {', '.join(alarms)}")
    given = call.document()
    key, payload = text(given, "routing_key"), text(given, "payload")
    call.broker.access.check(call.login, vhost.name, "write", "exchange", exchange.name)
    if exchange.type == "topic":
        call.broker.access.check_topic(call.login, vhost.name, "write", exchange.name, key)
    if given.get("properties") is None:
        raise bad_request("key_missing: properties")
    properties = table(given, "properties")
    body = _decode_payload(payload, text(given, "payload_encoding"))
    message = make_message(exchange.name, key, properties, body)
    user = properties.get("user_id")
    if user is not None and user != call.identity.name:
        raise bad_request(f"user_id property set to '{user}' but user was '{call.identity.name}'")
    route = vhost.find_route(exchange.name, key)
    queues = route.queues
    if queues is None:
        queues = vhost.queues_for(message, exchange.name, (key,))
        route.traffic.routed += len(queues)
    route.traffic.count += 1
    if not queues:
        route.traffic.returned += 1
    elif not vhost.deliver(message, queues):
        raise bad_request("rejected Unable to publish message. Check queue limits.")
    return {"routed": bool(queues)}


def _decode_payload(payload: str, encoding: str) -> bytes:
    if encoding == "string":
        return payload.encode()
    if encoding != "base64":
        raise bad_request(f"unsupported_encoding: {encoding}")
    try:
        return base64.b64decode(payload, validate=True)
    except (binascii.Error, ValueError) as problem:
        raise bad_request(f"the payload is not base64: {problem}") from problem


# ---- bindings


def _rows(vhost: VirtualHost, bindings: Iterable[Binding]) -> Iterable[JsonObject]:
    return (binding_row(vhost.name, binding) for binding in bindings)


@api.get("/api/bindings", query=QUERY)
@api.get("/api/bindings/{vhost}", query=QUERY)
async def get_bindings(call: Call) -> Any:
    """Bindings, also those of the default exchange."""
    rows: list[JsonObject] = []
    for vhost in call.vhosts():
        rows += await in_slices(_rows(vhost, list_bindings(vhost)))
    return await list_long(call, rows, BINDING_ORDER)


@api.get("/api/exchanges/{vhost}/{exchange}/bindings/source", query=("columns",))
def get_bindings_from(call: Call) -> Any:
    """The bindings from an exchange."""
    vhost, exchange = find_exchange(call)
    if exchange.name == "":
        found: Iterable[Binding] = map(default_binding, vhost.queues)
    else:
        found = vhost.topology.bindings(exchange.name)
    return list_rows(call, _rows(vhost, found), BINDING_ORDER)


@api.get("/api/exchanges/{vhost}/{exchange}/bindings/destination", query=("columns",))
def get_bindings_to(call: Call) -> Any:
    """The bindings to an exchange."""
    vhost, exchange = find_exchange(call)
    found = vhost.topology.bindings_to("exchange", exchange.name)
    return list_rows(call, _rows(vhost, found), BINDING_ORDER)


def _between(call: Call) -> tuple[VirtualHost, list[Binding]]:
    """The bindings between the source and the destination in the path."""
    vhost, name = call.vhost(), call.values["destination"]
    kind, source = KINDS.get(call.values["kind"]), exchange_name(call, "source")
    if kind is None or vhost.topology.exchange(source) is None:
        raise missing()
    if kind == "queue":
        if name not in vhost.queues:
            raise missing()
        found = bindings_of_queue(vhost, name)
    else:
        name = "" if name == "amq.default" else name
        if vhost.topology.exchange(name) is None:
            raise missing()
        found = vhost.topology.bindings_to("exchange", name)
    return vhost, [binding for binding in found if binding.source == source]


@api.get("/api/bindings/{vhost}/e/{source}/{kind}/{destination}")
def get_bindings_between(call: Call) -> Any:
    """The bindings from an exchange to a queue (`q`) or an exchange (`e`)."""
    vhost, found = _between(call)
    return list_rows(call, _rows(vhost, found), BINDING_ORDER)


@api.post(
    "/api/bindings/{vhost}/e/{source}/{kind}/{destination}",
    body=BIND,
    told=("routing_key", "arguments"),
)
def bind(call: Call) -> Response:
    """Bind a queue or an exchange to an exchange."""
    vhost, before = _between(call)
    given = call.document()
    key, arguments = text(given, "routing_key", ""), table(given, "arguments")
    _check_binding(call, vhost, key)
    kind, destination = KINDS[call.values["kind"]], call.values["destination"]
    if len(key.encode()) > 255:
        raise bad_request("a routing key has at most 255 bytes")
    vhost.bind(exchange_name(call, "source"), destination, key, arguments, to_exchange=kind == "exchange")  # fmt: skip
    _, after = _between(call)
    made = next((b for b in after if b not in before), None) or _find(after, key)
    parts = (call.values["source"], call.values["kind"], destination, properties_key(made))
    where = "/".join(quote(part, safe="") for part in parts)
    place = f"/api/bindings/{quote(vhost.name, safe='')}/e/{where}"
    return Response(status_code=201, headers={"Location": place})


def _find(bindings: list[Binding], key: str) -> Binding:
    return next(binding for binding in bindings if binding.key == key)


def _check_binding(call: Call, vhost: VirtualHost, key: str) -> None:
    """Require the permissions to write to the destination and to read from the source."""
    access, kind = call.broker.access, KINDS[call.values["kind"]]
    destination, source = call.values["destination"], exchange_name(call, "source")
    access.check(call.login, vhost.name, "write", kind, destination)
    access.check(call.login, vhost.name, "read", "exchange", source)
    exchange = vhost.topology.exchange(source)
    if exchange is not None and exchange.type == "topic":
        access.check_topic(call.login, vhost.name, "read", source, key)


def _one_binding(call: Call) -> tuple[VirtualHost, Binding]:
    vhost, found = _between(call)
    given = call.values["props"]
    for binding in found:
        if properties_key(binding) == given:
            return vhost, binding
    for binding in found:  # some tools send the key unquoted
        if not binding.arguments and binding.key == unquote_plus(given):
            return vhost, binding
    raise missing()


@api.get("/api/bindings/{vhost}/e/{source}/{kind}/{destination}/{props}")
def get_binding(call: Call) -> JsonObject:
    """One binding."""
    vhost, binding = _one_binding(call)
    return binding_row(vhost.name, binding)


@api.delete("/api/bindings/{vhost}/e/{source}/{kind}/{destination}/{props}")
def unbind(call: Call) -> None:
    """Delete a binding."""
    vhost, binding = _one_binding(call)
    _check_binding(call, vhost, binding.key)
    to_exchange = binding.kind == "exchange"
    vhost.unbind(binding.source, binding.destination, binding.key, binding.arguments, to_exchange=to_exchange)  # fmt: skip
