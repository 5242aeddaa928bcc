"""Record the frames between a real RabbitMQ and a client, in hex, for tests/protocol/v091/golden.json.

    python tools/record_v091.py amqp://guest:guest@127.0.0.1:5672/ "RabbitMQ 3.10.8" > tests/protocol/v091/golden.json

Run it by hand, once for each version of RabbitMQ. It records the handshake, a channel, declare, confirm, two
publications (one with all properties, one in several frames), their confirms and deliveries, an unroutable one that
is returned, get, and close. The tool decodes frame boundaries only, so that the server's frames do not depend on the
code that they test.
"""

from __future__ import annotations

import json
import socket
import sys
from datetime import UTC, datetime
from decimal import Decimal
from urllib.parse import urlsplit

from harebell.protocol.v091 import Properties, Table, methods as m
from harebell.protocol.v091.codec import PROTOCOL_HEADER, encode_method
from harebell.protocol.v091.content import encode_content

FRAME_MAX = 4096
ALL_PROPERTIES = Properties(
    content_type="application/json",
    content_encoding="utf-8",
    headers={
        "string": "grün",
        "int": 1,
        "long": 1 << 40,
        "float": 0.5,
        "true": True,
        "bytes": b"\xff\x00",
        "none": None,
        "decimal": Decimal("3.14"),
        "time": datetime(2013, 1, 1, 5, 15, tzinfo=UTC),
        "array": ["a", 1, {"deep": []}],
    },
    delivery_mode=2,
    priority=5,
    correlation_id="c-1",
    reply_to="replies",
    expiration="60000",
    message_id="m-1",
    timestamp=datetime(2013, 1, 1, 5, 15, tzinfo=UTC),
    type="flight",
    user_id="guest",
    app_id="harebell",
    reserved="cluster",
)


class Tape:
    """A connection to the server that records the frames of both sides."""

    def __init__(self, host: str, port: int) -> None:
        self.socket = socket.create_connection((host, port), timeout=10)
        self.lines: list[dict[str, str]] = []

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)
        self.lines.append({"from": "client", "hex": data.hex()})

    def receive(self, frames: int = 1) -> None:
        for _ in range(frames):
            head = self._exactly(7)
            frame = head + self._exactly(int.from_bytes(head[3:7], "big") + 1)
            self.lines.append({"from": "server", "hex": frame.hex()})

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            if not piece:
                raise EOFError("the server hung up")
            data += piece
        return data


def main() -> int:
    url = urlsplit(sys.argv[1])
    user, password = url.username or "guest", url.password or "guest"
    tape = Tape(url.hostname or "127.0.0.1", url.port or 5672)

    def method(channel: int, call: m.Method, frames: int) -> None:
        tape.send(encode_method(channel, call))
        tape.receive(frames)

    tape.send(PROTOCOL_HEADER)
    tape.receive()
    capabilities: Table = {"publisher_confirms": True, "basic.nack": True, "authentication_failure_close": True}
    start_ok = m.ConnectionStartOk(
        {"product": "harebell", "capabilities": capabilities}, "PLAIN", f"\0{user}\0{password}".encode(), "en_US"
    )
    method(0, start_ok, 1)
    tape.send(encode_method(0, m.ConnectionTuneOk(2047, FRAME_MAX, 0)))
    method(0, m.ConnectionOpen("/"), 1)
    method(1, m.ChannelOpen(), 1)
    method(1, m.QueueDeclare("harebell.golden", auto_delete=True, arguments={"x-max-length": 10}), 1)
    method(1, m.ConfirmSelect(), 1)
    method(1, m.BasicQos(prefetch_count=10), 1)
    method(1, m.BasicConsume("harebell.golden", "ctag"), 1)
    tape.send(
        encode_method(1, m.BasicPublish("", "harebell.golden"))
        + encode_content(1, ALL_PROPERTIES, b'{"flight":1545}', FRAME_MAX)
    )
    tape.receive(4)  # deliver, header, body, and the confirm before or after them
    tape.send(
        encode_method(1, m.BasicPublish("", "harebell.golden"))
        + encode_content(1, Properties(), b"x" * 9000, FRAME_MAX)
    )
    tape.receive(6)
    method(1, m.BasicAck(2, True), 0)
    tape.send(encode_method(1, m.BasicPublish("", "nowhere", mandatory=True)) + encode_content(1, Properties(), b"", 0))
    tape.receive(3)  # return, header, confirm
    method(1, m.BasicGet("harebell.golden"), 1)
    method(1, m.ChannelClose(200, "done"), 1)
    method(0, m.ConnectionClose(200, "done"), 1)
    json.dump({"peer": sys.argv[2], "frame_max": FRAME_MAX, "frames": tape.lines}, sys.stdout, indent=1)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
