"""The scripts: what is said to both brokers, by subject. A case may name a row of docs/reference/differences.md.

`a(...)` and `b(...)` are two connections; the number is the channel. Queues and exchanges may have any names: they are
deleted before and after. What a script expects is not written here: it is what RabbitMQ does.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from harebell.protocol.v091 import Properties, Table, methods as m
from harebell.protocol.v091.codec import encode_frame, encode_method
from tests.differential.driver import BEYOND, Confirmed, Drop, Login, Publish, Raw, Send, Step, Together, Until

__all__ = ["CASES", "Case"]


@dataclass(frozen=True)
class Case:
    """A script, and the row of the table of differences when the brokers are meant to differ in it."""

    name: str
    steps: tuple[Step, ...]
    differs: str = ""
    without: tuple[str, ...] = BEYOND  # headers that are not compared


def a(channel: int, method: m.Method) -> Send:
    return Send("a", channel, method)


def b(channel: int, method: m.Method) -> Send:
    return Send("b", channel, method)


def declare(name: str = "q", **keywords: Any) -> m.QueueDeclare:
    return m.QueueDeclare(name, **keywords)


def only(flag: str) -> dict[str, Any]:
    return {flag: True}


def with_arguments(**arguments: Any) -> m.QueueDeclare:
    """queue.declare of q with arguments; x_message_ttl stands for x-message-ttl."""
    return m.QueueDeclare("q", arguments=dashed(arguments))


def dashed(arguments: dict[str, Any]) -> Table:
    return {name.replace("_", "-"): value for name, value in arguments.items()}


def passive(name: str = "q") -> m.QueueDeclare:
    return m.QueueDeclare(name, passive=True)


def exchange(name: str = "x", kind: str = "direct", **keywords: Any) -> m.ExchangeDeclare:
    return m.ExchangeDeclare(name, kind, **keywords)


def bind(key: str = "k", source: str = "x", queue: str = "q", **arguments: Any) -> m.QueueBind:
    return m.QueueBind(queue, source, key, arguments=dashed(arguments))


def unbind(key: str = "k", source: str = "x", queue: str = "q", **arguments: Any) -> m.QueueUnbind:
    return m.QueueUnbind(queue, source, key, arguments=dashed(arguments))


def get(queue: str = "q", no_ack: bool = False) -> m.BasicGet:
    return m.BasicGet(queue, no_ack=no_ack)


def consume(queue: str = "q", tag: str = "c", **keywords: Any) -> m.BasicConsume:
    return m.BasicConsume(queue, tag, **keywords)


def ack(tag: int, multiple: bool = False) -> m.BasicAck:
    return m.BasicAck(tag, multiple=multiple)


def nack(tag: int, multiple: bool = False, requeue: bool = True) -> m.BasicNack:
    return m.BasicNack(tag, multiple=multiple, requeue=requeue)


def reject(tag: int, requeue: bool = True) -> m.BasicReject:
    return m.BasicReject(tag, requeue=requeue)


def qos(count: int, global_: bool = False, size: int = 0) -> m.BasicQos:
    return m.BasicQos(size, count, global_=global_)


def put(body: str, key: str = "q", exchange: str = "", connection: str = "a", channel: int = 1, **rest: Any) -> Publish:
    flags = {name: rest.pop(name) for name in ("mandatory", "immediate") if name in rest}
    return Publish(connection, channel, exchange, key, body.encode(), Properties(**rest), **flags)


def fill(count: int, key: str = "q") -> tuple[Publish, ...]:
    return tuple(put(str(number + 1), key) for number in range(count))


OPEN = a(1, m.ChannelOpen())
STREAM: Table = {"x-queue-type": "stream"}
QUORUM: Table = {"x-queue-type": "quorum"}
DEAD: Table = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
CASES: list[Case] = []


def case(name: str, *steps: Step, differs: str = "", without: tuple[str, ...] = BEYOND) -> None:
    CASES.append(Case(name, steps, differs, without))


# ------------------------------------------------------------------------------------------------ queue.declare

case("declare", a(1, declare()), a(1, declare()), a(1, passive()))
for flag in ("durable", "auto_delete", "exclusive"):
    case(f"declare with another {flag}", a(1, declare()), a(1, declare(**only(flag))))
    case(f"declare without {flag}", a(1, declare(**only(flag))), a(1, declare()))
case("everything differs: exclusive is looked at first",
     a(1, declare()), a(1, declare(durable=True, exclusive=True, auto_delete=True, arguments=DEAD)))
case("durable is looked at before auto_delete", a(1, declare()), a(1, declare(durable=True, auto_delete=True)))
case("properties are looked at before arguments", a(1, declare()), a(1, declare(durable=True, arguments=DEAD)))
case("argument differs", a(1, declare(arguments=DEAD)), a(1, declare(arguments={**DEAD, "x-dead-letter-exchange": "y"})))
case("argument missing", a(1, declare(arguments=DEAD)), a(1, declare()))
case("argument extra", a(1, declare()), a(1, declare(arguments={"x-dead-letter-exchange": "y"})))
case("second argument missing", a(1, declare(arguments=DEAD)), a(1, declare(arguments={"x-dead-letter-exchange": ""})))
case("unknown argument differs", a(1, with_arguments(x_foo=1)), a(1, with_arguments(x_foo=2)), a(1, declare()))
case("queue type given and not given", a(1, declare()), a(1, with_arguments(x_queue_type="classic")))
case("queue type not given and given", a(1, with_arguments(x_queue_type="classic")), a(1, declare()))
case("another queue type", a(1, declare(durable=True)), a(1, declare(durable=True, arguments=STREAM)), differs="queue-type-texts")
case("another queue type the other way", a(1, declare(durable=True, arguments=STREAM)), a(1, declare(durable=True)), differs="queue-type-texts")
case("unknown queue type", a(1, with_arguments(x_queue_type="zzz")))
case("queue type is a number", a(1, with_arguments(x_queue_type=5)))
case("unknown queue type of a queue that is there", a(1, declare()), a(1, with_arguments(x_queue_type="zzz")), differs="queue-type-texts")
case("dead-letter key without exchange", a(1, with_arguments(x_dead_letter_routing_key="k")))
case("dead-letter exchange is a number", a(1, with_arguments(x_dead_letter_exchange=5)))
case("dead-letter key is a number", a(1, with_arguments(x_dead_letter_exchange="", x_dead_letter_routing_key=5)))
case("dead-letter exchange is a byte array", a(1, with_arguments(x_dead_letter_exchange=b"\xff")))
case("both dead-letter arguments wrong", a(1, with_arguments(x_dead_letter_exchange=5, x_dead_letter_routing_key=5)))
case("bad argument of a queue that is there", a(1, declare()), a(1, with_arguments(x_dead_letter_routing_key="k")))
case("reserved name", a(1, declare("amq.q")))
case("reserved name, passive", a(1, passive("amq.q")))
case("reserved name with bad arguments", a(1, declare("amq.q", arguments={"x-dead-letter-routing-key": "k"})))
case("passive of nothing", a(1, passive()))
case("passive ignores the rest", a(1, declare()), a(1, declare(passive=True, durable=True, exclusive=True)))
case("passive of the queue last declared", a(1, declare()), a(1, passive("")))
case("passive of no queue at all", a(1, passive("")))
case("server-named", a(1, declare("", exclusive=True)), a(1, m.QueueBind("", "amq.direct", "k")), put("1", "k", "amq.direct"),
     a(1, get("")),
     a(1, declare("", exclusive=True)), a(1, get("")), a(1, m.QueueDelete("")))
case("line feeds leave the name", a(1, declare("q\r\n")), a(1, passive()), put("1"), a(1, get()))
case("line feeds stay in other places", a(1, declare()), a(1, bind("k\n", "amq.direct")), put("1", "k\n", "amq.direct"),
     a(1, get()), a(1, passive("q\n")))
case("declare no_wait", a(1, declare(no_wait=True)), a(1, passive()))
case("declare no_wait, refused", a(1, declare()), a(1, declare(durable=True, no_wait=True)), a(1, passive()))
case("a refusal is the end of what the channel was told",
     a(1, declare()),
     Together((a(1, passive("nope")), put("1"), a(1, declare("q2")), a(1, m.QueueDelete("q")))),
     a(1, passive("q")), a(1, passive("q2")))
case("queues of 200 letters", a(1, declare("q" * 200)), put("1", "q" * 200), a(1, get("q" * 200)))
case("a text of 255 bytes", a(1, passive("q" * 250)))
case("declare counts messages and consumers", a(1, declare()), *fill(3), a(1, get()), a(1, passive()),
     a(2, qos(1)), a(2, consume()), a(1, passive()), a(2, ack(1)), a(1, passive()))

for name, one, other in (
    ("x-message-ttl", 60000, 1000), ("x-expires", 60000, 50000), ("x-max-length", 5, 6), ("x-max-length-bytes", 500, 501),
    ("x-overflow", "drop-head", "reject-publish"), ("x-max-priority", 5, 6), ("x-single-active-consumer", True, False),
    ("x-queue-mode", "lazy", "default"), ("x-queue-master-locator", "min-masters", "random"), ("x-queue-version", 2, 1),
):  # fmt: skip
    case(f"{name}: again, otherwise, and without", a(1, declare(arguments={name: one})), a(1, declare(arguments={name: one})),
         a(1, declare(arguments={name: other})), a(1, declare()))
for name, value in (("x-queue-leader-locator", "client-local"), ("x-initial-cluster-size", 1)):
    case(f"{name} of a stream", a(1, declare(durable=True, arguments={**STREAM, name: value})),
         a(1, declare(durable=True, arguments=STREAM)))
for name, one, other in (("x-max-age", "1D", "24h"), ("x-max-length-bytes", 2_000_000, 1), ("x-stream-max-segment-size-bytes", 1_000_000, 1_000)):
    case(f"{name} of a stream", a(1, declare(durable=True, arguments={**STREAM, name: one})),
         a(1, declare(durable=True, arguments={**STREAM, name: one})), a(1, declare(durable=True, arguments={**STREAM, name: other})),
         a(1, declare(durable=True, arguments=STREAM)))
for value in ("1s", "1m", "1h", "1D", "1M", "1Y", "0s", "1d", "1w", 1, True):
    case(f"x-max-age {value!r}", a(1, declare(durable=True, arguments={**STREAM, "x-max-age": value})), a(1, passive()))
for name, value in (("x-max-length-bytes", -1), ("x-max-length-bytes", "5"), ("x-stream-max-segment-size-bytes", -1),
                    ("x-stream-max-segment-size-bytes", 3_000_000_001), ("x-max-age", "1D"), ("x-stream-max-segment-size-bytes", 5)):
    kind = STREAM if name != "x-max-age" and value != 5 else {}
    case(f"{name} {value!r}, {kind}", a(1, declare(durable=True, arguments={**kind, name: value})))
for name, value in (
    ("x-message-ttl", -1), ("x-message-ttl", "10"), ("x-expires", 0), ("x-max-length", -1), ("x-max-length-bytes", "5"),
    ("x-overflow", "zzz"), ("x-max-priority", 256), ("x-max-priority", -1), ("x-single-active-consumer", 1),
    ("x-queue-mode", "zzz"), ("x-queue-version", 3),
):  # fmt: skip
    case(f"{name} {value!r}", a(1, declare(arguments={name: value})))


def spelt(kind: str, size: int, value: int = 5) -> Raw:
    """queue.declare of q with x-max-length as an integer of that width."""
    field = b"\x0cx-max-length" + kind.encode() + value.to_bytes(size, "big")
    return Raw("a", encode_frame(1, 1, b"\0\x32\0\x0a\0\0\1q\0" + len(field).to_bytes(4, "big") + field))


case("one number in all widths", a(1, with_arguments(x_max_length=5)),
     *(spelt(kind, size) for kind, size in (("b", 1), ("B", 1), ("s", 2), ("u", 2), ("I", 4), ("i", 4), ("l", 8))),
     spelt("s", 2, 6))
case("one number in a short width, then without", OPEN, a(1, m.QueueDelete("q")), spelt("s", 2), a(1, declare()))
case("quorum", a(1, declare(durable=True, arguments=QUORUM)), *fill(2), a(1, get()), a(1, ack(1)), a(1, get()), a(1, get()))
for flag, value in (("durable", False), ("exclusive", True), ("auto_delete", True)):
    case(f"quorum with {flag}={value}", a(1, m.QueueDeclare("q", **{"durable": True, flag: value}, arguments=QUORUM)))
case("quorum with x-max-priority", a(1, declare(durable=True, arguments={**QUORUM, "x-max-priority": 5})))

# ------------------------------------------------------------------------------------ queue.delete, purge, bind

case("delete", a(1, declare()), *fill(3), a(1, m.QueueDelete("q")), a(1, passive()))
case("delete of nothing", a(1, m.QueueDelete("q")))
case("delete of no queue at all", a(1, m.QueueDelete("")))
case("delete if_empty", a(1, declare()), put("1"), a(1, m.QueueDelete("q", if_empty=True)))
case("delete if_empty, empty", a(1, declare()), a(1, m.QueueDelete("q", if_empty=True)), a(1, passive()))
case("delete if_empty with unacked", a(1, declare()), put("1"), a(1, get()), a(1, m.QueueDelete("q", if_empty=True)))
case("delete if_unused", a(1, declare()), a(1, consume()), a(1, m.QueueDelete("q", if_unused=True)))
case("delete if_unused and if_empty, both wrong", a(1, declare()), *fill(2), a(2, qos(1)), a(2, consume()),
     a(1, m.QueueDelete("q", if_unused=True, if_empty=True)))
case("delete strips its name", a(1, declare()), put("1"), a(1, m.QueuePurge("q\n")), a(1, m.QueueDelete("q\n")), a(1, passive()))
case("get, consume and bind do not strip: get", a(1, declare()), a(1, get("q\n")))
case("get, consume and bind do not strip: consume", a(1, declare()), a(1, consume("q\n")))
case("get, consume and bind do not strip: bind", a(1, declare()), a(1, bind("k", "amq.direct", "q\n")))
case("get, consume and bind do not strip: unbind", a(1, declare()), a(1, bind("k", "amq.direct")), a(1, unbind("k", "amq.direct", "q\n")),
     put("1", "k", "amq.direct"), a(1, get()))
case("exchange names are stripped too", a(1, exchange("x\n")), a(1, exchange("x")), a(1, m.ExchangeDelete("x\n")), a(1, exchange("x", passive=True)))
case("exchange bind strips nothing", a(1, exchange()), a(1, m.ExchangeBind("x\n", "amq.fanout", "")))
case("publish strips nothing", a(1, exchange()), put("1", "k", "x\n"))
case("delete no_wait", a(1, declare()), a(1, m.QueueDelete("q", no_wait=True)), a(1, passive()))
case("delete under a consumer", a(1, declare()), a(1, consume()), a(2, m.QueueDelete("q")), a(1, qos(1)))
case("delete under a consumer of the same channel", a(1, declare()), *fill(2), a(1, qos(1)), a(1, consume()), a(1, m.QueueDelete("q")),
     a(1, ack(1)))
case("delete with unacked, then ack", a(1, declare()), *fill(3), a(1, get()), a(1, get()),
     a(1, m.QueueDelete("q")), a(1, ack(1)), a(1, reject(2)), a(1, qos(1)))
case("delete and declare again: what was unacked stays away", a(1, declare()), *fill(2), a(1, get()),
     a(1, m.QueueDelete("q")), a(1, declare()), a(1, reject(1)), a(1, passive()))
case("delete, rejected messages of it do not die", a(1, declare("dead")), a(1, declare(arguments=DEAD)), put("1"),
     a(1, get()), a(1, m.QueueDelete("q")), a(1, reject(1, requeue=False)), a(1, get("dead")))
case("purge", a(1, declare()), *fill(3), a(1, get()), a(1, m.QueuePurge("q")), a(1, reject(1)), a(1, get()))
case("purge of nothing", a(1, m.QueuePurge("q")))
case("purge no_wait", a(1, declare()), *fill(3), a(1, m.QueuePurge("q", no_wait=True)), a(1, passive()))
case("purge of what came back", a(1, declare()), *fill(3), a(1, get()), a(1, reject(1)), a(1, m.QueuePurge("q")),
     *fill(1), a(1, get()))

case("bind", a(1, exchange()), a(1, declare()), a(1, bind()), put("1", "k", "x"), a(1, get()), a(1, unbind()),
     put("2", "k", "x"), a(1, get()))
case("bind: no queue", a(1, exchange()), a(1, bind()))
case("bind: no exchange", a(1, declare()), a(1, bind()))
case("bind: neither", a(1, bind()))
case("bind to the default exchange", a(1, declare()), a(1, bind("k", "")))
case("bind of nothing to the default exchange", a(1, bind("k", "")))
case("bind no_wait", a(1, declare()), a(1, m.QueueBind("q", "amq.fanout", "", no_wait=True)), put("1", "", "amq.fanout"),
     a(1, get()))
case("bind twice", a(1, declare()), a(1, bind("k", "amq.direct")), a(1, bind("k", "amq.direct")),
     put("1", "k", "amq.direct"), a(1, get()), a(1, get()))
case("unbind: no binding", a(1, declare()), a(1, unbind("k", "amq.direct")))
case("unbind: no exchange", a(1, declare()), a(1, unbind()))
case("unbind: no queue", a(1, exchange()), a(1, unbind()))
case("unbind from the default exchange", a(1, declare()), a(1, unbind("k", "")))
case("unbind: arguments tell bindings apart", a(1, declare()), a(1, bind("k", "amq.direct", n=1)),
     a(1, bind("k", "amq.direct", n=2)), a(1, unbind("k", "amq.direct", n=1)), put("1", "k", "amq.direct"), a(1, get()))
case("empty queue name: the last one declared", a(1, declare("q1")), a(1, declare("q2")),
     a(1, m.QueueBind("", "amq.direct", "k")), put("1", "k", "amq.direct"), a(1, get("")), a(1, m.QueuePurge("")),
     a(1, m.QueueUnbind("", "amq.direct", "k")), put("2", "k", "amq.direct", mandatory=True))
case("empty queue name and key: the name is the key", a(1, declare()), a(1, m.QueueBind("", "amq.direct", "")),
     put("1", "q", "amq.direct", mandatory=True), put("2", "", "amq.direct", mandatory=True),
     a(1, m.QueueUnbind("", "amq.direct", "")), put("3", "q", "amq.direct", mandatory=True))
case("a queue's name and an empty key: the key is empty", a(1, declare()), a(1, bind("", "amq.direct")),
     put("1", "q", "amq.direct", mandatory=True), put("2", "", "amq.direct", mandatory=True))
method: m.Method
for method in (m.QueueBind("", "amq.direct", "k"), m.QueueUnbind("", "amq.direct", "k"), get(""), consume(""),
               m.QueuePurge(""), m.QueueDelete("")):  # fmt: skip
    case(f"no previously declared queue: {method.NAME}", a(1, method))
case("the last declared queue is the channel's", a(1, declare()), a(2, get("")))
case("the last declared queue may be gone", a(1, declare()), a(1, m.QueueDelete("q")), a(1, get("")))
case("passive counts as declared", a(1, declare("q1")), a(1, declare("q2")), a(1, passive("q1")), put("1", "q1"),
     a(1, get("")))

# ------------------------------------------------------------------------------------------------- exclusive

EXCLUSIVE = a(1, declare(exclusive=True))
for method in (declare(), declare(exclusive=True), passive(), consume(), get(), bind("k", "amq.direct"),
               m.QueueDelete("q"), m.QueuePurge("q")):  # fmt: skip
    case(f"another's exclusive queue: {method!r}", EXCLUSIVE, b(1, method))
case("another's exclusive queue: unbind of a binding", EXCLUSIVE, a(1, bind("k", "amq.direct")), b(1, unbind("k", "amq.direct")))
case("another's exclusive queue: bind to nothing", EXCLUSIVE, b(1, bind("k", "nope")))
case("another's exclusive queue: bind to the default exchange", EXCLUSIVE, b(1, bind("k", "")))
case("another's exclusive queue takes publications", EXCLUSIVE, put("1", connection="b"), a(1, get()))
case("one's own exclusive queue on another channel", EXCLUSIVE, put("1"), a(2, get()), a(2, declare(exclusive=True)))
case("exclusive queues go with their connection", EXCLUSIVE, a(0, m.ConnectionClose(200, "bye")), b(1, passive()))
case("exclusive queues go with their socket", EXCLUSIVE, b(1, declare("q2")), b(1, m.QueueBind("q2", "amq.direct", "k")),
     Drop("a", until_gone="q"), b(1, qos(1)), b(1, m.QueueDelete("q")), b(1, declare()))
case("exclusive queues stay when a channel closes", EXCLUSIVE, a(1, m.ChannelClose(200, "")), a(2, passive()))

# -------------------------------------------------------------------------------------------------- exchanges

case("exchange", a(1, exchange()), a(1, exchange()), a(1, exchange("x", "", passive=True)), a(1, m.ExchangeDelete("x")),
     a(1, exchange("x", "", passive=True)))
case("exchange of another type", a(1, exchange()), a(1, exchange("x", "fanout")))
for flag in ("durable", "auto_delete", "internal"):
    case(f"exchange with another {flag}", a(1, exchange()), a(1, exchange(**only(flag))))
    case(f"exchange without {flag}", a(1, exchange(**only(flag))), a(1, exchange()))
case("exchange with another alternate", a(1, exchange()), a(1, exchange(arguments={"alternate-exchange": "y"})))
case("exchange without its alternate", a(1, exchange(arguments={"alternate-exchange": "y"})), a(1, exchange()))
case("exchange with an alternate that is a number", a(1, exchange(arguments={"alternate-exchange": 5})))
case("exchange with other arguments", a(1, exchange(arguments={"x": 1})), a(1, exchange(arguments={"x": 2})))
case("exchange of an unknown type", a(1, exchange("x", "zzz")), differs="unknown-exchange-type")
case("exchange of an unknown type that is there", a(1, exchange()), a(1, exchange("x", "zzz")),
     differs="unknown-exchange-type")
case("exchange passive of nothing", a(1, exchange("x", "direct", passive=True)))
case("exchange passive ignores its type", a(1, exchange()), a(1, exchange("x", "zzz", passive=True)))
case("exchange with a reserved name", a(1, exchange("amq.x")))
case("amq.direct again", a(1, exchange("amq.direct", durable=True)))
case("amq.direct otherwise", a(1, exchange("amq.direct")))
case("the default exchange: declare", a(1, exchange("")))
case("the default exchange: passive", a(1, exchange("", passive=True)))
case("the default exchange: delete", a(1, m.ExchangeDelete("")))
case("the default exchange: as a source", a(1, exchange()), a(1, m.ExchangeBind("x", "", "k")))
case("the default exchange: as a destination", a(1, exchange()), a(1, m.ExchangeBind("", "x", "k")))
case("the default exchange: unbind", a(1, exchange()), a(1, m.ExchangeUnbind("x", "", "k")))
case("exchange delete of nothing", a(1, m.ExchangeDelete("x")))
case("exchange delete of amq.direct", a(1, m.ExchangeDelete("amq.direct")))
case("exchange delete of a reserved name that is not there", a(1, m.ExchangeDelete("amq.zzz")))
case("exchange delete if_unused", a(1, exchange()), a(1, declare()), a(1, bind()), a(1, m.ExchangeDelete("x", if_unused=True)))
case("exchange delete if_unused, a destination only", a(1, exchange()), a(1, m.ExchangeBind("x", "amq.direct", "k")),
     a(1, m.ExchangeDelete("x", if_unused=True)), a(1, exchange("x", passive=True)))
case("exchange no_wait", a(1, exchange(no_wait=True)), a(1, m.ExchangeDelete("x", no_wait=True)),
     a(1, exchange(passive=True)))
case("exchange bind", a(1, exchange()), a(1, declare()), a(1, bind()), a(1, m.ExchangeBind("x", "amq.fanout", "")),
     put("1", "k", "amq.fanout"), a(1, get()), a(1, m.ExchangeUnbind("x", "amq.fanout", "")),
     put("2", "k", "amq.fanout", mandatory=True))
case("exchange bind: no source", a(1, exchange()), a(1, m.ExchangeBind("x", "nope", "k")))
case("exchange bind: no destination", a(1, exchange()), a(1, m.ExchangeBind("nope", "x", "k")))
case("exchange bind: neither", a(1, m.ExchangeBind("nope", "nada", "k")))
case("exchange unbind of nothing", a(1, m.ExchangeUnbind("nope", "nada", "k")))
case("auto_delete exchange goes with its last binding", a(1, exchange(auto_delete=True)), a(1, declare()), a(1, bind()),
     a(1, unbind()), a(1, exchange(passive=True)))
case("auto_delete exchange goes with the queue", a(1, exchange(auto_delete=True)), a(1, declare()), a(1, bind()),
     a(1, m.QueueDelete("q")), put("1", "k", "x"))
case("auto_delete exchange that was never bound stays", a(1, exchange(auto_delete=True)), a(1, exchange(auto_delete=True)))
case("auto_delete cascade", a(1, exchange("x", auto_delete=True)), a(1, exchange("y", "fanout", auto_delete=True)),
     a(1, declare()), a(1, bind()), a(1, m.ExchangeBind("x", "y", "")), put("1", "k", "y"), a(1, m.QueueDelete("q")),
     a(1, exchange("y", "fanout", passive=True)))
case("exchange cycle", a(1, exchange("x", "fanout")), a(1, exchange("y", "fanout")), a(1, m.ExchangeBind("x", "y", "")),
     a(1, m.ExchangeBind("y", "x", "")), a(1, m.ExchangeBind("x", "x", "")), a(1, declare()), a(1, bind("")),
     a(1, bind("", "y")), put("1", "", "x"), a(1, get()), a(1, get()))
case("internal exchange", a(1, exchange(internal=True)), put("1", "k", "x"))
case("internal exchange by way of another", a(1, exchange(internal=True)), a(1, declare()), a(1, bind()),
     a(1, m.ExchangeBind("x", "amq.fanout", "")), put("1", "k", "amq.fanout"), a(1, get()))
case("alternate exchange", a(1, exchange("y", "fanout")), a(1, exchange(arguments={"alternate-exchange": "y"})),
     a(1, declare()), a(1, bind("", "y")), put("1", "zzz", "x", mandatory=True), a(1, get()))
case("alternate exchange that is missing", a(1, exchange(arguments={"alternate-exchange": "y"})),
     put("1", "zzz", "x", mandatory=True))
case("alternate exchange, a cycle", a(1, exchange("y", arguments={"alternate-exchange": "x"})),
     a(1, exchange(arguments={"alternate-exchange": "y"})), put("1", "zzz", "x", mandatory=True))
case("alternate exchange, a copy that finds a queue", a(1, exchange("y", "fanout")), a(1, exchange(arguments={"alternate-exchange": "y"})),
     a(1, declare()), a(1, bind()), a(1, declare("q2")), a(1, bind("", "y", "q2")), put("1", "zzz", "x", headers={"CC": ["k"]}),
     put("2", "zzz", "x", headers={"CC": ["also not"]}), a(1, get("q2")), a(1, get()))
case("alternate exchanges in a chain", a(1, exchange("z", "fanout")), a(1, exchange("y", arguments={"alternate-exchange": "z"})),
     a(1, exchange(arguments={"alternate-exchange": "y"})), a(1, declare()), a(1, bind("", "z")),
     put("1", "zzz", "x", mandatory=True), a(1, get()))
case("alternate exchange that is internal", a(1, exchange("y", "fanout", internal=True)), a(1, exchange(arguments={"alternate-exchange": "y"})),
     a(1, declare()), a(1, bind("", "y")), put("1", "zzz", "x", mandatory=True), a(1, get()))
case("alternate exchange of what is bound, not of what is behind", a(1, exchange("y", "fanout")),
     a(1, exchange(arguments={"alternate-exchange": "y"})), a(1, declare()), a(1, bind("", "y")),
     a(1, m.ExchangeBind("x", "amq.fanout", "")), put("1", "zzz", "amq.fanout", mandatory=True), a(1, get()))
case("a queue in several ways: one copy", a(1, exchange("x", "topic")), a(1, declare()), a(1, bind("#")), a(1, bind("a.*")), a(1, bind("a.b")),
     put("1", "a.b", "x", headers={"CC": ["a.c"], "BCC": ["a"]}), a(1, get()), a(1, get()))
case("publications are routed anew after every change", a(1, declare("q1")), a(1, declare("q2")),
     a(1, bind("k", "amq.direct", "q1")), put("1", "k", "amq.direct"), a(1, bind("k", "amq.direct", "q2")),
     put("2", "k", "amq.direct"), a(1, m.QueueDelete("q1")), put("3", "k", "amq.direct"), a(1, m.QueueDelete("q2")),
     put("4", "k", "amq.direct", mandatory=True), a(1, declare("q1")), put("5", "k", "amq.direct", mandatory=True))
case("routed anew within one write", a(1, declare("q1")), Together((
     put("1", "k", "amq.direct", mandatory=True), a(1, bind("k", "amq.direct", "q1")),
     put("2", "k", "amq.direct", mandatory=True), a(1, unbind("k", "amq.direct", "q1")),
     put("3", "k", "amq.direct", mandatory=True))), a(1, get("q1")), a(1, get("q1")))

# -------------------------------------------------------------------------------------------- topic, headers

for pattern in ("a.b", "*", "#", "a.*", "a.#", "#.b", "a.#.b", "*.#", "#.#", "a..b", "", ".", "*.*"):
    case(f"topic {pattern!r}", a(1, declare()), a(1, bind(pattern, "amq.topic")),
         *(put(key, key, "amq.topic", mandatory=True) for key in ("", "a", "a.b", "a.x.b", "a..b", ".", "a.", "b")))
HEADER_SETS: tuple[Table | None, ...] = (None, {"k": 1}, {"k": "1"}, {"k": 1, "l": True}, {"k": None}, {"x-k": 1}, {"l": 2.5})
HEADER_BINDINGS: dict[str, Table] = {
    "all": {"x-match": "all", "k": 1, "l": True}, "any": {"x-match": "any", "k": 1, "l": True}, "default": {"k": 1},
    "all of nothing": {"x-match": "all"}, "any of nothing": {"x-match": "any"}, "void": {"k": None},
    "x- is ignored": {"x-k": 1}, "all-with-x": {"x-match": "all-with-x", "x-k": 1},
    "any-with-x": {"x-match": "any-with-x", "x-k": 1, "k": 1}, "string": {"k": "1"},
}  # fmt: skip
for name, arguments in HEADER_BINDINGS.items():
    case(f"headers {name}", a(1, declare()), a(1, m.QueueBind("q", "amq.headers", "", arguments=arguments)),
         *(put(str(n), "", "amq.headers", mandatory=True, headers=headers) for n, headers in enumerate(HEADER_SETS)))
for match in ("zz", 1, None):
    case(f"headers x-match {match!r}", a(1, declare()), a(1, m.QueueBind("q", "amq.headers", "", arguments={"x-match": match})))
case("headers exchange behind another", a(1, exchange("x", "fanout")), a(1, m.ExchangeBind("amq.headers", "x", "")),
     a(1, declare()), a(1, m.QueueBind("q", "amq.headers", "", arguments={"k": 1})),
     put("1", "", "x", mandatory=True), put("2", "", "x", mandatory=True, headers={"k": 1}),
     put("3", "", "x", mandatory=True, headers={"k": 2}), a(1, get()), a(1, get()))

# -------------------------------------------------------------------------------------------------- publishing

case("publish to a missing exchange", put("1", "k", "nope"))
case("publish to a missing exchange and on", Together((put("1", "k", "nope"), put("2"), a(1, declare()))), a(1, passive()))
case("publish no queue", put("1", "nope"))
case("mandatory", a(1, declare()), put("1", "nope", mandatory=True, content_type="text/plain", headers={"a": 1}), put("2"),
     a(1, get()))
case("mandatory with an empty body", put("", "nope", mandatory=True))
case("empty body", a(1, declare()), put(""), a(1, consume()), put(""), a(1, ack(2, multiple=True)))
case("immediate", a(1, declare()), put("1", immediate=True), differs="immediate")
case("all properties", a(1, declare()), put(
     "1", content_type="text/plain", content_encoding="gzip", headers={"a": 1, "b": [1, {"c": None}], "d": 2.5, "e": True},
     delivery_mode=2, priority=3, correlation_id="c", reply_to="r", message_id="m",
     timestamp=datetime(2020, 1, 1, tzinfo=UTC), type="t", user_id="guest", app_id="app"), a(1, get()))
case("user-id of another", a(1, declare()), put("1", user_id="bob"))
case("user-id empty", a(1, declare()), put("1", user_id=""))
case("expiration", a(1, declare()), put("1", expiration="60000"), a(1, passive()))
case("expiration that is not one", a(1, declare()), put("1", expiration="abc"))
case("CC", a(1, declare("q1")), a(1, declare("q2")), put("1", "q1", headers={"CC": ["q2", "q1"]}), a(1, get("q1")),
     a(1, get("q2")), a(1, passive("q1")))
case("BCC", a(1, declare("q1")), a(1, declare("q2")), put("1", "q1", headers={"BCC": ["q2"], "a": 1}), a(1, get("q1")),
     a(1, get("q2")))
case("BCC alone in its headers", a(1, declare("q1")), put("1", "nope", headers={"BCC": ["q1"]}), a(1, get("q1")))
case("CC is no array", a(1, declare()), put("1", headers={"CC": "q"}))
case("BCC is no array", a(1, declare()), put("1", headers={"BCC": 5}))
case("CC holds numbers", a(1, declare()), put("1", "nope", headers={"CC": [5, "q"]}), a(1, get()))
case("CC and mandatory", a(1, declare()), put("1", "nope", headers={"CC": ["nada"]}, mandatory=True),
     put("2", "nope", headers={"CC": ["q"]}, mandatory=True), a(1, get()))
case("BCC in what is returned", put("1", "nope", headers={"BCC": ["nada"], "a": 1}, mandatory=True))
case("CC and a missing exchange", put("1", "nope", "nope", headers={"CC": ["q"]}))
case("a message of 300 kB", a(1, declare()), put("x" * 300_000), a(2, consume()), a(1, get()))
case("a message of exactly a frame", a(1, declare()), put("x" * (131_072 - 8)), put("x" * (131_072 - 7)), a(2, consume()))
case("reply-to for nobody", a(1, declare()), put("1", reply_to="amq.rabbitmq.reply-to"))

# ---------------------------------------------------------------------------------------------------- confirms

SELECT = a(1, m.ConfirmSelect())
case("confirms", SELECT, a(1, declare()), put("1"), put("2", "nope"), put("3", "nope", mandatory=True), put("4"))
case("confirms of one write", SELECT, a(1, declare()), Together(tuple(put(str(n), "q" if n % 2 else "nope") for n in range(9))))
case("confirm.select again", SELECT, a(1, declare()), put("1"), SELECT, put("2"))
case("confirm.select no_wait", a(1, declare()), a(1, m.ConfirmSelect(no_wait=True)), put("1"), a(1, qos(1)))
case("confirms count from confirm.select on", a(1, declare()), put("1"), SELECT, put("2"))
case("returns come before confirms", SELECT, Together((put("1", "nope", mandatory=True), put("2", "nope", mandatory=True))))
case("confirms of a refused publication", SELECT, a(1, declare()), Together((put("1"), put("2", "k", "nope"), put("3"))),
     a(1, passive()))
case("confirms of a headers exchange", SELECT, a(1, declare()), a(1, m.QueueBind("q", "amq.headers", "", arguments={"k": 1})),
     put("1", "", "amq.headers", headers={"k": 1}), put("2", "", "amq.headers", mandatory=True))
case("confirms of CC and BCC", SELECT, a(1, declare()), put("1", "nope", headers={"CC": ["q"]}),
     put("2", "nope", headers={"BCC": ["q"]}), put("3", "nope", headers={"BCC": ["nada"]}, mandatory=True))
case("confirms are the channel's", SELECT, a(1, declare()), put("1"), put("2", channel=2), put("3"))
case("persistent confirms", SELECT, a(1, declare(durable=True)), put("1", delivery_mode=2), put("2", delivery_mode=2))

# ----------------------------------------------------------------------------------------------- get and acks

case("get", a(1, declare()), a(1, get()), *fill(2), a(1, get()), a(1, get()), a(1, get()))
case("get of nothing", a(1, get()))
case("get no_ack", a(1, declare()), *fill(2), a(1, get("q", True)), a(1, ack(1)), a(1, passive()))
case("ack", a(1, declare()), *fill(3), a(1, get()), a(1, get()), a(1, ack(2)), a(1, ack(1)), a(1, passive()))
for name, method in {"ack": ack(99), "nack": nack(99), "reject": reject(99), "ack 0": ack(0), "nack 0": nack(0),
                     "reject 0": reject(0), "ack multiple": ack(99, True), "nack multiple": nack(99, True)}.items():  # fmt: skip
    case(f"unknown tag: {name}", a(1, declare()), *fill(2), a(1, get()), a(1, method), Until("q", 2), a(1, passive()))
case("ack 0 multiple with nothing outstanding", a(1, ack(0, True)), a(1, nack(0, True)), a(1, qos(1)))
case("ack 0 multiple: everything", a(1, declare()), *fill(3), a(1, get()), a(1, get()), a(1, ack(0, True)), a(1, passive()),
     a(1, ack(2)))
case("ack twice", a(1, declare()), *fill(2), a(1, get()), a(1, ack(1)), a(1, ack(1)))
case("ack multiple up to one that is acked", a(1, declare()), *fill(3), a(1, get()), a(1, get()), a(1, get()),
     a(1, ack(2)), a(1, ack(2, True)), a(1, passive()))
case("ack multiple between", a(1, declare()), *fill(4), a(1, get()), a(1, get()), a(1, get()), a(1, ack(1)),
     a(1, ack(2, True)), a(1, nack(3, True)), a(1, get()))
case("ack on another channel", a(1, declare()), *fill(1), a(1, get()), a(2, ack(1)), a(1, ack(1)))
case("ack of consumed and got with one multiple", a(1, declare()), *fill(1), a(1, get()), a(1, consume()), put("2"),
     a(1, ack(2, True)), a(1, ack(1)))
case("nack", a(1, declare()), *fill(3), a(1, get()), a(1, get()), a(1, nack(2, True)), a(1, get()), a(1, get()), a(1, get()))
case("nack without requeue", a(1, declare()), *fill(3), a(1, get()), a(1, get()), a(1, nack(2, True, False)), a(1, get()))
case("requeue: where it stood", a(1, declare()), *fill(5), a(1, get()), a(1, get()), a(1, get()), a(1, reject(2)),
     a(1, get()), a(1, get()), a(1, m.ChannelClose(200, "")), *(a(1, get()) for _ in range(6)))
case("a closed channel gives back to other consumers", a(1, declare()), *fill(3), a(2, consume("q", "c2")),
     b(1, consume("q", "c1")), a(2, m.ChannelClose(200, "")), put("4"))
case("a lost connection gives back", a(1, declare()), *fill(3), b(1, consume()), Drop("b"), a(1, consume("q", "d")))
case("recover", a(1, declare()), *fill(3), a(1, get()), a(1, get()), a(1, m.BasicRecover(requeue=True)), a(1, get()),
     a(1, get()), a(1, get()), a(1, ack(1)))
case("recover with a consumer", a(1, declare()), *fill(3), a(1, qos(2)), a(1, consume()), a(1, m.BasicRecover(requeue=True)),
     a(1, ack(4, True)))
case("recover-async", a(1, declare()), *fill(2), a(1, get()), a(1, m.BasicRecoverAsync(requeue=True)), a(1, get()))
case("recover with nothing outstanding", a(1, m.BasicRecover(requeue=True)))
case("recover without requeue", a(1, declare()), *fill(1), a(1, get()), a(1, m.BasicRecover(requeue=False)),
     differs="recover-same-consumer")
case("recover-async without requeue", a(1, declare()), *fill(1), a(1, get()), a(1, m.BasicRecoverAsync(requeue=False)),
     differs="recover-same-consumer")

# --------------------------------------------------------------------------------------------------- consumers

case("consume", a(1, declare()), *fill(3), a(1, consume()), a(1, ack(3, True)), put("4"), a(1, m.BasicCancel("c")),
     put("5"), a(1, passive()))
case("consume, the tag is the broker's", a(1, declare()), a(1, consume("q", "")), put("1"))
case("consume of nothing", a(1, consume()))
case("consume no_wait", a(1, declare()), put("1"), a(1, consume("q", "c", no_wait=True)))
case("consumer tag used twice", a(1, declare()), a(1, consume()), a(1, consume()))
case("consumer tag used twice, another queue that is missing", a(1, declare()), a(1, consume()), a(1, consume("nope")))
case("consumer tag of another channel", a(1, declare()), a(1, consume()), a(2, consume()))
case("consumer tag used again after cancel", a(1, declare()), a(1, consume()), a(1, m.BasicCancel("c")), a(1, consume()), put("1"))
case("cancel of nothing", a(1, m.BasicCancel("nope")))
case("cancel no_wait", a(1, declare()), a(1, consume()), a(1, m.BasicCancel("c", no_wait=True)), put("1"), a(1, passive()))
case("cancel leaves unacked", a(1, declare()), *fill(2), a(1, consume()), a(1, m.BasicCancel("c")), a(1, passive()),
     a(1, nack(1)), a(1, get()), a(1, ack(2)))
case("cancel, then close", a(1, declare()), *fill(2), a(1, consume()), a(1, m.BasicCancel("c")), a(1, m.ChannelClose(200, "")),
     a(1, get()), a(1, get()))
case("no_ack", a(1, declare()), *fill(2), a(1, qos(1)), a(1, consume("q", "c", no_ack=True)), put("3"), a(1, ack(1)))
case("exclusive consumer, then another", a(1, declare()), a(1, consume("q", "c", exclusive=True)), a(1, consume("q", "d")))
case("exclusive consumer where there is one", a(1, declare()), a(1, consume()), a(1, consume("q", "d", exclusive=True)))
case("exclusive consumer after cancel", a(1, declare()), a(1, consume("q", "c", exclusive=True)), a(1, m.BasicCancel("c")),
     a(1, consume("q", "d")), put("1"))
case("exclusive consumer, one gets", a(1, declare()), a(1, consume("q", "c", exclusive=True)), a(2, get()))
case("two consumers in turn", a(1, declare()), a(1, consume("q", "c")), b(1, consume("q", "d")), *fill(6))
case("two consumers, one full", a(1, declare()), a(1, qos(1)), a(1, consume("q", "c")), a(2, qos(2)), a(2, consume("q", "d")),
     *fill(5), a(1, ack(1)), a(2, ack(1)))
case("two consumers of one channel, another prefetch each", a(1, declare()), a(1, qos(1)), a(1, consume("q", "c")), a(1, qos(2)),
     a(1, consume("q", "d")), *fill(5), differs="qos-on-live-consumers")
case("a consumer is cancelled between", a(1, declare()), a(1, consume("q", "c")), a(1, consume("q", "d")), put("1"),
     a(1, m.BasicCancel("c")), put("2"), put("3"))
case("auto_delete queue", a(1, declare(auto_delete=True)), a(1, consume()), a(1, m.BasicCancel("c")), a(1, passive()))
case("auto_delete queue, two consumers", a(1, declare(auto_delete=True)), a(1, consume()), a(1, consume("q", "d")),
     a(1, m.BasicCancel("c")), a(1, passive()), a(1, m.BasicCancel("d")), a(1, passive()))
case("auto_delete queue goes with the channel", a(1, declare(auto_delete=True)), a(2, consume()), a(2, m.ChannelClose(200, "")),
     a(1, passive()))
case("auto_delete queue that had no consumer", a(1, declare(auto_delete=True)), a(1, get()), a(1, m.ChannelClose(200, "")),
     a(2, passive()))
case("auto_delete queue with unacked", a(1, declare(auto_delete=True)), *fill(2), a(1, consume()), a(1, m.BasicCancel("c")),
     a(1, ack(1)), a(1, nack(2)), a(1, qos(1)))
case("x-priority is no number", a(1, declare()), a(1, consume("q", "c", arguments={"x-priority": "1"})))
case("x-priority", a(1, declare()), a(1, consume("q", "c", arguments={"x-priority": 1})))
case("unknown consumer argument", a(1, declare()), a(1, consume("q", "c", arguments={"x-foo": 1})), put("1"))
case("x-stream-offset at a classic queue", a(1, declare()), a(1, consume("q", "c", arguments={"x-stream-offset": "first"})))
case("no_local means nothing", a(1, declare()), a(1, consume("q", "c", no_local=True)), put("1"))
case("direct reply-to", a(1, consume("amq.rabbitmq.reply-to", "c", no_ack=True)))
case("direct reply-to with acks", a(1, consume("amq.rabbitmq.reply-to", "c")))

# ---------------------------------------------------------------------------------------------------- prefetch

case("prefetch", a(1, declare()), *fill(5), a(1, qos(2)), a(1, consume()), a(1, ack(1)), a(1, nack(2, False, False)),
     a(1, ack(4, True)), put("6"), put("7"))
case("prefetch 1 of a consumer at work", a(1, declare()), *fill(5), a(1, qos(3)), a(1, consume()), a(1, qos(1)), a(1, ack(1)), a(1, ack(2)),
     differs="qos-on-live-consumers")
case("prefetch is for consumers to come", a(1, declare()), a(1, qos(1)), a(1, consume()), a(1, qos(0)), *fill(3),
     a(1, consume("q", "d")), differs="qos-on-live-consumers")
case("prefetch and get", a(1, declare()), *fill(5), a(1, qos(1)), a(1, consume()), a(1, get()), a(1, get()), a(1, ack(1)))
case("prefetch 0", a(1, declare()), a(1, qos(0)), *fill(5), a(1, consume()))
case("prefetch size", a(1, qos(0, size=10)))
case("prefetch requeue into a full window", a(1, declare()), *fill(3), a(1, qos(1)), a(1, consume()), a(1, nack(1)),
     a(1, nack(2)), a(1, ack(3)))
case("global prefetch", a(1, declare("q1")), a(1, declare("q2")), a(1, qos(3, True)), a(1, consume("q1", "c")),
     *fill(2, "q1"), a(1, consume("q2", "d")), *fill(2, "q2"), a(1, ack(1)))
case("global prefetch and the consumers' own: both hold", a(1, declare()), a(1, qos(2)), a(1, qos(3, True)), a(1, consume("q", "c")),
     *fill(4), a(1, consume("q", "d")), put("5"), a(1, passive()))
case("global prefetch is over when the consumers' own comes after it", a(1, declare()), a(1, qos(1, True)), a(1, qos(2)), a(1, consume()), *fill(3),
     a(1, ack(1)))
case("global prefetch is over, for consumers without one", a(1, declare()), a(1, qos(1, True)), a(1, consume()), *fill(3), a(1, qos(0)), a(1, ack(1)))
case("global prefetch below the consumer's own", a(1, declare()), a(1, qos(2)), a(1, qos(1, True)), a(1, consume()), *fill(3), a(1, ack(1)))
case("prefetch of a cancelled consumer", a(1, declare()), *fill(5), a(1, qos(2)), a(1, consume()), a(1, m.BasicCancel("c")), a(1, consume("q", "d")),
     a(1, ack(2, True)), a(1, ack(4, True)))
case("global prefetch and a consumer without acks, which waits while the window is full", a(1, declare("q1")), a(1, declare("q2")),
     a(1, qos(2, True)), a(1, m.BasicConsume("q1", "c", no_ack=True)), put("1", "q1"), put("2", "q1"), put("3", "q1"),
     a(1, consume("q2", "d")), put("4", "q2"), put("5", "q2"), put("6", "q1"), a(1, ack(4)))
case("global prefetch raised", a(1, declare()), a(1, qos(1, True)), a(1, consume()), *fill(4), a(1, qos(3, True)))
case("global prefetch taken away", a(1, declare()), a(1, qos(1, True)), a(1, consume()), *fill(4), a(1, qos(0, True)))
case("global prefetch lowered below what is out", a(1, declare()), a(1, consume()), *fill(3), a(1, qos(2, True)), put("4"),
     a(1, ack(1)), a(1, ack(2)), a(1, ack(3)))
case("global prefetch set with messages out", a(1, declare()), a(1, consume()), *fill(2), a(1, qos(3, True)), put("3"),
     put("4"), a(1, ack(1)))
case("global prefetch and a cancelled consumer", a(1, declare()), a(1, qos(2, True)), a(1, consume()), *fill(4),
     a(1, m.BasicCancel("c")), a(1, consume("q", "d")), a(1, ack(1)), a(1, ack(2)))
case("global prefetch does not count what get took", a(1, declare()), *fill(4), a(1, get()), a(1, qos(1, True)),
     a(1, get()), a(1, consume()), a(1, ack(1)), differs="global-prefetch-and-get")
case("global prefetch does not count no_ack", a(1, declare()), a(1, qos(1, True)), a(1, consume("q", "c", no_ack=True)), *fill(3))
case("global prefetch is the channel's", a(1, declare()), a(1, qos(1, True)), a(2, consume()), *fill(3))
# A third message that waited would be a race: RabbitMQ's queue hears of the room and of the requeue from two processes.
case("global prefetch and requeue", a(1, declare()), a(1, qos(2, True)), a(1, consume()), *fill(2), a(1, nack(2, True)),
     put("3"), a(1, ack(4, True)))
case("global prefetch and recover", a(1, declare()), a(1, qos(2, True)), a(1, consume()), *fill(3),
     a(1, m.BasicRecover(requeue=True)))

# ----------------------------------------------------------------------------------------------- dead letters

DYING = (a(1, declare("dead")), a(1, declare(arguments=DEAD)))
case("dead letter", *DYING, put("1", content_type="t", delivery_mode=2, headers={"a": 1}), a(1, get()),
     a(1, reject(1, False)), a(1, get("dead")), differs="x-last-death", without=())
case("dead letter: x-death", *DYING, put("1", content_type="t", delivery_mode=2, headers={"a": 1}), a(1, get()),
     a(1, reject(1, False)), a(1, get("dead")))
case("dead letter on requeue: none", *DYING, put("1"), a(1, get()), a(1, reject(1)), a(1, get("dead")), a(1, get()))
case("dead letters of nack multiple", *DYING, *fill(3), a(1, get()), a(1, get()), a(1, get()), a(1, nack(3, True, False)),
     a(1, passive("dead")))
case("dead-letter exchange that is missing", a(1, declare(arguments={"x-dead-letter-exchange": "nope"})), put("1"), a(1, get()),
     a(1, reject(1, False)), a(1, passive()))
case("dead letter that nobody wants", a(1, declare(arguments={"x-dead-letter-exchange": "amq.direct"})), put("1"), a(1, get()),
     a(1, reject(1, False)), a(1, passive()))
case("dead letter: the message stays as it was", *DYING, put(
     "1", content_type="t", content_encoding="e", delivery_mode=2, priority=3, correlation_id="c", reply_to="r", message_id="m",
     timestamp=datetime(2020, 1, 1, tzinfo=UTC), type="t", user_id="guest", app_id="app"), a(1, get()), a(1, reject(1, False)),
     a(1, get("dead")))
case("no dead letters of a queue that is deleted", *DYING, *fill(2), a(1, get()), a(1, m.QueueDelete("q")), a(1, reject(1, False)),
     a(1, passive("dead")))
case("a death after another, three queues", a(1, declare("q3")),
     a(1, declare("q2", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q3"})),
     a(1, declare("q1", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q2"})), put("1", "q1"), a(1, get("q1")),
     a(1, reject(1, False)), a(1, get("q2")), a(1, reject(2, False)), a(1, get("q3")))
case("no dead letters of a purge", *DYING, *fill(2), a(1, m.QueuePurge("q")), a(1, m.QueueDelete("q")), a(1, passive("dead")))
case("dead letter through an internal exchange", a(1, exchange(internal=True)), a(1, declare("dead")), a(1, bind("q", "x", "dead")),
     a(1, declare(arguments={"x-dead-letter-exchange": "x"})), put("1"), a(1, get()), a(1, reject(1, False)), a(1, passive("dead")))
case("dead letter through an alternate exchange", a(1, exchange("y", "fanout")), a(1, exchange(arguments={"alternate-exchange": "y"})),
     a(1, declare("dead")), a(1, bind("", "y", "dead")), a(1, declare(arguments={"x-dead-letter-exchange": "x"})), put("1"),
     a(1, get()), a(1, reject(1, False)), a(1, passive("dead")))
case("dead letter with CC", a(1, declare("cc")), a(1, declare(arguments={"x-dead-letter-exchange": "amq.direct"})),
     a(1, bind("zzz", "amq.direct", "cc")), put("1", headers={"CC": ["zzz"]}), a(1, get()), a(1, reject(1, False)),
     a(1, get("cc")))
case("dead letter with CC, the queue has a key", *DYING, a(1, declare("q2")), put("1", headers={"CC": ["q2"], "a": 1}), a(1, get()),
     a(1, reject(1, False)), a(1, get("dead")), differs="dead-letter-cc")
case("a queue that is its own dead-letter queue", a(1, declare(arguments={"x-dead-letter-exchange": ""})), put("1"),
     a(1, get()), a(1, reject(1, False)), a(1, get()), a(1, reject(2, False)), a(1, get()))
case("dead letters in a ring", a(1, declare("q1", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q2"})),
     a(1, declare("q2", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q1"})), put("1", "q1"),
     a(1, get("q1")), a(1, reject(1, False)), a(1, get("q2")), a(1, reject(2, False)), a(1, get("q1")))
case("x-death of a publisher", *DYING, put("1", headers={"x-death": [{"queue": "q", "reason": "rejected", "count": 5}]}),
     a(1, get()), a(1, reject(1, False)), a(1, get("dead")), differs="x-death-of-a-publisher")

# ------------------------------------------------------------------------------------------------------ streams

LOG = a(1, declare(durable=True, arguments=STREAM))
for flag, value in (("durable", False), ("exclusive", True), ("auto_delete", True)):
    keywords: dict[str, Any] = {"durable": True, flag: value}
    case(f"stream with {flag}={value}", a(1, declare(arguments=STREAM, **keywords)))
case("stream without a name", a(1, declare("", durable=True, arguments=STREAM)))
case("stream with everything wrong", a(1, declare("", exclusive=True, auto_delete=True, arguments=STREAM)))
case("stream with a dead-letter exchange", a(1, declare(durable=True, arguments={**STREAM, "x-dead-letter-exchange": ""})))
case("stream with a dead-letter key", a(1, declare(durable=True, arguments={**STREAM, "x-dead-letter-routing-key": "k"})))
case("stream with a reserved name", a(1, declare("amq.s", durable=True, arguments=STREAM)))
case("stream again", LOG, LOG)
case("stream again, exclusive", LOG, a(1, declare(durable=True, exclusive=True, arguments=STREAM)))
case("stream: get", LOG, a(1, get()))
case("stream: get no_ack", LOG, a(1, get("q", True)))
case("stream: purge", LOG, a(1, m.QueuePurge("q")))
case("stream: consume without prefetch", LOG, a(1, consume()), differs="stream-without-prefetch")
case("stream: consume no_ack", LOG, a(1, qos(1)), a(1, consume("q", "c", no_ack=True)), differs="stream-no-ack")
case("stream: consume no_ack without prefetch", LOG, a(1, consume("q", "c", no_ack=True)), differs="stream-without-prefetch")
case("stream: consume with a global prefetch", LOG, a(1, qos(1, True)), a(1, consume()), differs="stream-without-prefetch")
case("stream: delete if_unused", LOG, a(1, m.QueueDelete("q", if_unused=True)))
case("stream: delete if_empty", LOG, a(1, m.QueueDelete("q", if_empty=True)))
case("stream: delete", LOG, a(1, m.QueueDelete("q")), a(1, passive()))
case("stream: delete under a consumer", LOG, a(1, qos(1)), a(1, consume()), a(2, m.QueueDelete("q")), a(1, qos(2)))


def filled(count: int) -> tuple[Step, ...]:
    """Each message is confirmed before the next one, so that it is a chunk of its own: "last" means the last chunk."""
    return (SELECT, LOG, *(step for each in log_fill(count) for step in (each, Confirmed("a", 1))), a(2, qos(100)))


def append(body: str, key: str = "q", exchange: str = "", **rest: Any) -> Publish:
    """A publication with a delivery mode: RabbitMQ 4 adds one to a stream's messages that have none."""
    return put(body, key, exchange, **{"delivery_mode": 1, **rest})


def log_fill(count: int) -> tuple[Publish, ...]:
    return tuple(append(str(number + 1)) for number in range(count))


def from_offset(offset: Any, tag: str = "c", **keywords: Any) -> Send:
    return a(2, consume("q", tag, arguments={"x-stream-offset": offset}, **keywords))


OFFSETS: tuple[Any, ...] = ("first", "last", "next", 0, 3, 4, 5, 100, -1, "5", "1h", "10s", "2D", "1M", "1Y", "1m", "1x",
               datetime(2001, 1, 1, tzinfo=UTC))  # fmt: skip
for offset in OFFSETS:
    case(f"stream: x-stream-offset {offset!r}", *filled(5), from_offset(offset), a(2, ack(0, True)), append("6"))
for offset in ("zzz", "", "-1h", True, 2.5, None, [1]):
    case(f"stream: x-stream-offset {offset!r}", *filled(1), from_offset(offset), differs="x-stream-offset-refusals")
for offset in ("0s", "00h"):
    case(f"stream: x-stream-offset {offset!r}", *filled(1), from_offset(offset))
case("stream: delete with messages", *filled(2), a(1, m.QueueDelete("q")))
case("stream: an exclusive consumer beside another one", LOG, a(2, qos(1)), a(2, consume()),
     a(2, consume("q", "d", exclusive=True)), differs="quorum-exclusive-consumer")
case("stream: x-stream-offset beyond the end", *filled(2), from_offset(4), *(append(str(n)) for n in range(3, 8)))
case("stream: x-stream-offset a time to come", *filled(2), from_offset(datetime(2100, 1, 1, tzinfo=UTC)), append("3"))
case("stream: no x-stream-offset", *filled(2), a(2, consume()), append("3"))
case("stream: an empty one from first", LOG, a(2, qos(10)), from_offset("first"), a(2, qos(5)))
case("stream: an empty one from last", SELECT, LOG, a(2, qos(10)), from_offset("last"), append("1"))
case("stream: headers and properties", SELECT, LOG, a(2, qos(10)),
     append("1", content_type="t", headers={"a": 1}, delivery_mode=2), append("2", message_id="m"), append("3"),
     from_offset("first"))
case("stream: an offset header that came with the message", SELECT, LOG, a(2, qos(10)),
     append("1", headers={"x-stream-offset": 77, "a": 1}), from_offset("first"))
case("stream: prefetch", *filled(5), a(2, qos(2)), from_offset("first"), a(2, ack(1)), a(2, ack(3, True)))
case("stream: two consumers each have all", *filled(2), from_offset("first"), a(2, ack(0, True)), from_offset("first", "d"))
case("stream: unacked come again to a new consumer only", *filled(2), from_offset("first"), a(2, m.ChannelClose(200, "")),
     a(2, qos(10)), from_offset("first"))
case("stream: cancel", *filled(2), from_offset("first"), a(2, m.BasicCancel("c")), append("3"), a(2, ack(1)), a(2, ack(2)))
case("stream: exclusive consumer", *filled(1), from_offset("first", exclusive=True))
case("stream: nack requeue", *filled(2), from_offset("first"), a(2, nack(1)), differs="stream-requeue")
case("stream: reject requeue", *filled(2), from_offset("first"), a(2, reject(1)), differs="stream-requeue")
case("stream: reject", *filled(2), a(2, qos(1)), from_offset("first"), a(2, reject(1, False)), differs="stream-reject")
case("stream: nack several", *filled(4), a(2, qos(2)), from_offset("first"), a(2, nack(2, True, False)), differs="stream-reject")
case("stream: a message without a delivery mode", SELECT, LOG, put("1", headers={"a": 1}), Confirmed("a", 1), a(2, qos(10)),
     from_offset("first"), differs="stream-delivery-mode")
case("stream: recover", *filled(2), from_offset("first"), a(2, m.BasicRecover(requeue=True)), differs="stream-recover")
case("stream: mandatory and confirms", SELECT, LOG, put("1", mandatory=True), put("2", "nope", mandatory=True), put("3"))
case("stream and classic queue together", SELECT, LOG, a(1, declare("q2")), a(1, bind("", "amq.fanout")),
     a(1, bind("", "amq.fanout", "q2")), append("1", "", "amq.fanout"), a(1, get("q2")), a(2, qos(10)), from_offset("first"))
case("stream as a dead-letter queue", SELECT, LOG, a(1, declare("q2", arguments={"x-dead-letter-exchange": "amq.fanout"})),
     a(1, bind("", "amq.fanout")), append("1", "q2"), a(1, get("q2")), a(1, reject(1, False)), a(2, qos(10)),
     from_offset("first"), differs="dead-letter-to-a-stream")
case("stream: x-stream-filter", *filled(1), a(2, consume("q", "c", arguments={"x-stream-offset": "first", "x-stream-filter": "f"})),
     differs="x-stream-filter")

# ------------------------------------------------------------------------------------- channels and connections

case("channel.open twice", a(1, m.ChannelOpen()), a(1, m.ChannelOpen()))
case("a method before channel.open", Send("a", 1, m.QueueDeclare("q"), bare=True))
case("channel.close before channel.open", Send("a", 1, m.ChannelClose(200, ""), bare=True))
case("channel 0 for a channel's method", a(0, m.QueueDeclare("q")))
case("a connection's method on channel 1", OPEN, Send("a", 1, m.ConnectionBlocked("x"), bare=True), differs="503-texts")
case("channel above channel_max", a(2047, m.ChannelOpen()), a(2048, m.ChannelOpen()), differs="channel-numbers")
case("a channel is closed by an error, and opened again", a(1, declare()), *fill(2), a(1, consume()), a(1, passive("nope")), put("3"),
     a(1, consume()), a(1, ack(1)))
case("close-ok that nobody asked for", OPEN, Send("a", 1, m.ChannelCloseOk(), bare=True), differs="503-texts")
case("a closed channel is opened by nobody", OPEN, Send("a", 1, m.ChannelClose(200, ""), bare=True), Send("a", 1, m.QueueDeclare("q"), bare=True))
case("channel.flow", a(1, m.ChannelFlow(active=True)))
case("channel.flow off", a(1, m.ChannelFlow(active=False)), differs="flow-off")
case("channel.flow-ok that nobody asked for", a(1, m.ChannelFlowOk(active=True)))
case("channel.close", a(1, m.ChannelClose(200, "bye")), a(1, declare()))
case("connection.close", a(1, declare()), a(0, m.ConnectionClose(200, "bye")), a(1, passive()))
case("connection.close and more in one write", a(1, declare()), Together((a(0, m.ConnectionClose(200, "bye")), put("1"))), a(1, passive()))
case("a method of the server", a(1, m.BasicGetEmpty()), differs="503-texts")
case("another method of the server", a(1, m.QueueDeclareOk("q")), differs="503-texts")
case("start-ok when open", a(0, m.ConnectionStartOk({}, "PLAIN", b"", "en_US")))
case("connection.blocked from a client", a(0, m.ConnectionBlocked("x")))
case("update-secret", a(0, m.ConnectionUpdateSecret(b"guest", "r")), a(1, qos(1)))
case("update-secret: a wrong one", a(0, m.ConnectionUpdateSecret(b"s", "r")), a(1, qos(1)))
case("cancel-ok that nobody asked for", a(1, m.BasicCancelOk("c")), a(1, qos(1)))

PUBLISH = encode_method(1, m.BasicPublish("", "q"))
HEADER = encode_frame(2, 1, b"\0\x3c\0\0" + (3).to_bytes(8, "big") + b"\0\0")
case("heartbeat on channel 1", OPEN, Raw("a", encode_frame(8, 1, b"")))
case("heartbeat with a payload", OPEN, Raw("a", encode_frame(8, 0, b"x")))
case("bad frame end", OPEN, Raw("a", b"\1\0\1\0\0\0\4abcd\0"))
case("bad frame end of octets", OPEN, Raw("a", b"\1\0\1\0\0\0\4\0\1\2\xff\0"))
case("frame too large, in the header's last octet", OPEN, Raw("a", b"\3\0\1\0\2\0"), Raw("a", b"\1"))
case("frame too large", OPEN, Raw("a", b"\3\0\1" + (131_073).to_bytes(4, "big")))
case(
    "a payload as long as a frame", a(1, declare()),
    Raw("a", PUBLISH + encode_frame(2, 1, b"\0\x3c\0\0" + (131_072).to_bytes(8, "big") + b"\0\0")),
    Raw("a", encode_frame(3, 1, b"x" * 131_072)), a(2, consume()),
)  # fmt: skip
case("unknown frame type", OPEN, Raw("a", encode_frame(7, 1, b"abc")))
case("body without a method", OPEN, Raw("a", encode_frame(3, 1, b"abc")))
case("header without a method", OPEN, Raw("a", HEADER))
case("method where a header belongs", OPEN, Raw("a", PUBLISH + encode_method(1, m.BasicQos())))
case("body where a header belongs", OPEN, Raw("a", PUBLISH + encode_frame(3, 1, b"abc")))
case("header where a body belongs", OPEN, Raw("a", PUBLISH + HEADER + HEADER))
case("method where a body belongs", OPEN, Raw("a", PUBLISH + HEADER + encode_method(1, m.BasicQos())))
case("header of another class", OPEN, Raw("a", PUBLISH + encode_frame(2, 1, b"\0\x0a\0\0" + (3).to_bytes(8, "big") + b"\0\0")))
case("body longer than its header says", OPEN, Raw("a", PUBLISH + HEADER + encode_frame(3, 1, b"abcd")), a(1, passive("nope")),
     differs="body-too-long")
case("two channels' frames between each other", OPEN, a(2, declare()), Together((Raw("a", PUBLISH), Raw("a", HEADER),
     a(2, passive()), Raw("a", encode_frame(3, 1, b"abc")))), a(2, get()))
case("body in many frames", OPEN, a(1, declare()),
     Raw("a", PUBLISH + HEADER + b"".join(encode_frame(3, 1, bytes([c])) for c in b"abc")), a(1, get()))
case("half a method, then the rest", OPEN, Raw("a", encode_method(1, declare())[:9]), Raw("a", encode_method(1, declare())[9:]))
case("unknown method", OPEN, Raw("a", encode_frame(1, 1, b"\0\x3c\0\xff")), differs="unknown-method")
case("unknown class", OPEN, Raw("a", encode_frame(1, 1, b"\0\x63\0\1")), differs="unknown-method")
case("malformed arguments", OPEN, Raw("a", encode_frame(1, 1, b"\0\x32\0\x0a\0\0\xff")), differs="malformed")
case("malformed properties", OPEN, a(1, declare()), Raw("a", PUBLISH + encode_frame(2, 1, b"\0\x3c\0\0" + bytes(8) + b"\x80\0\xffx")),
     a(1, get()), differs="malformed-properties")
case("wrong password", Login("a", password="wrong"))
case("unknown vhost", Login("a", vhost="zzz"))
case("unknown mechanism", Login("a", mechanism="ZZZ"), differs="mechanism")
case("malformed PLAIN response", Login("a", response=b"guest"), differs="malformed-plain")
case("tune above frame_max", Login("a", tune=(2047, 200_000, 0)), differs="tuning")
case("tune below the least frame_max", Login("a", tune=(2047, 100, 0)), differs="tuning")
case("tune without a limit for frames", Login("a", tune=(2047, 0, 0)), differs="tuning")
case("tune above channel_max", Login("a", tune=(3000, 131_072, 0)), differs="tuning")
case("tune without a limit for channels", Login("a", tune=(0, 131_072, 0)), differs="tuning")
