"""What a message costs the 0-10 engine beside the 0-9-1 engine: one process, no sockets, no I/O.

    python benchmarks/dialects.py

Each figure is the best of several rounds, in turn with the other dialect. The ratio says how many times the CPU of
0-9-1 a transfer costs. A session that lasts also numbers what it receives, reports completions for each thousand, and
keeps what it sends until it is complete; 0-9-1 has no counterpart to that in its engine.
"""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Callable

from harebell.protocol import v010, v091
from harebell.protocol.v010 import commands as c, controls as k
from harebell.protocol.v010.content import encode_content as encode_content_010, encode_header
from harebell.protocol.v010.frames import command_frames
from harebell.protocol.v010.session import Session
from harebell.protocol.v091 import methods as m
from harebell.protocol.v091.codec import encode_method
from harebell.protocol.v091.content import encode_content as encode_content_091

MESSAGES = 1000
ROUNDS = 25
BODY = b"x" * 100
PROPERTIES = v091.Properties(content_type="application/json", delivery_mode=2)
DELIVERY = v010.DeliveryProperties(delivery_mode=2, exchange="flights", routing_key="EWR.UA.IAH")
MESSAGE = v010.MessageProperties(content_type="application/json")
HEADER = encode_header([DELIVERY, MESSAGE])
TRANSFER = c.MessageTransfer("flights", 0, 0)
NAME = b"benchmark"

Work = Callable[[], object]


def timed(work: Work) -> float:
    """Microseconds per message of `work`, which handles MESSAGES of them."""
    start = time.process_time_ns()
    work()
    return (time.process_time_ns() - start) / MESSAGES / 1000


def engines_091() -> tuple[v091.Engine, v091.Engine]:
    client, server = v091.Engine(v091.Role.CLIENT), v091.Engine(v091.Role.SERVER)
    for engine in (client, server):
        engine.state = v091.ConnectionState.OPEN
        engine.channels[1] = v091.ChannelState.OPEN
    return client, server


def engines_010() -> tuple[v010.Engine, v010.Engine]:
    client, server = v010.Engine(v010.Role.CLIENT), v010.Engine(v010.Role.SERVER)
    client.send_header()
    server.receive_data(client.data_to_send())
    steps: list[tuple[v010.Engine, v010.Engine, int, v010.Control]] = [
        (server, client, 0, k.ConnectionStart()),
        (client, server, 0, k.ConnectionStartOk()),
        (server, client, 0, k.ConnectionTune()),
        (client, server, 0, k.ConnectionTuneOk()),
        (client, server, 0, k.ConnectionOpen()),
        (server, client, 0, k.ConnectionOpenOk()),
        (client, server, 1, k.SessionAttach(NAME)),
        (server, client, 1, k.SessionAttached(NAME)),
    ]
    for speaker, listener, channel, control in steps:
        speaker.send_control(channel, control)
        listener.receive_data(speaker.data_to_send())
        listener.events()
    return client, server


def split_091() -> Work:
    _, server = engines_091()
    publish = encode_method(1, m.BasicPublish("flights", "EWR.UA.IAH"))
    data = (publish + encode_content_091(1, PROPERTIES, BODY, 131_072)) * MESSAGES

    def work() -> None:
        server.receive_data(data)
        assert len(server.events()) == MESSAGES

    return work


def transfers() -> bytes:
    frames = encode_content_010(1, HEADER, BODY, 65_535)
    return (command_frames(1, TRANSFER.encode(), 65_535, True) + frames) * MESSAGES


def split_010() -> Work:
    _, server = engines_010()
    data = transfers()

    def work() -> None:
        server.receive_data(data)
        assert len(server.events()) == MESSAGES

    return work


def decode_091() -> Work:
    split, contents = split_091(), v091.Content(1, b"", encode_content_091(1, PROPERTIES, BODY, 131_072), len(BODY))

    def work() -> None:
        split()
        for _ in range(MESSAGES):
            contents.decode_properties()

    return work


def decode_010() -> Work:
    _, server = engines_010()
    data = transfers()

    def work() -> None:
        server.receive_data(data)
        for _, content in server.events():
            assert isinstance(content, v010.Content)
            assert content.delivery_properties.delivery_mode == 2

    return work


def key_010() -> Work:
    """As a broker reads it: the delivery properties as the key of a cache."""
    _, server = engines_010()
    data = transfers()
    routes = {(TRANSFER.encode(), DELIVERY.encode()): 1}

    def work() -> None:
        server.receive_data(data)
        for _, content in server.events():
            assert isinstance(content, v010.Content)
            assert routes[content.command, content.raw(0x0401)]

    return work


def deliver_091() -> Work:
    _, server = engines_091()
    content = v091.Content(1, b"", encode_content_091(1, PROPERTIES, BODY, 131_072), len(BODY))
    prefix = encode_method(1, m.BasicDeliver("tag", 0, False, "flights", "EWR.UA.IAH"))

    def work() -> None:
        pieces: list[bytes] = []
        for tag in range(MESSAGES):
            pieces += (prefix[:15], tag.to_bytes(8, "big"), prefix[23:], content.frames_for(1, 131_072))
        server.send_deliveries(pieces)
        server.data_to_send()

    return work


def deliver_010() -> Work:
    _, server = engines_010()
    content = v010.Content(1, b"", encode_content_010(1, HEADER, BODY, 65_535), len(BODY))
    command = command_frames(1, c.MessageTransfer("tag", 0, 0).encode(), 65_535, True)

    def work() -> None:
        pieces: list[bytes] = []
        for _ in range(MESSAGES):
            pieces += (command, content.frames_for(1, 65_535))
        server.send_pieces(pieces)
        server.data_to_send()

    return work


def lasting_receive() -> Work:
    _, server = engines_010()
    data, session = transfers(), Session[bytes](NAME)
    session.receive_control(k.SessionCommandPoint(0, 0))

    def work() -> None:
        server.receive_data(data)
        receiving = session.receiving
        first = 0
        for _, content in server.events():
            assert isinstance(content, v010.Content)
            number = receiving.receive(content.sync)
            first = first or number or 0
        receiving.complete(first, first + MESSAGES - 1)
        for control in session.due():
            server.send_control(1, control)
        server.data_to_send()

    return work


def lasting_deliver() -> Work:
    _, server = engines_010()
    content = v010.Content(1, b"", encode_content_010(1, HEADER, BODY, 65_535), len(BODY))
    command = command_frames(1, c.MessageTransfer("tag", 0, 0).encode(), 65_535, True)
    session = Session[tuple[bytes, bytes]](NAME)

    def work() -> None:
        pieces: list[bytes] = []
        send, first = session.sending.send, session.sending.next
        for _ in range(MESSAGES):
            piece = (command, content.frames_for(1, 65_535))
            send(piece, 200)
            pieces += piece
        server.send_pieces(pieces)
        server.data_to_send()
        session.receive_control(k.SessionCompleted(((first, first + MESSAGES - 1),)))

    return work


def main() -> int:
    rows: list[tuple[str, Work, Work | None]] = [
        ("receive, undecoded", split_010(), split_091()),
        ("receive, delivery properties as a key", key_010(), None),
        ("receive, properties decoded", decode_010(), decode_091()),
        ("deliver, content as it came", deliver_010(), deliver_091()),
        ("receive in a session that lasts", lasting_receive(), split_091()),
        ("deliver in a session that lasts", lasting_deliver(), deliver_091()),
    ]
    print(f"{len(BODY)}-byte messages; Python {platform.python_version()}, {platform.machine()}; CPU us per message")
    print(f"{'':40} {'ratio':>6} {'0-10':>8} {'0-9-1':>8}")
    for name, ours, other in rows:
        least, peer = float("inf"), float("inf")
        for _ in range(ROUNDS):
            least = min(least, timed(ours))
            peer = min(peer, timed(other)) if other is not None else peer
        if other is None:
            print(f"{name:40} {'':6} {least:8.2f}")
        else:
            print(f"{name:40} {least / peer:5.1f}x {least:8.2f} {peer:8.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
