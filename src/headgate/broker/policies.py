"""Policies: settings for all queues or exchanges whose names match a pattern, with the rules of RabbitMQ 4.0.

Of the policies that match, the one of the highest priority counts, alone. An operator policy is laid over it: of
two limits the lower one counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from typing import Literal as OneOf

from headgate.broker.name_patterns import check_pattern, name_matches
from headgate.broker.policy_keys import UNSUPPORTED, check_definition
from headgate.broker.policy_precedence import merge_operator
from headgate.broker.refusals import NotFound, PreconditionFailed
from headgate.broker.stored_table import StoredDefinitions, StoredTable
from headgate.broker.users import check_name

if TYPE_CHECKING:
    from headgate.broker.broker import Broker

PolicyTarget: TypeAlias = OneOf["classic", "quorum", "stream", "exchange"]

# The values of `apply-to`, and the kinds of objects that each means.
APPLY_TO: Final[dict[str, tuple[PolicyTarget, ...]]] = {
    "all": ("classic", "quorum", "stream", "exchange"),
    "queues": ("classic", "quorum", "stream"),
    "classic_queues": ("classic",),
    "quorum_queues": ("quorum",),
    "streams": ("stream",),
    "exchanges": ("exchange",),
}


@dataclass(frozen=True, slots=True)
class Policy:
    """One policy of a virtual host."""

    vhost: str
    name: str
    pattern: str
    definition: Mapping[str, Any]
    priority: int = 0
    apply_to: str = "all"

    def matches(self, target: PolicyTarget, name: str) -> bool:
        """Whether the policy applies to a queue or an exchange of this name."""
        return (
            target in APPLY_TO[self.apply_to]
            and UNSUPPORTED[target].isdisjoint(self.definition)
            and (not self.pattern or name_matches(self.pattern, name))
        )

    def to_json(self) -> dict[str, Any]:
        """The policy in the form of definitions."""
        return {
            "vhost": self.vhost,
            "name": self.name,
            "pattern": self.pattern,
            "apply-to": self.apply_to,
            "definition": dict(self.definition),
            "priority": self.priority,
        }


class Policies:
    """The policies of a broker, or its operator policies. A change takes effect at once."""

    def __init__(self, broker: Broker, *, of_operator: bool = False) -> None:
        self._broker, self._of_operator = broker, of_operator
        self._table: StoredTable[tuple[str, str], Policy] = StoredTable(
            broker.store,
            "operator-policy" if of_operator else "policy",
            Policy.to_json,
            _read_policy,
        )
        self._sorted: dict[str, list[Policy]] = {}  # by virtual host, the highest priority first

    def restore(self, definitions: StoredDefinitions) -> None:
        """Take over what an earlier run stored."""
        self._table.restore(definitions)

    def list(self, vhost: str | None = None) -> list[Policy]:
        """The policies, of one virtual host if one is given."""
        return [policy for policy in self._table.values() if vhost in (None, policy.vhost)]

    def get(self, vhost: str, name: str) -> Policy:
        policy = self._table.get((vhost, name))
        if policy is None:
            raise NotFound("operator policy" if self._of_operator else "policy", name, vhost)
        return policy

    def set(
        self,
        vhost: str,
        name: str,
        pattern: str,
        definition: Mapping[str, Any],
        *,
        priority: int = 0,
        apply_to: str = "all",
    ) -> Policy:
        """Set a policy; the queues and exchanges that it matches change at once."""
        self._broker.find_vhost(vhost)
        check_name("policy", name)
        if isinstance(priority, bool) or not isinstance(priority, int):
            raise PreconditionFailed(
                f"the priority of a policy is a whole number, not {priority!r}"
            )
        if apply_to not in APPLY_TO:
            raise PreconditionFailed(
                f"apply-to '{apply_to}' unrecognised; should be one of: 'queues', 'classic_queues', "
                " 'quorum_queues', 'streams', 'exchanges', or 'all'"
            )
        check_definition(definition, of_operator=self._of_operator)
        policy = Policy(vhost, name, check_pattern(pattern), dict(definition), priority, apply_to)
        before = self._table.get((vhost, name))
        if before != policy:
            self._table.put((vhost, name), policy)
            self._changed(vhost, [policy] if before is None else [before, policy])
        return policy

    def clear(self, vhost: str, name: str) -> None:
        """Delete a policy, and undo its effects."""
        policy = self.get(vhost, name)
        self._table.remove((vhost, name))
        self._changed(vhost, [policy])

    def forget_vhost(self, vhost: str) -> None:
        """Delete the policies of a virtual host, which is deleted itself."""
        for policy in self.list(vhost):
            self._table.remove((vhost, policy.name))
        self._sorted.pop(vhost, None)

    def find(self, vhost: str, target: PolicyTarget, name: str) -> Policy | None:
        """The policy that counts for a queue or an exchange."""
        policies = self._sorted.get(vhost)
        if policies is None:
            policies = self._sorted[vhost] = sorted(self.list(vhost), key=lambda p: -p.priority)
        return next((policy for policy in policies if policy.matches(target, name)), None)

    def _changed(self, vhost: str, policies: Sequence[Policy]) -> None:
        self._sorted.pop(vhost, None)
        self._broker.vhosts[vhost].effects.apply(policies)


def effective_policy(
    broker: Broker, vhost: str, target: PolicyTarget, name: str
) -> Mapping[str, Any]:
    """The combined values of the policy and the operator policy that count for a queue or an exchange."""
    policy = broker.policies.find(vhost, target, name)
    operator = broker.operator_policies.find(vhost, target, name)
    if operator is None:
        return {} if policy is None else policy.definition
    return merge_operator({} if policy is None else policy.definition, operator.definition)


def _read_policy(table: Mapping[str, Any]) -> Policy:
    return Policy(
        table["vhost"],
        table["name"],
        table["pattern"],
        table["definition"],
        table["priority"],
        table["apply-to"],
    )
