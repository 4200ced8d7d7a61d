"""The audit trail: one line of the log for each change that is asked for over HTTP, by a tool, the command line or a page.

A line says who asked, from where, for what, and with what result. Of the body it shows only the parts that an endpoint
names, never a password, a hash or the value of a parameter.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from headgate.errors import HeadgateError
from headgate.web.identity import Identity
from headgate.web.problems import problem_of

log: Final = logging.getLogger("headgate.audit")

MAX_SHOWN: Final = 500  # characters of the shown parts of a body


@contextmanager
def audited(scope: Mapping[str, Any], identity: Identity | None) -> Iterator[dict[str, Any]]:
    """Log the change that the block makes, or its refusal; the block adds the parts of the body to show."""
    told: dict[str, Any] = {}
    try:
        yield told
    except HeadgateError as problem:
        refusal = problem_of(problem)
        outcome = {"status": refusal.status, "why": refusal.reason[:MAX_SHOWN]}
        log.warning("change refused", extra=_facts(scope, identity, told) | outcome)
        raise
    log.info("changed", extra=_facts(scope, identity, told))


def _facts(
    scope: Mapping[str, Any], identity: Identity | None, told: Mapping[str, Any]
) -> dict[str, Any]:
    client = scope.get("client")
    return {
        "user": "" if identity is None else identity.name,
        "address": client[0] if client else "",
        "method": scope["method"],
        "path": scope["path"],
        "given": json.dumps(told)[:MAX_SHOWN],
    }
