"""Health checks over HTTP: 200 when all is well, 503 with the reason when it is not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from starlette.responses import Response

from headgate.insights import active_alarms
from headgate.web.api.overview import node_options
from headgate.web.api.shapes import JsonObject
from headgate.web.endpoints import Call, EndpointTable, encode_json
from headgate.web.problems import bad_request

api = EndpointTable()

OK: Final[JsonObject] = {"status": "ok"}
# Protocols by the names that tools use for them.
PROTOCOLS: Final = {
    "amqp091": "amqp",
    "amqp0.9.1": "amqp",
    "amqp0-9-1": "amqp",
    "amqp0_9_1": "amqp",
    "amqps": "amqp/ssl",
    "https": "https",
}
UNITS: Final = {"days": 1, "weeks": 7, "months": 30, "years": 365}
MOST_DIGITS: Final = 4


def failed(reason: str, **more: object) -> Response:
    """The answer of a check that failed."""
    body = encode_json({"status": "failed", "reason": reason, **more})
    return Response(body, status_code=503, media_type="application/json")


@api.get("/api/aliveness-test/{vhost}")
def test_aliveness(call: Call) -> JsonObject:
    """Whether a virtual host is there."""
    call.vhost()
    return OK


@api.get("/api/health/checks/alarms")
@api.get("/api/health/checks/local-alarms")
def check_alarms(call: Call) -> JsonObject | Response:
    """Whether publishers are blocked by an alarm of memory or disk."""
    active, node = active_alarms(call.broker), node_options(call).name
    if not active:
        return OK
    alarms = [{"node": node, "resource": name} for name in active]
    return failed("There are alarms in effect in the cluster", alarms=alarms)


@api.get("/api/health/checks/port-listener/{port}")
def check_port(call: Call) -> JsonObject | Response:
    """Whether something listens on a port."""
    try:
        port = int(call.values["port"])
    except ValueError as problem:
        raise bad_request("Invalid port") from problem
    ports = [listener.port for listener in node_options(call).listeners]
    if port in ports:
        return {"status": "ok", "port": port}
    return failed("No active listener", missing=port, ports=ports)


@api.get("/api/health/checks/protocol-listener/{protocols}")
def check_protocols(call: Call) -> JsonObject | Response:
    """Whether something listens for each of some protocols, such as `amqp,http`."""
    wanted = [PROTOCOLS.get(p.lower(), p.lower()) for p in call.values["protocols"].split(",")]
    active = [listener.protocol for listener in node_options(call).listeners]
    lacking = [protocol for protocol in wanted if protocol not in active]
    if lacking:
        return failed("No active listener", missing=lacking, protocols=active)
    return {"status": "ok", "protocols": active}


@api.get("/api/health/checks/certificate-expiration/{within}/{unit}")
def check_certificates(call: Call) -> JsonObject | Response:
    """Whether the certificates of this broker are valid for some more days, weeks, months or years."""
    within, unit = call.values["within"], call.values["unit"]
    if unit not in UNITS:
        raise bad_request(f"Time unit not recognised. Use {', '.join(UNITS)}.")
    if not (within.isascii() and within.isdigit() and len(within) <= MOST_DIGITS):
        raise bad_request("Invalid expiration value.")
    horizon = datetime.now(UTC) + timedelta(days=int(within) * UNITS[unit])
    options = node_options(call)
    expired = [
        {"node": options.name, "certfile": file, "cert_expires_on": f"{ends:%Y-%m-%d %H:%M:%SZ}"}
        for file, ends in options.certificates().items()
        if ends <= horizon
    ]
    return failed("Certificates expiring", expired=expired) if expired else OK


@api.get("/api/health/checks/virtual-hosts")
@api.get("/api/health/checks/node-is-mirror-sync-critical")
@api.get("/api/health/checks/node-is-quorum-critical")
@api.get("/api/health/checks/metadata-store/initialized")
@api.get("/api/health/checks/metadata-store/initialized/with-data")
@api.get("/api/health/checks/is-in-service")
@api.get("/api/health/checks/ready-to-serve-clients")
@api.get("/api/health/checks/below-node-connection-limit")
@api.get("/api/health/checks/quorum-queues-without-elected-leaders/all-vhosts")
@api.get("/api/healthchecks/node")
@api.get("/api/healthchecks/node/{node}")
def check_node(call: Call) -> JsonObject:
    """Checks that hold as long as the broker answers."""
    return OK
