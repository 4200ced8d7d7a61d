"""The broker: virtual hosts over one store, one clock and one turn after another.

Everything happens in one thread. A protocol calls the verbs of virtual hosts and queues while it reads its sockets, and
then `flush`: ready messages go to consumers, connections write, and the store is asked to commit. What is called when
a commit is done runs in a turn of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from itertools import islice
from time import perf_counter
from typing import Any, Final, Protocol

from headgate.broker.access import AccessControl
from headgate.broker.alarms import Alarms
from headgate.broker.contract import BrokerQueue
from headgate.broker.delays import DelayedMessages
from headgate.broker.lane import AHEAD, LaneCommit, QueueLane
from headgate.broker.message import BrokerMessage
from headgate.broker.parameters import Parameters
from headgate.broker.policies import Policies
from headgate.broker.refusals import NotFound, PreconditionFailed
from headgate.broker.restart import restore
from headgate.broker.sessions import Sessions
from headgate.broker.statistics import Statistics
from headgate.broker.stored_table import StoredDefinitions, StoredTable
from headgate.broker.stream_home import StreamHome
from headgate.broker.stream_queue import StreamQueue
from headgate.broker.traffic import OpenConnection
from headgate.broker.users import check_name
from headgate.broker.vhost import VirtualHost
from headgate.broker.vhost_settings import VhostSettings, read_settings
from headgate.clock import now_us
from headgate.message import Message
from headgate.store import Store

DEFAULT_VHOST: Final = "/"
SLICE_S: Final = 0.004  # how long filters may examine messages in one turn
BOUND: Final = 20_000  # entries of a lane that stay in memory
BOUND_BYTES: Final = 64 << 20  # of message bodies of a queue that stay in memory
STEPS: Final = 400  # steps of long work that are taken in one turn
BACKLOG_BYTES: Final = 16 << 20  # bytes that may wait for a commit before publishers are stopped


class Codec(Protocol):
    """How the protocol turns messages and tables into bytes and back."""

    def decode(self, head: bytes, body: bytes) -> BrokerMessage:
        """Build the message from the two parts of its record."""

    def encode_table(self, table: Mapping[str, Any]) -> bytes:
        """Arguments with values of any type, as bytes."""

    def to_stream(self, message: BrokerMessage) -> Message:
        """The message as a stream stores it; in any thread."""

    def from_stream(self, offset: int, message: Message) -> BrokerMessage:
        """The message of a stream as its consumers get it; in any thread."""

    def decode_table(self, data: bytes) -> dict[str, Any]:
        """The inverse of `encode_table`."""


class Flushed(Protocol):
    """A connection, which is asked at the end of a turn to write what it has collected."""

    def flush(self) -> None:
        """Write what was collected in this turn."""


class Broker:
    """Virtual hosts over a store. `call_later` calls a function in this thread after some seconds."""

    def __init__(
        self,
        store: Store,
        codec: Codec,
        call_later: Callable[[float, Callable[[], None]], object],
        *,
        now_ms: Callable[[], int] | None = None,
        bound: int = BOUND,
        stream_home: StreamHome | None = None,
    ) -> None:
        self.store, self.codec, self.bound = store, codec, bound
        self.bound_bytes = BOUND_BYTES if bound < sys.maxsize else sys.maxsize
        self.stream_home = stream_home  # without one there are no stream queues
        self.published_streams: set[StreamQueue] = set()  # in this turn
        self.dirty: set[BrokerQueue] = set()  # queues that may have something to deliver
        self.changed: set[BrokerQueue] = set()  # queues whose numbers statistics have not read
        self.connections: dict[str, OpenConnection] = {}
        self.writing: set[Flushed] = set()  # connections that have something to write
        # Lanes with rows or deliveries that are not part of any commit yet.
        self.touched: set[QueueLane] = set()
        self.vhosts: dict[str, VirtualHost] = {}
        self._leaving: set[str] = set()  # virtual hosts whose contents are being deleted
        self._call_later = call_later
        self.now = now_ms or (lambda: now_us() // 1000)
        self._next_lane = 1
        # Whether a message that a consumer only gives back counts as a delivery that failed; not since RabbitMQ 4.3.
        self.counts_all_returns = True
        self.consumer_timeout_ms: int | None = None  # of deliveries that are not acknowledged
        self.slice_s, self._slice_ends = SLICE_S, 0.0
        self.alarms = Alarms()
        self.statistics = Statistics(self)
        self._vhost_settings: StoredTable[str, VhostSettings] = StoredTable(
            store, "vhost", asdict, read_settings
        )
        self.access = AccessControl(self)
        self.sessions = Sessions(self)
        self.parameters = Parameters(self)
        self.policies = Policies(self)
        self.operator_policies = Policies(self, of_operator=True)
        store.before_commit = self._write_marks
        contents = store.read()
        self._restore_operators(contents.definitions)
        restore(self, contents)
        self.delays = DelayedMessages(self, contents.delayed)

    def _restore_operators(self, definitions: StoredDefinitions) -> None:
        """Take over what operators set in an earlier run; a new store begins with one virtual host and one user."""
        for table in (
            self._vhost_settings,
            self.access,
            self.parameters,
            self.policies,
            self.operator_policies,
        ):
            table.restore(definitions)
        for name, settings in self._vhost_settings.items():
            self.vhosts[name] = VirtualHost(self, name, settings)
        if not self.vhosts and not self.access.users:
            self.add_vhost(DEFAULT_VHOST)
            self.access.add_guest()

    # ---- virtual hosts

    def find_vhost(self, name: str) -> VirtualHost:
        vhost = self.vhosts.get(name)
        if vhost is None:
            raise NotFound("vhost", name)
        return vhost

    def add_vhost(self, name: str, settings: VhostSettings | None = None) -> VirtualHost:
        """Add a virtual host; one that is there gets these settings, if any are given."""
        check_name("vhost", name)
        if name in self._leaving:
            raise PreconditionFailed(f"vhost '{name}' is still being deleted: try again")
        vhost = self.vhosts.get(name)
        if vhost is None:
            vhost = self.vhosts[name] = VirtualHost(self, name)
        elif settings is None:
            return vhost
        vhost.settings = settings or vhost.settings
        self._vhost_settings.put(name, vhost.settings)
        return vhost

    def delete_vhost(self, name: str) -> None:
        """Delete a virtual host and all that is in it; its connections are closed."""
        for _ in self.delete_vhost_stepwise(name):
            pass

    def delete_vhost_stepwise(self, name: str) -> Iterator[None]:
        """Delete a virtual host in steps. It is gone for clients after the first, and from the store after the last."""
        vhost = self.find_vhost(name)
        self.sessions.close_vhost(name, f"vhost '{name}' is deleted")
        del self.vhosts[name]
        self._leaving.add(name)
        yield from vhost.delete_contents()
        for table in (self.access, self.parameters, self.policies, self.operator_policies):
            table.forget_vhost(name)
        self._vhost_settings.remove(name)
        self._leaving.discard(name)
        self.flush()

    # ---- turns

    def flush(self) -> None:
        """End a turn: deliver, write, commit."""
        self._slice_ends = 0.0
        dirty = self.dirty
        while dirty:
            queues, self.dirty = dirty, set()
            self.changed |= queues
            for queue in queues:
                if not queue.is_deleted:
                    queue.drain()
            dirty = self.dirty
        for connection in self.writing:
            connection.flush()
        self.writing.clear()
        if self.published_streams:
            for stream in self.published_streams:
                stream.write()
                self.note_backlog(stream, stream.waiting_bytes)
            self.published_streams.clear()
        self.store.commit()
        self.note_backlog(self.store, self.store.waiting_bytes)

    def note_backlog(self, store: object, waiting_bytes: int) -> None:
        """Stop publishers while a store is behind with writing."""
        is_behind = waiting_bytes > BACKLOG_BYTES
        if is_behind or self.alarms.behind:
            self.alarms.set_behind(store, is_behind)

    def after_commit(self, call: Callable[[], None]) -> None:
        """Call a function when everything that was done so far is durable, also what this turn published to streams."""
        streams = self.published_streams
        if not streams:
            self.store.commit(call)
            return
        left = len(streams) + 1

        def note_one() -> None:
            nonlocal left
            left -= 1
            if not left:
                call()

        self.store.commit(note_one)
        for stream in streams:
            stream.after_write(note_one)

    def end_of_slice(self) -> float:
        """Until when, by `perf_counter`, filters may examine messages in this turn; they share one slice of time."""
        if not self._slice_ends:
            self._slice_ends = perf_counter() + self.slice_s
        return self._slice_ends

    def call_at(self, when_ms: int, call: Callable[[], None]) -> None:
        """Call a function at a time of the broker's clock, in a turn of its own."""

        def run() -> None:
            call()
            self.flush()

        self._call_later(max(0, when_ms - self.now()) / 1000, run)

    def take_steps(self, steps: Iterator[object], then: Callable[[], None] | None = None) -> None:
        """Take the first steps of long work now, the others in later turns; everything else goes on between them."""
        if sum(1 for _ in islice(steps, STEPS)) == STEPS:
            self.call_at(0, lambda: self.take_steps(steps, then))
        elif then is not None:
            then()

    def call_after(self, seconds: float, call: Callable[[], None]) -> None:
        """Call a function that changes nothing after some seconds."""
        self._call_later(seconds, call)

    def new_lanes(self, count: int) -> int:
        """Numbers for this many lanes; return the first."""
        first = self._next_lane
        self._next_lane += count
        return first

    def reserve_lanes(self, after: int) -> None:
        """Give out only numbers above this one: lower ones are in use."""
        self._next_lane = max(self._next_lane, after + 1)

    def close(self) -> None:
        """Stop delivering, and store exactly what was delivered; after a crash, more messages count as delivered."""
        self.flush()
        for vhost in self.vhosts.values():
            for queue in vhost.queues.values():
                for lane in queue.lanes:
                    if lane.number and lane.marking > (exact := max(lane.wanted, lane.crashed_at)):
                        self.store.mark(lane.number, exact)
                    if lane.unused_notes:
                        self.store.forget_notes(lane.number, lane.unused_notes)
        self.store.commit()
        self.access.close()
        self._close_streams()

    def _close_streams(self) -> None:
        """Store what was published to stream queues, and close them."""
        if self.stream_home is None:
            return
        self.stream_home.close()
        for vhost in self.vhosts.values():
            for queue in vhost.queues.values():
                queue.close()
        self.stream_home.remove_temporary()

    def want_mark(self, lane: QueueLane, position: int) -> None:
        """Store, before entries up to this one are delivered, that they may have been."""
        lane.wanted = max(lane.wanted, position)
        lane.is_waiting = True
        self.touched.add(lane)
        if lane.marking < lane.wanted:
            self.write_mark(lane)

    def write_mark(self, lane: QueueLane) -> None:
        """Move the mark of what may have been delivered well ahead, with the next commit."""
        lane.marking = lane.wanted + AHEAD
        self.store.mark(lane.number, lane.marking)

    def _write_marks(self) -> Callable[[], None]:
        """Move all marks well ahead with this commit, so that deliveries need not wait for the next one."""
        lanes = []
        for lane in self.touched:
            if lane.wanted >= 0 and lane.wanted + AHEAD // 2 > lane.marking:
                self.write_mark(lane)
            lanes.append((lane, lane.commit_begins()))
        self.touched.clear()
        return lambda: self._committed(lanes)

    def _committed(self, lanes: list[tuple[QueueLane, LaneCommit]]) -> None:
        for lane, commit in lanes:
            lane.commit_done(*commit)
            if lane.is_waiting:
                lane.is_waiting = False
                self.dirty.add(lane.queue)
        self.flush()
