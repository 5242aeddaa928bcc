"""What clients can ask for, and the permissions that each asks for, in the order of their checks.

The rows are those of docs/reference/permissions.md, and the tests try every one of them with every permission alone.
The world has the queues q, dlx (with dead letters to x) and others, the exchanges x, y, t (topic), later (delayed) and
inside (internal).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from harebell.protocol.v091 import methods as m


class Needed(NamedTuple):
    """A permission on an object: `part` is what the published table calls it, `name` what it is called in the world."""

    right: str
    kind: str
    part: str
    name: str

    @property
    def refusal(self) -> str:
        return f"{self.right} access to {self.kind} '{self.name}' in vhost '/' refused for user 'u'"


@dataclass(frozen=True)
class Publish:
    exchange: str
    key: str
    headers: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Ask:
    """A request to a service of the system exchange. `reply_to` may be "direct", for a direct reply."""

    service: str
    reply_to: str = ""
    body: object = ""

    @property
    def data(self) -> bytes:
        return self.body.encode() if isinstance(self.body, str) else json.dumps(self.body).encode()


Action = m.Method | Publish | Ask
Row = tuple[Action, tuple[Needed, ...]]


def configure(kind: str, name: str, part: str = "") -> Needed:
    return Needed("configure", kind, part or f"the {kind}", name)


def write(name: str, part: str = "the exchange", kind: str = "exchange") -> Needed:
    return Needed("write", kind, part, name)


def read(kind: str, name: str, part: str = "") -> Needed:
    return Needed("read", kind, part or f"the {kind}", name)


SYSTEM = write("amq.system", "`amq.system`")
ANSWER = write("amq.default", "`amq.default`")
DEAD_LETTERS = {"x-dead-letter-exchange": "x"}
CHANGE = {"queue": "q", "arguments": {"x-max-length": 5}}

ROWS: dict[str, Row] = {
    "declare a queue": (m.QueueDeclare("new"), (configure("queue", "new"),)),
    "declare a queue that exists": (m.QueueDeclare("q"), (configure("queue", "q"),)),
    "declare a new queue with `x-dead-letter-exchange`": (
        m.QueueDeclare("new", arguments=dict(DEAD_LETTERS)),
        (configure("queue", "new"), read("queue", "new"), write("x", "that exchange")),
    ),
    "declare a new queue with dead letters to the default exchange": (
        m.QueueDeclare("new", arguments={"x-dead-letter-exchange": ""}),
        (configure("queue", "new"), read("queue", "new"), write("amq.default", "`amq.default`")),
    ),
    "declare a queue that exists, with its `x-dead-letter-exchange`": (
        m.QueueDeclare("dlx", arguments=dict(DEAD_LETTERS)),
        (configure("queue", "dlx"),),
    ),
    "declare a queue passively": (m.QueueDeclare("q", passive=True), ()),
    "delete a queue": (m.QueueDelete("q"), (configure("queue", "q"),)),
    "delete a queue that does not exist": (m.QueueDelete("nope"), (configure("queue", "nope"),)),
    "purge": (m.QueuePurge("q"), (read("queue", "q"),)),
    "get": (m.BasicGet("q"), (read("queue", "q"),)),
    "consume": (m.BasicConsume("q", "c"), (read("queue", "q"),)),
    "browse": (m.BasicConsume("q", "c", arguments={"x-browse": True}), (read("queue", "q"),)),
    "consume direct replies": (m.BasicConsume("amq.rabbitmq.reply-to", "c", no_ack=True), ()),
    "declare an exchange": (m.ExchangeDeclare("new", "direct"), (configure("exchange", "new"),)),
    "declare an exchange that exists": (m.ExchangeDeclare("x", "direct"), (configure("exchange", "x"),)),
    "declare a new exchange with `alternate-exchange`": (
        m.ExchangeDeclare("new", "direct", arguments={"alternate-exchange": "y"}),
        (configure("exchange", "new"), read("exchange", "new"), write("y", "that exchange")),
    ),
    "declare a new delayed exchange with `alternate-exchange`": (
        m.ExchangeDeclare(
            "new", "x-delayed-message", arguments={"x-delayed-type": "direct", "alternate-exchange": "y"}
        ),
        (configure("exchange", "new"), read("exchange", "new"), write("y", "that exchange")),
    ),
    "declare an exchange passively": (m.ExchangeDeclare("x", passive=True), ()),
    "delete an exchange": (m.ExchangeDelete("x"), (configure("exchange", "x"),)),
    "bind a queue": (m.QueueBind("q", "x", "k"), (write("q", "the queue", "queue"), read("exchange", "x"))),
    "unbind a queue": (m.QueueUnbind("q", "x", "k"), (write("q", "the queue", "queue"), read("exchange", "x"))),
    "bind an exchange": (
        m.ExchangeBind("y", "x", "k"),
        (write("y", "the destination"), read("exchange", "x", "the source")),
    ),
    "unbind an exchange": (
        m.ExchangeUnbind("y", "x", "k"),
        (write("y", "the destination"), read("exchange", "x", "the source")),
    ),
    "bind a queue to the firehose": (
        m.QueueBind("q", "amq.rabbitmq.trace", "#"),
        (write("q", "the queue", "queue"), read("exchange", "amq.rabbitmq.trace", "`amq.rabbitmq.trace`")),
    ),
    "publish": (Publish("x", "k"), (write("x"),)),
    "publish to the default exchange": (Publish("", "q"), (write("amq.default", "`amq.default`"),)),
    "publish with CC": (Publish("x", "k", {"CC": ["q"]}), (write("x"),)),
    "publish with BCC": (Publish("x", "k", {"BCC": ["q"]}), (write("x"),)),
    "publish a delayed message": (Publish("later", "k", {"x-delay": 1}), (write("later"),)),
    "qos, recover, flow, confirm, tx": (m.BasicQos(0, 1), ()),
    "`amq.ping`": (Ask("amq.ping"), (SYSTEM,)),
    "`amq.ping`, answered to a queue": (Ask("amq.ping", "others"), (SYSTEM, ANSWER)),
    "`amq.ping`, answered to a queue that does not exist": (Ask("amq.ping", "nope"), (SYSTEM, ANSWER)),
    "`amq.ping`, answered to an exclusive queue of the connection": (Ask("amq.ping", "own"), (SYSTEM,)),
    "`amq.ping`, answered by a direct reply": (Ask("amq.ping", "direct"), (SYSTEM,)),
    "`amq.stats`": (Ask("amq.stats", "direct"), (SYSTEM,)),
    "`amq.routes`": (Ask("amq.routes", "direct"), (SYSTEM,)),
    "`amq.queue`": (Ask("amq.queue", "direct", {"queue": "q"}), (SYSTEM, read("queue", "q"))),
    "`amq.queue` of a queue that does not exist": (
        Ask("amq.queue", "direct", {"queue": "nope"}),
        (SYSTEM, read("queue", "nope")),
    ),
    "`amq.lease`": (Ask("amq.lease", "direct"), (SYSTEM,)),
    "`amq.change-queue`": (Ask("amq.change-queue", "direct", CHANGE), (SYSTEM, configure("queue", "q"))),
    "`amq.change-queue`, not answered": (Ask("amq.change-queue", "", CHANGE), (SYSTEM, configure("queue", "q"))),
    "`amq.change-queue`, answered to a queue": (
        Ask("amq.change-queue", "others", CHANGE),
        (SYSTEM, ANSWER, configure("queue", "q")),
    ),
    "`amq.change-queue` of a queue that does not exist": (
        Ask("amq.change-queue", "direct", {"queue": "nope", "arguments": {}}),
        (SYSTEM, configure("queue", "nope")),
    ),
    "`amq.change-queue` that sets `x-dead-letter-exchange`": (
        Ask("amq.change-queue", "direct", {"queue": "q", "arguments": DEAD_LETTERS}),
        (SYSTEM, configure("queue", "q"), read("queue", "q"), write("x", "that exchange")),
    ),
    "`amq.change-queue` that keeps an `x-dead-letter-exchange`": (
        Ask("amq.change-queue", "direct", {"queue": "dlx", "arguments": {"x-dead-letter-routing-key": "q"}}),
        (SYSTEM, configure("queue", "dlx"), read("queue", "dlx"), write("x", "that exchange")),
    ),
    "`amq.change-queue` that removes `x-dead-letter-exchange`": (
        Ask("amq.change-queue", "direct", {"queue": "dlx", "arguments": {"x-dead-letter-exchange": None}}),
        (SYSTEM, configure("queue", "dlx")),
    ),
    "`amq.revoke`": (Ask("amq.revoke", "direct", {"exchange": "later", "id": "m"}), (SYSTEM, write("later"))),
    "`amq.revoke` at an exchange that does not exist": (
        Ask("amq.revoke", "direct", {"exchange": "nope", "id": "m"}),
        (SYSTEM, write("nope")),
    ),
}
"""Each operation, and what it needs."""
