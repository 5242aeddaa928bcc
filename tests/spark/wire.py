"""What a broker writes to a reader of a stream: bytes for the tests of blocks, and a broker that sends any bytes."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from harebell.client.messages import Delivery
from harebell.errors import RemoteProtocolError
from harebell.protocol.v091 import Content, Engine, Properties, Role, encode_content, methods as m
from harebell.protocol.v091.codec import encode_method
from harebell.protocol.v091.splice import STREAM_OFFSET as STREAM, append_headers


def delivered(
    tag: int,
    consumer: str,
    properties: Properties,
    body: bytes,
    *,
    number: int | None = None,
    last: bool = False,
    key: str = "k",
    exchange: str = "",
    redelivered: bool = False,
    frame_max: int = 0,
) -> bytes:
    """One delivery on channel 1, as a broker writes it.

    number  its number in the stream, put in as the first of its headers; with `last`, behind its own ones
    """
    frames = encode_content(1, properties, body, frame_max)
    if number is not None:
        frames = append_headers(frames, ENTRY + number.to_bytes(8, "big")) if last else STREAM.put_into(frames, number)
    return encode_method(1, m.BasicDeliver(consumer, tag, redelivered, exchange, key)) + frames


ENTRY: Final = b"\x0fx-stream-offsetl"


def one_by_one(data: bytes, channel: Any = None) -> list[Delivery]:
    """The deliveries that the engine finds in bytes that are deliveries and nothing else."""
    engine = open_engine()
    engine.receive_data(data)
    found = []
    for _, content in engine.events():
        assert isinstance(content, Content)
        method = content.decode_method()
        assert isinstance(method, m.BasicDeliver)
        found.append(
            Delivery(
                content, channel, method.consumer_tag, method.delivery_tag, method.redelivered, method.exchange,
                method.routing_key,
            )
        )  # fmt: skip
    return found


def open_engine() -> Engine:
    """A client's engine with channel 1 open."""
    client, server = Engine(Role.CLIENT), Engine(Role.SERVER)

    def carry() -> None:
        server.receive_data(client.data_to_send())
        client.receive_data(server.data_to_send())
        client.events(), server.events()

    client.send_header()
    carry()
    server.send_method(0, m.ConnectionStart(0, 9, {}, b"PLAIN", b"en_US"))
    carry()
    client.send_method(0, m.ConnectionStartOk({}, "PLAIN", b"\0a\0b", "en_US"))
    carry()
    server.send_method(0, m.ConnectionTune(2047, 131_072, 60))
    carry()
    client.send_method(0, m.ConnectionTuneOk(2047, 131_072, 60))
    client.send_method(0, m.ConnectionOpen("/"))
    carry()
    server.send_method(0, m.ConnectionOpenOk())
    carry()
    client.send_method(1, m.ChannelOpen())
    carry()
    server.send_method(1, m.ChannelOpenOk())
    carry()
    return client


Script = Callable[[str], Iterable[bytes]]


@contextmanager
def scripted(
    script: Script, *, heartbeat: int = 0, tls: ssl.SSLContext | None = None
) -> Iterator[tuple[str, list[m.Method]]]:
    """A broker for one connection: after basic.consume it writes what `script` gives for the consumer tag, and closes.

    Gives its URL, and a list that fills with the methods that came.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    heard: list[m.Method] = []

    def serve() -> None:
        # The client may be gone before all is written, and answers what the server's engine has not sent.
        with contextlib.suppress(OSError, RemoteProtocolError):
            talk()

    def talk() -> None:
        connection, _ = listener.accept()
        if tls is not None:
            connection = tls.wrap_socket(connection, server_side=True)
        engine = Engine(Role.SERVER)
        with connection:
            connection.settimeout(20)
            while True:
                data = connection.recv(65_536)
                if not data:
                    return
                engine.receive_data(data)
                if not heard and data.startswith(b"AMQP"):
                    engine.send_method(0, m.ConnectionStart(0, 9, {"product": "Script"}, b"PLAIN", b"en_US"))
                for channel, event in engine.events():
                    assert isinstance(event, m.Method)
                    heard.append(event)
                    answer(engine, channel, event, heartbeat)
                connection.sendall(engine.data_to_send())
                last = heard[-1] if heard else None
                if isinstance(last, m.BasicConsume):
                    for piece in script(last.consumer_tag):
                        connection.sendall(piece)
                    connection.shutdown(socket.SHUT_WR)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"{'amqps' if tls else 'amqp'}://a:b@localhost:{listener.getsockname()[1]}/", heard
    finally:
        listener.close()
        thread.join(60)


def answer(engine: Engine, channel: int, method: m.Method, heartbeat: int) -> None:
    match method:
        case m.ConnectionStartOk():
            engine.send_method(0, m.ConnectionTune(2047, 131_072, heartbeat))
        case m.ConnectionOpen():
            engine.send_method(0, m.ConnectionOpenOk())
        case m.ChannelOpen():
            engine.send_method(channel, m.ChannelOpenOk())
        case m.BasicQos():
            engine.send_method(channel, m.BasicQosOk())
        case m.BasicConsume():
            engine.send_method(channel, m.BasicConsumeOk(method.consumer_tag))
        case m.ConnectionClose():
            engine.send_method(0, m.ConnectionCloseOk())
