"""The bindings to each queue or exchange, by its name: with a million queues of one binding each, a set for each is dear."""

from __future__ import annotations

from typing import TypeAlias

from headgate.routing.bindings import Binding

# The bindings to a queue or an exchange: none, one as most have, or several.
Incoming: TypeAlias = Binding | dict[Binding, None] | None


def add_incoming(targets: dict[str, Incoming], binding: Binding) -> None:
    incoming = targets[binding.destination]
    if incoming is None:
        targets[binding.destination] = binding
    elif isinstance(incoming, dict):
        incoming[binding] = None
    else:
        targets[binding.destination] = {incoming: None, binding: None}


def remove_incoming(targets: dict[str, Incoming], binding: Binding) -> None:
    incoming = targets.get(binding.destination)  # None where the target is being deleted
    if isinstance(incoming, dict):
        del incoming[binding]
    if incoming in (binding, {}):
        targets[binding.destination] = None


def list_incoming(incoming: Incoming) -> list[Binding]:
    if isinstance(incoming, dict):
        return list(incoming)
    return [] if incoming is None else [incoming]
