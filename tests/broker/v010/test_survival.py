"""Sessions over restarts of the broker: each command once, or the client is told that the state is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

import pytest
from hypothesis import example, given, settings, strategies as st

from harebell.broker import fan_out, node as broker_node
from harebell.broker.store.queue_log.log import QueueLog
from harebell.broker.v010 import publisher
from harebell.errors import ResourceDeleted
from harebell.protocol.v010 import Command, MessageProperties, commands as c, controls as k, structs as s
from harebell.protocol.v091 import methods as m
from tests.broker.store.faults import Died
from tests.broker.v010.disk_kit import DiskKit
from tests.broker.v010.kit import Client
from tests.fixtures.profiles import scaled

QUEUES = ("a", "b", "c")


@pytest.fixture
def node() -> Iterator[DiskKit]:
    node = DiskKit()
    for queue in QUEUES:
        node.client.declare(queue)
    node.client.call(m.ExchangeDeclare("all", "fanout", durable=True), m.ExchangeDeclareOk)
    for queue in ("a", "b"):
        node.client.call(m.QueueBind(queue, "all"), m.QueueBindOk)
    delayed = m.ExchangeDeclare("later", "x-delayed-message", durable=True, arguments={"x-delayed-type": "fanout"})
    node.client.call(delayed, m.ExchangeDeclareOk)
    node.client.call(m.ExchangeDeclare("chance", "x-random", durable=True), m.ExchangeDeclareOk)
    for queue in QUEUES:
        node.client.call(m.QueueBind(queue, "chance"), m.QueueBindOk)
    node.client.declare("stream", x_queue_type="stream")
    node.sync()
    yield node
    node.close()


def begun(node: DiskKit, timeout: int = 60) -> Client:
    client = node.peer().session()
    client.peer.control(0, k.SessionRequestTimeout(timeout))
    return client


def again(node: DiskKit, client: Client) -> Client:
    """The client's session on a new connection, with its state."""
    came = node.peer().session(state=client.state)
    came.peer.control(0, k.SessionRequestTimeout(60))
    node.settle()
    return came


def known_first(node: DiskKit) -> Client:
    """A session that asks for its timeout first, and is on disk when it may send commands."""
    client = node.peer().session(timeout=60)
    node.settle()
    assert client.attached
    assert not client.state.ready
    node.sync()
    node.settle()
    assert client.state.ready
    return client


def publish(client: Client, body: bytes, key: str = "a", exchange: str = "", **rest: Any) -> int:
    """Send a durable message, and ask for its completion."""
    command = c.MessageTransfer(exchange, rest.pop("accept_mode", None), sync=True)
    return client.send((command, [s.DeliveryProperties(routing_key=key, delivery_mode=2), *rest.values()], body))


def bodies(node: DiskKit, *queues: str) -> list[list[bytes]]:
    return list(node.contents(queues).values())


def restarts(node: DiskKit) -> list[Callable[[], None]]:
    return [lambda: node.restart(None), lambda: node.restart(3), node.stop]


@pytest.mark.pure
def test_what_goes_to_many_queues_has_its_number_until_all_of_it_is_on_disk(
    node: DiskKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A queue whose part was synced before may not forget the number: the position has it only at the end."""
    monkeypatch.setattr(publisher, "UNTIMED_QUEUES", 1)
    monkeypatch.setattr(fan_out, "WIDE_QUEUES", 1)
    monkeypatch.setattr(fan_out, "QUEUES_PER_STEP", 1)
    client, positions = begun(node), node.node.store.positions
    client.wait(publish(client, b"0"))
    idle = len(positions._busy)
    number = publish(client, b"1", exchange="all")
    node.settle()
    assert number not in client.complete
    assert len(positions._busy) == idle + 1
    client.wait(number)
    assert len(positions._busy) == idle
    assert bodies(node, "a", "b") == [[b"0", b"1"], [b"1"]]


@pytest.mark.parametrize("way", range(3), ids=["kill", "power cut", "stop"])
@pytest.mark.parametrize("synced", [False, True])
def test_what_is_sent_again_comes_once(node: DiskKit, way: int, synced: bool) -> None:
    client = begun(node)
    client.wait(publish(client, b"0", exchange="all"))
    numbers = [publish(client, b"%d" % n, exchange="all") for n in (1, 2)]
    assert not client.complete.issuperset(numbers)
    if synced:
        node.commit.run()  # the client does not hear of it
    restarts(node)[way]()
    client = again(node, client)
    assert not client.lost
    client.wait(publish(client, b"3", exchange="all"))
    assert client.complete.issuperset(numbers)
    assert bodies(node, "a", "b") == [[b"0", b"1", b"2", b"3"]] * 2
    assert client.attached


@pytest.mark.parametrize("way", range(3), ids=["kill", "power cut", "stop"])
@pytest.mark.parametrize("declares", [False, True])
def test_a_session_is_known_before_its_first_command(node: DiskKit, way: int, declares: bool) -> None:
    client = known_first(node)
    first = client.send(c.QueueDeclare("a", passive=True, sync=True))
    node.settle()
    if declares:
        node.client.declare("d")  # the catalog has changed when the session's commands are written
    numbers = [first, *(publish(client, b"%d" % n, exchange="all") for n in range(3))]
    restarts(node)[way]()
    client = again(node, client)
    assert not client.lost
    client.wait(numbers[-1])
    assert client.complete.issuperset(numbers)
    assert bodies(node, "a", "b") == [[b"0", b"1", b"2"]] * 2


def test_a_session_that_is_lost_before_it_may_send_anything(node: DiskKit) -> None:
    client = node.peer().session(timeout=60)
    node.settle()
    node.restart(None)
    client = again(node, client)
    node.sync()
    node.settle()
    assert not client.lost
    client.wait(publish(client, b"0"))
    assert bodies(node, "a") == [[b"0"]]


def test_messages_that_are_gone_do_not_come_back(node: DiskKit) -> None:
    client = begun(node)
    client.wait(publish(client, b"0"))
    publish(client, b"1")
    client.peer.lose()
    assert node.client.get("a") is not None
    assert node.client.get("a") is not None
    node.client.send(1, m.QueuePurge("a"))
    node.restart(None)
    client = again(node, client)
    client.wait(publish(client, b"2"))
    assert bodies(node, "a") == [[b"2"]]


def test_it_survives_one_restart_after_the_other(node: DiskKit) -> None:
    client = begun(node)
    for turn in range(6):
        publish(client, b"%d" % turn, exchange="all")
        restarts(node)[turn % 3]()
        if turn % 2:
            continue  # it does not come back in between
        client = again(node, client)
        assert not client.lost
    client = again(node, client)
    client.wait(publish(client, b"6", exchange="all"))
    found = bodies(node, "a", "b")
    assert found[0] == found[1] == sorted(found[0])
    assert len(found[0]) == 7


BINDING: dict[str, Command] = {
    "subscription": c.MessageSubscribe("c", "t"),
    "transaction": c.TxSelect(),
    "exclusive queue": c.QueueDeclare("mine", exclusive=True),
}


@pytest.mark.parametrize("what", BINDING)
@pytest.mark.parametrize("power", [None, 1])
def test_a_session_that_holds_more_is_lost_and_its_client_is_told(node: DiskKit, what: str, power: int | None) -> None:
    client = begun(node)
    client.wait(publish(client, b"0"))
    command = BINDING[what]
    command.sync = True
    client.send(command)
    publish(client, b"1")
    node.restart(power)
    assert again(node, client).lost


@pytest.mark.parametrize("exchange, key", [("", "stream"), ("later", ""), ("chance", "")])
def test_so_is_one_that_sent_to_where_numbers_are_not_kept(node: DiskKit, exchange: str, key: str) -> None:
    client = begun(node)
    client.wait(publish(client, b"0"))
    client.wait(publish(client, b"1", key, exchange, message=MessageProperties(application_headers={"x-delay": 10})))
    node.restart(None)
    assert again(node, client).lost


UNDOING: dict[str, list[Command]] = {
    "purge": [c.QueuePurge("a")],
    "delete": [c.QueueDelete("a"), c.QueueDeclare("a", durable=True), c.ExchangeBind("a", "all", "")],
    "unbind": [c.ExchangeUnbind("a", "all", "")],
    "delete the exchange": [c.ExchangeDelete("all")],
}


@pytest.mark.parametrize("way", range(3), ids=["kill", "power cut", "stop"])
@pytest.mark.parametrize("synced", [False, True])
@pytest.mark.parametrize("what", UNDOING)
def test_what_undoes_something_is_not_executed_twice(node: DiskKit, what: str, synced: bool, way: int) -> None:
    """It would take the message that was published behind it, or find nothing to undo."""
    client = known_first(node)
    client.wait(publish(client, b"0", exchange="all"))
    for command in UNDOING[what]:
        client.send(command)
    last = publish(client, b"1")
    node.settle()
    if synced:
        node.commit.run()  # the client does not hear of it
    restarts(node)[way]()
    client = again(node, client)
    if not client.lost:
        client.wait(last)
        assert b"1" in bodies(node, "a")[0]
    assert client.exception is None


@pytest.mark.parametrize("what", UNDOING)
def test_a_session_survives_again_when_that_is_complete(node: DiskKit, what: str) -> None:
    client = known_first(node)
    for command in UNDOING[what]:
        client.send(command)
    client.wait(publish(client, b"0", "b"))
    number = publish(client, b"1", "b")
    node.commit.run()
    node.restart(None)
    client = again(node, client)
    assert not client.lost
    client.wait(publish(client, b"2", "b"))
    assert number in client.complete
    assert bodies(node, "b") == [[b"0", b"1", b"2"]]


def test_a_stored_message_is_executed_whatever_became_of_its_binding(node: DiskKit) -> None:
    client = begun(node)
    client.wait(publish(client, b"0"))
    number = publish(client, b"1", exchange="all", accept_mode=0)
    node.commit.run()
    node.restart(None)
    for queue in ("a", "b"):
        node.client.call(m.QueueUnbind(queue, "all"), m.QueueUnbindOk)
    client = again(node, client)
    client.wait(publish(client, b"2"))
    assert number in client.complete
    assert client.rejected == {}
    assert bodies(node, "a", "b") == [[b"0", b"1", b"2"], [b"1"]]


def test_one_without_a_timeout_is_lost(node: DiskKit) -> None:
    client = begun(node, 0)
    client.wait(publish(client, b"0"))
    node.restart(None)
    assert again(node, client).lost


def test_one_that_lost_its_timeout_is_lost(node: DiskKit) -> None:
    client = begun(node)
    client.wait(publish(client, b"0"))
    client.peer.control(0, k.SessionRequestTimeout(0))
    node.restart(None)
    assert again(node, client).lost


def test_a_client_that_begins_anew_begins_anew(node: DiskKit) -> None:
    client = begun(node)
    publish(client, b"0")
    node.restart(None)
    fresh = begun(node)
    fresh.wait(publish(fresh, b"1"))
    node.restart(None)
    fresh = again(node, fresh)
    assert not fresh.lost
    fresh.wait(publish(fresh, b"2"))
    assert bodies(node, "a") == [[b"0", b"1", b"2"]]


def test_answers_that_were_lost_are_given_again(node: DiskKit) -> None:
    client = begun(node)
    client.wait(publish(client, b"0"))
    client.peer.takes = 0
    asked = client.send(c.QueueQuery("a", sync=True))
    refused = publish(client, b"1", "nowhere", accept_mode=0)
    node.commit.run()
    node.node.batch.end()
    node.commit.run()
    node.restart(None)
    client = again(node, client)
    client.wait(publish(client, b"2"))
    assert isinstance(client.results[asked], s.QueueQueryResult)
    assert refused in client.rejected


def test_it_ends_with_its_time_its_user_and_its_virtual_host(node: DiskKit) -> None:
    client = begun(node)
    client.wait(publish(client, b"0"))
    node.restart(None)
    assert len(node.node.store.positions.known) == 1
    node.node.batch.slices.run(node.node.expelling(ResourceDeleted("gone"), user="somebody"))
    assert len(node.node.store.positions.known) == 1
    node.node.batch.slices.run(node.node.expelling(ResourceDeleted("gone"), user="guest"))
    assert node.node.store.positions.known == {}
    node.restart(None)
    assert again(node, client).lost


@pytest.mark.parametrize("how", ["its time", "its user", "its virtual host", "it comes back", "another begins anew"])
def test_one_of_before_counts_until_it_ends(node: DiskKit, how: str) -> None:
    """The limits count the sessions that last: those of before a restart too, and those that are over no more."""
    client = begun(node, 60)
    client.wait(publish(client, b"0"))
    node.restart(None)
    node.node.set_limits(replace(node.node.limits, max_sessions=2, max_sessions_per_user=1))
    assert granted(node) == 0
    match how:
        case "its time":
            node.node.timers.now.now += 60_000  # type: ignore[attr-defined]
            node.settle()
        case "its user" | "its virtual host":
            whose = {"user": "guest"} if how == "its user" else {"vhost": "/"}
            node.node.batch.slices.run(node.node.expelling(ResourceDeleted("gone"), **whose))
        case _:
            came = again(node, client) if how == "it comes back" else node.peer().session(client.state.name)
            node.settle()
            assert granted(node) == 0, "it lasts"
            came.peer.control(0, k.SessionRequestTimeout(0))
            node.settle()
    assert granted(node) == 60
    assert granted(node) == 0
    assert node.node.store.positions.known_of.total() == len(node.node.store.positions.known) == 0


def granted(node: DiskKit) -> int | None:
    """The timeout that a new session is granted, which lasts then."""
    client = node.peer().session(b"of %d" % len(node.peers))
    client.peer.control(0, k.SessionRequestTimeout(60))
    node.settle()
    return client.timeout


# -- a model: any script, and the process dies within any call to the disk


STEPS = st.one_of(
    st.tuples(st.just("publish"), st.sampled_from(["a", "b", "c", "all"])),
    st.tuples(st.just("take"), st.sampled_from(QUEUES)),
    st.tuples(st.sampled_from(["sync", "lose", "kill", "stop", "wait"]), st.just("")),
    st.tuples(st.just("power"), st.integers(0, 1000)),
    st.tuples(st.just("die"), st.integers(0, 12)),
)


class Survivor:
    """A session, and what may happen to its connection and its broker."""

    node: DiskKit
    client: Client

    def happen(self, act: str, value: Any = "") -> None:
        node = self.node
        match act:
            case "sync":
                node.commit.run()
                node.settle()
            case "wait":
                node.sync()
                node.settle()
            case "lose":
                self.client.peer.lose()
                self.come_back()
            case "kill" | "power":
                node.restart(value if act == "power" else None)
                self.come_back()
            case "stop":
                node.stop()
                self.come_back()
            case "die":
                node.disk.die(value)

    def come_back(self) -> None:
        self.client = again(self.node, self.client)
        if not self.client.state.has_state:
            self.node.sync()  # else it is not told what is expected, and has its connection until then
            self.node.settle()


class Model(Survivor):
    """`unsure` are messages whose publication was not complete at a power cut.

    They may come twice, if the first one was taken before it was on disk, and behind others, because some were on disk
    by chance. `told` are those whose session was lost before any was complete: they may not come at all. There are none
    when the session is on disk `first`.
    """

    def __init__(self, first: bool) -> None:
        self.node = DiskKit()
        for queue in QUEUES:
            self.node.client.declare(queue)
        self.node.client.call(m.ExchangeDeclare("all", "fanout", durable=True), m.ExchangeDeclareOk)
        for queue in ("a", "b"):
            self.node.client.call(m.QueueBind(queue, "all"), m.QueueBindOk)
        self.node.sync()
        self.first = first
        self.client = known_first(self.node) if first else begun(self.node)
        self.numbers = count()
        self.sent: dict[str, list[bytes]] = {queue: [] for queue in QUEUES}
        self.taken: dict[str, list[bytes]] = {queue: [] for queue in QUEUES}
        self.commands: dict[bytes, int] = {}
        self.unsure: set[bytes] = set()
        self.told: set[bytes] = set()

    def play(self, act: str, value: Any) -> None:
        client = self.client
        match act:
            case "publish":
                body = b"%d" % next(self.numbers)
                for queue in ("a", "b") if value == "all" else (value,):
                    self.sent[queue].append(body)
                self.commands[body] = client.state.sending.next
                publish(client, body, *("", "all") if value == "all" else (value,))
            case "take":
                self.take(value)
            case _:
                if act == "power":
                    self.unsure |= self.incomplete
                self.happen(act, value)

    def take(self, queue: str) -> None:
        self.node.client.send(1, m.BasicGet(queue, no_ack=True))
        _, event = self.node.client.events.pop()
        body = getattr(event, "body", None)
        if body is None:
            return
        redelivered = event.decode_method().redelivered  # type: ignore[attr-defined]
        if body in self.taken[queue]:
            assert redelivered or body in self.unsure, f"{body!r} came to {queue} as new a second time"
        else:
            self.taken[queue].append(body)

    def come_back(self) -> None:
        self.node.disk.heal()
        incomplete = self.incomplete
        super().come_back()
        if self.client.lost:
            assert not self.first
            assert len(incomplete) == len(self.commands)
            self.told |= incomplete
            self.client.lost = False

    @property
    def incomplete(self) -> set[bytes]:
        return {body for body, number in self.commands.items() if number not in self.client.complete}

    def run(self, script: list[tuple[str, Any]]) -> None:
        for act, value in script:
            try:
                self.play(act, value)
            except Died:
                self.node.restart(None)
                self.come_back()
        self.node.disk.heal()
        self.node.restart(None)
        self.come_back()
        self.client.wait(publish(self.client, b"end", "c"))
        for queue in QUEUES:
            while self.node.client.count(queue):
                self.take(queue)
            sent = [*self.sent[queue], *([b"end"] if queue == "c" else [])]
            taken, due = (
                self.taken[queue],
                [body for body in sent if body not in self.told or body in self.taken[queue]],
            )
            assert sorted(taken) == sorted(due)
            sure = [body for body in due if body not in self.unsure]
            assert [body for body in taken if body not in self.unsure] == sure


@pytest.mark.repeats
@settings(max_examples=scaled(60))
@example([("publish", "a"), ("take", "a"), ("die", 0), ("publish", "a"), ("take", "a")], 0, False)
@given(st.lists(STEPS, max_size=30), st.sampled_from([0, 0, 50]), st.booleans())
def test_every_message_once_whatever_happens_to_the_broker(
    script: list[tuple[str, Any]], lag: int, first: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(broker_node, "POSITION_MS", lag)
        patch.setattr("harebell.broker.store.store.QueueLog", partial(QueueLog, segment_bytes=500))
        model = Model(first)
        try:
            model.run(script)
        finally:
            model.node.close()


# -- another: commands that undo something among the publications


class UndoingModel(Survivor):
    """The queue `a`: which bodies must, may and must not be there. A command whose outcome the client is not told of,
    because the session was lost, may have been executed.
    """

    def __init__(self) -> None:
        self.node = DiskKit()
        self.node.client.declare("a")
        self.node.sync()
        self.client = known_first(self.node)
        self.sent: list[bytes] = []
        self.must: set[bytes] = set()
        self.may: set[bytes] = set()
        self.numbers: list[tuple[int, bytes | None]] = []  # commands of the session, and what they published

    def play(self, act: str) -> None:
        client = self.client
        match act:
            case "publish":
                body = b"%d" % len(self.sent)
                self.sent.append(body)
                self.must.add(body)
                self.numbers.append((publish(client, body), body))
            case "purge" | "delete":
                for command in UNDOING[act][:2]:
                    self.numbers.append((client.send(command), None))
                self.must.clear()
            case _:
                self.happen(act)

    def come_back(self) -> None:
        unsure = [body for number, body in self.numbers if number not in self.client.complete]
        super().come_back()
        assert self.client.exception is None
        if self.client.lost:
            self.may |= {body for body in unsure if body is not None}
            if None in unsure:
                self.may |= set(self.sent)
            self.must -= self.may
            self.numbers.clear()
            self.client.lost = False
            self.node.client.declare("a")  # its deletion may be all that was executed

    def run(self, script: list[str]) -> None:
        for act in (*script, "kill", "publish"):
            self.play(act)
        self.client.wait(self.numbers[-1][0])
        found = bodies(self.node, "a")[0]
        assert found == [body for body in self.sent if body in found], "each once, in order"
        assert self.must <= set(found) <= self.must | self.may


@pytest.mark.repeats
@settings(max_examples=scaled(60))
@given(st.lists(st.sampled_from(["publish", "publish", "purge", "delete", "sync", "wait", "lose", "kill", "stop"])))
def test_nothing_is_undone_twice(script: list[str]) -> None:
    model = UndoingModel()
    try:
        model.run(script)
    finally:
        model.node.close()
