"""The rules of frames: what a client may send and what becomes of it, each with a script that shows it.

The keys are the rows of docs/reference/frames.md. A script gets a node, and returns what the page says of its row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from harebell.protocol.v091 import Content, Properties, Table, encode_content, methods as m
from harebell.protocol.v091.codec import (
    FRAME_OVERHEAD,
    HEARTBEAT_FRAME,
    PROTOCOL_HEADER,
    decode_method,
    encode_frame,
    encode_method,
)
from tests.broker.kit import Client, FakeTransport, NodeKit, connect
from tests.protocol.v091.samples import body, header

__all__ = ["CROSSING", "RECEIVED", "SENT", "Script"]

Script = Callable[[NodeKit], str]

FRAME: Final = 4096  # the frame_max of these clients
PUBLISH: Final = encode_method(1, m.BasicPublish("", "q"))
TAKEN: Final = "taken"


def prepared(kit: NodeKit, frame_max: int = FRAME) -> Client:
    client = kit.client(frame_max)
    client.call(m.QueueDeclare("q"), m.QueueDeclareOk)
    return client


def outcome(client: Client) -> str:
    """What the broker made of the last input: the code of its close, or "taken"."""
    client.receive()
    for _, event in client.events:
        if isinstance(event, m.ConnectionClose):
            return f"{event.reply_code}, connection"
        if isinstance(event, m.ChannelClose):
            return f"{event.reply_code}, channel"
    client.send(1, m.BasicQos(0, 1))
    assert client.take(m.BasicQosOk)
    return TAKEN


def raw(*frames: bytes) -> Script:
    """The frames in one read, and byte by byte: the same comes of them."""

    def script(kit: NodeKit) -> str:
        whole, cut = prepared(kit), prepared(kit)
        whole.connection.receive_data(b"".join(frames))
        for byte in b"".join(frames):
            cut.connection.receive_data(bytes([byte]))
        found = outcome(whole)
        assert outcome(cut) == found
        return found

    return script


def each_of(*scripts: Script) -> Script:
    """All of them, of which the same comes."""

    def script(kit: NodeKit) -> str:
        (found,) = {each(kit) for each in scripts}
        return found

    return script


def published(*frames: bytes, expected: bytes) -> Script:
    """As `raw`, and the message arrives twice."""

    def script(kit: NodeKit) -> str:
        found = raw(*frames)(kit)
        client = kit.client(FRAME)
        for _ in range(2):
            content = client.get("q")
            assert content is not None
            assert content.body == expected
        return found

    return script


def table(size: int) -> Table:
    return {"x": "y" * size}


def padded_frame(size: int) -> bytes:
    """A queue.declare whose frame is so long."""
    bare = len(encode_method(1, m.QueueDeclare("long", arguments=table(0))))
    return encode_method(1, m.QueueDeclare("long", arguments=table(size - bare)))


def padded_properties(size: int) -> bytes:
    """An empty message whose header frame is so long."""
    bare = len(encode_content(1, properties(0), b"", 0))
    return PUBLISH + encode_content(1, properties(size - bare), b"", 0)


def properties(size: int) -> bytes:
    return Properties(headers=table(size)).encode()


def too_large_a_message(kit: NodeKit) -> str:
    kit.node.set_limits(type(kit.node.limits)(max_message_size=10))
    client = prepared(kit)
    client.connection.receive_data(PUBLISH + header(11) + body(b"x" * 11))
    return outcome(client)


def small_pieces(kit: NodeKit) -> str:
    client, whole = prepared(kit), bytes(range(250)) * 40
    pieces = b"".join(body(whole[at : at + 1]) for at in range(len(whole)))
    client.connection.receive_data(PUBLISH + header(len(whole)) + pieces)
    content = client.get()
    assert content is not None
    assert content.body == whole
    assert len(content.frames) < len(whole) + 8 * (len(whole) // FRAME + 4)
    return "in frames of full size"


def interleaved(kit: NodeKit) -> str:
    client = prepared(kit)
    client.open(2)
    second = encode_method(2, m.BasicPublish("", "q"))
    client.connection.receive_data(PUBLISH + second + header(1) + header(1, channel=2) + body(b"a", 2) + body(b"b"))
    assert [content.body for _ in range(2) if (content := client.get()) is not None] == [b"a", b"b"]
    return outcome(client)


def tuned(channel_max: int, frame_max: int) -> Script:
    def script(kit: NodeKit) -> str:
        transport = FakeTransport()
        connection = connect(kit.node, transport)
        tune_ok = m.ConnectionTuneOk(channel_max, frame_max, 0)
        connection.receive_data(PROTOCOL_HEADER)
        connection.receive_data(encode_method(0, m.ConnectionStartOk({}, "PLAIN", b"\0guest\0guest")))
        transport.written.clear()
        connection.receive_data(encode_method(0, tune_ok))
        close = decode_method(bytes(transport.written[7:-1]), 0)
        assert isinstance(close, m.ConnectionClose)
        return f"{close.reply_code}, connection"

    return script


def stranger(said: bytes) -> Script:
    def script(kit: NodeKit) -> str:
        transport = FakeTransport()
        connection = connect(kit.node, transport)
        connection.receive_data(said)
        assert (bytes(transport.written), transport.closed) == (b"AMQP\0\0\x09\x01", 0.0)
        return "the broker's header, and the end of the socket"

    return script


RECEIVED: Final[dict[str, Script]] = {
    "a method of `frame_max` bytes": raw(padded_frame(FRAME)),
    "a method or body frame whose payload has `frame_max` bytes": published(
        PUBLISH, header(FRAME), body(b"x" * FRAME), expected=b"x" * FRAME
    ),
    "a payload of more than `frame_max` bytes": raw(PUBLISH, header(FRAME + 1), body(b"x" * (FRAME + 1))),
    "a table of arguments that makes its method longer than that": raw(padded_frame(FRAME + FRAME_OVERHEAD + 1)),
    "properties in a header frame of `frame_max` bytes": raw(padded_properties(FRAME)),
    "properties in a longer header frame": raw(padded_properties(FRAME + 1)),
    "a frame of an unknown type": raw(encode_frame(9, 1, b"")),
    "another last octet than 206": raw(encode_method(1, m.BasicQos())[:-1] + b"\0"),
    "a method frame with fewer than four bytes": raw(encode_frame(1, 1, b"\0\x3c")),
    "an unknown method": raw(encode_frame(1, 1, b"\0\x3c\0\xff")),
    "a method that ends too early": raw(encode_frame(1, 1, b"\0\x3c\0\x0a\0")),
    "a header frame with fewer than 14 bytes": raw(PUBLISH, encode_frame(2, 1, b"\0<\0\0")),
    "a heartbeat, at any time": published(
        HEARTBEAT_FRAME, PUBLISH, HEARTBEAT_FRAME, header(2), HEARTBEAT_FRAME, body(b"ab"), expected=b"ab"
    ),
    "an empty body frame": published(PUBLISH, header(2), body(b""), body(b"a"), body(b""), body(b"b"), expected=b"ab"),
    "a body of 0 bytes without a body frame": published(PUBLISH, header(0), expected=b""),
    "a body in many small frames": small_pieces,
    "a body longer than its header says": raw(PUBLISH, header(2), body(b"xyz")),
    "a body longer than `max_message_size`": too_large_a_message,
    "a header or body frame without its method": each_of(raw(header(1)), raw(body(b"x"))),
    "a body frame without its header": raw(PUBLISH, body(b"x")),
    "a method between a method, its header and its body, on the same channel": raw(
        PUBLISH, header(2), encode_method(1, m.BasicQos())
    ),
    "a header of another class than basic, or with a weight": each_of(
        raw(PUBLISH, header(1, class_id=10)), raw(PUBLISH, header(1, weight=1))
    ),
    "frames of another channel between them": interleaved,
    "a method on a channel that is not open": raw(encode_method(2, m.QueueDeclare("q"))),
    "a method of a channel on channel 0": raw(encode_method(0, m.QueueDeclare("q"))),
    "a method of the connection on another channel": raw(encode_method(1, m.ConnectionClose())),
    "a method that only brokers send": raw(encode_method(1, m.BasicDeliver())),
    "`connection.tune-ok` with a `frame_max` below 4,096": tuned(2047, 4095),
    "`connection.tune-ok` with more than the broker offered": tuned(2047, 131_073),
    "another protocol header": stranger(b"AMQP\x09\x09\x09\x09"),
}


# -- what the broker sends -------------------------------------------------------------------------------------------


def cut_for_a_consumer(kit: NodeKit) -> str:
    large, small = prepared(kit, 131_072), kit.client(FRAME)
    large.publish("q", b"x" * 100_000)
    content = small.get()
    assert content is not None
    assert content.body == b"x" * 100_000
    return "in frames of the consumer's `frame_max`"


def as_it_came(kit: NodeKit) -> str:
    client = prepared(kit)
    client.publish("q", b"abc", content_type="text/plain", headers={"a": 1})
    content = client.get()
    assert isinstance(content, Content)
    assert content.frames == encode_content(1, content.raw_properties, b"abc", FRAME)
    return "in the frames that came"


def with_headers_left_out(kit: NodeKit) -> str:
    client = prepared(kit)
    client.connection.receive_data(padded_properties(FRAME))
    for delivery_count in range(3):
        client.send(1, m.BasicGet("q"))
        ((_, content),) = client.events
        client.events.clear()
        assert isinstance(content, Content)
        assert (content.properties.headers or {}).keys() == {"x"}, delivery_count
        tag = content.decode_method()
        assert isinstance(tag, m.BasicGetOk)
        client.send(1, m.BasicReject(tag.delivery_tag, requeue=True))
    return "without `x-delivery-count`, and other headers that brokers add"


def that_does_not_fit(kit: NodeKit) -> str:
    large, small = prepared(kit, 131_072), kit.client(FRAME)
    large.connection.receive_data(padded_properties(FRAME + 1))
    small.send(1, m.BasicGet("q"))
    kit.node.batch.slices.finish()
    found = outcome(small)
    assert large.count() == 1
    return f"{found}; it returns to its queue"


def a_close(kit: NodeKit) -> str:
    client = prepared(kit)
    client.send(1, m.QueueDeclare("x" * 255, passive=True))
    (close,) = client.take(m.ChannelClose)
    assert len(close.reply_text.encode()) <= 255
    return "shortened to 255 bytes"


SENT: Final[dict[str, Script]] = {
    "a message whose frames fit the consumer": as_it_came,
    "a body whose frames are longer than the consumer takes": cut_for_a_consumer,
    "a message that fits only without headers that brokers add": with_headers_left_out,
    "a message whose own properties do not fit": that_does_not_fit,
    "the text of a close": a_close,
}


# -- what crosses a close --------------------------------------------------------------------------------------------


def behind_our_channel_close(kit: NodeKit) -> str:
    client = prepared(kit)
    client.engine.send_method(1, m.QueueDeclare("nope", passive=True))
    client.engine.send_method(1, m.QueueDelete("q"))
    client.engine.send_content(1, m.BasicPublish("", "q"), b"\0\0", b"1")
    client.pump()
    assert [type(event) for _, event in client.events] == [m.ChannelClose]
    client.send(1, m.ChannelCloseOk())
    client.open()
    client.events.clear()
    assert client.count() == 0
    return "dropped"


def behind_the_clients_channel_close(kit: NodeKit) -> str:
    client = prepared(kit)
    frames = encode_method(1, m.ChannelClose(200, "bye", 0, 0)) + PUBLISH + header(1) + body(b"x")
    client.connection.receive_data(frames + encode_method(1, m.QueueDelete("q")))
    assert client.transport.written == encode_method(1, m.ChannelCloseOk())
    assert kit.client().count() == 0
    return "dropped"


def both_close_a_channel(kit: NodeKit) -> str:
    client = prepared(kit)
    frames = encode_method(1, m.QueueDeclare("nope", passive=True)) + encode_method(1, m.ChannelClose(200, "", 0, 0))
    client.connection.receive_data(frames)
    assert client.transport.written.endswith(encode_method(1, m.ChannelCloseOk()))
    client.connection.receive_data(encode_method(1, m.ChannelCloseOk()) + encode_method(1, m.ChannelOpen()))
    assert client.transport.written.endswith(encode_method(1, m.ChannelOpenOk()))
    return "each is answered, and the channel can be opened again"


def behind_our_connection_close(kit: NodeKit) -> str:
    client = prepared(kit)
    client.connection.receive_data(encode_frame(1, 1, b"\0\x3c\0\xff") + encode_method(1, m.QueueDelete("q")))
    client.connection.receive_data(PUBLISH + header(1) + body(b"x"))
    assert kit.client().count() == 0
    client.receive()
    assert [type(event) for _, event in client.events] == [m.ConnectionClose]
    client.connection.receive_data(encode_method(0, m.ConnectionCloseOk()))
    assert client.transport.closed == 0.0
    return "dropped; close-ok ends the socket"


def behind_the_clients_connection_close(kit: NodeKit) -> str:
    client = prepared(kit)
    frames = encode_method(0, m.ConnectionClose(200, "", 0, 0)) + PUBLISH + header(1) + body(b"x")
    client.connection.receive_data(frames)
    client.connection.receive_data(encode_method(1, m.QueueDelete("q")))
    assert client.transport.written == encode_method(0, m.ConnectionCloseOk())
    assert kit.client().count() == 0
    return "dropped; close-ok is the last frame"


def a_message_cut_off(kit: NodeKit) -> str:
    client = prepared(kit)
    client.connection.receive_data(PUBLISH + header(5) + body(b"x") + encode_method(1, m.ChannelClose(200, "", 0, 0)))
    return outcome(client)


CROSSING: Final[dict[str, Script]] = {
    "frames behind the broker's `channel.close`": behind_our_channel_close,
    "frames behind the client's `channel.close`": behind_the_clients_channel_close,
    "`channel.close` from both sides at once": both_close_a_channel,
    "frames behind the broker's `connection.close`": behind_our_connection_close,
    "frames behind the client's `connection.close`": behind_the_clients_connection_close,
    "`channel.close` in the middle of a message": a_message_cut_off,
}
