"""TCP cuts frames anywhere: what the broker answers does not depend on where."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from itertools import pairwise
from random import Random

import pytest

from headgate.amqp.methods import FRAME, PREAMBLE, method_frame
from headgate.amqp.properties import content_header, encode_properties
from headgate.broker import passwords
from headgate.testing import Broker
from tests.patience import PATIENCE, wait_until

Turn = tuple[bytes, int]  # what a client sends, and how many frames it waits for then

BODY = b"first part, " + b"second, " + b"third"
PARTS = (BODY[:12], BODY[12:20], BODY[20:])


def frame(kind: int, payload: bytes) -> bytes:
    return FRAME.pack(kind, 1, len(payload)) + payload + b"\xce"


def publish(size: int, *bodies: bytes, durable: bool = False) -> bytes:
    """The frames of a publish that announces a size and sends these bodies."""
    properties = {"headers": {"n": 1}, "delivery_mode": 2 if durable else 1}
    return b"".join(
        (
            method_frame(1, "basic.publish", 0, "", "cut", False, False),
            frame(2, content_header(encode_properties(properties), size)),
            *(frame(3, body) for body in bodies),
        )
    )


def login(frame_max: int = 131_072) -> list[Turn]:
    tune = method_frame(0, "connection.tune-ok", 2047, frame_max, 0)
    start = {"capabilities": {}}, "PLAIN", b"\0guest\0guest", "en_US"
    return [
        (PREAMBLE, 1),
        (method_frame(0, "connection.start-ok", *start), 1),
        (tune + method_frame(0, "connection.open", "/", "", False), 1),
        (method_frame(1, "channel.open", ""), 1),
    ]


def talk(durable: bool = False) -> list[Turn]:
    """A whole conversation: whatever a client does to a queue and its messages."""
    flags = (
        False,
        durable,
        False,
        False,
        False,
    )  # passive, durable, exclusive, auto-delete, nowait
    return [
        *login(),
        (method_frame(1, "queue.declare", 0, "cut", *flags, {"x-max-length": 10}), 1),
        (method_frame(1, "confirm.select", False), 1),
        (publish(len(BODY), *PARTS, durable=durable), 1),
        (publish(0, durable=durable), 1),
        (publish(5, b"whole", durable=durable), 1),
        (FRAME.pack(8, 0, 0) + b"\xce" + method_frame(1, "basic.get", 0, "cut", False), 3),
        (method_frame(1, "basic.ack", 1, False) + method_frame(1, "basic.qos", 0, 5, False), 1),
        (method_frame(1, "basic.consume", 0, "cut", "c", False, False, False, False, {}), 1 + 2 + 3),
        (method_frame(1, "basic.ack", 3, True) + method_frame(1, "basic.cancel", "c", False), 1),
        (method_frame(1, "queue.delete", 0, "cut", False, False, False), 1),
        (method_frame(1, "channel.close", 200, "", 0, 0), 1),
        (method_frame(0, "connection.close", 200, "", 0, 0), 1),
    ]  # fmt: skip


class Peer:
    """A client that sends bytes as they are, and lets the broker read each piece before the next."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._socket = socket.create_connection(("127.0.0.1", broker.port), timeout=PATIENCE)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._name = self._socket.getsockname()
        self._sent = 0

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, pieces: Sequence[bytes]) -> None:
        for piece in pieces[:-1]:
            self._socket.sendall(piece)
            self._sent += len(piece)
            wait_until(lambda: self._broker.call(self._received) == self._sent)
        self._socket.sendall(pieces[-1])
        self._sent += len(pieces[-1])

    def _received(self) -> int:
        for connection in self._broker.server._amqp._listener.connections:
            if connection.transport.get_extra_info("peername") == self._name:
                return connection.received_bytes
        return 0

    def read(self, frames: int) -> bytes:
        """The next frames."""
        found = b""
        for _ in range(frames):
            head = self._read_bytes(FRAME.size)
            found += head + self._read_bytes(FRAME.unpack(head)[2] + 1)
        return found

    def _read_bytes(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            got = self._socket.recv(size - len(found))
            assert got, f"the broker closed the connection behind {found!r}"
            found += got
        return found


def cut(data: bytes, at: Sequence[int]) -> list[bytes]:
    """The pieces of some bytes, which end at these offsets; those that are not offsets inside are no ends."""
    ends = [0, *(end for end in at if 0 < end < len(data)), len(data)]
    return [data[begin:end] for begin, end in pairwise(ends)]


def answers(broker: Broker, turns: list[Turn], at: Sequence[int] = ()) -> list[bytes]:
    """What a broker answers to each turn of a conversation whose bytes are cut at these offsets."""
    found, begin = [], 0
    with Peer(broker) as peer:
        for data, frames in turns:
            peer.send(cut(data, [offset - begin for offset in at]))
            found.append(peer.read(frames))
            begin += len(data)
    return found


def length(turns: list[Turn]) -> int:
    return sum(len(data) for data, _ in turns)


@pytest.fixture(autouse=True)
def quick_logins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every cut needs a login, and passwords are not what is cut."""
    monkeypatch.setattr(passwords, "LOG_N", 10)
    monkeypatch.setattr(passwords, "PARALLEL", 1)


@pytest.fixture(params=["memory", "store"])
def either(request: pytest.FixtureRequest, tmp_path) -> Iterator[tuple[Broker, list[Turn]]]:
    """A broker and a conversation with it: with a store, messages are persistent."""
    is_stored = request.param == "store"
    with Broker(tmp_path if is_stored else None) as broker:
        yield broker, talk(durable=is_stored)


def test_one_byte_at_a_time(either) -> None:
    broker, turns = either
    assert answers(broker, turns, range(length(turns))) == answers(broker, turns)


def test_two_pieces_cut_at_any_byte(either, full) -> None:
    broker, turns = either
    whole = answers(broker, turns)
    is_quick = full or not broker.server.options.data  # a commit takes its time
    for offset in range(1, length(turns), 1 if is_quick else 7):
        assert answers(broker, turns, [offset]) == whole, offset


def test_several_pieces(either, seed, full) -> None:
    broker, turns = either
    rng = Random(seed)
    whole = answers(broker, turns)
    for _ in range(500 if full else 20):
        at = sorted(rng.sample(range(length(turns)), rng.choice([2, 5, 50])))
        assert answers(broker, turns, at) == whole, at


DECLARE = method_frame(1, "queue.declare", 0, "cut", False, False, False, False, False, {})
PUBLISH = method_frame(1, "basic.publish", 0, "", "cut", False, False)
SHORT = b"\0\x3c\0\0" + bytes(8)  # a content header without the flags of its properties


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(publish(5, b"whole")[:-1] + b"\0", id="a body that does not end"),
        pytest.param(publish(4, b"whole"), id="more body than announced"),
        pytest.param(publish(9, b"whole") + PUBLISH, id="less body than announced"),
        pytest.param(publish(5_000, bytes(5_000)), id="a body beyond the largest frame"),
        pytest.param(publish(1 << 40, b"whole"), id="a body beyond the largest message"),
        pytest.param(PUBLISH + frame(2, SHORT) + bytes(20), id="a header without flags"),
        pytest.param(PUBLISH + frame(2, SHORT + b"\xff"), id="a header with half the flags"),
        pytest.param(PUBLISH + frame(2, SHORT + b"\x80\0"), id="a header without its properties"),
        pytest.param(PUBLISH + frame(2, b"\0\x3d" + SHORT[2:] + b"\0\0"), id="another class"),
        pytest.param(PUBLISH + frame(3, b"whole"), id="a body without a header"),
        pytest.param(PUBLISH + frame(7, b"whole"), id="an unknown frame"),
        pytest.param(
            publish(5, b"whole").replace(b"\3\0\1\0\0\0\5", b"\3\0\2\0\0\0\5"),
            id="a body in another channel",
        ),
        pytest.param(
            method_frame(1, "basic.publish", 0, "none", "cut", False, False) + publish(0)[-22:],
            id="an exchange that is not there",
        ),
        pytest.param(
            method_frame(1, "basic.publish", 0, "", "cut", False, True) + publish(0)[-22:],
            id="immediate",
        ),
        pytest.param(method_frame(1, "basic.ack", 7, False), id="an unknown delivery"),
        pytest.param(FRAME.pack(8, 1, 0) + b"\xce", id="a heartbeat in a channel"),
    ],
)
def test_a_mistake_gets_one_answer_however_it_is_cut(broker, full, sent: bytes) -> None:
    turns = [*login(4_096), (DECLARE, 1), (sent, 1)]
    whole = answers(broker, turns)
    begin, end = length(turns[:-1]), length(turns)
    offsets = range(begin, end) if full or len(sent) < 1_000 else [*range(begin, begin + 80), end - 1]  # fmt: skip
    for offset in offsets:
        assert answers(broker, turns, [offset]) == whole, offset - begin
