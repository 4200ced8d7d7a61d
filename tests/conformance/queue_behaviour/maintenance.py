"""Browsing, purging, pruning, deleting, options and statistics."""

from __future__ import annotations

from datetime import timedelta

import pytest

from headgate.errors import DatabaseClosed, QueueNotFound, QueueOptionsError
from headgate.message import Message
from headgate.queues.engine import State
from headgate.queues.sql.delete import QueueDeletion
from tests.conformance.queue_behaviour.base import MINUTE, SECOND, QueueFixtures, payloads


class MaintenanceBehaviour(QueueFixtures):
    def test_peek_changes_nothing(self, orders):
        orders.publish(b"a")
        assert [s.message.payload for s in orders.peek()] == [b"a"]
        assert [s.attempts for s in orders.peek()] == [0]
        assert [d.attempts for d in orders.claim()] == [1]

    def test_browse_shows_every_state_by_id(self, orders):
        orders.publish(b"leased", priority=9)
        orders.claim()
        orders.publish(b"ready")
        orders.publish(b"delayed", delay=MINUTE)
        assert [(s.message.payload, s.state) for s in orders.browse(page=2)] == [
            (b"leased", State.LEASED),
            (b"ready", State.READY),
            (b"delayed", State.DELAYED),
        ]
        assert [s.message.payload for s in orders.browse(State.DELAYED)] == [b"delayed"]

    def test_the_latest_are_the_last_by_id_in_one_state_or_all(self, orders):
        ids = [orders.publish(bytes([i])) for i in range(5)]
        orders.publish(b"delayed", delay=timedelta(hours=1))
        assert [s.id for s in orders.latest(3, state=State.READY)] == ids[:1:-1]
        assert [s.id for s in orders.latest(3, before=ids[2])] == [ids[1], ids[0]]
        assert orders.latest(1)[0].message.payload == b"delayed"

    def test_browse_with_a_filter_reads_until_a_page_is_full(self, orders):
        orders.publish_many(Message(b"%d" % at, headers={"n": at}) for at in range(300))
        found = [s.message.payload for s in orders.browse(filter="n >= 290", page=3)]
        assert found == [b"%d" % at for at in range(290, 300)]

    def test_purge_deletes_ready_and_delayed_messages_only(self, orders):
        orders.publish(b"leased", priority=9)
        [held] = orders.claim()
        orders.publish(b"ready")
        orders.publish(b"delayed", delay=MINUTE)
        assert orders.purge() == 2
        held.ack()
        assert list(orders.browse()) == []

    def test_purge_of_one_state_deletes_that_state(self, orders):
        orders.publish_many([b"a", b"b"])
        orders.claim()[0].nack(requeue=False)
        assert orders.purge(State.DEAD) == 1
        assert payloads(orders.claim(5)) == [b"b"]

    def test_filter_headers_that_differ_only_in_case_are_distinct(self, db):
        queue = db.queue("cases", filter_headers=["Type", "type"])
        queue.publish(b"upper", headers={"Type": "a"})
        queue.publish(b"lower", headers={"type": "a"})
        queue.publish(b"TYPE", headers={"TYPE": "a"})
        queue.index_add("TYPE")
        for name, wanted in (("Type", b"upper"), ("type", b"lower"), ("TYPE", b"TYPE")):
            assert payloads(queue.claim(5, filter=f"{name} = 'a'")) == [wanted]

    def test_prune_deletes_old_messages(self, db, time):
        queue = db.queue("kept", archive=True)
        queue.publish_many([b"acked", b"old", b"held"])
        queue.claim(1)[0].ack()
        time.advance(timedelta(days=2))
        queue.publish(b"new")
        queue.claim(1, filter="sys.timestamp > 0")
        assert queue.prune(timedelta(days=1)) == 2
        assert [s.message.payload for s in queue.archived()] == []
        assert {s.message.payload for s in queue.browse()} == {b"old", b"new"}

    def test_an_archive_keeps_acked_messages(self, db):
        queue = db.queue("kept", archive=True)
        queue.publish_many([b"a", b"b"])
        first, second = queue.claim(2)
        first.ack()
        queue.ack_and_claim([second])
        assert [s.message.payload for s in queue.archived(page=1)] == [b"a", b"b"]
        assert list(queue.browse()) == []

    def test_one_or_all_dead_letters_can_be_requeued(self, orders):
        orders.publish_many([b"a", b"b", b"c"])
        for delivery in orders.claim(3):
            delivery.nack(requeue=False)
        dead = list(orders.dead())
        assert orders.requeue([dead[1].id, 999]) == 1
        [delivery] = orders.claim(5)
        assert (delivery.message.payload, delivery.attempts) == (b"b", 1)
        assert orders.requeue() == 2
        assert list(orders.dead()) == []

    def test_claims_from_a_paused_queue_find_nothing_and_publishing_goes_on(self, orders):
        orders.pause()
        orders.publish(b"a")
        assert orders.claim() == []
        orders.resume()
        assert payloads(orders.claim()) == [b"a"]

    def test_a_deleted_queue_is_gone_with_everything_in_it(self, db, orders):
        orders.publish(b"a")
        db.delete("orders")
        with pytest.raises(QueueNotFound, match="orders"):
            db.find("orders")
        with pytest.raises(QueueNotFound):
            orders.publish(b"b")
        assert db.queue("orders").claim() == []

    def test_queues_are_listed_with_their_options(self, db, orders):
        db.queue("b", archive=True)
        found = {info.name: info.options for info in db.queues()}
        assert found["orders"].filter_headers == ("type", "region")
        assert found["orders"].max_attempts == 3
        assert found["b"].archive

    def test_a_queue_keeps_the_options_that_are_left_out(self, db, orders):
        again = db.queue("orders", max_attempts=9)
        assert again.info.options.max_attempts == 9
        assert again.info.options.filter_headers == ("type", "region")
        assert again.info.id == orders.info.id

    def test_a_header_name_that_cannot_be_indexed_is_refused(self, db):
        with pytest.raises(QueueOptionsError, match="a b"):
            db.queue("q", filter_headers=["a b"])
        assert db.queues() == []

    def test_statistics_count_the_messages_in_each_state(self, orders, time):
        orders.publish_many([b"a", b"b", b"c", b"d"])
        first, second = orders.claim(2)
        first.nack(requeue=False)
        second.nack(delay=MINUTE)
        orders.claim(1)
        time.advance(5 * SECOND)
        stats = orders.stats()
        assert (stats.ready, stats.delayed, stats.leased, stats.dead) == (1, 1, 1, 1)
        assert stats.oldest_ready_us == 5_000_000

    def test_a_closed_database_raises_database_closed(self, connect):
        database = connect()
        queue = database.queue("q")
        database.close()
        database.close()
        with pytest.raises(DatabaseClosed):
            queue.publish(b"a")


class DeletionBehaviour(QueueFixtures):
    """In a database, deleting a queue takes many transactions."""

    def test_a_queue_whose_deletion_was_interrupted_is_emptied_later(self, db, orders, monkeypatch):
        orders.publish_many([b"a", b"b"])
        orders.publish(b"c", dedup_key="k")

        def killed(deletion):
            raise ZeroDivisionError
            yield

        with monkeypatch.context() as patched:
            patched.setattr(QueueDeletion, "finish", killed)
            with pytest.raises(ZeroDivisionError):
                db.delete("orders")
        everything = db.subscription("all", pattern="#", start="first")
        assert len(list(everything.browse())) == 3  # it had not been deleted yet
        db.delete("all")
        db.queue("others")
        assert list(db.subscription("all", pattern="#", start="first").browse()) == []
