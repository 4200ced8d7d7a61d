"""Policies, operator policies and runtime parameters over HTTP."""

from __future__ import annotations

from typing import Any, Final

from starlette.responses import Response

from headgate.broker import Parameter, Policies
from headgate.web.api.bodies import integer, text
from headgate.web.api.listing import QUERY, list_rows
from headgate.web.api.shapes import JsonObject
from headgate.web.endpoints import Call, EndpointTable
from headgate.web.problems import bad_request, missing

api = EndpointTable()

POLICY: Final = {
    "type": "object",
    "required": ["pattern", "definition"],
    "properties": {
        "pattern": {"type": "string"},
        "definition": {"type": "object"},
        "priority": {"type": "integer"},
        "apply-to": {"type": "string"},
    },
}
AUDITED: Final = tuple(POLICY["properties"])
VALUE: Final = {"type": "object", "required": ["value"], "properties": {"value": {}}}


def _list(call: Call, policies: Policies) -> Any:
    names = {vhost.name for vhost in call.vhosts()}
    return list_rows(call, [p.to_json() for p in policies.list() if p.vhost in names])


def _put(call: Call, policies: Policies) -> Response:
    given, vhost, name = call.document(), call.vhost().name, call.values["name"]
    for key in ("pattern", "definition"):
        if given.get(key) is None:
            raise bad_request(f"key_missing: {key}")
    definition = given["definition"]
    if not isinstance(definition, dict):
        raise bad_request("definition must be an object")
    existed = any(policy.name == name for policy in policies.list(vhost))
    policies.set(
        vhost,
        name,
        text(given, "pattern"),
        definition,
        priority=0 if given.get("priority") in (None, "") else integer(given, "priority"),
        apply_to=text(given, "apply-to", "all"),
    )
    call.shared["rows"].clear()
    return Response(status_code=204 if existed else 201)


def _clear(call: Call, policies: Policies) -> None:
    policies.clear(call.vhost().name, call.values["name"])
    call.shared["rows"].clear()


@api.get("/api/policies", query=QUERY)
@api.get("/api/policies/{vhost}", query=QUERY)
def get_policies(call: Call) -> Any:
    """Policies."""
    return _list(call, call.broker.policies)


@api.get("/api/policies/{vhost}/{name}", needs="policymaker")
def get_policy(call: Call) -> JsonObject:
    """One policy."""
    return call.broker.policies.get(call.vhost().name, call.values["name"]).to_json()


@api.put("/api/policies/{vhost}/{name}", needs="policymaker", body=POLICY, told=AUDITED)
def put_policy(call: Call) -> Response:
    """Set a policy; the queues and exchanges that it matches change at once."""
    return _put(call, call.broker.policies)


@api.delete("/api/policies/{vhost}/{name}", needs="policymaker")
def delete_policy(call: Call) -> None:
    """Delete a policy, and undo its effects."""
    _clear(call, call.broker.policies)


@api.get("/api/operator-policies", query=QUERY)
@api.get("/api/operator-policies/{vhost}", query=QUERY)
def get_operator_policies(call: Call) -> Any:
    """Operator policies."""
    return _list(call, call.broker.operator_policies)


@api.get("/api/operator-policies/{vhost}/{name}", needs="policymaker")
def get_operator_policy(call: Call) -> JsonObject:
    """One operator policy."""
    return call.broker.operator_policies.get(call.vhost().name, call.values["name"]).to_json()


@api.put("/api/operator-policies/{vhost}/{name}", needs="administrator", body=POLICY, told=AUDITED)
def put_operator_policy(call: Call) -> Response:
    """Set an operator policy, which limits what policies and arguments say."""
    return _put(call, call.broker.operator_policies)


@api.delete("/api/operator-policies/{vhost}/{name}", needs="administrator")
def delete_operator_policy(call: Call) -> None:
    """Delete an operator policy."""
    _clear(call, call.broker.operator_policies)


# ---- parameters


def _row(parameter: Parameter) -> JsonObject:
    return dict(parameter._asdict())


@api.get("/api/parameters", needs="policymaker", query=QUERY)
@api.get("/api/parameters/{component}", needs="policymaker", query=QUERY)
@api.get("/api/parameters/{component}/{vhost}", needs="policymaker", query=QUERY)
def get_parameters(call: Call) -> Any:
    """Runtime parameters, of all components or of one."""
    names = {vhost.name for vhost in call.vhosts()}
    found = call.broker.parameters.list(component=call.values.get("component"))
    return list_rows(call, [_row(parameter) for parameter in found if parameter.vhost in names])


def _key(call: Call) -> tuple[str, str, str]:
    return call.vhost().name, call.values["component"], call.values["name"]


@api.get("/api/parameters/{component}/{vhost}/{name}", needs="policymaker")
def get_parameter(call: Call) -> JsonObject:
    """One runtime parameter."""
    return _row(call.broker.parameters.get(*_key(call)))


@api.put("/api/parameters/{component}/{vhost}/{name}", needs="policymaker", body=VALUE)
def put_parameter(call: Call) -> Response:
    """Set a runtime parameter."""
    given, key = call.document(), _key(call)
    if "value" not in given:
        raise bad_request("key_missing: value")
    existed = any(parameter[:3] == key for parameter in call.broker.parameters.list(key[0]))
    call.broker.parameters.set(*key, given["value"])
    return Response(status_code=204 if existed else 201)


@api.delete("/api/parameters/{component}/{vhost}/{name}", needs="policymaker")
def delete_parameter(call: Call) -> None:
    """Clear a runtime parameter."""
    call.broker.parameters.clear(*_key(call))


@api.get("/api/shovels", needs="monitoring", query=QUERY)
@api.get("/api/shovels/{vhost}", needs="monitoring", query=QUERY)
def get_shovels(call: Call) -> Any:
    """Shovels that run in the broker; they are set and cleared as parameters of the component `shovel`."""
    names, node = {vhost.name for vhost in call.vhosts()}, call.shared["node"].name
    found = call.shared["list_shovels"]()
    return list_rows(call, [{"node": node, **row} for row in found if row["vhost"] in names])


@api.get("/api/global-parameters", needs="policymaker", query=QUERY)
def get_global_parameters(call: Call) -> Any:
    """Global parameters."""
    rows = [{"name": name, "value": value} for name, value in call.broker.parameters.of_all.items()]
    return list_rows(call, rows, ("name",))


@api.get("/api/global-parameters/{name}", needs="policymaker")
def get_global_parameter(call: Call) -> JsonObject:
    """One global parameter."""
    name = call.values["name"]
    if name not in call.broker.parameters.of_all:
        raise missing()
    return {"name": name, "value": call.broker.parameters.of_all[name]}


@api.put("/api/global-parameters/{name}", needs="policymaker", body=VALUE)
def put_global_parameter(call: Call) -> Response:
    """Set a global parameter."""
    given, name = call.document(), call.values["name"]
    if "value" not in given:
        raise bad_request("key_missing: value")
    existed = name in call.broker.parameters.of_all
    call.broker.parameters.set_global(name, given["value"])
    return Response(status_code=204 if existed else 201)


@api.delete("/api/global-parameters/{name}", needs="policymaker")
def delete_global_parameter(call: Call) -> None:
    """Clear a global parameter."""
    call.broker.parameters.clear_global(call.values["name"])
