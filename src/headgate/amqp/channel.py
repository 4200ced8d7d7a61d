"""A channel: its methods, its publishes that wait for a confirm, its deliveries that are not acknowledged."""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from headgate.amqp.confirms import AwaitedCommit
from headgate.amqp.consumer import ChannelConsumer, ReplyConsumer
from headgate.amqp.content import Content
from headgate.amqp.deliveries import Unacked, count_off, sent_content, settled
from headgate.amqp.properties import REPLY_TO
from headgate.amqp.publish import ArrivingMessage, Publish, check_content
from headgate.broker import (
    BrokerQueue,
    ChannelTraffic,
    NotAllowed,
    NotFound,
    NotImplementedHere,
    PreconditionFailed,
    QueueEntry,
    Route,
    carbon_keys,
)

if TYPE_CHECKING:
    from headgate.amqp.connection import Connection


class Channel:
    """One channel of a connection. Methods are named `on_<class>_<method>` and take the arguments of AMQP."""

    def __init__(self, connection: Connection, number: int) -> None:
        self.connection, self.number = connection, number
        self.vhost = connection.vhost
        self.broker = connection.broker
        self.prefetch = 0  # of consumers to come
        self.prefetch_all = 0  # of the whole channel
        self.delivery_tag = 0
        self.unacked: dict[int, Unacked] = {}
        self.got = 0  # how many of them basic.get took, which no prefetch counts
        self.sent_by: deque[tuple[float, int]] = deque()  # times, and the last delivery tag at each
        self.consumers: dict[str, ChannelConsumer] = {}
        self.is_closing = False
        self.arriving: ArrivingMessage | None = None  # a publish whose content is incomplete
        self.is_confirming = False
        self.published = 0  # publishes since confirm.select, or since the channel was opened
        self.confirmed = 0
        self.refused: list[int] = []  # publishes that a queue refused, to be nacked in their turn
        self.waits_for_store = False  # something published in this turn is to be stored
        # Commits that publishes of earlier turns wait for, in the order of these.
        self.commits: deque[AwaitedCommit] = deque()
        self.transaction: list[Callable[[], bool | None]] | None = None
        self._settling: set[int] = set()  # deliveries that the transaction acknowledges or rejects
        self.traffic = ChannelTraffic()
        self._permissions = connection.permissions
        self._last_queue = ""
        self._replies: ReplyConsumer | None = None

    def send(self, name: str, *values: Any) -> None:
        self.connection.send(self.number, name, *values)

    def close(self) -> None:
        """Cancel the consumers, and requeue unacknowledged messages."""
        for consumer in list(self.consumers.values()):
            consumer.queue.remove_consumer(consumer)
        self.consumers.clear()
        if self._replies is not None:
            del self.vhost.replies[self._replies.name]
            self._replies = None
        self._requeue_all(failed=True)

    # ---- publishing

    def published_message(self, publish: Publish, content: Content) -> None:
        """Publish a message that has arrived completely."""
        if self.transaction is not None:
            check_content(content, self.connection.login)
            addressed = self._address_replies(content)
            self.transaction.append(lambda: self._accept(publish, addressed))
            return
        self._accept(publish, content)

    def _accept(self, publish: Publish, content: Content) -> bool:
        """Give a message to its queues; False if one of them refused it."""
        route = publish.route
        queues: Sequence[BrokerQueue] | None = route.queues
        route.traffic.count += 1
        if content.properties.is_special or route.is_delayed:
            queues, content = self._find_special_queues(route, content)
        elif queues is None:
            queues = self.vhost.queues_by_properties(content, route)
            route.traffic.routed += len(queues)
        if queues and len(queues) == 1:
            accepted = queues[0].publish(content)
        elif queues:
            accepted = self.vhost.deliver(content, queues)
        elif queues is not None:
            accepted = self._unroutable(publish, content)
        else:  # it is held back, and that is to be stored
            queues, accepted, self.waits_for_store = (), True, True
        if content.persistent and not self.waits_for_store:
            self.waits_for_store = any(queue.durable for queue in queues)
        self.published += 1
        if self.is_confirming:
            if not accepted:
                self.refused.append(self.published)
            self.connection.confirm(self)
        return accepted

    def _unroutable(self, publish: Publish, content: Content) -> bool:
        route = publish.route
        if route.exchange == "" and route.routing_key.startswith(REPLY_TO):
            consumer = self.vhost.replies.get(route.routing_key)
            if consumer is not None:
                consumer.deliver((QueueEntry(0, content, 0, None),))
                if not publish.mandatory:  # if it is, it comes back: no queue has it
                    return True
        if publish.mandatory:
            self.traffic.returned += 1
            route.traffic.returned += 1
            self.send("basic.return", 312, "NO_ROUTE", route.exchange, route.routing_key)
            self.connection.write(content.frames(self.number, self.connection.frame_max))
        else:
            self.traffic.dropped += 1
            route.traffic.dropped += 1
        return True

    def _find_special_queues(
        self, route: Route, content: Content
    ) -> tuple[Sequence[BrokerQueue] | None, Content]:
        """The queues of a message that needs more than its route, and the message as they get it; None if it is delayed."""
        headers = content.headers
        if content.properties.is_special:
            check_content(content, self.connection.login)
            content = self._address_replies(content)
        if route.is_delayed and self.vhost.hold_back(content):
            return None, content
        carbon, found = carbon_keys(headers), route.queues
        if carbon or found is None:
            keys = (route.routing_key, *carbon)
            self._permissions.check_topics("write", route.exchange, carbon)
            found = self.vhost.queues_for(content, route.exchange, keys)
            route.traffic.routed += 0 if route.queues else len(found)
        if "BCC" in headers:
            content = content.with_headers({}, removed=("BCC",))
        return found, content

    def _address_replies(self, content: Content) -> Content:
        """Replace the pseudo-queue in `reply_to` by the address of this channel's direct replies."""
        if content.properties.values.get("reply_to") != REPLY_TO:
            return content
        if self._replies is None:
            raise PreconditionFailed("fast reply consumer does not exist")
        return content.with_reply_to(self._replies.name)

    # ---- channel, confirm, tx

    def on_channel_flow(self, active: bool) -> None:
        if not active:
            raise NotImplementedHere("active=false")
        self.send("channel.flow-ok", active)

    def on_channel_close(self, *_: Any) -> None:
        self.close()
        self.connection.forget(self)
        self.send("channel.close-ok")

    def on_confirm_select(self, nowait: bool) -> None:
        if self.transaction is not None:
            raise PreconditionFailed("cannot switch from tx to confirm mode")
        if not self.is_confirming:
            self.is_confirming = True
            self.traffic.published_before, self.published = self.published, 0
        if not nowait:
            self.send("confirm.select-ok")

    def on_tx_select(self) -> None:
        if self.is_confirming:
            raise PreconditionFailed("cannot switch from confirm to tx mode")
        if self.transaction is None:
            self.transaction = []
        self.send("tx.select-ok")

    def on_tx_commit(self) -> None:
        steps = self._open_transaction()
        self.transaction = None
        self._settling.clear()
        try:
            refused = [step for step in steps if step() is False]
        finally:
            self.transaction = []
        if refused:
            raise PreconditionFailed("partial tx completion")
        self.connection.after_commit(lambda: self.send("tx.commit-ok"))

    def on_tx_rollback(self) -> None:
        self._open_transaction()
        self.transaction = []
        self._settling.clear()
        self.send("tx.rollback-ok")

    def _open_transaction(self) -> list[Callable[[], bool | None]]:
        if self.transaction is None:
            raise PreconditionFailed("channel is not transactional")
        return self.transaction

    # ---- exchanges

    def on_exchange_declare(
        self, _: int, name: str, type: str, passive: bool, durable: bool, auto_delete: bool,
        internal: bool, nowait: bool, arguments: dict[str, Any],
    ) -> None:  # fmt: skip
        if passive:
            self.vhost.find_declared_exchange(name)
        else:
            self._permissions.check_declaration(
                "exchange", name, arguments.get("alternate-exchange")
            )
            self.vhost.declare_exchange(
                name,
                type,
                durable=durable,
                auto_delete=auto_delete,
                internal=internal,
                arguments=arguments,
            )
        self._answer(nowait, "exchange.declare-ok")

    def on_exchange_delete(self, _: int, name: str, if_unused: bool, nowait: bool) -> None:
        self._permissions.check_deletion("exchange", name)
        self.vhost.delete_exchange(name, if_unused=if_unused)
        self._answer(nowait, "exchange.delete-ok")

    def on_exchange_bind(
        self,
        _: int,
        destination: str,
        source: str,
        key: str,
        nowait: bool,
        arguments: dict[str, Any],
    ) -> None:
        self._permissions.check_binding("exchange", destination, source, key)
        self.vhost.bind(source, destination, key, arguments, to_exchange=True)
        self._answer(nowait, "exchange.bind-ok")

    def on_exchange_unbind(
        self,
        _: int,
        destination: str,
        source: str,
        key: str,
        nowait: bool,
        arguments: dict[str, Any],
    ) -> None:
        self._permissions.check_binding("exchange", destination, source, key)
        self.vhost.unbind(source, destination, key, arguments, to_exchange=True)
        self._answer(nowait, "exchange.unbind-ok")

    # ---- queues

    def on_queue_declare(
        self, _: int, name: str, passive: bool, durable: bool, exclusive: bool, auto_delete: bool,
        nowait: bool, arguments: dict[str, Any],
    ) -> None:  # fmt: skip
        if name.startswith(REPLY_TO):  # every declaration of such a name is passive
            if name != REPLY_TO and name not in self.vhost.replies:
                raise NotFound("queue", name, self.vhost.name)
            self.send("queue.declare-ok", name, 0, 1)
            return
        if passive:
            queue = self.vhost.find_queue(name, self.connection)
            queue.note_use()
        else:
            self._permissions.check_declaration(
                "queue", name, arguments.get("x-dead-letter-exchange")
            )
            queue = self.vhost.declare_queue(
                name,
                durable=durable,
                exclusive=exclusive,
                auto_delete=auto_delete,
                arguments=arguments,
                connection=self.connection,
            )
        self._last_queue = queue.name
        self._answer(nowait, "queue.declare-ok", queue.name, len(queue), len(queue.consumers))

    def on_queue_bind(
        self, _: int, name: str, exchange: str, key: str, nowait: bool, arguments: dict[str, Any]
    ) -> None:
        queue_name, key = self._expand(name, key)
        self._permissions.check_binding("queue", queue_name, exchange, key)
        if queue_name in self.vhost.queues:
            self._find_queue(queue_name)  # which may be another connection's
        self.vhost.bind(exchange, queue_name, key, arguments)
        self._answer(nowait, "queue.bind-ok")

    def on_queue_unbind(
        self, _: int, name: str, exchange: str, key: str, arguments: dict[str, Any]
    ) -> None:
        queue_name, key = self._expand(name, key)
        self._permissions.check_binding("queue", queue_name, exchange, key)
        if queue_name in self.vhost.queues:
            self._find_queue(queue_name)
        self.vhost.unbind(exchange, queue_name, key, arguments)
        self.send("queue.unbind-ok")

    def on_queue_purge(self, _: int, name: str, nowait: bool) -> None:
        self._permissions.check("read", "queue", self._queue_name(name))
        count = self._find_queue(name).purge()
        self._answer(nowait, "queue.purge-ok", count)

    def on_queue_delete(
        self, _: int, name: str, if_unused: bool, if_empty: bool, nowait: bool
    ) -> None:
        count = 0
        self._permissions.check_deletion("queue", self._queue_name(name))
        if self._queue_name(name) in self.vhost.queues:
            queue = self._find_queue(name)
            count = self.vhost.delete_queue(queue, if_unused=if_unused, if_empty=if_empty)
        self._answer(nowait, "queue.delete-ok", count)

    # ---- consuming

    def on_basic_qos(self, size: int, count: int, for_channel: bool) -> None:
        if size:
            raise NotImplementedHere(f"prefetch_size!=0 ({size})")
        if for_channel:
            self.prefetch_all = count
        else:
            self.prefetch, self.prefetch_all = count, 0  # this ends a limit of the whole channel
        self.broker.dirty.update(consumer.queue for consumer in self.consumers.values())
        self.send("basic.qos-ok")

    def on_basic_consume(
        self, _: int, name: str, tag: str, no_local: bool, no_ack: bool, exclusive: bool,
        nowait: bool, arguments: dict[str, Any],
    ) -> None:  # fmt: skip
        if tag in self.consumers:
            raise NotAllowed(f"attempt to reuse consumer tag '{tag}'")
        tag = tag or f"amq.ctag-{secrets.token_urlsafe(16)}"
        if name == REPLY_TO:
            self._consume_replies(tag, no_ack)
        else:
            self._permissions.check("read", "queue", self._queue_name(name))
            queue = self._find_queue(name)
            consumer = ChannelConsumer(
                self, tag, queue, no_ack=no_ack, exclusive=exclusive, arguments=arguments
            )
            queue.add_consumer(consumer)
            self.consumers[tag] = consumer
        self._answer(nowait, "basic.consume-ok", tag)

    def _consume_replies(self, tag: str, no_ack: bool) -> None:
        if not no_ack:
            raise PreconditionFailed("reply consumer cannot acknowledge")
        if self._replies is not None:
            raise PreconditionFailed("reply consumer already set")
        self._replies = ReplyConsumer(self, tag, f"{REPLY_TO}.{secrets.token_urlsafe(24)}")
        self.vhost.replies[self._replies.name] = self._replies

    def on_basic_cancel(self, tag: str, nowait: bool) -> None:
        self._answer(nowait, "basic.cancel-ok", tag)
        consumer = self.consumers.pop(tag, None)
        if consumer is not None:
            consumer.queue.remove_consumer(consumer)
        elif self._replies is not None and self._replies.tag == tag:
            del self.vhost.replies[self._replies.name]
            self._replies = None

    def on_basic_get(self, _: int, name: str, no_ack: bool) -> None:
        self._permissions.check("read", "queue", self._queue_name(name))
        queue = self._find_queue(name)
        entry = queue.get()
        if entry is None:
            self.traffic.get_empty += 1
            self.send("basic.get-empty", "")
            return
        self.delivery_tag += 1
        if no_ack:
            queue.ack(entry)
            queue.traffic.get -= 1
            queue.traffic.get_no_ack += 1
            self.traffic.get_no_ack += 1
        else:
            self.traffic.get += 1
            self.unacked[self.delivery_tag] = Unacked(entry, None, queue)
            self.got += 1
            self.connection.listener.timeouts.use(queue.definition.consumer_timeout)
        content = sent_content(entry, queue)
        self.send(
            "basic.get-ok", self.delivery_tag, entry.redelivered, content.exchange,
            content.routing_key, len(queue),
        )  # fmt: skip
        self.connection.write(content.frames(self.number, self.connection.frame_max))

    def notify_cancel(self, consumer: ChannelConsumer) -> None:
        """The queue of a consumer was deleted."""
        self.consumers.pop(consumer.tag, None)
        if self.connection.peer_can("consumer_cancel_notify"):
            self.send("basic.cancel", consumer.tag, True)

    # ---- settling

    def on_basic_ack(self, tag: int, multiple: bool) -> None:
        self._settle(tag, multiple, lambda sent: sent.queue.ack(sent.entry))

    def on_basic_reject(self, tag: int, requeue: bool) -> None:
        self._settle(tag, False, None if requeue else self._reject)

    def on_basic_nack(self, tag: int, multiple: bool, requeue: bool) -> None:
        self._settle(tag, multiple, None if requeue else self._reject, failed=False)

    def _reject(self, sent: Unacked) -> None:
        self.traffic.reject += 1
        sent.queue.reject(sent.entry)

    def on_basic_recover(self, requeue: bool) -> None:
        self.on_basic_recover_async(requeue)
        self.send("basic.recover-ok")

    def on_basic_recover_async(self, requeue: bool) -> None:
        if not requeue:
            raise NotImplementedHere("requeue=false")
        self._requeue_all(failed=False)

    def _settle(
        self,
        tag: int,
        multiple: bool,
        settle: Callable[[Unacked], None] | None,
        failed: bool = True,
    ) -> None:
        """Remove deliveries from the unacknowledged ones, and settle each by `settle`; None requeues them."""
        if self.transaction is None:
            self._settle_all(settled(self.unacked, tag, multiple), settle, failed)
            return
        # They stay not acknowledged until the commit, and cannot be acknowledged twice.
        left = {n: one for n, one in self.unacked.items() if n not in self._settling}
        chosen = settled(left, tag, multiple)
        self._settling.update(number for number, _ in chosen)
        self.transaction.append(lambda: self._settle_all(chosen, settle, failed))

    def _settle_all(
        self,
        sent: Sequence[tuple[int, Unacked]],
        settle: Callable[[Unacked], None] | None,
        failed: bool,
    ) -> None:
        back: dict[BrokerQueue, list[QueueEntry]] = {}
        for number, one in sent:
            if self.unacked.pop(number, None) is None:
                continue
            count_off(self, one)
            if one.queue.is_deleted:
                continue
            if settle is not None:
                settle(one)
            else:
                back.setdefault(one.queue, []).append(one.entry)
        for queue, entries in back.items():
            self.traffic.requeue += len(entries)
            queue.requeue(entries, failed=failed)
        if self.prefetch_all:
            self.broker.dirty.update(consumer.queue for consumer in self.consumers.values())

    def _requeue_all(self, failed: bool) -> None:
        self._settle_all(list(self.unacked.items()), None, failed)

    # ---- inside

    def _queue_name(self, name: str) -> str:
        if name:
            return name
        if not self._last_queue:
            raise _NoQueue()
        return self._last_queue

    def _expand(self, name: str, key: str) -> tuple[str, str]:
        """Queue and routing key of a binding; without either it is the last queue, under its name."""
        queue_name = self._queue_name(name)
        return queue_name, key if name or key else queue_name

    def _find_queue(self, name: str) -> BrokerQueue:
        return self.vhost.find_queue(self._queue_name(name), self.connection)

    def _answer(self, nowait: bool, name: str, *values: Any) -> None:
        if not nowait:
            self.send(name, *values)


class _NoQueue(NotFound):
    def __init__(self) -> None:
        Exception.__init__(self, "no previously declared queue")
