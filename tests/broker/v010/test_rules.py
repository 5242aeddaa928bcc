"""Every rule of the specification has its test by name (`rule_table`), and those that no other file has are here."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from harebell.protocol.v010 import commands as c, structs as s
from harebell.protocol.v010.frames import command_frames
from tests.broker.v010.disk_kit import DiskKit
from tests.broker.v010.kit import Client, Kit
from tests.broker.v010.rule_table import FILES, NOT_IMPLEMENTED, RULES, TABLES

ROOT = Path(__file__).parents[3]
SPECIFICATION = ROOT / "spec/amqp.0-10-qpid-errata.stripped.xml"


def rules() -> Iterator[tuple[str, str]]:
    """Each rule and exception of the specification: the names of what it is about, and its own."""

    def inside(element: ElementTree.Element, names: tuple[str, ...]) -> Iterator[tuple[str, str]]:
        for child in element:
            kind, name = child.tag.rpartition("}")[2], child.get("name")
            if kind in ("rule", "exception"):
                yield ".".join(names), name or ""
            else:
                yield from inside(child, (*names, name) if name else names)

    return inside(ElementTree.parse(SPECIFICATION).getroot(), ())


def functions(text: str) -> set[str]:
    """The names of the functions of a module."""
    return {each.name for each in ast.parse(text).body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_no_rule_is_left_out() -> None:
    found = list(rules())
    assert len(found) == len(set(found)) > 200
    ours = [(where, name) for where, name in found if where.partition(".")[0] not in NOT_IMPLEMENTED]
    assert {where.partition(".")[0] for where, _ in found} >= set(NOT_IMPLEMENTED)
    assert sorted(ours) == sorted((where, name) for where, names in RULES.items() for name in names)


def test_every_named_test_is_there() -> None:
    texts = {short: (ROOT / path).read_text() for short, path in FILES.items()}
    tests = {short: functions(text) for short, text in texts.items()}
    named: set[str] = set()
    for names in RULES.values():
        for rule, value in names.items():
            place = value.rpartition(" ")[2]  # a reason may end with a test, too
            short, dot, name = place.partition(".")
            if " " in value and not dot:
                continue
            named.add(short)
            assert f"test_{name}" in tests[short], value
            if value in TABLES:
                assert f'"{rule}"' in texts[short], f"{value} has no row {rule}"
    assert named == set(FILES)


# -- rules that no other file has -------------------------------------------------------------------------------------


def test_aborted_commands(kit: Kit) -> None:
    """A part of a command has come, and session.gap gives it up: the next one is executed."""
    peer = kit.peer()
    client = peer.session()
    client.call(c.QueueDeclare("q"))
    client.subscribe("q")
    given_up = client.state.sending.send("in part", 10)
    transfer = c.MessageTransfer("").encode()
    peer.connection.receive_data(command_frames(0, transfer, 65_535, content=True))
    for control in client.state.abandon(given_up, given_up):
        peer.control(0, control)
    client.publish("q", b"whole")
    assert client.bodies() == [b"whole"]
    assert given_up + 1 in client.complete


@pytest.fixture
def disk() -> Iterator[DiskKit]:
    node = DiskKit()
    yield node
    node.close()


def test_what_outlives_a_restart(disk: DiskKit) -> None:
    """Durable exchanges, queues, their bindings and persistent messages do; transient ones do not."""
    client = disk.peer().session(b"before")
    for durable in (True, False):
        kind = "durable" if durable else "transient"
        client.call(c.ExchangeDeclare(f"{kind} exchange", "topic", durable=durable))
        client.call(c.QueueDeclare(f"{kind} queue", durable=durable))
        client.call(c.ExchangeBind(f"{kind} queue", f"{kind} exchange", "a.*"))
    client.publish("a.b", b"transient", "durable exchange")
    client.publish("a.b", b"persistent", "durable exchange", delivery_mode=2)
    disk.restart(None)
    client = disk.peer().session(b"after")
    assert client.ask(c.ExchangeQuery("transient exchange"), s.ExchangeQueryResult).not_found
    assert client.ask(c.QueueQuery("transient queue"), s.QueueQueryResult).queue == ""
    client.publish("a.c", b"after", "durable exchange")
    client.subscribe("durable queue")
    assert client.bodies() == [b"persistent", b"after"]


@pytest.mark.parametrize("levels", range(1, 11))
def test_priority_levels(client: Client, levels: int) -> None:
    """With n levels, priorities up to 5 - ceil(n / 2) are the lowest one, and from 4 + floor(n / 2) on the highest."""
    client.call(c.QueueDeclare("q", arguments={"qpid.priorities": levels}))
    for priority in range(10):
        client.publish("q", b"%d" % priority, priority=priority)
    client.subscribe("q")
    lowest, highest = 5 - (levels + 1) // 2, 4 + levels // 2

    def level(priority: int) -> int:
        return min(max(priority, lowest), highest)

    expected = sorted(range(10), key=lambda priority: -level(priority))  # equal ones in their order
    assert [int(body) for body in client.bodies()] == expected
    assert len({level(priority) for priority in range(10)}) == levels


@pytest.mark.parametrize("arguments", [{}, {"qpid.priorities": 3}])
def test_priority_delivery(client: Client, arguments: dict[str, object]) -> None:
    """Messages of one priority come in their order, whether they are persistent or not."""
    client.call(c.QueueDeclare("q", durable=True, arguments=arguments))
    for number in range(20):
        client.publish("q", b"%d" % number, priority=7, delivery_mode=1 + number % 2)
    client.subscribe("q")
    assert [int(body) for body in client.bodies()] == list(range(20))


def test_simultaneous_subscriptions(client: Client) -> None:
    client.call(c.QueueDeclare("q"))
    for number in range(200):
        client.subscribe("q", f"t{number}", messages=1)
    for number in range(200):
        client.publish("q", b"%d" % number, sync=number == 199)
    assert [int(body) for body in client.bodies()] == list(range(200))


def test_post_cancel_transfer_resolution(client: Client) -> None:
    """What was transferred before message.cancel can be accepted, released, rejected and acquired after it."""
    client.call(c.ExchangeDeclare("dead", "fanout"))
    client.call(c.QueueDeclare("letters"))
    client.call(c.ExchangeBind("letters", "dead", ""))
    client.call(c.QueueDeclare("q", alternate_exchange="dead"))
    for number in range(4):
        client.publish("q", b"%d" % number)
    client.subscribe("q", "browser", acquire_mode=1)
    shown = [number for number, _ in client.taken()]
    client.call(c.MessageCancel("browser"))
    client.subscribe("q", "t", messages=3)
    accepted, released, rejected = (number for number, _ in client.taken())
    client.call(c.MessageCancel("t"))
    client.call(c.MessageAccept(((accepted, accepted),)))
    client.call(c.MessageRelease(((released, released),)))
    client.call(c.MessageReject(((rejected, rejected),)))
    acquired = client.ask(c.MessageAcquire(((shown[3], shown[3]),)), s.Acquired)
    assert acquired.transfers == ((shown[3], shown[3]),)
    client.call(c.MessageAccept(acquired.transfers))
    client.subscribe("letters", "letters")
    assert client.bodies() == [b"2"]
    client.subscribe("q", "rest")
    assert client.bodies() == [b"1"]


def test_many_exchanges_queues_and_bindings(client: Client) -> None:
    """No limit but memory; the specification asks for 16 exchanges, 256 queues, and 4 bindings of a queue."""
    for number in range(300):
        client.send(c.ExchangeDeclare(f"x{number}", "direct"))
        client.send(c.QueueDeclare(f"q{number}"))
        client.send(c.ExchangeBind("q0", f"x{number}", "k"))
        client.send(c.ExchangeBind("q0", "x0", f"k{number}"))
    client.call(c.ExecutionSync())
    assert client.exception is None
    client.publish("k", b"1", "x299")
    client.publish("k299", b"2", "x0")
    client.publish("q299", b"3")
    client.subscribe("q0")
    client.subscribe("q299", "u")
    assert client.bodies() == [b"1", b"2", b"3"]


def test_alternates_that_loop(client: Client) -> None:
    """Each exchange is visited once, whatever leads to it."""
    client.call(c.ExchangeDeclare("c", "fanout"))
    client.call(c.ExchangeDeclare("b", "fanout", alternate_exchange="c"))
    client.call(c.ExchangeDeclare("a", "fanout", alternate_exchange="b"))
    assert client.publish("", b"m", "a", accept_mode=0) in client.rejected
    client.call(c.QueueDeclare("q"))
    client.call(c.ExchangeBind("q", "c", ""))
    assert client.publish("", b"m", "a", accept_mode=0) in client.accepted
    client.subscribe("q")
    assert client.bodies() == [b"m"]


def test_multiple_bindings(client: Client) -> None:
    """A queue gets a message once, however many of its bindings match."""
    client.call(c.QueueDeclare("q"))
    for key in ("a.b", "a.*", "#", "*.b", "a.#"):
        client.call(c.ExchangeBind("q", "amq.topic", key))
    client.publish("a.b", b"m", "amq.topic")
    client.subscribe("q")
    assert client.bodies() == [b"m"]


def test_if_unused_flag(client: Client) -> None:
    client.call(c.QueueDeclare("q"))
    client.subscribe("q")
    client.call(c.QueueDelete("q", if_unused=True))
    assert client.exception is not None
    assert client.exception.error_code == 406


def test_purge(client: Client) -> None:
    """Rules empty and pending-messages: what was sent and not accepted stays its receiver's, and can come back."""
    client.call(c.QueueDeclare("q"))
    for number in range(5):
        client.publish("q", b"%d" % number)
    client.subscribe("q", messages=2)
    (accepted, _), (released, _) = client.taken()
    client.call(c.QueuePurge("q"))
    assert client.ask(c.QueueQuery("q"), s.QueueQueryResult).message_count == 0
    client.call(c.MessageAccept(((accepted, accepted),)))
    client.call(c.MessageCancel("t"))
    client.call(c.MessageRelease(((released, released),)))
    client.subscribe("q", "u")
    assert client.bodies() == [b"1"]
    assert client.call(c.QueuePurge("q")) in client.complete
