"""The audit trail: one line of the log for each change that is asked for over HTTP, by a tool, the command line or a page.

It says who, from where, what, and how it ended; of the body only what an endpoint names, which is never a password, a hash
or the value of a parameter.
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

MAX_SHOWN: Final = 500  # characters of what was given


@contextmanager
def audited(scope: Mapping[str, Any], identity: Identity | None) -> Iterator[dict[str, Any]]:
    """Log what the block changes, or that it was refused; the block adds what was given."""
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
