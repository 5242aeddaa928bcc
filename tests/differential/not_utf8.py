"""Scripts with bytes that are not UTF-8: names, keys and tags of every method, properties, tables, the greeting."""

from __future__ import annotations

from typing import Any

from harebell.protocol.v091 import Properties, methods as m
from tests.differential.driver import Login, Publish, Send
from tests.differential.scripts import Case

__all__ = ["NOT_UTF8_CASES"]

BAD = "n\udcff"
QUOTED = ("expiration", "user_id")  # the properties that a refusal quotes

METHODS: tuple[m.Method, ...] = (
    m.ExchangeDeclare(BAD, "direct"), m.ExchangeDeclare(BAD, "direct", passive=True), m.ExchangeDeclare("u8x", BAD),
    m.ExchangeDelete(BAD), m.ExchangeBind(BAD, "amq.direct", ""), m.ExchangeBind("amq.direct", BAD, ""),
    m.ExchangeBind("amq.direct", "amq.topic", BAD), m.ExchangeUnbind(BAD, "amq.direct", ""),
    m.ExchangeUnbind("amq.direct", BAD, ""), m.ExchangeUnbind("amq.direct", "amq.topic", BAD),
    m.QueueDeclare(BAD), m.QueueDeclare(BAD, passive=True), m.QueueBind(BAD, "amq.direct", "k"),
    m.QueueBind("u8", BAD, "k"), m.QueueBind("u8", "amq.direct", BAD), m.QueueUnbind(BAD, "amq.direct", "k"),
    m.QueueUnbind("u8", BAD, "k"), m.QueueUnbind("u8", "amq.direct", BAD), m.QueuePurge(BAD), m.QueueDelete(BAD),
    m.BasicGet(BAD), m.BasicConsume(BAD, "t"), m.BasicConsume("u8", BAD), m.BasicCancel(BAD), m.ChannelClose(200, BAD),
    m.ConnectionClose(200, BAD), m.ConnectionUpdateSecret(b"guest", BAD),
)  # fmt: skip

PROPERTIES: tuple[dict[str, Any], ...] = (
    *({name: BAD} for name in ("content_type", "content_encoding", "correlation_id", "reply_to", "expiration",
                               "message_id", "type", "user_id", "app_id")),
    {"headers": {BAD: "a"}}, {"headers": {"a": b"\xff"}}, {"headers": {"a": {BAD: [BAD]}}}, {"headers": {"CC": [BAD]}},
    {"headers": {"BCC": [BAD]}}, {"headers": {"CC": ["u8", BAD]}},
)  # fmt: skip

TABLES: tuple[m.Method, ...] = (
    m.QueueDeclare("u8a", arguments={BAD: 1}), m.QueueDeclare("u8a", arguments={"a": BAD}),
    m.ExchangeDeclare("u8x", "direct", arguments={BAD: 1}), m.ExchangeDeclare("u8x", "direct", arguments={"a": BAD}),
    m.QueueBind("u8", "amq.headers", "", arguments={BAD: 1}),
    m.QueueBind("u8", "amq.headers", "", arguments={"a": BAD}),
    m.BasicConsume("u8", "t", arguments={"a": BAD}),
)  # fmt: skip

DEAD_LETTERS = Send("a", 1, m.QueueDeclare("u8a", arguments={"x-dead-letter-exchange": BAD}))
QUEUE = Send("a", 1, m.QueueDeclare("u8", exclusive=True))


def channel_of(method: m.Method) -> int:
    return 0 if method.CLASS_ID == m.ConnectionOpen.CLASS_ID else 1


def name_of(method: m.Method) -> str:
    fields = [name for name in m.SHORT_STRINGS[type(method)] if getattr(method, name) == BAD]
    return f"{method.NAME} {fields[0] if fields else 'arguments'}"


def properties_case(number: int, properties: dict[str, Any]) -> Case:
    steps = (
        QUEUE,
        Publish("a", 1, "", "u8", b"1", Properties(**properties)),
        Send("a", 1, m.BasicGet("u8", no_ack=True)),
    )
    name = next(iter(properties))
    differs = "properties-not-utf8" if name in QUOTED else ""
    return Case(f"not UTF-8: property {name} ({number})", steps, differs)


NOT_UTF8_CASES = [
    *(Case(f"not UTF-8: {name_of(method)} ({number})", (QUEUE, Send("a", channel_of(method), method)))
      for number, method in enumerate(METHODS)),
    *(Case(f"not UTF-8: {name_of(method)} ({number})", (QUEUE, Send("a", 1, method)))
      for number, method in enumerate(TABLES)),
    *(properties_case(number, each) for number, each in enumerate(PROPERTIES)),
    *(Case(f"not UTF-8: published to {exchange!r}", (Publish("a", 1, exchange, key, b"1", mandatory=True),))
      for exchange, key in (("", BAD), ("amq.direct", BAD), ("amq.topic", BAD))),
    Case("not UTF-8: published to such a name", (Publish("a", 1, BAD, "k", b"1"),), differs="publish-not-utf8"),
    Case("not UTF-8: virtual host", (Login("a", vhost=BAD),)),
    Case("not UTF-8: user", (Login("a", response=b"\0\xff\0guest"),)),
    Case("not UTF-8: password", (Login("a", response=b"\0guest\0\xff"),)),
    Case("not UTF-8: mechanism", (Login("a", mechanism=BAD),), differs="mechanism-not-utf8"),
    Case("not UTF-8: dead-letter exchange", (DEAD_LETTERS,), differs="arguments-not-utf8"),
]  # fmt: skip
