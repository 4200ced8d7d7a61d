"""What a queue does, written once; every engine takes the same tests, see test_queue_behaviour.py."""

from __future__ import annotations

from tests.conformance.queue_behaviour.claiming import ClaimBehaviour, GroupBehaviour
from tests.conformance.queue_behaviour.consuming import ConsumerBehaviour
from tests.conformance.queue_behaviour.door import DoorBehaviour
from tests.conformance.queue_behaviour.filtering import ExaminedBehaviour, FilterBehaviour
from tests.conformance.queue_behaviour.handles import HandleBehaviour
from tests.conformance.queue_behaviour.publishing import PublishBehaviour
from tests.conformance.queue_behaviour.pushing import PushBehaviour
from tests.conformance.queue_behaviour.subscribing import SubscriptionBehaviour
from tests.conformance.queue_behaviour.surroundings import Connect
from tests.conformance.queue_behaviour.tidying import DroppingBehaviour, TidyingBehaviour

__all__ = ["Connect", "DatabaseBehaviour", "QueueBehaviour"]


class QueueBehaviour(
    PublishBehaviour,
    ClaimBehaviour,
    FilterBehaviour,
    ExaminedBehaviour,
    GroupBehaviour,
    TidyingBehaviour,
    SubscriptionBehaviour,
    HandleBehaviour,
    ConsumerBehaviour,
    PushBehaviour,
):
    """All of it."""


class DatabaseBehaviour(QueueBehaviour, DoorBehaviour, DroppingBehaviour):
    """All of it, and what only a database does."""
