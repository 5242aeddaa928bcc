"""Hostile clients over real sockets: whatever they send in whatever phase, nobody else notices.

`test_connection.test_hostile_bytes` does the same without sockets, a thousand times as often.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest

from harebell.protocol.v091 import methods as m
from harebell.protocol.v091.codec import encode_frame, encode_method
from tests.broker.v091.test_connection import GOOD, HANDSHAKE
from tests.wire import BrokerThread, Wire

ANSWERS = (m.ConnectionStart, m.ConnectionTune, m.ChannelOpenOk)


def advance(wire: Wire, phase: int) -> None:
    """Say that much of the handshake: nothing, the header, the login, or everything up to an open channel."""
    for said, answer in zip(HANDSHAKE[:phase], ANSWERS, strict=False):
        wire.raw(said)
        wire.expect(answer)


def mutated(rng: random.Random) -> bytes:
    frames = bytearray(b"".join(rng.choices(GOOD, k=rng.randint(1, 6))))
    for _ in range(rng.randint(1, 4)):
        frames[rng.randrange(len(frames))] = rng.randrange(256)
    return bytes(frames)


HOSTILE: dict[str, Callable[[random.Random], bytes]] = {
    "random bytes": lambda rng: rng.randbytes(rng.randint(1, 300)),
    "random frames": lambda rng: b"".join(
        encode_frame(rng.choice((0, 1, 2, 3, 4, 8)), rng.choice((0, 1, 2, 65535)), rng.randbytes(rng.randint(0, 40)))
        for _ in range(5)
    ),
    "mutated frames": mutated,
    "a frame that says it has 4 GiB": lambda rng: b"\1\0\1\xff\xff\xff\xff" + rng.randbytes(100),
    "a frame larger than frame_max": lambda rng: b"\3\0\1" + (131_073).to_bytes(4, "big") + bytes(131_073) + b"\xce",
    "half a frame": lambda rng: rng.choice(GOOD)[: rng.randint(1, 8)],
    "a message of 2^63 bytes": lambda rng: (
        encode_method(1, m.BasicPublish("", "q")) + encode_frame(2, 1, b"\0\x3c\0\0\x7f" + b"\xff" * 7 + b"\0\0")
    ),
    "deep tables": lambda rng: encode_frame(
        1, 1, b"\0\x32\0\x0a\0\0\1q\0" + (60_000).to_bytes(4, "big") + b"\1aF\0\0\xea\x60" * 6_666 + bytes(60)
    ),
    "the handshake again": lambda rng: b"".join(HANDSHAKE),
    "a browser": lambda rng: b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "TLS": lambda rng: b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + rng.randbytes(200),
}


CODES = {501, 502, 503, 504, 505, 530, 540}
ALWAYS_ENDS = {"a frame that says it has 4 GiB", "a frame larger than frame_max"}
ENDS = {(kind, 0) for kind in ("a browser", "TLS", "random frames")} | {
    (kind, phase) for kind in ("a browser", "TLS", "the handshake again") for phase in (1, 2, 3)
} | {("deep tables", phase) for phase in (0, 1, 2)}  # fmt: skip


def end(wire: Wire) -> None:
    """The broker ends the connection: with a reply code that the client can answer, or without one before the login."""
    wire.wait(lambda: wire.ended or any(type(each.method) is m.ConnectionClose for each in wire.received))
    for each in wire.received:
        if isinstance(each.method, m.ConnectionClose):
            assert each.method.reply_code in CODES, each.method
            wire.send(0, m.ConnectionCloseOk())
            wire.wait_end()
    assert wire.ended


@pytest.mark.parametrize("phase", range(4), ids=("unopened", "header", "login", "open"))
@pytest.mark.parametrize("kind", HOSTILE)
def test_whatever_comes(broker: BrokerThread, kind: str, phase: int) -> None:
    rng = random.Random(f"{kind} {phase}")
    with Wire(broker.port).log_in() as bystander:
        bystander.channel(1)
        bystander.call(1, m.QueueDeclare("bystander", exclusive=True), m.QueueDeclareOk)
        bystander.send(1, m.BasicConsume("bystander", "c", no_ack=True))
        bystander.expect(m.BasicConsumeOk)
        ending: list[Wire] = []
        for number in range(8):
            hostile = Wire(broker.port)
            advance(hostile, phase)
            hostile.raw(HOSTILE[kind](rng))
            if (kind, phase) in ENDS or kind in ALWAYS_ENDS:
                ending.append(hostile)
            else:
                hostile.poll(0.01)
                hostile.close()
            bystander.publish("", "bystander", b"%d" % number)
            assert bystander.expect(m.BasicDeliver).body == b"%d" % number
        for hostile in ending:
            end(hostile)
            hostile.close()
        deadline = time.monotonic() + 10
        while broker.run(lambda: len(broker.broker.node.connections)) > 1 and time.monotonic() < deadline:
            bystander.barrier()
        assert broker.run(lambda: len(broker.broker.node.connections)) == 1
        queues = broker.run(lambda: tuple(broker.broker.node.vhosts["/"].queues.values()))
        assert [queue.name for queue in queues if queue.consumers] == ["bystander"]


@pytest.mark.parametrize(
    "tune, code", [((2047, 100, 0), 530), ((2047, 131_073, 0), 530), ((2048, 131_072, 0), 530), ((0, 131_072, 0), 530)]
)
def test_negotiation_outside_the_limits(broker: BrokerThread, tune: tuple[int, int, int], code: int) -> None:
    with Wire(broker.port) as wire:
        advance(wire, 2)
        wire.send(0, m.ConnectionTuneOk(*tune))
        wire.send(0, m.ConnectionOpen("/"))
        close = wire.expect(m.ConnectionClose).method
        assert isinstance(close, m.ConnectionClose)
        assert close.reply_code == code
        wire.send(0, m.ConnectionCloseOk())
        wire.wait_end()


@pytest.mark.parametrize(
    "frame", [b"\1\0\1\0\0\0\4abcd\0", b"\3\0\1" + (131_073).to_bytes(4, "big") + b"x", encode_frame(7, 1, b"abc")]
)
def test_lost_framing_ends_with_501_and_the_socket(broker: BrokerThread, frame: bytes) -> None:
    with Wire(broker.port).log_in() as wire:
        wire.channel(1)
        wire.raw(frame)
        close = wire.expect(m.ConnectionClose).method
        assert isinstance(close, m.ConnectionClose)
        assert close.reply_code == 501
        wire.send(0, m.ConnectionCloseOk())
        wire.wait_end()
