"""More scripts: what happens to messages on their way through a queue. Importing this adds them to `CASES`.

Where time is the subject, a script waits until a queue is seen in a state (`Until`); `Wait` is for what renews a lease.
"""

from __future__ import annotations

from typing import Any

from harebell.protocol.v091 import methods as m
from tests.differential.driver import Confirmed, Drop, Learn, Publish, Send, Step, Together, Until, Wait, address_of
from tests.differential.scripts import (
    CASES,
    DEAD,
    DYING,
    QUORUM,
    SELECT,
    a,
    ack,
    b,
    bind,
    case,
    consume,
    dashed,
    declare,
    exchange,
    fill,
    get,
    nack,
    passive,
    put,
    qos,
    reject,
    with_arguments,
)  # fmt: skip

__all__ = ["ASKS", "CASES", "dead_replies", "drain"]


def dying(**arguments: Any) -> tuple[Step, ...]:
    """A queue `dead`, and a queue `q` with these arguments whose dead letters go there."""
    table = {name.replace("_", "-"): value for name, value in arguments.items()}
    return a(1, declare("dead")), a(1, declare(arguments={**DEAD, **table}))


def drain(count: int, queue: str = "q") -> tuple[Step, ...]:
    return tuple(a(1, get(queue, no_ack=True)) for _ in range(count))


# --------------------------------------------------------------------------------------------------------- TTL

case("ttl: dead letters tell", *dying(x_message_ttl=20), put("1", headers={"a": 1}, delivery_mode=2), Until("dead", 1),
     a(1, get("dead")), a(1, passive()))
case("ttl: an expiration dies with the message, and is kept in x-death", *dying(), put("1", expiration="20"),
     Until("dead", 1), a(1, get("dead")))
case("ttl: the smaller one counts", *dying(x_message_ttl=60000), put("1", expiration="20"), Until("dead", 1), put("2"),
     a(1, get("dead")), a(1, passive()))
case("ttl: the smaller one counts, the queue's", *dying(x_message_ttl=20), put("1", expiration="60000"), Until("dead", 1),
     a(1, get("dead")))
case("ttl: in order", *dying(x_message_ttl=30), *fill(5), Until("dead", 5), *drain(6, "dead"))
case("ttl: without a dead-letter exchange", a(1, with_arguments(x_message_ttl=20)), *fill(3), Until("q", 0), a(1, get()))
case("ttl: what is unacked does not expire", *dying(x_message_ttl=700), *fill(2), a(1, get()), Until("dead", 1),
     a(1, ack(1)), *drain(2, "dead"))
case("ttl: the clock goes on while unacked", *dying(x_message_ttl=700), put("1"), a(1, get()), Wait(0.8), a(1, nack(1)),
     Until("dead", 1), a(1, get("dead")))
case("ttl: anywhere in the queue", a(1, declare()), put("long"), put("short", expiration="1"), Wait(0.05), a(1, passive()),
     differs="ttl-behind-the-head")
case("ttl: expired in front of one that lives", *dying(), put("short", expiration="20"), put("long"), Until("dead", 1),
     a(1, get()), a(1, get("dead")))
case("ttl 0 without a consumer", *dying(x_message_ttl=0), put("1"), Until("dead", 1), a(1, get("dead")))
case("ttl 0 with a consumer", *dying(x_message_ttl=0), a(1, consume()), put("1"), put("2"), a(1, ack(1)), a(1, passive("dead")))
case("ttl 0 with a full consumer", *dying(x_message_ttl=0), a(1, qos(1)), a(1, consume()), put("1"), put("2"),
     Until("dead", 1), a(1, get("dead")))
case("ttl 0 requeued", *dying(x_message_ttl=0), a(1, qos(1)), a(1, consume()), put("1"), a(1, m.BasicCancel("c")),
     a(1, nack(1)), Until("dead", 1), a(1, get("dead")))
case("ttl 0 without anything", SELECT, a(1, with_arguments(x_message_ttl=0)), *fill(3), a(1, passive()))
case("expiration 0 without a consumer", SELECT, *dying(), put("1", expiration="0"), Until("dead", 1), a(1, get("dead")))
case("expiration 0 with a consumer", a(1, declare()), a(1, consume("q", "c", no_ack=True)), put("1", expiration="0"))
case("expiration 0 and mandatory", SELECT, a(1, declare()), put("1", expiration="0", mandatory=True), Until("q", 0))
case("expiration stays on what is delivered", a(1, declare()), put("1", expiration="60000"), a(1, get()), a(1, nack(1)), a(1, get()))
for text in ("", "abc", "-1", "60000 ", " 60000", "+60000", "1.5", "0x10", "315360000000", "315360000001", "9" * 15, "1\"2", "1\\2"):
    case(f"expiration {text!r}", a(1, declare()), put("1", expiration=text), a(1, passive()))
case("expiration that is none, to nobody", put("1", "nope", expiration="abc"))
case("expiration that is none, to a missing exchange", put("1", "nope", "nope", expiration="abc"))
case("ttl: a cycle ends", a(1, with_arguments(x_message_ttl=20, x_dead_letter_exchange="")), put("1"), Until("q", 0))
case("ttl: a ring ends", a(1, declare("q1", arguments={"x-message-ttl": 20, "x-dead-letter-exchange": "",
                                                       "x-dead-letter-routing-key": "q2"})),
     a(1, declare("q2", arguments={"x-message-ttl": 20, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q1"})),
     put("1", "q1"), Until("q1", 0), Until("q2", 0), a(1, get("q1")))
case("ttl: a ring in which one rejects goes on", a(1, declare("q1", arguments={"x-message-ttl": 20, "x-dead-letter-exchange": "",
                                                                             "x-dead-letter-routing-key": "q2"})),
     a(1, declare("q2", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q1"})),
     put("1", "q1"), Until("q2", 1), a(1, get("q2")), a(1, reject(1, False)), Until("q2", 1), a(1, get("q2")))
case("ttl: expired, then rejected", a(1, declare("end")),
     a(1, declare("dead", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "end"})),
     a(1, declare(arguments={**DEAD, "x-message-ttl": 20})), put("1", expiration="30000"), Until("dead", 1), a(1, get("dead")),
     a(1, reject(1, False)), Until("end", 1), a(1, get("end")))
case("ttl: purge", a(1, with_arguments(x_message_ttl=60000)), *fill(3), a(1, m.QueuePurge("q")), *fill(2), a(1, get()))
case("ttl: delete if_empty", a(1, with_arguments(x_message_ttl=60000)), *fill(1), a(1, m.QueueDelete("q", if_empty=True)))
case("ttl: order and requeue as without", a(1, with_arguments(x_message_ttl=60000)), *fill(5), a(1, get()), a(1, get()),
     a(1, get()), a(1, reject(2)), a(1, get()), a(1, m.ChannelClose(200, "")), *(a(1, get()) for _ in range(6)))
case("an expiration makes no difference to order", a(1, declare()), *fill(3), a(1, get()), a(1, get()), put("4", expiration="60000"),
     a(1, nack(1)), *(a(1, get()) for _ in range(4)), a(1, nack(2)), a(1, get()))

# --------------------------------------------------------------------------------------------------- x-expires

case("x-expires", a(1, with_arguments(x_expires=30)), Until("q", None), a(1, passive()))
case("x-expires: with messages, that do not die", *dying(x_expires=30), *fill(2), Until("q", None), a(1, passive("dead")))
for name, use in {"get": get(), "passive": passive(), "declare": with_arguments(x_expires=2000)}.items():
    case(f"x-expires renewed by {name}", a(1, with_arguments(x_expires=2000)), Wait(1.1), a(1, use), Wait(1.1), a(1, use),
         a(1, passive()))
case("x-expires: publications do not renew", a(1, with_arguments(x_expires=120)), put("1"), Wait(0.07), put("2"), Wait(0.07),
     Until("q", None), put("3", mandatory=True))
case("x-expires: not under a consumer", a(1, with_arguments(x_expires=700)), a(1, consume()), Wait(0.9), a(1, passive()),
     a(1, m.BasicCancel("c")), Until("q", None), a(1, passive()))
case("x-expires: unacked do not keep it", a(1, with_arguments(x_expires=700)), put("1"), a(1, get()), Until("q", None), a(1, ack(1)),
     a(1, passive()))
case("x-expires: bindings go too", a(1, with_arguments(x_expires=700)), a(1, bind("k", "amq.direct")), Until("q", None),
     put("1", "k", "amq.direct", mandatory=True))

# ------------------------------------------------------------------------------------------------ length limits

for argument, value in (("x-max-length", 2), ("x-max-length-bytes", 2)):
    case(f"{argument}: the head is dropped", *dying(**{argument: value}), *fill(5), a(1, passive()), *drain(3), a(1, passive("dead")),
         *drain(3, "dead"))
    case(f"{argument}: without a dead-letter exchange", a(1, with_arguments(**{argument: value})), *fill(5), *drain(3))
    case(f"{argument}: reject-publish", SELECT, a(1, with_arguments(**{argument: value}, x_overflow="reject-publish")), *fill(4),
         a(1, get()), put("5"), *drain(3))
    case(f"{argument}: reject-publish-dlx", SELECT, *dying(**{argument: value}, x_overflow="reject-publish-dlx"), *fill(4),
         *drain(3), Until("dead", 2), *drain(3, "dead"))
    case(f"{argument}: reject-publish without confirms", a(1, with_arguments(**{argument: value}, x_overflow="reject-publish")),
         *fill(4), *drain(3))
case("x-max-length 0", *dying(x_max_length=0), put("1"), a(1, passive()), Until("dead", 1), a(1, get("dead")))
case("x-max-length 0 with a consumer", *dying(x_max_length=0), a(1, qos(1)), a(1, consume()), put("1"), put("2"),
     Until("dead", 1), a(1, get("dead")), a(1, ack(1)), put("3"))
case("x-max-length 0 with reject-publish and a consumer", SELECT, a(1, with_arguments(x_max_length=0, x_overflow="reject-publish")),
     a(1, consume()), put("1"))
case("x-max-length: reject-publish and a consumer with room", SELECT,
     a(1, with_arguments(x_max_length=1, x_overflow="reject-publish")), a(1, consume()), put("1"), put("2"), put("3"), a(1, ack(1)))
case("x-max-length: reject-publish and a full consumer", SELECT,
     a(1, with_arguments(x_max_length=1, x_overflow="reject-publish")), a(1, qos(1)), a(1, consume()), put("1"), put("2"),
     put("3"), a(1, ack(1)), put("4"), put("5"))
case("x-max-length-bytes: one that is larger than all", *dying(x_max_length_bytes=5), put("1"), put("larger"), Until("dead", 2),
     *drain(2, "dead"), a(1, passive()))
case("x-max-length: what is unacked does not count", a(1, with_arguments(x_max_length=2)), *fill(2), a(1, get()), a(1, get()),
     put("3"), put("4"), a(1, passive()), a(1, nack(1)), a(1, passive()), *drain(3))
case("x-max-length: requeue over the limit", *dying(x_max_length=1), put("1"), a(1, get()), put("2"), a(1, nack(1)),
     Until("dead", 1), a(1, get("dead")), *drain(2))
for argument, value in (("x-max-length", 0), ("x-max-length", 1), ("x-max-length-bytes", 0)):
    table = {argument: value}
    case(f"{argument} {value}: recover under a consumer", *dying(**table), a(1, qos(1)), a(1, consume()), put("1"), put("2"),
         a(1, m.BasicRecover(requeue=True)), a(1, passive()), *drain(3, "dead"))
    case(f"{argument} {value}: nack under another consumer", *dying(**table), a(1, qos(1)), a(1, consume()), put("1"),
         b(1, consume("q", "d")), a(1, nack(1)), put("2"), put("3"), *drain(3, "dead"))
    case(f"{argument} {value}: a publication and a nack in one write", *dying(**table), a(1, qos(1)), a(1, consume()), put("1"),
         b(1, qos(1)), b(1, consume("q", "d")), Together((put("2"), a(1, nack(1)))), *drain(3, "dead"))
    case(f"{argument} {value}: a channel closes", *dying(**table), a(2, consume()), *fill(3), b(1, consume("q", "d")),
         a(2, m.ChannelClose(200, "")), *drain(4, "dead"), *drain(2))
    case(f"{argument} {value}: requeue of a quorum queue", a(1, declare("dead")), a(1, declare(durable=True, arguments={
         **QUORUM, **DEAD, "x-delivery-limit": 5, **table})), a(1, qos(1)), a(1, consume()), put("1"), put("2"), a(1, nack(1)),
         a(1, passive("dead")))
for overflow in ("reject-publish", "reject-publish-dlx"):
    case(f"x-max-length: requeue over the limit with {overflow}", *dying(x_max_length=1, x_overflow=overflow), put("1"),
         a(1, get()), put("2"), a(1, nack(1)), a(1, passive()), put("3"), *drain(3), *drain(2, "dead"))
case("x-max-length: one of two queues refuses", SELECT, a(1, declare("free")), a(1, declare("full", arguments={
     "x-max-length": 1, "x-overflow": "reject-publish"})), a(1, bind("", "amq.fanout", "free")), a(1, bind("", "amq.fanout", "full")),
     put("1", "", "amq.fanout"), put("2", "", "amq.fanout"), *drain(3, "free"), *drain(2, "full"))
case("x-max-length: nacks between acks in one write", SELECT, a(1, with_arguments(x_max_length=2, x_overflow="reject-publish")),
     a(1, declare("free")), Together((put("1"), put("2"), put("3"), put("4", "free"), put("5"), put("6", "nope"), put("7"))),
     *drain(3), *drain(2, "free"))
case("x-max-length: refused and mandatory", SELECT, a(1, with_arguments(x_max_length=0, x_overflow="reject-publish")),
     put("1", mandatory=True))
case("x-max-length: dead letters keep their keys", a(1, declare("dead")), a(1, bind("q", "amq.direct", "dead")),
     a(1, with_arguments(x_max_length=1, x_dead_letter_exchange="amq.direct")), put("1"), put("2", headers={"CC": ["z"]}), put("3"),
     Until("dead", 2), *drain(3, "dead"))
case("x-max-length: a cycle ends", a(1, with_arguments(x_max_length=1, x_dead_letter_exchange="")), *fill(3), *drain(2))
case("x-max-length: a dead letter into a full queue", a(1, declare("dead", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})),
     a(1, declare(arguments=DEAD)), *fill(2), a(1, get()), a(1, get()), a(1, nack(2, True, False)), Until("dead", 1), *drain(2, "dead"))

case("x-max-length: one without time drives nobody out", *dying(x_max_length=1), put("1"), put("2", expiration="0"), a(1, get()),
     differs="expiration-0-over-the-limit")

# --------------------------------------------------------------------------------------------------- priorities

PRIORITIES = a(1, with_arguments(x_max_priority=5))


def ranked(*ranks: int | None) -> tuple[Publish, ...]:
    """Messages with these priorities, named after them and numbered."""
    return tuple(put(f"{rank} {number}", priority=rank) for number, rank in enumerate(ranks))


case("priority: a waiting consumer and several in one write", PRIORITIES, a(2, qos(1)), a(2, consume()), Together(ranked(1, 3)),
     differs="priorities-of-one-write")
case("priority: order", PRIORITIES, *ranked(0, 5, 1, None, 5, 3, 0, 1), *drain(9))
case("priority: above the largest", PRIORITIES, *ranked(5, 9, 255, 5, 4), *drain(5))
case("priority: one consumer", PRIORITIES, *ranked(1, 3, 2, 3), a(1, qos(1)), a(1, consume()), a(1, ack(1)), *ranked(5), a(1, ack(2)),
     a(1, ack(3)), a(1, ack(4)))
case("priority: requeue", PRIORITIES, *ranked(1, 3, 2, 3), a(1, get()), a(1, get()), a(1, nack(2)), a(1, get()), a(1, nack(1, True)),
     *drain(5))
case("priority: requeue all", PRIORITIES, *ranked(1, 3, 2, 3), a(1, get()), a(1, get()), a(1, get()), a(1, nack(0, True)), *drain(5))
case("priority: purge and delete count all levels", PRIORITIES, *ranked(1, 3, 2), a(1, m.QueuePurge("q")), *ranked(2, 4), a(1, passive()),
     a(1, m.QueueDelete("q")))
case("priority: x-max-length drops the highest", *dying(x_max_priority=5, x_max_length=2), *ranked(5, 5, 0, 0, 5), Until("dead", 3),
     *drain(3), *drain(4, "dead"))
case("priority 0 at most", a(1, with_arguments(x_max_priority=0)), *ranked(0, 3, 1), *drain(4), differs="priority-0-at-most")
case("priority: of a plain queue means nothing", a(1, declare()), *ranked(0, 3, 1), *drain(4))
case("priority: ttl", *dying(x_max_priority=5, x_message_ttl=20), *ranked(1, 3), Until("dead", 2), a(1, passive()))
case("priority: dead letters keep theirs", a(1, declare("dead", arguments={"x-max-priority": 5})), a(1, declare(arguments=DEAD)),
     *ranked(1, 5), a(1, get()), a(1, get()), a(1, nack(2, True, False)), Until("dead", 2), *drain(3, "dead"))


def first(priority: Any, tag: str, connection: str = "a", channel: int = 1) -> Send:
    return Send(connection, channel, consume("q", tag, arguments={"x-priority": priority}))


case("consumer priority", a(1, declare()), a(1, qos(2)), first(1, "low"), first(5, "high"), *fill(6), a(1, ack(1)))
case("consumer priority: negative", a(1, declare()), a(1, qos(1)), first(-1, "low"), a(1, consume("q", "none")), *fill(3))
case("consumer priority: turns among equals", a(1, declare()), a(1, qos(2)), first(5, "one"), first(5, "two"), first(1, "low"), *fill(6))
case("consumer priority: a newcomer", a(1, declare()), first(1, "low"), put("1"), first(5, "high"), put("2"), a(1, m.BasicCancel("high")),
     put("3"))
for odd in ("1", 1.5, True, None, [1]):
    case(f"x-priority {odd!r}", a(1, declare()), first(odd, "c"))
case("x-priority of a stream", a(1, declare(durable=True, arguments={"x-queue-type": "stream"})), a(1, qos(1)), first(5, "c"))

# ---------------------------------------------------------------------------------------- single active consumer

SINGLE = a(1, with_arguments(x_single_active_consumer=True))
case("single: only the first", SINGLE, a(1, consume("q", "c")), b(1, consume("q", "d")), *fill(4))
case("single: hand-over by cancel", SINGLE, a(1, consume("q", "c")), b(1, consume("q", "d")), put("1"), a(1, m.BasicCancel("c")), put("2"),
     a(1, ack(1)), b(1, ack(1)))
case("single: hand-over by close", SINGLE, a(2, consume("q", "c")), b(1, consume("q", "d")), *fill(2), a(2, m.ChannelClose(200, "")), put("3"))
case("single: hand-over by a lost socket", SINGLE, b(1, consume("q", "c")), a(1, consume("q", "d")), *fill(2), Drop("b"), Until("q", 0))
case("single: a full one holds up the others", SINGLE, a(1, qos(1)), a(1, consume("q", "c")), a(1, consume("q", "d")), *fill(3), a(1, ack(1)))
case("single: the order of those who wait", SINGLE, a(1, consume("q", "c")), a(1, consume("q", "d")), a(1, consume("q", "e")),
     a(1, m.BasicCancel("c")), put("1"), a(1, m.BasicCancel("d")), put("2"))
case("single: those who wait by priority", SINGLE, first(1, "c"), first(2, "d"), first(5, "e"), put("1"), a(1, m.BasicCancel("c")), put("2"))
case("single: no take-over by priority", SINGLE, first(1, "c"), first(5, "d"), *fill(2))
case("single: no exclusive consumers", SINGLE, a(1, consume("q", "c", exclusive=True)))
case("single: no exclusive consumer beside one", SINGLE, a(1, consume("q", "c")), a(1, consume("q", "d", exclusive=True)))
case("single: get", SINGLE, a(1, consume("q", "c")), a(1, m.BasicCancel("c")), *fill(2), a(2, get()))
case("single: get beside the active one", SINGLE, a(1, qos(1)), a(1, consume("q", "c")), *fill(3), a(2, get()), a(2, nack(1)), a(1, ack(1)))
case("single: quorum, get", a(1, declare(durable=True, arguments={**QUORUM, "x-single-active-consumer": True})), put("1"), a(1, get()),
     differs="quorum-get-single")
case("single: no_ack", SINGLE, a(1, consume("q", "c", no_ack=True)), a(1, consume("q", "d")), *fill(3))
case("single: one who waits goes", SINGLE, a(1, consume("q", "c")), a(1, consume("q", "d")), a(1, m.BasicCancel("d")), put("1"),
     a(1, m.BasicCancel("c")), put("2"), a(1, passive()))

# --------------------------------------------------------------------------------------------------- transactions

TX, COMMIT, ROLLBACK = a(1, m.TxSelect()), a(1, m.TxCommit()), a(1, m.TxRollback())
case("tx: commit", TX, a(1, declare()), *fill(2), a(2, passive()), COMMIT, a(2, passive()))
case("tx: rollback", TX, a(1, declare()), *fill(2), ROLLBACK, a(2, passive()), put("3"), COMMIT, a(2, get()))
case("tx: select again", TX, a(1, declare()), put("1"), TX, COMMIT, a(1, get()))
case("tx: a queue that is deleted before the commit", a(2, declare()), TX, put("1", mandatory=True), put("2"), a(2, m.QueueDelete("q")),
     COMMIT, put("3", mandatory=True), COMMIT, differs="tx-queue-gone")
case("tx: a queue that is declared anew before the commit", a(2, declare()), TX, put("1", mandatory=True), a(2, m.QueueDelete("q")),
     a(2, declare()), COMMIT, a(2, get()), differs="tx-queue-gone")
case("tx: a command while the commit waits for the disk", a(2, declare(durable=True)), TX,
     Together((put("1", delivery_mode=2), COMMIT, ROLLBACK)))
case("tx: nothing to commit", TX, COMMIT, ROLLBACK, COMMIT)
case("tx: commit without select", COMMIT)
case("tx: rollback without select", ROLLBACK)
case("tx: on another channel", TX, a(2, m.TxCommit()))
case("tx after confirms", SELECT, TX)
case("confirms after tx", TX, SELECT)
case("tx: acks", a(1, declare()), *fill(3), TX, a(1, get()), a(1, ack(1)), a(1, get()), COMMIT, a(1, nack(2)), a(2, passive()), COMMIT,
     a(2, passive()), a(1, get()))
case("tx: acks rolled back are unacked again", a(1, declare()), *fill(3), TX, a(1, get()), a(1, get()), a(1, ack(1)), ROLLBACK,
     a(2, passive()), a(1, ack(1)), COMMIT, a(1, m.ChannelClose(200, "")), *(a(2, get()) for _ in range(3)))
case("tx: rejects rolled back", *DYING, put("1"), TX, a(1, get()), a(1, reject(1, False)), ROLLBACK, a(2, passive("dead")),
     a(1, reject(1, False)), COMMIT, Until("dead", 1), a(2, get("dead")))
case("tx: close rolls back", a(1, declare()), *fill(1), TX, a(1, get()), a(1, ack(1)), put("2"), a(1, m.ChannelClose(200, "")), a(2, passive()),
     a(2, get()), a(2, get()))
case("tx: an ack twice", a(1, declare()), *fill(2), TX, a(1, get()), a(1, ack(1)), a(1, ack(1)))
case("tx: an unknown tag, at the method", TX, a(1, ack(9)))
case("tx: a missing exchange, at the method", TX, put("1", "k", "nope"))
case("tx: a bad expiration, at the method", TX, a(1, declare()), put("1", expiration="abc"))
case("tx: returns at commit", TX, put("1", "nope", mandatory=True), put("2", "nope"), put("3", "nada", mandatory=True), COMMIT)
case("tx: returns of what was rolled back", TX, put("1", "nope", mandatory=True), ROLLBACK, COMMIT)
case("tx: routed when published", TX, a(2, declare()), put("1", "k", "amq.direct"), a(2, bind("k", "amq.direct")), COMMIT, a(2, get()))
case("tx: a queue that is gone at commit", TX, a(2, declare()), put("1"), a(2, m.QueueDelete("q")), COMMIT, differs="tx-queue-gone")
case("tx: a queue that is declared anew before commit", TX, a(2, declare()), put("1"), put("2", expiration="600000"), a(2, m.QueueDelete("q")),
     a(2, declare()), COMMIT, a(2, get()), a(2, get()), differs="tx-queue-gone")
case("tx: refused by a full queue", TX, a(1, with_arguments(x_max_length=1, x_overflow="reject-publish")), *fill(2), COMMIT)
case("tx: ack multiple 0", a(1, declare()), *fill(3), TX, a(1, get()), a(1, get()), a(1, ack(0, True)), COMMIT, a(1, get()), a(1, ack(3)), COMMIT,
     a(2, passive()))
case("tx: what is acked in it keeps its place in the window", a(1, declare()), a(1, qos(1)), TX, a(1, consume()), *fill(2), COMMIT, a(1, ack(1)),
     a(2, passive()), ROLLBACK, a(2, passive()))
case("tx: get no_ack is not part of it", a(1, declare()), *fill(1), TX, a(1, get("q", True)), ROLLBACK, a(1, get()))
case("tx: publications before settlements", *DYING, put("1"), TX, a(1, get()), a(1, reject(1, False)), put("2", "dead"), COMMIT, Until("dead", 2),
     *drain(2, "dead"))
case("tx: channel 1 commits, channel 2 does not", a(1, declare()), TX, a(2, m.TxSelect()), put("1"), put("2", channel=2), COMMIT, a(1, passive()),
     a(2, m.TxRollback()), a(1, passive()))
case("tx: an error ends it", a(1, declare()), TX, put("1"), a(1, passive("nope")), a(1, passive()))
case("tx: persistent", TX, a(1, declare(durable=True)), put("1", delivery_mode=2), COMMIT, a(2, get()))

# ------------------------------------------------------------------------------------------------ direct reply-to

REPLIES = "amq.rabbitmq.reply-to"
ASK = a(1, consume(REPLIES, "r", no_ack=True))


case("replies: consume and cancel", ASK, a(1, m.BasicCancel("r")), ASK)
case("replies: without no_ack", a(1, consume(REPLIES, "r")))
case("replies: twice", ASK, a(1, consume(REPLIES, "s", no_ack=True)))
case("replies: on two channels", ASK, a(2, consume(REPLIES, "r", no_ack=True)))
case("replies: the tag is the broker's", a(1, consume(REPLIES, "", no_ack=True)))
case("replies: a request without a consumer", a(1, declare()), put("1", reply_to=REPLIES))
case("replies: a request from another channel", ASK, a(2, declare()), put("1", channel=2, reply_to=REPLIES))
case("replies: a request after cancel", ASK, a(1, declare()), a(1, m.BasicCancel("r")), put("1", reply_to=REPLIES))
case("replies: the address is the channel's", ASK, a(1, declare()), put("1", reply_to=REPLIES, correlation_id="c"), a(2, get()))
case("replies: another reply_to is left alone", ASK, a(1, declare()), put("1", reply_to="q"), put("2", reply_to=REPLIES + "x"), a(1, get()),
     a(1, get()))
case("replies: exclusive", a(1, consume(REPLIES, "r", no_ack=True, exclusive=True)))
case("replies: no_wait", a(1, consume(REPLIES, "r", no_ack=True, no_wait=True)), a(1, qos(1)))
for name, method in {"passive": passive(REPLIES), "get": get(REPLIES), "bind": m.QueueBind(REPLIES, "amq.direct", "k"),
                     "purge": m.QueuePurge(REPLIES), "delete": m.QueueDelete(REPLIES), "declare": declare(REPLIES),
                     "declare of no such address": declare(REPLIES + ".zzz")}.items():  # fmt: skip
    case(f"replies: {name} of the pseudo-queue", ASK, a(1, method))
case("replies: publish to the pseudo-queue", SELECT, ASK, put("1", REPLIES, mandatory=True))
case("replies: publish to no such address", SELECT, put("1", REPLIES + ".zzz", mandatory=True))
case("replies: passive of no such address", a(1, passive(REPLIES + ".zzz")))

ASKER, OTHER = address_of("b", 1), address_of("b", 2)
ASKS = (b(1, consume(REPLIES, "r", no_ack=True)), Learn("b", 1), a(1, declare()))
BOTH_ASK = (*ASKS, b(2, consume(REPLIES, "s", no_ack=True)), Learn("b", 2))


def dead_replies(**arguments: Any) -> Step:
    """A queue `q` whose dead letters are replies."""
    return a(1, declare(arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": ASKER,
                                   **dashed(arguments)}, durable=bool(arguments.get("x_queue_type"))))  # fmt: skip


case("replies: passive of an address", *ASKS, a(1, passive(ASKER)))
case("replies: to the address", *ASKS, SELECT, put("1", ASKER, headers={"a": 1}, delivery_mode=2), *drain(1))
case("replies: two of them", *ASKS, SELECT, put("1", ASKER), put("2", ASKER), differs="reply-delivery-tags")
case("replies: to the address, mandatory", *ASKS, SELECT, put("1", ASKER, mandatory=True), differs="mandatory-reply")
case("replies: to the address, then cancel", *ASKS, SELECT, put("1", ASKER), b(1, m.BasicCancel("r")), put("2", ASKER, mandatory=True))
case("replies: to the address, committed", *ASKS, TX, Together((put("1", ASKER), COMMIT)))
case("replies: to the address, rolled back", *ASKS, TX, put("1", ASKER), ROLLBACK, differs="reply-in-a-transaction")
case("replies: to the address and a queue, committed", *ASKS, TX, Together((put("1", ASKER), put("2"), COMMIT)), *drain(2))
case("replies: to the address, immediate", *ASKS, SELECT, put("1", ASKER, immediate=True), differs="immediate")
for copies in ("CC", "BCC"):
    copy_to = {copies: [ASKER]}
    case(f"replies: the address in {copies}", *ASKS, SELECT, put("1", headers=copy_to), *drain(2))
    case(f"replies: the address in {copies} of a message to nobody", *ASKS, SELECT, put("1", "nonesuch", headers=copy_to), put("2", "nonesuch"))
    case(f"replies: the address in {copies}, mandatory", *ASKS, SELECT, put("1", headers=copy_to, mandatory=True), *drain(2))
    case(f"replies: the address in {copies} of a message to nobody, mandatory", *ASKS, SELECT, put("1", "nonesuch", headers=copy_to, mandatory=True),
         differs="mandatory-reply")
    case(f"replies: the address in {copies}, committed", *ASKS, TX, Together((put("1", headers=copy_to), COMMIT)), *drain(2))
    case(f"replies: the address in {copies} of a message to nobody, committed", *ASKS, TX,
         Together((put("1", "nonesuch", headers=copy_to), COMMIT)))
    case(f"replies: to the address, a queue in {copies}", *ASKS, SELECT, put("1", ASKER, headers={copies: ["q"]}), *drain(2))
    case(f"replies: to the address, it is in {copies} too", *ASKS, SELECT, put("1", ASKER, headers=copy_to))
    case(f"replies: to an address, another one in {copies}", *BOTH_ASK, SELECT, put("1", ASKER, headers={copies: [OTHER]}))
    case(f"replies: the address in {copies} at another exchange", *ASKS, SELECT, put("1", "k", "amq.direct", headers=copy_to))
    case(f"replies: an address in {copies}, which is none any more", *ASKS, SELECT, b(1, m.BasicCancel("r")), put("1", headers=copy_to), *drain(2))
case("replies: a rejected message", *ASKS[:2], dead_replies(), put("1", headers={"a": 1}), a(1, get()), a(1, reject(1, False)), a(1, passive()),
     differs="dead-letter-to-a-reply-address")
case("replies: a message dies again", *ASKS[:2], a(1, declare("q0", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q"})),
     dead_replies(), put("1", "q0"), a(1, get("q0")), a(1, reject(1, False)), a(1, get()), a(1, reject(2, False)),
     differs="dead-letter-to-a-reply-address")
case("replies: dead letters of a quorum queue", *ASKS[:2], dead_replies(x_queue_type="quorum"), put("1"), Until("q", 1), a(1, get()),
     a(1, reject(1, False)), a(1, passive()), differs="dead-letter-to-a-reply-address")
case("replies: dead letters to the address in CC", *ASKS[:2], a(1, declare("dying", arguments={"x-dead-letter-exchange": ""})),
     a(1, exchange("x", "fanout")), a(1, bind("", "x", "dying")), put("1", "k", "x", headers={"CC": [ASKER]}), a(1, get("dying")),
     a(1, reject(1, False)), differs="dead-letter-to-a-reply-address")
case("replies: dead letters to an address that is none any more", *ASKS[:2], dead_replies(), put("1"), a(1, get()), b(1, m.BasicCancel("r")),
     a(1, reject(1, False)), a(1, passive()))

# --------------------------------------------------------------------------------------------------- quorum queues

LIMITED = a(1, declare(durable=True, arguments={**QUORUM, **DEAD, "x-delivery-limit": 2}))
case("quorum: delivery limit", a(1, declare("dead")), LIMITED, put("1", headers={"a": 1}), a(1, get()), a(1, nack(1)), a(1, get()), a(1, nack(2)),
     a(1, get()), a(1, nack(3)), Until("dead", 1), a(1, get("dead")), a(1, passive()))
case("quorum: consumer, delivery limit", a(1, declare("dead")), LIMITED, put("1"), a(1, qos(1)), a(1, consume()), a(1, nack(1)), a(1, nack(2)),
     a(1, nack(3)), Until("dead", 1))
case("quorum: dead letter", a(1, declare("dead")), LIMITED, put("1"), a(1, get()), a(1, reject(1, False)), Until("dead", 1), a(1, get("dead")))
case("quorum: max-length", a(1, declare("dead")), a(1, declare(durable=True, arguments={**QUORUM, **DEAD, "x-max-length": 2})), *fill(4),
     Until("q", 2), Until("dead", 2), *drain(3), *drain(3, "dead"))
case("quorum: max-length, several come back at once", a(1, declare("dead")),
     a(1, declare(durable=True, arguments={**QUORUM, **DEAD, "x-max-length": 2, "x-delivery-limit": 9})), a(2, consume()), *fill(5),
     a(2, m.ChannelClose(200, "")), Until("dead", 3), *drain(4, "dead"), *drain(3))
case("quorum: max-length, several are recovered", a(1, declare("dead")),
     a(1, declare(durable=True, arguments={**QUORUM, **DEAD, "x-max-length": 2, "x-delivery-limit": 9})), a(2, consume()), *fill(5),
     a(2, m.BasicCancel("c")), a(2, m.BasicNack(0, True, True)), Until("dead", 3), *drain(4, "dead"))
case("quorum: ttl", a(1, declare("dead")), a(1, declare(durable=True, arguments={**QUORUM, **DEAD, "x-message-ttl": 20})), *fill(2),
     Until("dead", 2), *drain(2, "dead"))
case("quorum: reject-publish", SELECT, a(1, declare(durable=True, arguments={**QUORUM, "x-max-length": 2, "x-overflow": "reject-publish"})),
     *fill(2), Until("q", 2))
case("quorum: get is no consumer", a(1, declare(durable=True, arguments={**QUORUM, "x-delivery-limit": 5})), put("1"), Until("q", 1), a(1, get()),
     a(2, passive()), differs="quorum-get")
case("quorum: a cancelled consumer that holds a message is none", a(1, declare(durable=True, arguments={**QUORUM, "x-delivery-limit": 5})),
     put("1"), a(1, qos(1)), a(1, consume()), a(1, m.BasicCancel("c")), a(2, passive()), a(1, ack(1)), differs="quorum-get")
case("quorum: exclusive consumer", a(1, declare(durable=True, arguments={**QUORUM, "x-delivery-limit": 5})), a(1, qos(1)), a(1, consume("q", "c")),
     a(2, qos(1)), a(2, consume("q", "d", exclusive=True)), differs="quorum-exclusive-consumer")
case("quorum: single", a(1, declare(durable=True, arguments={**QUORUM, "x-single-active-consumer": True})), a(1, qos(10)), a(1, consume("q", "c")),
     a(1, consume("q", "d")), *fill(2), a(1, ack(2, True)), a(1, m.BasicCancel("c")), put("3"))
for name, queue_table in (("with a limit", {**QUORUM, "x-delivery-limit": 5}), ("without", QUORUM)):
    case(f"quorum: what was requeued, {name}", a(1, declare(durable=True, arguments=queue_table)), *fill(4), a(1, get()), a(1, get()), a(1, nack(1)),
         Until("q", 3), *(a(1, get()) for _ in range(4)), differs="" if queue_table is not QUORUM else "quorum-requeue")
case("x-delivery-count", a(1, declare()), *fill(1), a(1, get()), a(1, nack(1)), a(1, get()), differs="x-delivery-count", without=())

# ---------------------------------------------------------------------------------- at-least-once dead-lettering

def safe(key: str = "dead", **arguments: Any) -> Step:
    """A quorum queue `q` whose dead letters stay until they are safe."""
    table = {**QUORUM, "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish",
             "x-dead-letter-exchange": "", "x-dead-letter-routing-key": key}
    table |= {name.replace("_", "-"): value for name, value in arguments.items()}
    return a(1, declare(durable=True, arguments=table))


case("at-least-once: taken", a(1, declare("dead")), safe(x_message_ttl=20), put("1", headers={"a": 1}), Until("dead", 1),
     a(1, get("dead")))
case("at-least-once: rejected and taken", a(1, declare("dead")), safe(), put("1"), Until("q", 1), a(1, get()),
     a(1, reject(1, False)), Until("dead", 1), a(1, get("dead")))
case("at-least-once: without a route it is not ready, and no purge counts it", safe("q-nowhere", x_message_ttl=20),
     put("1"), Until("q", 0), Wait(0.1), a(1, passive()), a(1, get()), a(1, m.QueuePurge("q")), a(1, m.QueueDelete("q")))
case("at-least-once: a cycle", safe("q", x_message_ttl=20), put("1"), Wait(0.2), a(1, passive()), a(1, get()),
     a(1, m.QueueDelete("q")))
case("at-least-once: with drop-head at most once", safe("q-nowhere", x_message_ttl=20, x_overflow="drop-head"), put("1"),
     Until("q", 0), a(1, m.QueueDelete("q")))
case("at-least-once: a full queue, then not", a(1, declare("dead", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})),
     put("0", "dead"), safe(x_message_ttl=20), put("1"), Until("q", 0), Wait(0.1), a(1, passive("dead")), a(1, get("dead")),
     a(1, passive("dead")))
case("at-least-once: a second declaration without", safe(), a(1, declare(durable=True, arguments=QUORUM)))

# ---------------------------------------------------------------------------------------------- and between them

def to(kind: str, *bindings: tuple[str, str], **arguments: Any) -> tuple[Step, ...]:
    """An exchange `x` with queues bound by (queue, key), behind a queue `q` whose dead letters go there."""
    table = {"x-dead-letter-exchange": "x", **{name.replace("_", "-"): value for name, value in arguments.items()}}
    steps = [a(1, m.ExchangeDeclare("x", kind)), a(1, declare(arguments=table))]
    for queue, key in bindings:
        steps += [] if queue == "q" else [a(1, declare(queue))]
        steps.append(a(1, bind(key, "x", queue)))
    return tuple(steps)


def headers_to_dead(**arguments: Any) -> tuple[Step, ...]:
    """A headers exchange as the dead-letter exchange of `q`, and `dead` bound to it."""
    return (*to("headers"), a(1, declare("dead")), a(1, m.QueueBind("dead", "x", "", arguments=arguments)))


DIES = (a(1, get()), a(1, reject(1, False)))

case("x-max-length: reject-publish-dlx tells", SELECT, *dying(x_max_length=1, x_overflow="reject-publish-dlx"), *fill(3),
     *drain(2, "dead"), a(1, passive()))
case("x-max-length: reject-publish-dlx and priorities", SELECT,
     *dying(x_max_length=1, x_overflow="reject-publish-dlx", x_max_priority=5), put("1"), put("2", priority=5),
     *drain(1, "dead"), *drain(1))
case("x-max-length: reject-publish-dlx of a quorum queue",
     a(1, declare(durable=True, arguments={**QUORUM, "x-overflow": "reject-publish-dlx"})))
case("x-max-length: with CC to itself", a(1, with_arguments(x_max_length=1)), a(1, declare("cc")),
     put("1", headers={"CC": ["cc", "q"]}), put("2", headers={"CC": ["cc"]}), a(1, passive()), a(1, passive("cc")))
case("x-max-length-bytes: requeue", *dying(x_max_length_bytes=3), put("aa"), put("b"), a(1, get()), put("ccc"), a(1, nack(1)),
     a(1, passive()), *drain(3), *drain(3, "dead"))
case("x-max-length: and bytes", a(1, with_arguments(x_max_length=2, x_max_length_bytes=3)), put("aaa"), put("b"), put("c"),
     put("d"), *drain(3))
# In RabbitMQ's queue an ack overtakes a publication that was not looked at yet, so the confirms are waited for.
case("x-max-length: a window in front", SELECT, a(1, with_arguments(x_max_length=1)), a(1, qos(1)), a(1, consume()), *fill(4),
     Confirmed("a", 1), a(1, ack(1)), a(1, passive()))
case("x-max-length: far away", a(1, with_arguments(x_max_length=10**18)), put("1"), a(1, get()))
case("dead letter by headers", *headers_to_dead(k=1), put("1", headers={"k": 1}), put("2", headers={"k": 2}), a(1, get()),
     a(1, get()), a(1, nack(2, True, False)), Until("dead", 1), *drain(2, "dead"))
case("dead letter by its death: x- does not count", *headers_to_dead(**{"x-first-death-reason": "rejected"}), put("1"), *DIES,
     *drain(1, "dead"))
case("dead letter by its death: all-with-x", *headers_to_dead(**{"x-match": "all-with-x", "x-first-death-reason": "rejected"}),
     put("1"), *DIES, *drain(1, "dead"))
case("dead letter to two, one a cycle", *to("fanout", ("dead", ""), ("q", ""), x_message_ttl=20), put("1"), Until("dead", 1),
     *drain(1, "dead"), a(1, passive()))
case("dead letter with CC and a key of the queue's", *dying(), a(1, declare("cc")), put("1", headers={"CC": ["cc"]}), *DIES,
     *drain(1, "dead"), *drain(2, "cc"), differs="dead-letter-cc")
case("dead letter with BCC", *to("direct", ("d2", "bcc")), a(1, declare("bcc")), put("1", headers={"BCC": ["bcc"], "z": 1}), *DIES,
     *drain(1, "d2"), *drain(1, "bcc"))
case("dead letter around exchanges", *to("fanout"), a(1, m.ExchangeDeclare("y", "fanout")), a(1, m.ExchangeBind("y", "x", "")),
     a(1, m.ExchangeBind("x", "y", "")), a(1, declare("dead")), a(1, bind("", "y", "dead")), put("1"), *DIES, *drain(2, "dead"))
case("dead letter to its own queue by its own key", a(1, declare(arguments={"x-dead-letter-exchange": ""})), put("1"), *DIES,
     a(1, get()), a(1, reject(2, False)), a(1, get()))
case("dead letters in a transaction", *dying(), put("1"), a(1, m.TxSelect()), *DIES, a(1, passive("dead")), a(1, m.TxCommit()),
     *drain(1, "dead"))
case("tx: requeue at commit", a(1, declare()), *fill(3), a(1, m.TxSelect()), a(1, get()), a(1, get()), a(1, nack(1)), a(1, get()),
     a(1, m.TxCommit()), a(1, get()))
case("tx: a ttl", *dying(x_message_ttl=30), a(1, m.TxSelect()), put("1"), a(1, m.TxCommit()), Until("dead", 1), *drain(1, "dead"))
case("expiration with a sign", *dying(), put("1", expiration="+20"), Until("dead", 1), *drain(1, "dead"), differs="expiration-texts")
case("expiration with zeros in front", *dying(), put("1", expiration="00020"), Until("dead", 1), *drain(1, "dead"), differs="expiration-texts")
case("ten years", a(1, with_arguments(x_message_ttl=315_360_000_000)), put("1", expiration="315360000000"), a(1, get()))
case("more than ten years", a(1, with_arguments(x_message_ttl=315_360_000_001)))
case("a lease of more than ten years", a(1, with_arguments(x_expires=315_360_000_001)))
case("priority below 0", a(1, with_arguments(x_max_priority=-1)))
case("priority 255", a(1, with_arguments(x_max_priority=255)), put("1", priority=254), put("2", priority=255), *drain(2))
case("single: false", a(1, with_arguments(x_single_active_consumer=False)), a(1, consume(tag="c1")), a(1, consume(tag="c2")), *fill(2))
case("single: false is not none", a(1, with_arguments(x_single_active_consumer=False)), a(1, declare()))
case("single: a string", a(1, with_arguments(x_single_active_consumer="true")))
case("requeue after a purge", a(1, declare()), *fill(4), a(1, get()), a(1, get()), a(1, m.QueuePurge("q")), put("5"),
     a(1, nack(2, True)), *drain(4))
case("quorum: consumer priority", a(1, declare(durable=True, arguments=QUORUM)), a(1, qos(1)), a(1, consume(tag="lo")),
     a(1, consume(tag="hi", arguments={"x-priority": 5})), *fill(3))
case("quorum: max-length tells", a(1, declare("dead")), a(1, declare(durable=True, arguments={**QUORUM, **DEAD, "x-max-length": 1})),
     *fill(3), Until("dead", 2), *drain(2, "dead"))
case("quorum: delete if_unused", a(1, declare(durable=True, arguments=QUORUM)), a(1, m.QueueDelete("q", if_unused=True)),
     differs="quorum-delete-if")
case("quorum: global prefetch", a(1, declare(durable=True, arguments=QUORUM)), a(1, m.BasicQos(0, 5, global_=True)), a(1, consume()),
     differs="quorum-global-prefetch")
