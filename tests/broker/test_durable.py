"""Durable queues over the end of the process: what comes back, in which order, marked how."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from harebell.broker.connections.base import FLUSH_BYTES
from harebell.broker.queues import classic
from harebell.broker.queues.classic import ClassicQueue
from harebell.broker.queues.dead_letters import RETRY_MS
from harebell.broker.store.catalog.catalog import Catalog
from harebell.broker.store.queue_log import journal
from harebell.protocol.v091 import Content, Properties, methods as m
from harebell.protocol.v091.fields import Table
from harebell.routing.dead_letter import deaths
from harebell.routing.policies import Policy
from harebell.routing.steps import complete
from tests.broker.kit import Client, NodeKit
from tests.fixtures.profiles import scaled

PERSISTENT: dict[str, Any] = {"delivery_mode": 2}


class Restarting:
    """A node, its client, and its end: `kill` leaves behind what the process had written, and no more."""

    def __init__(self, data: Path, *, sync: bool = False, **arguments: Any) -> None:
        self.data, self.sync, self.arguments = data, sync, arguments
        self.kits: list[NodeKit] = []
        self.start()

    def start(self) -> Client:
        self.kit = NodeKit(self.data, sync=self.sync)
        self.kits.append(self.kit)
        self.client = self.kit.client()
        if len(self.kits) == 1:
            self.client.declare(**self.arguments)
            self.client.declare("dead")
        return self.client

    def kill(self) -> Client:
        self.kit.node.batch.commit.stop()
        self.kit.node.catalog.close()
        return self.start()

    def stop(self) -> None:
        self.kit.stop()
        for fd in Path("/proc/self/fd").iterdir():  # of those that were killed: a process has only so many
            with suppress(OSError):
                if fd.readlink().is_relative_to(self.data):
                    os.close(int(fd.name))

    @property
    def queue(self) -> ClassicQueue:
        queue = self.kit.node.vhosts["/"].queues["q"]
        assert isinstance(queue, ClassicQueue)
        return queue

    @property
    def on_disk(self) -> int:
        """Messages in the queue's log."""
        assert self.queue.journal is not None
        return self.queue.journal.log.count


@pytest.fixture
def durable(tmp_path: Path) -> Iterator[Callable[..., Restarting]]:
    made: list[Restarting] = []

    def make(**arguments: Any) -> Restarting:
        made.append(Restarting(tmp_path / "data", **arguments))
        return made[-1]

    yield make
    for each in made:
        each.stop()


SAFE: dict[str, Any] = {
    "x_dead_letter_exchange": "", "x_dead_letter_routing_key": "later", "x_dead_letter_strategy": "at-least-once",
    "x_overflow": "reject-publish",
}  # fmt: skip
TO_DEAD: dict[str, Any] = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": "dead"}
WAITING: dict[str, dict[str, Any]] = {
    "a retry": {"x_delayed_retry_type": "all", "x_delayed_retry_min": 3_600_000},
    "rejected": SAFE,
    "delivery_limit": {**SAFE, "x_delivery_limit": 1},
}
QUEUES: dict[str, dict[str, Any]] = {
    "classic": {},
    "quorum": {"x_queue_type": "quorum"},
    "priorities": {"x_max_priority": 3},
    "groups": {"x_message_group": "g"},
    "last value": {"x_last_value_key": "k"},
    "TTL": {"x_message_ttl": 36_000_000},
}


@pytest.mark.parametrize("way", ["get", "consume"])
@pytest.mark.parametrize("ends", ["killed", "stopped", "killed, stopped", "put back, killed"])
@pytest.mark.parametrize("kind", QUEUES)
def test_each_end_of_the_process_counts_as_a_return(
    durable: Callable[..., Restarting], kind: str, ends: str, way: str
) -> None:
    """A message that ends its process each time must reach its limit: RabbitMQ 3.10 delivers it with 0, 1, 2, 3."""
    at = durable(**QUEUES[kind], **TO_DEAD, x_delivery_limit=3)
    client, steps = at.client, cycle(ends.split(", "))
    publish(client, 1, headers={"g": "a", "k": "a"})
    for count in range(4):
        _, content = delivered(client, way)
        assert (content.properties.headers or {}).get("x-delivery-count") == (count or None)
        match next(steps):
            case "put back":  # and not by the consumer that would get it again
                client.send(1, m.ChannelClose(200, "", 0, 0))
                client.open()
            case "stopped":
                at.stop()
                client = at.start()
            case "killed":
                client = at.kill()
    assert at.queue.message_count == 0
    assert client.count("dead") == 1
    assert at.on_disk == 0


@pytest.mark.parametrize("kind", QUEUES)
def test_what_had_come_back_too_often_is_dropped_by_the_next_start(
    durable: Callable[..., Restarting], kind: str
) -> None:
    """Its process ended between the return and the dead letter, or its policy says another limit since."""
    at = durable(**QUEUES[kind], **TO_DEAD)
    publish(at.client, 1, 2, headers={"g": "a"})
    for _ in range(3):
        tag, _ = delivered(at.client, "get")
        at.client.send(1, m.BasicReject(tag, requeue=True))
    at.kit.node.catalog.put_policy(Policy("/", "limited", "^q$", {"delivery-limit": 2}, apply_to="queues"))
    at.kit.node.catalog.commit()
    client = at.kill()
    assert at.queue.message_count == 1
    assert client.count("dead") == 1


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
@pytest.mark.parametrize(
    "why, kind", [(why, kind) for why in WAITING for kind in QUEUES if (why, kind) != ("a retry", "groups")]
)
def test_what_waits_goes_on_waiting_after_a_restart(
    durable: Callable[..., Restarting], why: str, kind: str, killed: bool
) -> None:
    at = durable(**QUEUES[kind], **WAITING[why])
    client = at.client
    publish(client, 1, 2, 3, headers={"g": "a"})
    for _ in range(2 if why == "delivery_limit" else 1):
        client.send(1, m.BasicGet("q"))
        (got,) = client.take(m.BasicGetOk)
        client.send(1, m.BasicReject(got.delivery_tag, requeue=why != "rejected"))
    for _ in range(2):  # what is recovered is kept as what came
        assert (at.queue.message_count, at.queue.delayed_count + at.queue.dead_letter_count) == (2, 1)
        if not killed:
            at.stop()
        client = at.kill() if killed else at.start()
    assert (at.queue.message_count, at.queue.delayed_count + at.queue.dead_letter_count) == (2, 1)
    if why == "a retry":
        at.kit.pass_time(3_000_000)  # the restarts took some of the real time
        assert at.queue.message_count == 2
        at.kit.pass_time(600_100)
        assert at.queue.message_count == 3
        client.send(1, m.BasicGet("q"))
        (got,) = client.take(m.BasicGetOk)
        assert got.redelivered
    else:
        client.declare("later")
        at.kit.pass_time(RETRY_MS)
        letter = client.get("later")
        assert letter is not None
        assert letter.body == b"1"
        (death,) = deaths(letter.decode_properties().headers or {})
        assert (death.reason, death.queue) == (why, "q")
        assert at.queue.dead_letter_count == 0
        at.kit.run_syncs()
        client = at.kill()
        assert (at.queue.message_count, at.queue.dead_letter_count, client.count("later")) == (2, 0, 0)


@pytest.mark.pure
def test_a_clock_that_is_set_back_makes_nothing_wait_longer(
    durable: Callable[..., Restarting], monkeypatch: pytest.MonkeyPatch
) -> None:
    at = durable(**WAITING["a retry"])
    publish(at.client, 1)
    at.client.send(1, m.BasicGet("q"))
    (got,) = at.client.take(m.BasicGetOk)
    at.client.send(1, m.BasicReject(got.delivery_tag, requeue=True))
    wall = journal._wall_clock()
    monkeypatch.setattr(journal, "_wall_clock", lambda: wall - 366 * 86_400_000)
    at.kill()
    assert at.queue.delayed_count == 1
    at.kit.pass_time(3_600_000)
    assert at.queue.message_count == 1


DELAY: dict[str, Any] = {"x-delay": 60_000}
KEYS = [f"{number:04}" + "\N{LATIN SMALL LETTER E WITH ACUTE}" * 50 for number in range(300)]


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
@pytest.mark.parametrize("keys", [["q"], [*KEYS, "q"]], ids=["one key", "90 KB of keys"])
@pytest.mark.parametrize("expiration", [None, "0", "3600000"])
def test_a_held_message_keeps_its_keys_and_its_expiration(
    durable: Callable[..., Restarting], keys: list[str], expiration: str | None, killed: bool
) -> None:
    at = durable()
    kind = m.ExchangeDeclare("x", "x-delayed-message", durable=True, arguments={"x-delayed-type": "direct"})
    at.client.call(kind, m.ExchangeDeclareOk)
    at.client.call(m.QueueBind("q", "x", "q"), m.QueueBindOk)
    publish(at.client, 1, queue="none", exchange="x", headers={**DELAY, "CC": keys}, expiration=expiration)
    at.kit.node.batch.end()
    if not killed:
        at.stop()
    client = at.kill() if killed else at.start()
    at.kit.pass_time(60_000)
    got = client.get("q")
    assert (got is None) is (expiration == "0")
    if got is not None:
        assert got.body == b"1"
        assert got.decode_properties().expiration == expiration


@pytest.mark.pure
@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
@pytest.mark.parametrize("many", [False, True], ids=["one by one", "together"])
def test_what_comes_while_a_backlog_is_made_expires_after_a_restart(
    durable: Callable[..., Restarting], monkeypatch: pytest.MonkeyPatch, many: bool, killed: bool
) -> None:
    monkeypatch.setattr(classic, "MOVED", 1)
    at = durable()
    publish(at.client, *range(50))
    at.kit.stopwatch.step = 1.0  # each step is a slice
    at.kit.node.vhosts["/"].policies.set(Policy("/", "p", "^q$", {"message-ttl": 60_000}))
    assert at.queue.is_enriching
    if many:
        for body in (50, 51, 52):
            at.client.engine.send_content(1, m.BasicPublish("", "q"), Properties(delivery_mode=2), b"%d" % body)
        at.client.pump()
    else:
        publish(at.client, 50, 51, 52)
    assert at.queue.is_enriching
    at.kit.node.batch.end()
    at.kit.stopwatch.step = 0.0
    if not killed:
        at.stop()
    at.kill() if killed else at.start()
    assert at.queue.message_count == 53
    at.kit.pass_time(61_000)
    assert at.queue.message_count == 50, "those from before have no deadline"


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory has room for four messages, and three are read at a time."""
    monkeypatch.setattr(journal, "PAGE_MESSAGES", 4)
    monkeypatch.setattr(journal, "RUN", 3)


def publish(client: Client, *bodies: int, queue: str = "q", **properties: Any) -> None:
    for body in bodies:
        client.publish(queue, b"%d" % body, **(PERSISTENT | properties))


def delivered(client: Client, way: str) -> tuple[int, Content]:
    """The one message of queue q, delivered and not acknowledged: its tag, and the whole."""
    client.events.clear()
    client.send(1, m.BasicGet("q") if way == "get" else m.BasicConsume("q", ""))
    (content,) = (event for _, event in client.events if isinstance(event, Content))
    method = content.decode_method()
    assert isinstance(method, m.BasicGetOk | m.BasicDeliver)
    return method.delivery_tag, content


def rest(client: Client, queue: str = "q") -> list[tuple[int, bool]]:
    """What basic.get finds: bodies, and whether each may have been seen before."""
    found: list[tuple[int, bool]] = []
    while True:
        client.send(1, m.BasicGet(queue, no_ack=True))
        _, event = client.events.pop()
        if not isinstance(event, Content):
            return found
        method = event.decode_method()
        assert isinstance(method, m.BasicGetOk)
        found.append((int(event.body), method.redelivered))


def contents(client: Client) -> list[int]:
    """What was delivered since the last look."""
    found = [int(event.body) for _, event in client.events if isinstance(event, Content)]
    client.events.clear()
    return found


def fresh(*bodies: int) -> list[tuple[int, bool]]:
    return [(body, False) for body in bodies]


KINDS: list[dict[str, Any]] = [
    {}, {"x_queue_type": "quorum"}, {"x_max_length": 1000}, {"x_max_priority": 3}, {"x_message_ttl": 1_000_000},
    {"x_message_group": "g"}, {"x_message_deduplication": True},
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_persistent_messages_come_back_in_order(durable: Callable[..., Restarting], kind: dict[str, Any]) -> None:
    at = durable(**kind)
    publish(at.client, 1, 2)
    publish(at.client, 3, delivery_mode=1)
    publish(at.client, 4)
    assert at.kill().count() == 3
    publish(at.client, 5)
    assert at.kill().count() == 4
    assert rest(at.client) == fresh(1, 2, 4, 5)
    assert at.kill().count() == 0


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_what_was_delivered_is_marked_and_what_was_acknowledged_is_gone(
    durable: Callable[..., Restarting], kind: dict[str, Any]
) -> None:
    at = durable(**kind)
    publish(at.client, *range(6))
    at.client.call(m.BasicQos(prefetch_count=4), m.BasicQosOk)
    at.client.send(1, m.BasicConsume("q", "c"))
    at.client.send(1, m.BasicAck(2))
    at.client.send(1, m.BasicNack(1, requeue=False))
    at.kill()
    publish(at.client, 6)
    assert rest(at.client) == [(2, True), (3, True), (4, True), (5, True), (6, False)]


def test_how_often_it_came_back_is_remembered(durable: Callable[..., Restarting]) -> None:
    at = durable(x_delivery_limit=2)
    publish(at.client, 1)
    for _ in range(2):
        assert at.client.get(no_ack=False) is not None
        at.client.send(1, m.BasicNack(at.kit.clients[-1].connection.channels[1].tag, requeue=True))
        at.kill()
    content = at.client.get(no_ack=False)
    assert content is not None
    assert (content.properties.headers or {})["x-delivery-count"] == 2
    at.client.send(1, m.BasicNack(1, requeue=True))
    assert at.client.count() == 0


def test_time_goes_on_while_the_broker_is_down(durable: Callable[..., Restarting]) -> None:
    at = durable(x_dead_letter_exchange="", x_dead_letter_routing_key="dead")
    publish(at.client, 1, expiration="600000")
    publish(at.client, 2)
    at.kill()
    assert at.client.count() == 2
    at.kit.pass_time(300_000)  # the restart took some of the real time
    assert at.client.count() == 2
    at.kit.pass_time(300_001)
    assert (at.client.count(), at.client.count("dead")) == (1, 1)
    at.kill()
    assert (at.client.count(), at.client.count("dead")) == (1, 1)


def test_marks_come_back(durable: Callable[..., Restarting]) -> None:
    """After a BCC, and after a death, nobody can tell from the message what it was routed by."""
    at = durable(x_dead_letter_exchange="", x_dead_letter_routing_key="dead")
    at.client.publish("nobody", b"1", delivery_mode=2, headers={"BCC": ["q"]})
    at.kill()
    held = at.client.get(no_ack=False)
    assert held is not None
    at.client.send(1, m.BasicReject(1, requeue=False))
    at.kill()
    letter = at.client.get("dead")
    assert letter is not None
    assert (letter.properties.headers or {})["x-death"][0]["routing-keys"] == ["nobody"]  # type: ignore[index,call-overload]


def test_what_came_and_went_in_one_batch_is_not_written(durable: Callable[..., Restarting]) -> None:
    at = durable()
    at.client.send(1, m.BasicConsume("q", "c", no_ack=True))
    at.client.call(m.ConfirmSelect(), m.ConfirmSelectOk)
    publish(at.client, 1)
    assert contents(at.client) == [1]
    assert list((at.data / "queues").rglob("*.log")) == []
    assert at.kill().count() == 0
    publish(at.client, 2)
    assert at.on_disk == 1
    at.kill()
    assert rest(at.client) == fresh(2)


def test_a_purge_and_a_deletion_stay_done(durable: Callable[..., Restarting]) -> None:
    at = durable()
    publish(at.client, 1, 2, 3)
    assert at.client.get(no_ack=False) is not None
    assert at.client.call(m.QueuePurge("q"), m.QueuePurgeOk).message_count == 2
    publish(at.client, 4)
    at.kill()
    assert rest(at.client) == [(1, True), (4, False)]
    publish(at.client, 5)
    at.client.call(m.QueueDelete("q"), m.QueueDeleteOk)
    at.kill().declare()
    assert at.client.count() == 0


@pytest.mark.parametrize("arguments", [{}, {"x_max_priority": 3}], ids=str)
def test_a_large_delivery_is_marked_before_it_leaves(
    durable: Callable[..., Restarting], arguments: dict[str, Any]
) -> None:
    """Much output leaves before the end of the batch; the process may end as soon as the client has it."""

    class Killed(BaseException):
        pass

    at = durable(**arguments)
    at.client.publish("q", b"1".rjust(FLUSH_BYTES + 1), **PERSISTENT)
    consumer = at.kit.client()

    def write(data: bytes | memoryview) -> None:
        if len(data) > FLUSH_BYTES:
            raise Killed

    consumer.transport.write = write  # type: ignore[method-assign]
    with pytest.raises(Killed):
        consumer.send(1, m.BasicConsume("q", "c"))
    assert rest(at.kill()) == [(1, True)]


def test_what_was_over_the_limit_stays_away(durable: Callable[..., Restarting]) -> None:
    at = durable(x_max_length=2)
    publish(at.client, 1, 2, 3)
    assert rest(at.kill()) == fresh(2, 3)


def test_a_dead_letter_leaves_its_queue_when_it_is_safe_elsewhere(tmp_path: Path) -> None:
    at = Restarting(tmp_path, sync=True, x_dead_letter_exchange="", x_dead_letter_routing_key="dead")
    kit, client = at.kit, at.client
    publish(client, 1)
    assert client.get(no_ack=False) is not None
    client.send(1, m.BasicReject(1, requeue=False))
    assert at.on_disk == 1
    kit.node.batch.commit.stop()
    kit.run_syncs()
    assert at.on_disk == 0
    kit.stop()


def test_a_transaction_is_done_as_a_whole(tmp_path: Path) -> None:
    at = Restarting(tmp_path, sync=True)
    kit, client = at.kit, at.client
    publish(client, 1)
    client.call(m.TxSelect(), m.TxSelectOk)
    assert client.get(no_ack=False) is not None
    publish(client, 2, queue="dead")
    client.send(1, m.BasicAck(1))
    client.send(1, m.TxCommit())
    assert not client.take(m.TxCommitOk)
    assert at.on_disk == 1
    kit.node.batch.commit.stop()
    kit.run_syncs()  # the publication is on the disk
    client.receive()
    assert not client.take(m.TxCommitOk)
    assert at.on_disk == 0
    kit.node.batch.commit.stop()
    kit.run_syncs()  # the acknowledgement too
    client.receive()
    assert len(client.take(m.TxCommitOk)) == 1
    kit.stop()


# -- delayed messages ------------------------------------------------------------------------------------------------


def delaying(at: Restarting) -> Client:
    """The exchange x delays, and is bound to q."""
    arguments: Table = {"x-delayed-type": "direct"}
    at.client.call(m.ExchangeDeclare("x", "x-delayed-message", durable=True, arguments=arguments), m.ExchangeDeclareOk)
    at.client.call(m.QueueBind("q", "x", "k"), m.QueueBindOk)
    return at.client


def test_what_is_held_back_outlives_the_broker(durable: Callable[..., Restarting]) -> None:
    at = durable()
    client = delaying(at)
    for body, delay, mode in ((b"1", 500_000, 2), (b"2", 100_000, 2), (b"3", 200_000, 1), (b"4", 100_000, 2)):
        client.publish("k", body, "x", headers={"x-delay": delay}, delivery_mode=mode, message_id=body.decode())
    assert complete(at.kit.node.vhosts["/"].revoke_delayed("x", "4")) == 1
    at.kit.node.batch.end()
    client = at.kill()
    assert (client.count(), len(at.kit.node.vhosts["/"].delays["x"])) == (0, 2)
    at.kit.pass_time(100_000)
    client = at.kill()
    assert client.count() == 1
    at.kit.pass_time(500_000)
    assert rest(client) == fresh(2, 1)
    at.kill()
    assert len(at.kit.node.vhosts["/"].delays["x"]) == 0


def test_deleting_the_exchange_drops_what_it_holds(durable: Callable[..., Restarting]) -> None:
    at = durable()
    delaying(at).publish("k", b"1", "x", headers={"x-delay": 1000}, delivery_mode=2)
    at.client.call(m.ExchangeDelete("x"), m.ExchangeDeleteOk)
    at.kill()
    delaying(at)
    at.kit.pass_time(1000)
    assert at.client.count() == 0


# -- long backlogs ---------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("pages")
class TestPages:
    def test_what_comes_behind_transient_messages_that_are_gone_keeps_its_place(
        self, durable: Callable[..., Restarting]
    ) -> None:
        at = durable()
        publish(at.client, 0, 1, 2, 3, 4)
        publish(at.client, 5, delivery_mode=1)  # paged: its position is lost with it
        client = at.kill()
        assert [client.get() for _ in range(4)]
        publish(client, 6)
        assert rest(client) == fresh(4, 6)
        assert rest(at.kill()) == []

    @pytest.mark.pure
    def test_a_long_backlog_is_on_disk(self, durable: Callable[..., Restarting]) -> None:
        at = durable()
        for body in range(20):
            publish(at.client, body, delivery_mode=1 + body % 2)
        assert at.client.count() == 20
        assert len(at.queue.line.ready) == 4
        assert rest(at.client) == fresh(*range(20))
        publish(at.client, 20)
        assert len(at.queue.line.ready) == 1
        assert rest(at.client) == fresh(20)

    def test_transient_messages_of_it_do_not_outlive_the_process(self, durable: Callable[..., Restarting]) -> None:
        at = durable()
        for body in range(20):
            publish(at.client, body, delivery_mode=1 + body % 2)
        at.kill()
        assert rest(at.client) == fresh(*range(1, 20, 2))

    def test_consumers_get_all_of_it(self, durable: Callable[..., Restarting]) -> None:
        at = durable()
        publish(at.client, *range(50))
        at.client.call(m.BasicQos(prefetch_count=7), m.BasicQosOk)
        at.client.send(1, m.BasicConsume("q", "c"))
        seen = []
        while found := contents(at.client):
            seen += found
            at.client.send(1, m.BasicAck(len(seen), multiple=True))
        assert seen == list(range(50))
        at.kill()
        assert at.client.count() == 0

    def test_what_was_taken_from_disk_comes_back(self, durable: Callable[..., Restarting]) -> None:
        at = durable(x_dead_letter_exchange="", x_dead_letter_routing_key="dead")
        publish(at.client, *range(12))
        at.client.call(m.BasicQos(prefetch_count=10), m.BasicQosOk)
        at.client.send(1, m.BasicConsume("q", "c"))
        assert contents(at.client) == list(range(10))
        at.client.send(1, m.BasicNack(7, requeue=True))  # number 6, that was never in memory
        assert contents(at.client) == [6]
        at.client.send(1, m.BasicReject(9, requeue=False))
        assert contents(at.client) == [10]
        at.client.send(1, m.BasicRecover(requeue=False))
        assert contents(at.client) == [0, 1, 2, 3, 4, 5, 7, 9, 6, 10]
        at.client.send(1, m.BasicAck(14, multiple=True))  # two of them: 0 and 1
        assert contents(at.client) == [11]
        at.client.call(m.ChannelClose(200, "", 0, 0), m.ChannelCloseOk)
        at.client.open()
        again = [(body, True) for body in (2, 3, 4, 5, 6, 7, 9, 10, 11)]
        assert rest(at.client) == again
        assert rest(at.client, "dead") == fresh(8)

    def test_a_channel_and_frames_of_its_own(self, durable: Callable[..., Restarting]) -> None:
        """The log has channel 1 and large frames; who drains it may have agreed on others."""
        at = durable()
        large = b"x" * 20_000
        for _ in range(8):
            at.client.publish("q", large, **PERSISTENT)
        client = at.kit.client(frame_max=4096)
        client.open(3)
        client.send(3, m.BasicConsume("q", "c", no_ack=True))
        bodies = [event.body for channel, event in client.events if channel == 3 and isinstance(event, Content)]
        assert bodies == [large] * 8

    def test_every_message_keeps_its_address(self, durable: Callable[..., Restarting]) -> None:
        at = durable()
        keys = ["a", "bb", "a", "a", "ccc", "bb", "d", "d", "a"]
        for key in set(keys):
            at.client.call(m.QueueBind("q", "amq.direct", key), m.QueueBindOk)
        for key in ["a"] * 4 + keys:
            at.client.publish(key, b"", exchange="amq.direct", **PERSISTENT)
        at.client.send(1, m.BasicConsume("q", "c", no_ack=True))
        assert [method.routing_key for method in at.client.take(m.BasicDeliver)] == ["a"] * 4 + keys

    def test_marked_messages_among_others(self, durable: Callable[..., Restarting]) -> None:
        at = durable()
        publish(at.client, *range(6))
        publish(at.client, 6, headers={"CC": ["nobody"], "BCC": ["neither"]})
        publish(at.client, *range(7, 12))
        at.client.send(1, m.BasicConsume("q", "c", no_ack=True))
        assert contents(at.client) == list(range(12))
        assert at.kill().count() == 0

    def test_getting_and_purging_in_the_middle_of_a_drain(self, durable: Callable[..., Restarting]) -> None:
        at = durable()
        publish(at.client, *range(30))
        at.client.call(m.BasicQos(prefetch_count=6), m.BasicQosOk)
        at.client.send(1, m.BasicConsume("q", "c"))
        assert contents(at.client) == list(range(6))
        getter = at.kit.client()
        found = getter.get()
        assert found is not None
        assert found.body == b"6"
        at.client.send(1, m.BasicAck(6, multiple=True))
        assert contents(at.client) == list(range(7, 13))
        assert getter.call(m.QueuePurge("q"), m.QueuePurgeOk).message_count == 17
        publish(getter, 30)
        at.client.send(1, m.BasicAck(12, multiple=True))
        assert contents(at.client) == [30]
        at.kill()
        assert rest(at.client) == [(30, True)]

    def test_consumers_in_turn(self, durable: Callable[..., Restarting]) -> None:
        at = durable()
        publish(at.client, *range(20))
        at.client.call(m.ChannelFlow(False), m.ChannelFlowOk)
        at.client.send(1, m.BasicConsume("q", "a", no_ack=True))
        at.client.send(1, m.BasicConsume("q", "b", no_ack=True))
        at.client.events.clear()
        at.client.send(1, m.ChannelFlow(True))
        tags = [method.consumer_tag for method in at.client.take(m.BasicDeliver)]
        assert sorted(tags[:2]) == ["a", "b"]
        assert tags == tags[:2] * 10

    def test_what_comes_back_goes_first(self, durable: Callable[..., Restarting]) -> None:
        at = durable()
        publish(at.client, *range(12))
        for _ in range(6):
            assert at.client.get(no_ack=False) is not None
        at.client.send(1, m.BasicNack(6, multiple=True, requeue=True))
        assert rest(at.client) == [*((body, True) for body in range(6)), *fresh(*range(6, 12))]

    def test_a_message_that_expires_takes_all_of_it_into_memory(self, durable: Callable[..., Restarting]) -> None:
        at = durable()
        publish(at.client, *range(10))
        publish(at.client, 10, expiration="5")
        publish(at.client, 11)
        assert at.client.count() == 12
        at.kit.pass_time(5)
        assert rest(at.client) == fresh(*range(10), 11)

    def test_purging_it(self, durable: Callable[..., Restarting]) -> None:
        at = durable()
        publish(at.client, *range(10))
        assert at.client.call(m.QueuePurge("q"), m.QueuePurgeOk).message_count == 10
        publish(at.client, 10)
        assert at.kill().count() == 1
        assert rest(at.client) == fresh(10)

    @pytest.mark.parametrize("seen", [0, 3])
    def test_browsing_it_after_a_restart(self, durable: Callable[..., Restarting], seen: int) -> None:
        at = durable()
        publish(at.client, *range(10))
        for _ in range(seen):
            assert at.client.get(no_ack=False) is not None
        at.kill()
        at.client.send(1, m.BasicConsume("q", "b", no_ack=True, arguments={"x-browse": True}))
        assert contents(at.client) == list(range(10))
        assert rest(at.client) == [*((body, True) for body in range(seen)), *fresh(*range(seen, 10))]

    def test_browsing_it(self, durable: Callable[..., Restarting]) -> None:
        at = durable()
        publish(at.client, *range(10))
        at.client.send(1, m.BasicConsume("q", "b", no_ack=True, arguments={"x-browse": True}))
        assert contents(at.client) == list(range(10))
        publish(at.client, 10)
        assert contents(at.client) == [10]
        assert at.client.count() == 11


# -- a model ---------------------------------------------------------------------------------------------------------


class DurableMachine(RuleBasedStateMachine):
    """One queue, one channel; the model is a list of (number, persistent, may have been delivered)."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(journal, "PAGE_MESSAGES", 4)
        self.patch.setattr(journal, "RUN", 3)
        self.at = Restarting(Path(self.folder.name))
        self.ready: list[tuple[int, bool, bool]] = []
        self.unacked: dict[int, tuple[int, bool, bool]] = {}
        self.number = self.tag = 0

    def teardown(self) -> None:
        self.at.stop()
        self.patch.undo()
        self.folder.cleanup()

    @rule(count=st.integers(1, 6), persistent=st.booleans())
    def publish(self, count: int, persistent: bool) -> None:
        for _ in range(count):
            publish(self.at.client, self.number, delivery_mode=1 + persistent)
            self.ready.append((self.number, persistent, False))
            self.number += 1

    @rule(count=st.integers(1, 6), no_ack=st.booleans())
    def get(self, count: int, no_ack: bool) -> None:
        for _ in range(count):
            self.at.client.send(1, m.BasicGet("q", no_ack=no_ack))
            _, event = self.at.client.events.pop()
            if not self.ready:
                assert isinstance(event, m.BasicGetEmpty)
                return
            assert isinstance(event, Content)
            method = event.decode_method()
            assert isinstance(method, m.BasicGetOk)
            number, persistent, seen = self.ready.pop(0)
            assert (int(event.body), method.redelivered) == (number, seen)
            self.tag += 1
            if not no_ack:
                self.unacked[self.tag] = (number, persistent, True)

    @precondition(lambda self: self.unacked)
    @rule(data=st.data(), how=st.sampled_from(["ack", "requeue", "drop"]))
    def settle(self, data: st.DataObject, how: str) -> None:
        tag = data.draw(st.sampled_from(sorted(self.unacked)))
        self.at.client.send(1, m.BasicAck(tag) if how == "ack" else m.BasicNack(tag, requeue=how == "requeue"))
        message = self.unacked.pop(tag)
        if how == "requeue":
            self.ready = sorted([*self.ready, message])

    @rule()
    def purge(self) -> None:
        assert self.at.client.call(m.QueuePurge("q"), m.QueuePurgeOk).message_count == len(self.ready)
        self.ready = []

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        if clean:
            self.at.stop()
            self.at.start()
        else:
            self.at.kill()
        self.ready = sorted(each for each in (*self.ready, *self.unacked.values()) if each[1])
        self.unacked, self.tag = {}, 0

    @invariant()
    def counts_agree(self) -> None:
        assert self.at.client.count() == len(self.ready)


DurableMachine.TestCase.settings = settings(max_examples=scaled(60), stateful_step_count=40)
TestDurable = pytest.mark.slow(DurableMachine.TestCase)


@pytest.mark.parametrize("kind", [{}, {"x_max_priority": 3}, {"x_queue_type": "quorum"}], ids=str)
def test_what_recovery_dead_letters_is_on_disk_behind_what_was_there(
    durable: Callable[..., Restarting], kind: dict[str, Any]
) -> None:
    """A queue that is over its limit when it is recovered drops messages into queues that are recovered after it."""
    at = durable(x_dead_letter_exchange="", x_dead_letter_routing_key="dead", **kind)
    publish(at.client, 1, 2, 3)
    publish(at.client, 7, queue="dead")
    at.kit.node.batch.commit.stop()
    at.kit.node.catalog.close()
    catalog = Catalog.open(at.data / "catalog.sqlite")
    catalog.put_policy(Policy("/", "short", "^q$", {"max-length": 1}, apply_to="queues"))
    catalog.commit()
    catalog.close()
    at.start()
    at.kill()
    publish(at.client, 8, queue="dead")
    assert sorted(body for body, _ in rest(at.client, "dead")) == [1, 2, 7, 8]
    assert rest(at.client) == fresh(3)
    client = at.kill()
    assert (rest(client), rest(client, "dead")) == ([], [])
