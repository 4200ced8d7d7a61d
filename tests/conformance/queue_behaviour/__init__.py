"""The behaviour of queues, written once: every engine runs these tests, see test_queue_behaviour.py."""

from __future__ import annotations

from tests.conformance.queue_behaviour.base import Connect
from tests.conformance.queue_behaviour.callbacks import CallbackBehaviour
from tests.conformance.queue_behaviour.claims import AsideBehaviour, ClaimBehaviour, GroupBehaviour
from tests.conformance.queue_behaviour.consumers import ConsumerBehaviour
from tests.conformance.queue_behaviour.filters import FilterBehaviour, ScanBehaviour
from tests.conformance.queue_behaviour.inbox import InboxBehaviour
from tests.conformance.queue_behaviour.maintenance import DeletionBehaviour, MaintenanceBehaviour
from tests.conformance.queue_behaviour.older_handles import OlderHandleBehaviour
from tests.conformance.queue_behaviour.policies import PolicyBehaviour
from tests.conformance.queue_behaviour.publish import PublishBehaviour
from tests.conformance.queue_behaviour.schedules import ScheduleBehaviour
from tests.conformance.queue_behaviour.subscriptions import SubscriptionBehaviour

__all__ = ["AsideBehaviour", "Connect", "DatabaseBehaviour", "QueueBehaviour"]


class QueueBehaviour(
    PublishBehaviour,
    ClaimBehaviour,
    FilterBehaviour,
    ScanBehaviour,
    GroupBehaviour,
    MaintenanceBehaviour,
    SubscriptionBehaviour,
    OlderHandleBehaviour,
    ConsumerBehaviour,
    CallbackBehaviour,
    ScheduleBehaviour,
    PolicyBehaviour,
):
    """What every engine does."""


class DatabaseBehaviour(QueueBehaviour, InboxBehaviour, DeletionBehaviour):
    """What every engine does, and what only a database does."""
