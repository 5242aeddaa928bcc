"""What the 0-9-1 codec costs beside pamqp, the codec of aio-pika: one process, no sockets, no I/O.

    python benchmarks/codec.py

Each figure is the best of several rounds. The first column of figures says how many times faster Harebell is. pamqp
decodes every frame when it reads it; Harebell decodes content only on demand, so splitting is compared both without and
with decoding method and properties.
"""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pamqp
from pamqp import body as pamqp_body, commands as pamqp_commands, frame as pamqp_frame, header as pamqp_header

from harebell.protocol.v091 import Content, Engine, Properties, Role, Table, encode_content, methods as m
from harebell.protocol.v091.codec import decode_method, encode_method

MESSAGES = 1000
ROUNDS = 15
BODY = b"x" * 100
VALUES: dict[str, Any] = {
    "content_type": "application/json",
    "delivery_mode": 2,
    "message_id": "0f8fad5b-d9cb-469f-a165-70867728950e",
    "timestamp": datetime(2013, 1, 1, 5, 15, tzinfo=UTC),
}
HEADERS: Table = {"origin": "EWR", "carrier": "UA", "flight": 1545, "delayed": True, "distance": 1400.5}
TYPICAL = Properties(**VALUES)
WITH_HEADERS = Properties(**VALUES, headers=HEADERS)
SMALL = Properties(delivery_mode=2)


def publish(properties: Properties) -> bytes:
    return encode_method(1, m.BasicPublish("flights", "EWR.UA.IAH")) + encode_content(1, properties, BODY, 131_072)


def best(work: Callable[[], object]) -> float:
    """Nanoseconds per message of `work`, which handles MESSAGES of them."""
    least = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter_ns()
        work()
        least = min(least, time.perf_counter_ns() - start)
    return least / MESSAGES


def open_server() -> Engine:
    client, server = Engine(Role.CLIENT), Engine(Role.SERVER)
    client.send_header()
    steps: list[tuple[Engine, int, m.Method]] = [
        (server, 0, m.ConnectionStart()),
        (client, 0, m.ConnectionStartOk()),
        (server, 0, m.ConnectionTune(2047, 131_072, 0)),
        (client, 0, m.ConnectionTuneOk(2047, 131_072, 0)),
        (client, 0, m.ConnectionOpen("/")),
        (server, 0, m.ConnectionOpenOk()),
        (client, 1, m.ChannelOpen()),
        (server, 1, m.ChannelOpenOk()),
    ]
    server.receive_data(client.data_to_send())
    for speaker, channel, method in steps:
        speaker.send_method(channel, method)
        (client if speaker is server else server).receive_data(speaker.data_to_send())
    server.events()
    return server


def harebell_split(data: bytes) -> Callable[[], object]:
    server = open_server()

    def work() -> None:
        server.receive_data(data)
        assert len(server.events()) == MESSAGES

    return work


def harebell_split_and_decode(data: bytes) -> Callable[[], object]:
    server = open_server()

    def work() -> None:
        server.receive_data(data)
        for _, content in server.events():
            assert isinstance(content, Content)
            decode_method(content.method)
            content.decode_properties()
            _ = content.body

    return work


def pamqp_split(data: bytes) -> Callable[[], object]:
    def work() -> None:
        rest, frames = data, 0
        # aio-pika hands pamqp one frame at a time; slicing the rest off a large buffer would be unfair to it
        view = memoryview(rest)
        at = 0
        while at < len(rest):
            size = 8 + int.from_bytes(view[at + 3 : at + 7], "big")
            pamqp_frame.unmarshal(bytes(view[at : at + size]))
            at += size
            frames += 1
        assert frames == 3 * MESSAGES

    return work


def harebell_deliver() -> None:
    """As a server sends one: method encoded each time, content frames as they came."""
    content = Content(1, b"", encode_content(1, TYPICAL, BODY, 131_072), len(BODY))
    for tag in range(MESSAGES):
        encode_method(2, m.BasicDeliver("ctag", tag, False, "flights", "EWR.UA.IAH")) + content.frames_for(2, 131_072)


def harebell_deliver_encoding() -> None:
    for tag in range(MESSAGES):
        method = m.BasicDeliver("ctag", tag, False, "flights", "EWR.UA.IAH")
        encode_method(2, method) + encode_content(2, TYPICAL, BODY, 131_072)


def pamqp_deliver() -> None:
    properties = pamqp_commands.Basic.Properties(**VALUES)
    for tag in range(MESSAGES):
        method = pamqp_commands.Basic.Deliver("ctag", tag, False, "flights", "EWR.UA.IAH")
        (
            pamqp_frame.marshal(method, 2)
            + pamqp_frame.marshal(pamqp_header.ContentHeader(0, len(BODY), properties), 2)
            + pamqp_frame.marshal(pamqp_body.ContentBody(BODY), 2)
        )


def of_content(properties: Properties, look: Callable[[Content], object]) -> Callable[[], object]:
    content = Content(1, b"", encode_content(1, properties, BODY, 131_072), len(BODY))

    def work() -> None:
        for _ in range(MESSAGES):
            look(content)

    return work


def pamqp_properties(properties: Properties) -> Callable[[], object]:
    frame = encode_content(1, properties, b"", 131_072)

    def work() -> None:
        for _ in range(MESSAGES):
            pamqp_frame.unmarshal(frame)

    return work


def main() -> int:
    decode, check = Content.decode_properties, Content.checked_properties
    rows: list[tuple[str, Callable[[], object], Callable[[], object] | None]] = []
    for name, properties in (("delivery-mode only", SMALL), ("4 properties", TYPICAL), ("and 5 headers", WITH_HEADERS)):
        data = publish(properties) * MESSAGES
        rows += [
            (f"split publishes, {name}", harebell_split(data), pamqp_split(data)),
            (f"split and decode, {name}", harebell_split_and_decode(data), pamqp_split(data)),
            (f"decode properties, {name}", of_content(properties, decode), pamqp_properties(properties)),
            (f"check properties, {name}", of_content(properties, check), None),
        ]
    rows += [
        ("encode deliveries, content as it came", harebell_deliver, pamqp_deliver),
        ("encode deliveries, content too", harebell_deliver_encoding, pamqp_deliver),
    ]
    machine = f"Python {platform.python_version()}, {platform.machine()}, pamqp {pamqp.__version__}"
    print(f"{len(BODY)}-byte messages; {machine}")
    print(f"{'':42} {'ratio':>6} {'Harebell msg/s':>13} {'ns':>7} {'pamqp msg/s':>13} {'ns':>7}")
    for name, ours, theirs in rows:
        ns = best(ours)
        line = f"{1e9 / ns:13,.0f} {ns:7,.0f}"
        if theirs is None:
            print(f"{name:42} {'':6} {line}")
            continue
        peer = best(theirs)
        print(f"{name:42} {peer / ns:5.1f}x {line} {1e9 / peer:13,.0f} {peer:7,.0f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
