"""The scripts about users and permissions: who may do what, in which order it is checked, and how logins end."""

from __future__ import annotations

from typing import Any

from harebell.protocol.v091 import Properties, methods as m
from harebell.protocol.v091.fields import write_table
from tests.differential.driver import Login, Publish, Send, Step, Together
from tests.differential.people import PERMISSIONS
from tests.differential.scripts import Case

__all__ = ["PERMISSION_CASES"]

PERMISSION_CASES: list[Case] = []


def case(name: str, *steps: Step, differs: str = "") -> None:
    PERMISSION_CASES.append(Case(name, steps, differs))


def guest(method: m.Method) -> Send:
    return Send("guest", 1, method)


def put(who: str, exchange: str, key: str, **properties: Any) -> Publish:
    return Publish(who, 1, exchange, key, b"1", Properties(**properties))


WORLD = (
    guest(m.QueueDeclare("mine")), guest(m.QueueDeclare("other")),
    guest(m.ExchangeDeclare("mine", "direct")), guest(m.ExchangeDeclare("t", "topic")), guest(m.ExchangeDeclare("x", "fanout")),
)  # fmt: skip

# One thing that somebody wants to do, in a world of two queues and two exchanges.
ACTIONS: dict[str, m.Method | tuple[str, str]] = {
    "declare a queue": m.QueueDeclare("new"),
    "declare a queue that is there": m.QueueDeclare("mine"),
    "declare a queue by no name": m.QueueDeclare("", exclusive=True),
    "declare a queue passively": m.QueueDeclare("mine", passive=True),
    "declare a queue with a dead-letter exchange": m.QueueDeclare("new", arguments={"x-dead-letter-exchange": "x"}),
    "declare a queue that dead-letters to the default exchange": m.QueueDeclare("new", arguments={"x-dead-letter-exchange": ""}),
    "declare a queue with a bad dead-letter exchange": m.QueueDeclare("new", arguments={"x-dead-letter-exchange": 5}),
    "declare a queue that differs": m.QueueDeclare("mine", durable=True),
    "declare a queue with a name of the server's": m.QueueDeclare("amq.new"),
    "delete a queue": m.QueueDelete("other"),
    "delete a missing queue": m.QueueDelete("missing"),
    "purge a queue": m.QueuePurge("mine"),
    "purge a missing queue": m.QueuePurge("missing"),
    "get": m.BasicGet("mine"),
    "get from a missing queue": m.BasicGet("missing"),
    "consume": m.BasicConsume("mine", "c"),
    "consume from a missing queue": m.BasicConsume("missing", "d"),
    "consume direct replies": m.BasicConsume("amq.rabbitmq.reply-to", "e", no_ack=True),
    "declare an exchange": m.ExchangeDeclare("new", "direct"),
    "declare an exchange that is there": m.ExchangeDeclare("mine", "direct"),
    "declare an exchange passively": m.ExchangeDeclare("mine", "direct", passive=True),
    "declare an exchange with an alternate": m.ExchangeDeclare("new", "direct", arguments={"alternate-exchange": "x"}),
    "declare an exchange with a bad alternate": m.ExchangeDeclare("new", "direct", arguments={"alternate-exchange": 5}),
    "declare the default exchange": m.ExchangeDeclare("", "direct"),
    "declare an exchange with a name of the server's": m.ExchangeDeclare("amq.new", "direct"),
    "declare an exchange that differs": m.ExchangeDeclare("mine", "fanout"),
    "delete an exchange": m.ExchangeDelete("x"),
    "delete a missing exchange": m.ExchangeDelete("missing"),
    "delete an exchange of the server's": m.ExchangeDelete("amq.direct"),
    "delete the default exchange": m.ExchangeDelete(""),
    "bind a queue": m.QueueBind("mine", "x", "k"),
    "bind a missing queue": m.QueueBind("missing", "x", "k"),
    "bind to a missing exchange": m.QueueBind("mine", "missing", "k"),
    "bind to the default exchange": m.QueueBind("mine", "", "k"),
    "unbind a queue": m.QueueUnbind("mine", "x", "k"),
    "bind an exchange": m.ExchangeBind("mine", "x", "k"),
    "bind the default exchange": m.ExchangeBind("", "x", "k"),
    "unbind an exchange": m.ExchangeUnbind("mine", "x", "k"),
    "publish": ("mine", "k"),
    "publish to the default exchange": ("", "mine"),
    "publish to a missing exchange": ("missing", "k"),
    "publish to an internal exchange": ("amq.rabbitmq.trace", "k"),
}

# What an action may have made is taken away again, and what it took away is put back.
UNDO = Together((
    guest(m.QueueDelete("new")), guest(m.ExchangeDelete("new")), guest(m.QueueDeclare("other")), guest(m.ExchangeDeclare("x", "fanout")),
))  # fmt: skip

for who in PERMISSIONS:
    if who not in ("topical", "impersonator"):
        done = [Send(who, 1, action) if isinstance(action, m.Method) else put(who, *action) for action in ACTIONS.values()]
        case(f"what {who} may do", *WORLD, *(step for each in done for step in (each, UNDO)),
             differs="permission-texts" if who != "everything" else "")

for exchange_name, row in (("t", "permission-texts"), ("mute", "permission-texts"), ("x", "")):
    case(f"topic permissions at {exchange_name}", *WORLD, guest(m.ExchangeDeclare("mute", "topic")), *(
        step
        for key in ("w.1", "r.1", "topical", "/", "")
        for step in (put("topical", exchange_name, key), Send("topical", 1, m.QueueBind("mine", exchange_name, key)),
                     Send("topical", 1, m.QueueUnbind("mine", exchange_name, key)))
    ), differs=row)  # fmt: skip
case("topical: the same key often, then another", *WORLD, put("topical", "t", "w.1"), put("topical", "t", "w.1"), put("topical", "t", "no"), differs="permission-texts")
case("topical: an exchange bound to a topic exchange", *WORLD, Send("topical", 1, m.ExchangeBind("mine", "t", "no")), differs="permission-texts")
case("topical: CC with another key", *WORLD, put("topical", "t", "w.1", headers={"CC": ["no"]}), differs="topic-permission-of-copies")
case("topical: BCC with another key", *WORLD, put("topical", "t", "w.1", headers={"BCC": ["no"]}), differs="topic-permission-of-copies")
case("topical: CC with a good key", *WORLD, put("topical", "t", "w.1", headers={"CC": ["w.2"]}))
case("topical: CC at an exchange that is none", *WORLD, put("topical", "x", "w.1", headers={"CC": ["no"]}))
case("refused, then allowed on another channel", *WORLD, Send("anchored", 1, m.QueueDeclare("new")), Send("anchored", 2, m.QueueDeclare("mine")), differs="permission-texts")
case("anchored: dead letters to where it may not write", *WORLD, Send("anchored", 1, m.QueueDelete("mine")),
     Send("anchored", 1, m.QueueDeclare("mine", arguments={"x-dead-letter-exchange": "x"})), differs="permission-texts")
case("in a transaction", *WORLD, Send("reader", 1, m.TxSelect()), put("reader", "mine", "k"), Send("reader", 1, m.TxCommit()), differs="permission-texts")
case("of two publications the second is refused", *WORLD, Send("anchored", 1, m.ConfirmSelect()), put("anchored", "", "mine"), put("anchored", "x", "k"), differs="permission-texts")

for who in ("everything", "impersonator", "guest"):
    case(f"{who}: user-id of somebody else", *WORLD, put(who, "", "mine", user_id="somebody"))
    case(f"{who}: its own user-id", *WORLD, put(who, "", "mine", user_id=who))


def amqplain(**fields: Any) -> bytes:
    return write_table(fields)[4:]


case("no permission in the vhost", Login("a", user="stranger", password="stranger"))
case("no password", Login("a", user="hashless", password=""))
case("no such user", Login("a", user="unheard-of", password="x"))
case("the other's password", Login("a", user="reader", password="writer"))
case("no user name", Login("a", user="", password=""))
case("AMQPLAIN", Login("a", mechanism="AMQPLAIN", response=amqplain(LOGIN="reader", PASSWORD="reader")))
case("AMQPLAIN with a wrong password", Login("a", mechanism="AMQPLAIN", response=amqplain(LOGIN="reader", PASSWORD="no")))
case("AMQPLAIN in another order", Login("a", mechanism="AMQPLAIN", response=amqplain(x=1, PASSWORD="reader", LOGIN="reader")))
case("AMQPLAIN without a password", Login("a", mechanism="AMQPLAIN", response=amqplain(LOGIN="reader")), differs="malformed-amqplain")
case("AMQPLAIN with a number", Login("a", mechanism="AMQPLAIN", response=amqplain(LOGIN="reader", PASSWORD=5)))
case("AMQPLAIN that is no table", Login("a", mechanism="AMQPLAIN", response=b"\xff\xff"), differs="malformed-amqplain")
case("PLAIN with an authorization id", Login("a", response=b"somebody\0reader\0reader"), differs="malformed-plain")
case("PLAIN with too many parts", Login("a", response=b"\0reader\0reader\0"), differs="malformed-plain")
case("new secret", Login("a", user="reader", password="reader"), Send("a", 0, m.ConnectionUpdateSecret(b"reader", "")))
