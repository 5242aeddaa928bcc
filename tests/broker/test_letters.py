"""The line of dead letters: no chain is too long for the stack, no fan-out too wide for a step, and none is lost."""

from __future__ import annotations

import inspect
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from harebell.broker import letters
from harebell.broker.queues import classic
from harebell.protocol.v091 import Properties, methods as m
from tests.broker.disk_node import DiskNode
from tests.broker.kit import Client, NodeKit, cut_finely

STACK = 250  # frames that a test has left
LONG = 110  # queues of a chain, each of which took three frames of the stack where messages expire, and ...
CHAIN = 60  # ... seven where a limit drops them; a longer one takes long, because x-death grows
DYING: dict[str, dict[str, Any]] = {
    "maxlen": {"x_max_length": 0},
    "refused": {"x_max_length": 0, "x_overflow": "reject-publish-dlx"},
    "expired": {"x_message_ttl": 0},
    "at least once": {
        "x_message_ttl": 0, "x_dead_letter_strategy": "at-least-once", "x_overflow": "reject-publish",
    },
}  # fmt: skip
KILLED: dict[str, dict[str, Any]] = {
    "maxlen": {"x_max_length": 0},
    "rejected": {},
    "rejected, at least once": {"x_dead_letter_strategy": "at-least-once", "x_overflow": "reject-publish"},
}
TARGETS = 40


def dying(client: Client, name: str, exchange: str = "", key: str | None = None, **arguments: Any) -> None:
    """A queue whose letters go there."""
    where = {} if key is None else {"x_dead_letter_routing_key": key}
    client.declare(name, x_dead_letter_exchange=exchange, **where, **arguments)


def chain(client: Client, length: int, **arguments: Any) -> None:
    """Queues `q0`, `q1`..., whose letters end in `end`."""
    for number in range(length):
        following = f"q{number + 1}" if number + 1 < length else "end"
        dying(client, f"q{number}", key=following, **arguments)
    client.declare("end")


def fan(client: Client, count: int = TARGETS) -> list[str]:
    """Queues `t0`, `t1`..., behind the exchange `fan`."""
    names = [f"t{number}" for number in range(count)]
    client.call(m.ExchangeDeclare("fan", "fanout", durable=True), m.ExchangeDeclareOk)
    for name in names:
        client.declare(name)
        client.call(m.QueueBind(name, "fan", ""), m.QueueBindOk)
    return names


def bodies(client: Client, queue: str) -> list[bytes]:
    found = []
    while (content := client.get(queue)) is not None:
        found.append(content.body)
    return found


def publish_at_once(client: Client, key: str, messages: list[bytes]) -> None:
    """In one read."""
    for body in messages:
        client.engine.send_content(1, m.BasicPublish("", key), Properties(delivery_mode=2), body)
    client.pump()


def rest(kit: NodeKit) -> None:
    kit.node.batch.slices.finish()
    kit.run_syncs()
    for client in kit.clients:
        client.receive()


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many messages each queue got since the counts were cleared."""
    counts: Counter[str] = Counter()
    publish = classic.ClassicQueue.publish

    def counted(queue: classic.ClassicQueue, message: Any) -> bool:
        counts[queue.name] += 1
        return publish(queue, message)

    monkeypatch.setattr(classic.ClassicQueue, "publish", counted)
    return counts


@pytest.fixture
def short_stack() -> Iterator[None]:
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + STACK)
    yield
    sys.setrecursionlimit(limit)


@pytest.mark.usefixtures("short_stack")
@pytest.mark.parametrize("arguments", DYING.values(), ids=DYING)
def test_a_chain_may_be_longer_than_the_stack(kit: NodeKit, client: Client, arguments: dict[str, Any]) -> None:
    chain(client, LONG if "x_message_ttl" in arguments else CHAIN, **arguments)
    client.publish("q0", b"1")
    rest(kit)
    assert bodies(client, "end") == [b"1"]


@pytest.mark.usefixtures("short_stack")
def test_a_chain_that_begins_with_a_rejection(kit: NodeKit, client: Client) -> None:
    chain(client, LONG, x_message_ttl=0)
    dying(client, "q", key="q0")
    client.publish("q", b"1")
    client.send(1, m.BasicGet("q"))
    client.events.clear()
    client.send(1, m.BasicReject(1, requeue=False))
    rest(kit)
    assert bodies(client, "end") == [b"1"]


@pytest.mark.usefixtures("short_stack")
def test_a_chain_that_begins_with_the_delivery_limit(kit: NodeKit, client: Client) -> None:
    chain(client, CHAIN, x_max_length=0)
    dying(client, "q", key="q0", x_queue_type="quorum", x_delivery_limit=0)
    client.publish("q", b"1")
    client.send(1, m.BasicGet("q"))
    client.events.clear()
    client.send(1, m.BasicReject(1, requeue=True))
    rest(kit)
    assert bodies(client, "end") == [b"1"]


@pytest.mark.usefixtures("short_stack")
def test_a_chain_that_begins_with_a_timer(kit: NodeKit, client: Client) -> None:
    chain(client, CHAIN, x_max_length=0)
    dying(client, "q", key="q0", x_message_ttl=10)
    for body in (b"1", b"2"):  # the timer is set again
        client.publish("q", body)
        kit.pass_time(10)
    assert bodies(client, "end") == [b"1", b"2"]


def test_a_cycle_ends(kit: NodeKit, client: Client) -> None:
    for number in range(20):
        dying(client, f"q{number}", key=f"q{(number + 1) % 20}", x_max_length=0)
    client.publish("q0", b"1")
    rest(kit)
    assert kit.node.batch.letters.free
    assert client.count("q0") == 0


@pytest.mark.usefixtures("short_stack")
def test_those_that_are_published_beside_a_chain_are_confirmed(kit: NodeKit, client: Client) -> None:
    chain(client, CHAIN, x_max_length=0)
    client.declare("good")
    for name in ("q0", "good"):
        client.call(m.QueueBind(name, "amq.fanout", ""), m.QueueBindOk)
    client.call(m.ConfirmSelect(), m.ConfirmSelectOk)
    client.publish("", b"1", exchange="amq.fanout", delivery_mode=2)
    rest(kit)
    while kit.node.batch.letters.waits or not client.take(m.BasicAck):
        kit.run_sync()
        client.receive()
    assert (bodies(client, "good"), bodies(client, "end")) == ([b"1"], [b"1"])


@pytest.mark.parametrize("arguments", DYING.values(), ids=DYING)
def test_letters_of_one_queue_arrive_in_their_order(
    kit: NodeKit, client: Client, monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any]
) -> None:
    names = fan(client)
    dying(client, "q", "fan", **arguments)
    other = kit.client()
    cut_finely(monkeypatch)
    monkeypatch.setattr(letters, "INLINE", 1)
    kit.stopwatch.step = 1.0
    sent = [b"%d" % number for number in range(20)]
    for at in range(0, len(sent), 4):
        publish_at_once(client, "q", sent[at : at + 2])
        publish_at_once(other, "q", sent[at + 2 : at + 4])
        if at % 8:  # some of what is behind arrives before all of that is through
            kit.run_sync()
    rest(kit)
    kit.stopwatch.step = 0.0
    orders = [bodies(client, name) for name in names]
    assert sorted(orders[0]) == sorted(sent)
    assert all(order == orders[0] for order in orders)
    assert [body for body in orders[0] if int(body) % 4 < 2] == [body for body in sent if int(body) % 4 < 2]


def test_no_step_publishes_many(
    kit: NodeKit, client: Client, monkeypatch: pytest.MonkeyPatch, published: Counter[str]
) -> None:
    names = fan(client)
    dying(client, "q", "fan", x_max_length=0)
    cut_finely(monkeypatch)
    monkeypatch.setattr(letters, "INLINE", 5)
    kit.stopwatch.step = 1.0
    publish_at_once(client, "q", [b"x"] * 20)
    worst = 0
    while not kit.node.batch.letters.free or not client.transport.reading:
        published.clear()
        kit.run_sync()
        worst = max(worst, sum(published[name] for name in names))
    assert worst <= 2 * 5, worst  # one turn of the work, and what the client's input does at once
    queues = kit.node.vhosts["/"].queues
    assert [queues[name].message_count for name in names] == [20] * TARGETS


def test_input_waits_for_the_letters_that_it_caused(
    kit: NodeKit, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    fan(client)
    dying(client, "q", "fan", x_max_length=0)
    other = kit.client()
    monkeypatch.setattr(letters, "INLINE", 1)
    kit.node.batch.letters.inline = 1
    client.engine.send_content(1, m.BasicPublish("", "q"), Properties(), b"1")
    client.engine.send_method(1, m.BasicGet(f"t{TARGETS - 1}", no_ack=True))
    client.pump()
    assert not client.transport.reading
    assert client.events == []
    assert other.count("q") == 0, "others do not wait"
    rest(kit)
    assert client.transport.reading
    assert [getattr(event, "body", None) for _, event in client.events] == [b"1"]


def test_a_client_that_leaves_has_its_letters_published(
    kit: NodeKit, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = fan(client)
    dying(client, "q", "fan", x_max_length=0)
    leaving = kit.client()
    kit.node.batch.letters.inline = 1
    publish_at_once(leaving, "q", [b"1", b"2"])
    leaving.connection.lost()
    kit.clients.remove(leaving)
    rest(kit)
    assert leaving.connection not in kit.node.connections
    assert [bodies(client, name) for name in names] == [[b"1", b"2"]] * TARGETS


def test_a_queue_that_is_deleted_meanwhile(kit: NodeKit, client: Client) -> None:
    names = fan(client)
    dying(client, "q", "fan", x_max_length=0)
    other = kit.client()
    kit.node.batch.letters.inline = 1
    publish_at_once(client, "q", [b"1"])
    for name in ("q", names[-1]):
        other.call(m.QueueDelete(name), m.QueueDeleteOk)
    rest(kit)
    assert [bodies(client, name) for name in names[:-1]] == [[b"1"]] * (TARGETS - 1)


def test_a_broker_that_stops_publishes_the_rest_first(tmp_path: Any) -> None:
    kit = NodeKit(tmp_path / "data")
    client = kit.client()
    names = fan(client)
    dying(client, "q", "fan", x_max_length=0)
    kit.node.batch.letters.inline = 1
    publish_at_once(client, "q", [b"1", b"2"])
    kit.stop()
    kit = NodeKit(tmp_path / "data")
    client = kit.client()
    assert [bodies(client, name) for name in names] == [[b"1", b"2"]] * TARGETS
    assert client.count("q") == 0
    kit.stop()


@pytest.mark.pure
def test_an_error_of_one_letter_leaves_the_others(
    kit: NodeKit, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = fan(client)
    dying(client, "q", "fan", x_max_length=0)
    kit.node.batch.letters.inline = 1
    publish_at_once(client, "q", [b"1", b"2"])
    step, errors = letters.Letter.publish, [ValueError("a bug")]

    def failing(letter: letters.Letter, count: int) -> None:
        if errors:
            raise errors.pop()
        step(letter, count)

    monkeypatch.setattr(letters.Letter, "publish", failing)
    with pytest.raises(ValueError):
        kit.node.batch.slices.finish()
    rest(kit)
    assert client.transport.reading
    assert bodies(client, names[-1]) == [b"2"]


class SlowNode(DiskNode):
    """Its long work goes on when the test says so."""

    def start(self, last_stop: Any) -> None:
        super().start(last_stop)
        self.calls: list[Any] = []
        self.node.batch.slices._call_soon = self.calls.append

    def turn(self) -> bool:
        """One turn of the works. Returns whether there was one."""
        if self.calls:
            self.calls.pop(0)()
            return True
        return False

    def run(self) -> None:
        while self.turn() or self.commit._dirty:
            self.sync()
        self.client.receive()


@pytest.fixture
def node() -> Iterator[SlowNode]:
    node = SlowNode()
    yield node
    node.close()


@pytest.mark.parametrize("power", [None, 1, 2, 3])
@pytest.mark.parametrize("turns", [0, 1, 3, 7, 100])
@pytest.mark.parametrize("arguments", KILLED.values(), ids=KILLED)
def test_a_kill_in_between_loses_none(
    node: SlowNode, monkeypatch: pytest.MonkeyPatch, power: int | None, turns: int, arguments: dict[str, Any]
) -> None:
    """The message is in its old queue, or the letter in its new ones: a queue without a journal's place is between."""
    client = node.client
    names = fan(client, 12)
    dying(client, "between", "fan", x_message_ttl=0)
    dying(client, "q", key="between", **arguments)
    node.run()
    cut_finely(monkeypatch)
    monkeypatch.setattr(letters, "INLINE", 1)
    node.node.batch.letters.inline = 1
    client.call(m.ConfirmSelect(), m.ConfirmSelectOk)
    client.publish("q", b"1", delivery_mode=2)
    if "x_max_length" not in arguments:
        node.run()
        client.send(1, m.BasicGet("q"))
        client.events.clear()
        client.send(1, m.BasicReject(1, requeue=False))
    node.node.batch.slices.stopwatch.step = 1.0  # type: ignore[attr-defined]
    for _ in range(turns):
        node.turn()
        node.sync()
    client.receive()
    published = "x_max_length" not in arguments or bool(client.take(m.BasicAck))
    node.restart(power)
    node.run()
    found = node.contents(["q", *names])
    old = found.pop("q")
    assert not published or old == [b"1"] or all(b"1" in each for each in found.values())
    if turns == 100:  # all is done, but a power cut may undo the settlement in the old queue
        assert published
        assert all(each in ([[b"1"]] if power is None else [[b"1"], [b"1", b"1"]]) for each in found.values())


def test_a_confirm_waits_for_the_letters_of_a_message_that_no_queue_stores(node: SlowNode) -> None:
    """A queue with a TTL of 0 has no message on the disk: its letters are what the confirm is about."""
    client = node.client
    names = fan(client, 20)
    dying(client, "q", "fan", x_message_ttl=0)
    client.call(m.ConfirmSelect(), m.ConfirmSelectOk)
    node.run()
    node.node.batch.letters.inline = 1
    client.publish("q", b"1", delivery_mode=2)
    node.sync()
    client.receive()
    assert client.take(m.BasicAck) == []
    while node.turn():
        assert client.take(m.BasicAck) == []
    client.receive()
    assert client.take(m.BasicAck) == [], "they are not synced"
    node.sync()
    client.receive()
    assert [ack.delivery_tag for ack in client.take(m.BasicAck)] == [1]
    assert list(node.contents(names).values()) == [[b"1"]] * 20


def test_a_crowd_lets_works_wait_that_make_more(
    kit: NodeKit, client: Client, monkeypatch: pytest.MonkeyPatch, published: Counter[str]
) -> None:
    names = fan(client)
    client.declare("q", x_orphan_exchange="fan")
    publish_at_once(client, "q", [b"%d" % number for number in range(100)])
    monkeypatch.setattr(letters, "CROWD", 4)
    longest, put = 0, letters.Letters.put

    def noted(line: letters.Letters, letter: letters.Letter) -> None:
        nonlocal longest
        put(line, letter)
        longest = max(longest, len(line._line))

    monkeypatch.setattr(letters.Letters, "put", noted)
    client.send(1, m.QueueDelete("q"))
    while not client.events:
        kit.run_sync()
        client.receive()
    rest(kit)
    assert longest <= 4 + 16
    assert len(bodies(client, names[-1])) == 100
