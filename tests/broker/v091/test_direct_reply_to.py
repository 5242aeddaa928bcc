"""Who publishes to an address for direct replies: by every way to publish, and wherever a message names the address."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harebell.broker.auth import Access
from harebell.broker.operations.firehose import set_tracing
from harebell.broker.operations.publishing import publishing
from harebell.broker.queues.dead_letters import RETRY_MS
from harebell.protocol.v010 import commands as c
from harebell.protocol.v091 import Content, Properties, Table, methods as m
from harebell.routing.steps import complete
from tests.broker.kit import Client, NodeKit
from tests.broker.v010.kit import Kit

REPLIES = "amq.rabbitmq.reply-to"


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[Kit]:
    """Clients of both dialects."""
    kit = Kit(tmp_path)
    yield kit
    kit.sessions.close()
    kit.stop()


class Asker:
    """A client with an address for direct replies."""

    def __init__(self, kit: NodeKit) -> None:
        self.client = kit.client()
        self.client.call(m.BasicConsume(REPLIES, "r", no_ack=True), m.BasicConsumeOk)
        self.client.call(m.QueueDeclare("requests"), m.QueueDeclareOk)
        self.client.publish("requests", reply_to=REPLIES)
        request = self.client.get("requests")
        assert request is not None
        self.address = request.decode_properties().reply_to or ""

    def replies(self) -> list[Content]:
        """Those since the last call."""
        self.client.receive()
        found = [event for _, event in self.client.events if isinstance(event, Content)]
        self.client.events.clear()
        return found

    def bodies(self) -> list[bytes]:
        return [reply.body for reply in self.replies()]

    def cancel(self) -> None:
        self.client.call(m.BasicCancel("r"), m.BasicCancelOk)


# What a key and headers say, with the address for "A", and whether the queue `q` is named too.
NAMED: dict[str, tuple[str, Table, bool]] = {
    "key": ("A", {}, False),
    "key twice": ("A", {"CC": ["A"], "BCC": ["A"]}, False),
    "key, a queue in CC": ("A", {"CC": ["q"]}, True),
    "key, a queue in BCC": ("A", {"BCC": ["q"]}, True),
    "CC of a queue": ("q", {"CC": ["A"]}, True),
    "BCC of a queue": ("q", {"BCC": ["A"]}, True),
    "CC of nobody": ("nonesuch", {"CC": ["nothing", "A"]}, False),
    "BCC of nobody": ("nonesuch", {"BCC": ["A"]}, False),
}


def plainly(kit: Kit, key: str, headers: Table, queue: bool) -> None:
    kit.client().publish(key, b"1", headers=headers or None)


def mandatory(kit: Kit, key: str, headers: Table, queue: bool) -> None:
    client = kit.client()
    client.engine.send_content(1, m.BasicPublish("", key, mandatory=True), Properties(headers=headers), b"1")
    client.pump()
    assert client.events == []


def at_once(kit: Kit, key: str, headers: Table, queue: bool) -> None:
    """`q` has no consumer, the address has."""
    client = kit.client()
    client.engine.send_content(1, m.BasicPublish("", key, immediate=True), Properties(headers=headers), b"1")
    client.pump()
    assert client.events == []


def confirmed(kit: Kit, key: str, headers: Table, queue: bool) -> None:
    """The queue `q` is durable: the confirm waits for the disk where it gets the message, and nowhere else."""
    client = kit.client()
    client.call(m.ConfirmSelect(), m.ConfirmSelectOk)
    kit.run_syncs()
    client.publish(key, b"1", headers=headers or None, delivery_mode=2)
    assert [type(event) for _, event in client.events] == ([] if queue else [m.BasicAck])
    while not client.events:
        kit.run_sync()
        client.receive()
    assert client.take(m.BasicAck) == [m.BasicAck(1)]


def committed(kit: Kit, key: str, headers: Table, queue: bool) -> None:
    client = kit.client()
    client.call(m.TxSelect(), m.TxSelectOk)
    client.publish(key, b"1", headers=headers or None)
    client.send(1, m.TxCommit())
    while not client.events:
        kit.run_sync()
        client.receive()
    assert client.events == [(1, m.TxCommitOk())]


def watched(kit: Kit, key: str, headers: Table, queue: bool) -> None:
    """With the firehose on, each message is routed anew; the firehose does not take the address for a queue."""
    watcher = kit.client()
    watcher.declare("copies")
    watcher.call(m.QueueBind("copies", "amq.rabbitmq.trace", "publish.#"), m.QueueBindOk)
    set_tracing(kit.node, "/", True)
    kit.client().publish(key, b"1", headers=headers or None)
    copy = watcher.get("copies")
    assert copy is not None
    assert (copy.decode_properties().headers or {})["routed_queues"] == (["q"] if queue else [])


def by_an_operation(kit: Kit, key: str, headers: Table, queue: bool) -> None:
    """As the HTTP API does."""
    vhost, properties = kit.node.vhosts["/"], Properties(headers=headers)
    access = Access(kit.node.users, "guest", "/", vhost.router)
    done = complete(publishing(vhost, access, "", key, properties, b"1", max_size=100, origin="test"))
    kit.node.batch.end()
    assert (done.routed, done.accepted, done.stored) == (True, True, queue)


WAYS = (plainly, mandatory, at_once, confirmed, committed, watched, by_an_operation)


@pytest.mark.parametrize("named", NAMED)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_message_that_names_an_address(kit: Kit, way: Callable[[Kit, str, Table, bool], None], named: str) -> None:
    asker, client = Asker(kit), kit.client()
    client.declare()
    key, headers, queue = NAMED[named]

    def filled(name: str) -> str:
        return asker.address if name == "A" else name

    copies: Table = {
        name: [filled(str(each)) for each in keys] for name, keys in headers.items() if isinstance(keys, list)
    }
    way(kit, filled(key), copies, queue)
    (reply,) = asker.replies()
    method = reply.decode_method()
    assert isinstance(method, m.BasicDeliver)
    assert (reply.body, method.exchange, method.routing_key) == (b"1", "", filled(key))
    assert (reply.decode_properties().headers or {}) == {name: copies[name] for name in copies if name == "CC"}
    assert client.count() == (queue and way is not at_once)


@pytest.mark.parametrize("key", ["A", "q", "nonesuch"])
@pytest.mark.parametrize("copies", [{}, {"CC": ["A"]}, {"BCC": ["A"]}], ids=str)
def test_an_address_that_has_gone(kit: Kit, key: str, copies: dict[str, list[str]]) -> None:
    """A publisher's earlier routes are of no use then."""
    asker, client, publisher = Asker(kit), kit.client(), kit.client()
    client.declare()
    headers: Table = {name: [asker.address] for name in copies}
    if key == "A":
        key = asker.address
    publisher.publish(key, b"1", headers=headers or None)
    assert len(asker.replies()) == (key == asker.address or bool(copies))
    asker.cancel()
    publisher.engine.send_content(1, m.BasicPublish("", key, mandatory=True), Properties(headers=headers), b"2")
    publisher.publish(key, b"3", headers=headers or None)
    assert asker.replies() == []
    assert [returned.reply_code for returned in publisher.take(m.BasicReturn)] == ([] if key == "q" else [312])
    assert client.count() == (3 if key == "q" else 0)


@pytest.mark.parametrize("transactional", [False, True])
@pytest.mark.parametrize("accept_mode", [0, 1])
def test_a_transfer_of_amqp_0_10(kit: Kit, transactional: bool, accept_mode: int) -> None:
    asker, session = Asker(kit), kit.peer().session(b"s")
    if transactional:
        session.call(c.TxSelect())
    number = session.publish(asker.address, b"1", accept_mode=accept_mode)
    if transactional:
        assert asker.bodies() == []
        session.call(c.TxCommit())
    assert (number in session.accepted, number in session.rejected) == (accept_mode == 0, False)
    assert asker.bodies() == [b"1"]
    asker.cancel()
    number = session.publish(asker.address, b"2", accept_mode=accept_mode)
    assert (number in session.rejected) is (accept_mode == 0)


SAFE = {"x_dead_letter_strategy": "at-least-once", "x_overflow": "reject-publish"}


def die_rejected(client: Client, **properties: Any) -> str:
    client.publish("q", b"1", **properties)
    client.send(1, m.BasicGet("q"))
    client.send(1, m.BasicReject(client.connection.channels[1].tag, requeue=False))
    client.events.clear()
    return "rejected"


def die_expired(client: Client, **properties: Any) -> str:
    client.publish("q", b"1", expiration="0", **properties)
    return "expired"


def die_of_length(client: Client, **properties: Any) -> str:
    client.publish("q", b"1", **properties)
    client.publish("q", b"2", **properties)
    return "maxlen"


QUEUES: dict[str, dict[str, Any]] = {
    "classic": {},
    "quorum": {"x_queue_type": "quorum"},
    "at least once": SAFE,
    "quorum, at least once": {"x_queue_type": "quorum", **SAFE},
}


@pytest.mark.parametrize("headers", [None, {"a": 1}, {"CC": ["other"]}, {"a": "CC is only a word here"}])
@pytest.mark.parametrize("kind", QUEUES)
@pytest.mark.parametrize("die", [die_rejected, die_expired, die_of_length], ids=lambda die: die.__name__)
def test_a_dead_letter(kit: Kit, die: Callable[..., str], kind: str, headers: Table | None) -> None:
    """It is a reply, and gone from its queue: nothing is tried again."""
    asker, client = Asker(kit), kit.client()
    arguments = {"x_max_length": 1, **QUEUES[kind]}
    if die is die_of_length:
        arguments["x_overflow"] = "drop-head"  # then a letter goes at most once
    client.declare(x_dead_letter_exchange="", x_dead_letter_routing_key=asker.address, **arguments)
    reason = die(client, headers=headers)
    (letter,) = asker.replies()
    told: dict[str, Any] = dict(letter.decode_properties().headers or {})
    (death,) = told["x-death"]
    assert (letter.body, death["queue"], death["reason"]) == (b"1", "q", reason)
    assert told.get("a") == (headers or {}).get("a")
    kit.pass_time(3 * RETRY_MS)
    assert asker.replies() == []
    assert kit.node.vhosts["/"].queues["q"].dead_letter_count == 0


@pytest.mark.parametrize("key", [None, "dead"])
def test_a_dead_letter_with_the_address_among_its_copies(kit: Kit, key: str | None) -> None:
    """The copies are keys of a letter, unless its queue has a key of its own."""
    asker, client = Asker(kit), kit.client()
    client.declare("dead")
    client.declare(x_dead_letter_exchange="", **({} if key is None else {"x_dead_letter_routing_key": key}))
    client.publish("q", b"1", headers={"CC": [asker.address]})
    assert asker.bodies() == [b"1"]
    client.send(1, m.BasicGet("q"))
    client.send(1, m.BasicReject(1, requeue=False))
    client.events.clear()
    assert asker.bodies() == ([b"1"] if key is None else [])
    assert client.count("dead") == (key is not None)


def test_dead_letters_to_an_address_that_has_gone_are_none_of_another_one(kit: Kit) -> None:
    """The headers and the route of letters of one second are shared, but not beyond the end of the address."""
    asker, client = Asker(kit), kit.client()
    client.declare(x_dead_letter_exchange="", x_dead_letter_routing_key=asker.address)
    die_rejected(client)
    die_rejected(client)
    assert asker.bodies() == [b"1", b"1"]
    asker.cancel()
    die_rejected(client)
    assert asker.bodies() == []
    assert client.count() == 0


@pytest.mark.parametrize("kind", ["at least once", "quorum, at least once"])
def test_at_least_once_a_letter_waits_for_another_key_where_its_address_has_gone(kit: Kit, kind: str) -> None:
    asker, client = Asker(kit), kit.client()
    client.declare("dead")
    client.declare(x_dead_letter_exchange="", x_dead_letter_routing_key=asker.address, **QUEUES[kind])
    asker.cancel()
    die_rejected(client)
    vhost = kit.node.vhosts["/"]
    assert vhost.queues["q"].dead_letter_count == 1
    vhost.change_queue("q", {"x-dead-letter-routing-key": "dead"})
    kit.pass_time(RETRY_MS)
    kit.run_syncs()
    assert client.count("dead") == 1
    assert vhost.queues["q"].dead_letter_count == 0


def test_the_orphans_of_a_queue(kit: Kit) -> None:
    asker, client = Asker(kit), kit.client()
    client.declare(x_orphan_exchange="")
    client.publish("q", b"1", headers={"CC": [asker.address]})
    assert asker.bodies() == [b"1"]
    client.send(1, m.QueueDelete("q"))
    kit.settle()
    assert asker.bodies() == [b"1"]


def test_a_run_of_messages(kit: Kit) -> None:
    """Messages that are alike are published together."""
    asker, client = Asker(kit), kit.client()
    for number in range(20):
        client.engine.send_content(1, m.BasicPublish("", asker.address), Properties(), b"%d" % number)
    client.pump()
    assert asker.bodies() == [b"%d" % number for number in range(20)]
