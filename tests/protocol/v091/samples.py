"""Objects and the bytes they are on the wire, written down by hand from the specification: read both ways."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

from harebell.protocol.v091 import Engine, FieldValue, Method, Properties, Role, methods as m
from harebell.protocol.v091.codec import encode_frame, encode_method
from harebell.protocol.v091.content import HEADER_FIXED
from harebell.protocol.v091.fields import Table


def short(value: int) -> bytes:
    return value.to_bytes(2, "big")


def long(value: int) -> bytes:
    return value.to_bytes(4, "big")


def longlong(value: int) -> bytes:
    return value.to_bytes(8, "big")


def s(text: str) -> bytes:
    raw = text.encode()
    return bytes([len(raw)]) + raw


def ls(raw: bytes) -> bytes:
    return long(len(raw)) + raw


def ids(class_id: int, method_id: int) -> bytes:
    return short(class_id) + short(method_id)


NOON = datetime(2013, 1, 1, 12, 0, tzinfo=UTC)
NOON_SECONDS = longlong(1_357_041_600)

# (value, type letter and bytes): what is written, and what is read back
FIELD_VALUES: list[tuple[FieldValue, bytes]] = [
    (True, b"t\x01"),
    (False, b"t\x00"),
    (0, b"I\x00\x00\x00\x00"),
    (-1, b"I\xff\xff\xff\xff"),
    (0x7FFF_FFFF, b"I\x7f\xff\xff\xff"),
    (-0x8000_0000, b"I\x80\x00\x00\x00"),
    (0x8000_0000, b"l\x00\x00\x00\x00\x80\x00\x00\x00"),
    (-0x8000_0001, b"l\xff\xff\xff\xff\x7f\xff\xff\xff"),
    ((1 << 63) - 1, b"l\x7f\xff\xff\xff\xff\xff\xff\xff"),
    (-(1 << 63), b"l\x80\x00\x00\x00\x00\x00\x00\x00"),
    (0.5, b"d\x3f\xe0\x00\x00\x00\x00\x00\x00"),
    (float("-inf"), b"d\xff\xf0\x00\x00\x00\x00\x00\x00"),
    (Decimal("3.14"), b"D\x02\x00\x00\x01\x3a"),
    (Decimal("-3.14"), b"D\x02\xff\xff\xfe\xc6"),
    (Decimal(7), b"D\x00\x00\x00\x00\x07"),
    (Decimal("1E-255"), b"D\xff\x00\x00\x00\x01"),
    ("", b"S\x00\x00\x00\x00"),
    ("grün", b"S\x00\x00\x00\x05gr\xc3\xbcn"),
    (b"\xff\x00", b"x\x00\x00\x00\x02\xff\x00"),
    (NOON, b"T" + NOON_SECONDS),
    (None, b"V"),
    ([], b"A\x00\x00\x00\x00"),
    ([1, "x", None], b"A\x00\x00\x00\x0cI\x00\x00\x00\x01S\x00\x00\x00\x01xV"),
    ({}, b"F\x00\x00\x00\x00"),
    ({"k": [{}]}, b"F\x00\x00\x00\x0c\x01kA\x00\x00\x00\x05F\x00\x00\x00\x00"),
]

# (bytes, value): types that others send and Harebell does not
READ_ONLY_VALUES: list[tuple[bytes, FieldValue]] = [
    (b"b\xff", -1),
    (b"B\xff", 255),
    (b"s\xff\xfe", -2),
    (b"u\xff\xfe", 65_534),
    (b"i\xff\xff\xff\xff", 0xFFFF_FFFF),
    (b"L\xff\xff\xff\xff\xff\xff\xff\xff", -1),
    (b"f\x3f\x00\x00\x00", 0.5),
    (b"t\x02", True),
    (b"S\x00\x00\x00\x01\xff", b"\xff"),  # a long string that is no text
    (b"x\x00\x00\x00\x01a", b"a"),
    (b"T" + b"\xff" * 8, (1 << 64) - 1),  # seconds that no datetime can hold
    (b"T" + longlong(1_357_041_600_000), 1_357_041_600_000),
]

TABLE: Table = {"a": 1}
TABLE_RAW = long(7) + b"\x01aI\x00\x00\x00\x01"

METHODS: list[tuple[Method, bytes]] = [
    (
        m.ConnectionStart(0, 9, TABLE, b"PLAIN", b"en_US"),
        ids(10, 10) + b"\0\x09" + TABLE_RAW + ls(b"PLAIN") + ls(b"en_US"),
    ),
    (
        m.ConnectionStartOk(TABLE, "PLAIN", b"\0g\0p", "en_US"),
        ids(10, 11) + TABLE_RAW + s("PLAIN") + ls(b"\0g\0p") + s("en_US"),
    ),
    (m.ConnectionSecure(b"why"), ids(10, 20) + ls(b"why")),
    (m.ConnectionSecureOk(b"so"), ids(10, 21) + ls(b"so")),
    (m.ConnectionTune(2047, 131072, 60), ids(10, 30) + short(2047) + long(131072) + short(60)),
    (m.ConnectionTuneOk(1, 4096, 0), ids(10, 31) + short(1) + long(4096) + short(0)),
    (m.ConnectionOpen("/"), ids(10, 40) + s("/") + s("") + b"\0"),
    (m.ConnectionOpenOk(), ids(10, 41) + s("")),
    (m.ConnectionClose(320, "bye", 10, 40), ids(10, 50) + short(320) + s("bye") + short(10) + short(40)),
    (m.ConnectionCloseOk(), ids(10, 51)),
    (m.ConnectionBlocked("low on memory"), ids(10, 60) + s("low on memory")),
    (m.ConnectionUnblocked(), ids(10, 61)),
    (m.ConnectionUpdateSecret(b"new", "expired"), ids(10, 70) + ls(b"new") + s("expired")),
    (m.ConnectionUpdateSecretOk(), ids(10, 71)),
    (m.ChannelOpen(), ids(20, 10) + s("")),
    (m.ChannelOpenOk(), ids(20, 11) + ls(b"")),
    (m.AccessRequest("/data", False, True, True, False, True), ids(30, 10) + s("/data") + b"\x16"),
    (m.AccessRequestOk(1), ids(30, 11) + b"\0\1"),
    (m.ChannelFlow(True), ids(20, 20) + b"\1"),
    (m.ChannelFlowOk(True), ids(20, 21) + b"\1"),
    (m.ChannelClose(404, "no", 50, 10), ids(20, 40) + short(404) + s("no") + short(50) + short(10)),
    (m.ChannelCloseOk(), ids(20, 41)),
    (
        m.ExchangeDeclare("e", "topic", durable=True, internal=True, arguments=TABLE),
        ids(40, 10) + short(0) + s("e") + s("topic") + b"\x0a" + TABLE_RAW,
    ),
    (m.ExchangeDeclareOk(), ids(40, 11)),
    (m.ExchangeDelete("e", True, False), ids(40, 20) + short(0) + s("e") + b"\1"),
    (m.ExchangeDeleteOk(), ids(40, 21)),
    (
        m.ExchangeBind("to", "from", "k", True, TABLE),
        ids(40, 30) + short(0) + s("to") + s("from") + s("k") + b"\1" + TABLE_RAW,
    ),
    (m.ExchangeBindOk(), ids(40, 31)),
    (m.ExchangeUnbind("to", "from", "k"), ids(40, 40) + short(0) + s("to") + s("from") + s("k") + b"\0" + long(0)),
    (m.ExchangeUnbindOk(), ids(40, 51)),
    (
        m.QueueDeclare("q", durable=True, auto_delete=True, no_wait=True, arguments=TABLE),
        ids(50, 10) + short(0) + s("q") + b"\x1a" + TABLE_RAW,
    ),
    (m.QueueDeclareOk("q", 3, 2), ids(50, 11) + s("q") + long(3) + long(2)),
    (m.QueueBind("q", "e", "k", False, TABLE), ids(50, 20) + short(0) + s("q") + s("e") + s("k") + b"\0" + TABLE_RAW),
    (m.QueueBindOk(), ids(50, 21)),
    (m.QueueUnbind("q", "e", "k", TABLE), ids(50, 50) + short(0) + s("q") + s("e") + s("k") + TABLE_RAW),
    (m.QueueUnbindOk(), ids(50, 51)),
    (m.QueuePurge("q", True), ids(50, 30) + short(0) + s("q") + b"\1"),
    (m.QueuePurgeOk(9), ids(50, 31) + long(9)),
    (m.QueueDelete("q", False, True, True), ids(50, 40) + short(0) + s("q") + b"\6"),
    (m.QueueDeleteOk(9), ids(50, 41) + long(9)),
    (m.BasicQos(0, 10, True), ids(60, 10) + long(0) + short(10) + b"\1"),
    (m.BasicQosOk(), ids(60, 11)),
    (
        m.BasicConsume("q", "c", no_ack=True, no_wait=True, arguments=TABLE),
        ids(60, 20) + short(0) + s("q") + s("c") + b"\x0a" + TABLE_RAW,
    ),
    (m.BasicConsumeOk("c"), ids(60, 21) + s("c")),
    (m.BasicCancel("c", True), ids(60, 30) + s("c") + b"\1"),
    (m.BasicCancelOk("c"), ids(60, 31) + s("c")),
    (m.BasicPublish("e", "k", True, False), ids(60, 40) + short(0) + s("e") + s("k") + b"\1"),
    (m.BasicReturn(312, "NO_ROUTE", "e", "k"), ids(60, 50) + short(312) + s("NO_ROUTE") + s("e") + s("k")),
    (m.BasicDeliver("c", 1 << 40, True, "e", "k"), ids(60, 60) + s("c") + longlong(1 << 40) + b"\1" + s("e") + s("k")),
    (m.BasicGet("q", True), ids(60, 70) + short(0) + s("q") + b"\1"),
    (m.BasicGetOk(7, False, "e", "k", 5), ids(60, 71) + longlong(7) + b"\0" + s("e") + s("k") + long(5)),
    (m.BasicGetEmpty(), ids(60, 72) + s("")),
    (m.BasicAck(7, True), ids(60, 80) + longlong(7) + b"\1"),
    (m.BasicReject(7, True), ids(60, 90) + longlong(7) + b"\1"),
    (m.BasicRecoverAsync(True), ids(60, 100) + b"\1"),
    (m.BasicRecover(True), ids(60, 110) + b"\1"),
    (m.BasicRecoverOk(), ids(60, 111)),
    (m.BasicNack(7, False, True), ids(60, 120) + longlong(7) + b"\2"),
    (m.ConfirmSelect(True), ids(85, 10) + b"\1"),
    (m.ConfirmSelectOk(), ids(85, 11)),
    (m.TxSelect(), ids(90, 10)),
    (m.TxSelectOk(), ids(90, 11)),
    (m.TxCommit(), ids(90, 20)),
    (m.TxCommitOk(), ids(90, 21)),
    (m.TxRollback(), ids(90, 30)),
    (m.TxRollbackOk(), ids(90, 31)),
]

PROPERTIES: list[tuple[Properties, bytes]] = [
    (Properties(), b"\0\0"),
    (Properties(content_type="a/b"), b"\x80\0" + s("a/b")),
    (Properties(content_encoding="gzip"), b"\x40\0" + s("gzip")),
    (Properties(headers={}), b"\x20\0" + long(0)),
    (Properties(headers=TABLE), b"\x20\0" + TABLE_RAW),
    (Properties(delivery_mode=2), b"\x10\0\2"),
    (Properties(priority=255), b"\x08\0\xff"),
    (Properties(correlation_id="c"), b"\x04\0" + s("c")),
    (Properties(reply_to="r"), b"\x02\0" + s("r")),
    (Properties(expiration="60000"), b"\x01\0" + s("60000")),
    (Properties(message_id=""), b"\0\x80\0"),
    (Properties(timestamp=NOON), b"\0\x40" + NOON_SECONDS),
    (Properties(type="t"), b"\0\x20" + s("t")),
    (Properties(user_id="u"), b"\0\x10" + s("u")),
    (Properties(app_id="a"), b"\0\x08" + s("a")),
    (Properties(reserved="x"), b"\0\x04" + s("x")),
    (
        Properties(
            content_type="a/b",
            content_encoding="gzip",
            headers=TABLE,
            delivery_mode=1,
            priority=0,
            correlation_id="c",
            reply_to="r",
            expiration="1",
            message_id="m",
            timestamp=NOON,
            type="t",
            user_id="u",
            app_id="a",
            reserved="x",
        ),
        b"\xff\xfc"
        + s("a/b")
        + s("gzip")
        + TABLE_RAW
        + b"\1\0"
        + s("c")
        + s("r")
        + s("1")
        + s("m")
        + NOON_SECONDS
        + s("t")
        + s("u")
        + s("a")
        + s("x"),
    ),
]

MALFORMED_PROPERTIES: list[bytes] = [
    b"\0\1",  # a second flags word, which nobody sends
    b"\0\2",
    b"\0\0\0",  # bytes after the last property
    b"\x10\0",
    b"\x80\0",
    b"\x80\0\5abc",
    b"\x80\0\3abcd",
    b"\x20\0\0\0",
    b"\x20\0\0\0\0\1",
    b"\x20\0\0\0\0\2\1a",  # a name and no value
    b"\x20\0\0\0\0\3\1aV\0",
    b"\x20\0\0\0\0\3\1aq",  # an unknown type letter
    b"\x20\0\0\0\0\4\1aI\0",
    b"\x20\0\0\0\0\7\1aS\0\0\0\1",
    b"\x20\0\0\0\0\7\1aF\0\0\0\1",
    b"\x20\0\0\0\0\7\1aA\0\0\0\1",
    b"\x20\0\0\0\0\7\1aA\0\0\0\1V",  # the array ends behind its table
    b"\x20\0\0\0\0\x09\1aA\0\0\0\1t\1",  # the array's element ends behind its array
    b"\0\x40\0\0\0\0",
]


# -- engines in a given state ------------------------------------------------------------------------------------


def pump(client: Engine, server: Engine) -> None:
    """Carry bytes until both are quiet, and forget the events."""
    while (up := client.data_to_send()) or (down := server.data_to_send()):
        if up:
            server.receive_data(up)
        else:
            client.receive_data(down)
    client.events()
    server.events()


def started(server_tune: tuple[int, int, int] = (2047, 131072, 0), **limits: int) -> tuple[Engine, Engine]:
    """A client and a server that wait for tune-ok."""
    client, server = Engine(Role.CLIENT, **limits), Engine(Role.SERVER, **limits)
    client.send_header()
    pump(client, server)
    server.send_method(0, m.ConnectionStart(0, 9, {}, b"PLAIN", b"en_US"))
    pump(client, server)
    client.send_method(0, m.ConnectionStartOk({}, "PLAIN", b"\0guest\0guest", "en_US"))
    pump(client, server)
    server.send_method(0, m.ConnectionTune(*server_tune))
    pump(client, server)
    return client, server


def opened(*channels: int, tune: tuple[int, int, int] = (2047, 131072, 0), **limits: int) -> tuple[Engine, Engine]:
    """A client and a server with an open connection and these channels open."""
    client, server = started(tune, **limits)
    client.send_method(0, m.ConnectionTuneOk(*tune))
    client.send_method(0, m.ConnectionOpen("/"))
    pump(client, server)
    server.send_method(0, m.ConnectionOpenOk())
    pump(client, server)
    for channel in channels:
        client.send_method(channel, m.ChannelOpen())
        pump(client, server)
        server.send_method(channel, m.ChannelOpenOk())
        pump(client, server)
    return client, server


PUBLISH = encode_method(1, m.BasicPublish("e", "k"))


def header(size: int, raw: bytes = b"\0\0", channel: int = 1, class_id: int = 60, weight: int = 0) -> bytes:
    return encode_frame(2, channel, HEADER_FIXED.pack(class_id, weight, size) + raw)


def body(data: bytes, channel: int = 1) -> bytes:
    return encode_frame(3, channel, data)
