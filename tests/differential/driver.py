"""Run one script against two brokers and compare what they say.

A script is data: steps that name a connection ("a", "b", ...), a channel, and what to send. Connections and channels
open at their first use and again after they were closed. Everything that comes is written down, per connection and
channel, in order: that is a trace. Names that brokers make up and the times of deaths are written as "*". A connection
that is named after one of the `people` is theirs, any other is guest's.

After every step each open channel makes a round trip, and then both traces get time to become equal: RabbitMQ's
queues are processes of their own, so a delivery may come after the round trip; Harebell has said everything by then.
A close is answered by the driver, so that scripts go on.
"""

from __future__ import annotations

import re
import select
import socket
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Any, TypeAlias

from harebell import errors
from harebell.client.blocking import connect
from harebell.protocol.v091 import Properties, methods as m
from harebell.protocol.v091.codec import PROTOCOL_HEADER, encode_method
from tests.differential.people import PEOPLE
from tests.wire import CAPABILITIES, PATIENCE, Received, Wire, content_frames

AGREE_SECONDS = 15.0  # how long two traces may differ before they count as different
DIFFERENT_SECONDS = 0.3  # the same of traces that are meant to be different
KNOWN_SECONDS = 0.03  # the same once they are different
AGREE_POLL_SECONDS = 0.02  # of them, until the time is looked at again
POLL_SECONDS = 0.01  # between two looks at a queue
COUNT_SECONDS = 0.2  # the same of a count, until it is asked for again
OTHER_TIMES = 2  # that a script is played where the traces differ
SETTLE_SECONDS = 0.04  # of silence at the end: nothing more may come

BEYOND = ("x-delivery-count", "x-last-death-reason", "x-last-death-queue", "x-last-death-exchange")
"""Headers of later RabbitMQs, and Harebell's on every queue: left out of comparisons unless a script is about them."""


@dataclass(frozen=True)
class Send:
    """A method, on a channel that is opened first (not for channel methods and `bare`)."""

    connection: str
    channel: int
    method: m.Method
    bare: bool = False


@dataclass(frozen=True)
class Publish:
    connection: str
    channel: int
    exchange: str
    routing_key: str
    body: bytes = b""
    properties: Properties = field(default_factory=Properties)
    mandatory: bool = False
    immediate: bool = False


@dataclass(frozen=True)
class Raw:
    """Bytes, as they are, on a connection that is logged in. `greet`: before anything else was said."""

    connection: str
    data: bytes
    greet: bool = False


@dataclass(frozen=True)
class Drop:
    """The connection's socket goes away without a word; what follows waits until its queue `until_gone` has gone too.

    When a broker sees the end of a socket is its own business, and other connections may be quicker.
    """

    connection: str
    until_gone: str = ""


@dataclass(frozen=True)
class Login:
    """A log-in with these values in place of the good ones."""

    connection: str
    password: str = "guest"
    vhost: str = "/"
    user: str = "guest"
    mechanism: str = "PLAIN"
    response: bytes | None = None
    tune: tuple[int, int, int] | None = None


@dataclass(frozen=True)
class Together:
    """Steps of one connection that leave in one write, with no round trip between them."""

    steps: tuple[Send | Publish | Raw, ...]


@dataclass(frozen=True)
class Until:
    """Go on when the queue has so many ready messages; None: when it is gone. Seen from a connection apart.

    Nothing of this is in the trace. Looking for messages is a passive declaration, which renews the queue's lease.
    """

    queue: str
    messages: int | None


@dataclass(frozen=True)
class Confirmed:
    """Go on when everything that was published on the channel is confirmed: a stream shows it to readers by then."""

    connection: str
    channel: int


@dataclass(frozen=True)
class Learn:
    """Learn the channel's address for direct replies, from a request of it: steps after this say `address_of` for it.

    Nothing of this is in the trace. The channel consumes replies; it has no confirms and no transaction yet.
    """

    connection: str
    channel: int


@dataclass(frozen=True)
class Wait:
    """Time passes, where time is what the script is about."""

    seconds: float


Step: TypeAlias = Send | Publish | Raw | Drop | Login | Together | Until | Confirmed | Learn | Wait
Trace: TypeAlias = "dict[str, list[str]]"


def address_of(connection: str, channel: int) -> str:
    """What stands for that channel's address in keys, headers and arguments: each broker makes up its own."""
    return f"<address of {connection}{channel}>"


class Peer:
    """One broker, the connections to it, and the trace of what it said.

    `without` are headers that do not count; the trace has the values of `alike` in place of its keys.
    """

    def __init__(
        self, port: int, without: Collection[str] = BEYOND, alike: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self._port, self._without, self._alike = port, without, alike
        self.wires: dict[str, Wire] = {}
        self.trace: Trace = {}
        self._observer: Wire | None = None
        self._open: set[tuple[str, int]] = set()
        self._round_trips: dict[tuple[str, int], int] = {}
        self._unconfirmed: dict[tuple[str, int], list[int]] = {}
        self._published: dict[tuple[str, int], int] = {}
        self._unanswered: set[tuple[str, int]] = set()  # where a close or a secret was sent and is not answered
        self._committing: set[tuple[str, int]] = set()  # the same of tx.commit: RabbitMQ takes nothing meanwhile
        self._openings: dict[tuple[str, int], int] = {}
        self._published_before: dict[tuple[str, int], int] = {}  # the last step
        self._addresses: dict[str, str] = {}  # for direct replies, by what stands for them

    # -- sending -------------------------------------------------------------------------------------------------

    def do(self, step: Step) -> None:
        self._published_before = dict(self._published)
        match step:
            case Send() | Publish():
                wire = self._prepare(step)
                wire.raw(self._bytes(step))
                self._expect_answer(step)
            case Raw():
                wire = self._connect(step.connection) if step.greet else self._wire(step.connection)
                wire.raw(step.data)
            case Drop():
                self.wires.pop(step.connection).close()
                self._forget(step.connection)
                if step.until_gone:
                    self._wait_until_gone(step.until_gone)
            case Login():
                self._log_in(step)
            case Together():
                wires = [self._wire(each.connection) if isinstance(each, Raw) else self._prepare(each)
                         for each in step.steps]  # fmt: skip
                wires[0].raw(b"".join(map(self._bytes, step.steps)))
                for each in step.steps:
                    self._expect_answer(each)
            case Until():
                self._await_state(step)
            case Confirmed():
                deadline = time.monotonic() + PATIENCE
                while self._unconfirmed.get((step.connection, step.channel)):
                    assert time.monotonic() < deadline, f"no confirm from the broker on port {self._port}"
                    self.read(0.02)
            case Learn():
                self._learn(step)
            case Wait():
                pass  # once for both peers: in `run`

    def take_back(self, step: Send) -> bool:
        """Whether the last answer on the step's channel was a count, which is then as if it had not come."""
        lines = self.trace.get(f"{step.connection}{step.channel}") or [""]
        counted = lines[-1].startswith("queue.declare-ok ")
        if counted:
            lines.pop()
        return counted

    def counts(self, queues: Sequence[str]) -> str:
        """What the queues hold, seen from a connection apart: ready messages and consumers, or why nobody knows."""
        wire, found = self._observing(), []
        for queue in queues:
            wire.send(1, m.QueueDeclare(queue, passive=True))
            wire.wait(lambda: bool(wire.received))
            got = wire.received.pop().method
            if isinstance(got, m.QueueDeclareOk):
                found.append(f"{queue}: {got.message_count} messages, {got.consumer_count} consumers")
            else:
                assert isinstance(got, m.ChannelClose)
                found.append(f"{queue}: {got.reply_code}")
                wire.send(1, m.ChannelCloseOk())
                wire.channel(1)
        return "; ".join(found)

    def _observing(self) -> Wire:
        if self._observer is None:
            self._observer = Wire(self._port).log_in()
            self._observer.channel(1)
        return self._observer

    def _await_state(self, step: Until) -> None:
        wire = self._observing()
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if step.messages is None:
                wire.publish("", step.queue, b"anyone there?", mandatory=True)
                wire.barrier()
                if any(type(each.method) is m.BasicReturn for each in wire.received):
                    wire.received.clear()
                    return
            else:
                found = wire.call(1, m.QueueDeclare(step.queue, passive=True), m.QueueDeclareOk)
                assert isinstance(found, m.QueueDeclareOk)
                if found.message_count == step.messages:
                    return
            wire.poll(POLL_SECONDS)
        raise AssertionError(f"the broker on port {self._port} does not come to {step}")

    def _learn(self, step: Learn) -> None:
        with connect(f"amqp://guest:guest@127.0.0.1:{self._port}/") as connection:
            channel = connection.channel()
            queue = channel.queue_declare(exclusive=True).name
            request = Properties(reply_to="amq.rabbitmq.reply-to")
            self._wire(step.connection).publish("", queue, b"?", request, channel=step.channel)
            with channel.consume(queue, no_ack=True) as requests:
                (delivery,) = requests.receive(1, timeout=PATIENCE)
        self._addresses[address_of(step.connection, step.channel)] = delivery.properties.reply_to or ""

    def _filled(self, value: Any) -> Any:
        """The value with addresses in place of what stands for them."""
        if isinstance(value, str):
            return self._addresses.get(value, value)
        if isinstance(value, list):
            return [self._filled(each) for each in value]
        if isinstance(value, dict):
            return {name: self._filled(each) for name, each in value.items()}
        return value

    def _wait_until_gone(self, queue: str) -> None:
        with connect(f"amqp://guest:guest@127.0.0.1:{self._port}/") as connection:
            while True:  # the connection's deadline and the test's end a wait for nothing
                try:
                    connection.channel().queue_declare(queue, passive=True)
                except errors.NotFound:
                    return
                except errors.ResourceLocked:
                    continue

    def _expect_answer(self, step: Send | Publish | Raw) -> None:
        if isinstance(step, Send) and isinstance(step.method, (m.ChannelClose, m.ConnectionClose)):
            key = (step.connection, step.channel)
            everything = type(step.method) is m.ConnectionClose
            self._open -= {each for each in self._open if each == key or (everything and each[0] == key[0])}
            self._unanswered.add(key)
        elif isinstance(step, Send) and type(step.method) is m.ConnectionUpdateSecret:
            self._unanswered.add((step.connection, 0))
        elif isinstance(step, Send) and type(step.method) is m.TxCommit:
            self._committing.add((step.connection, step.channel))

    def _bytes(self, step: Send | Publish | Raw) -> bytes:
        if isinstance(step, Raw):
            return step.data
        if isinstance(step, Send):
            method = step.method
            if self._addresses and isinstance(method, m.QueueDeclare):
                method = copy(method)
                method.queue, method.arguments = self._filled(method.queue), self._filled(method.arguments)
            return encode_method(step.channel, method)
        key, properties = self._filled(step.routing_key), step.properties
        if self._addresses and properties.headers:
            properties = copy(properties)
            properties.headers = self._filled(properties.headers)
        method = m.BasicPublish(step.exchange, key, mandatory=step.mandatory, immediate=step.immediate)
        return content_frames(step.channel, method, properties, step.body, 131_072)

    def _prepare(self, step: Send | Publish) -> Wire:
        """The connection of a step, with its channel open."""
        wire, key = self._wire(step.connection), (step.connection, step.channel)
        if isinstance(step, Send) and type(step.method) is m.ChannelOpen:
            self._open.add(key)
        elif isinstance(step, Send) and step.bare:
            pass
        elif step.channel and key not in self._open:
            wire.send(step.channel, m.ChannelOpen())
            wire.expect(m.ChannelOpenOk, step.channel)
            self._open.add(key)
            self._openings[key] = self._openings.get(key, 0) + 1
        if isinstance(step, Send) and type(step.method) is m.ConfirmSelect:
            self._unconfirmed.setdefault(key, [])
        if isinstance(step, Publish) and key in self._unconfirmed:
            self._published[key] = self._published.get(key, 0) + 1
            self._unconfirmed[key].append(self._published[key])
        return wire

    def _connect(self, name: str) -> Wire:
        if (former := self.wires.get(name)) is not None:
            former.close()  # it may have ended in a write, which nobody has read on
        wire = self.wires[name] = Wire(self._port)
        return wire

    def _wire(self, name: str) -> Wire:
        wire = self.wires.get(name)
        if wire is None or wire.ended:
            self._forget(name)
            user = name if name in PEOPLE else "guest"
            wire = self._connect(name).log_in(user=user, password=user)
        return wire

    def _log_in(self, step: Login) -> None:
        wire = self._connect(step.connection)

        def come(kind: type[m.Method]) -> bool:
            wire.wait(lambda: wire.ended or any(type(got.method) in (kind, m.ConnectionClose) for got in wire.received))
            wire.received = [got for got in wire.received if type(got.method) is not kind]
            return not wire.ended and not wire.received

        wire.raw(PROTOCOL_HEADER)
        come(m.ConnectionStart)
        response = f"\0{step.user}\0{step.password}".encode() if step.response is None else step.response
        wire.send(0, m.ConnectionStartOk({"capabilities": CAPABILITIES}, step.mechanism, response, "en_US"))
        if come(m.ConnectionTune):
            wire.send(0, m.ConnectionTuneOk(*(step.tune or (2047, 131_072, 0))))
            wire.send(0, m.ConnectionOpen(step.vhost))
            if come(m.ConnectionOpenOk):
                self.trace.setdefault(f"{step.connection}0", []).append("logged in")
        if wire.ended and not wire.received:
            self.trace.setdefault(f"{step.connection}0", []).append("socket closed")

    def _forget(self, name: str) -> None:
        for key in [key for key in (*self._open, *self._unconfirmed, *self._round_trips) if key[0] == name]:
            self._close_channel(key)
        self._unanswered = {key for key in self._unanswered if key[0] != name}
        self._committing = {key for key in self._committing if key[0] != name}

    def _close_channel(self, key: tuple[str, int]) -> None:
        self._open.discard(key)
        self._unanswered.discard(key)
        self._committing.discard(key)
        for table in (self._round_trips, self._unconfirmed, self._published):
            table.pop(key, None)

    # -- receiving -----------------------------------------------------------------------------------------------

    def round_trip(self) -> None:
        """Return when every open channel has answered once, or is closed."""
        deadline = time.monotonic() + PATIENCE
        while self._committing and time.monotonic() < deadline:
            self.read(0.02)
        for key in sorted(self._open):
            wire = self.wires[key[0]]
            if not wire.ended:
                self._round_trips[key] = self._round_trips.get(key, 0) + 1
                wire.send(key[1], m.ChannelFlow(active=True))
        deadline = time.monotonic() + PATIENCE
        while (any(self._round_trips.values()) or self._unanswered) and time.monotonic() < deadline:
            self.read(0.02)

    def read(self, timeout: float) -> bool:
        """Take in what came, waiting for it at most that long; whether anything did."""
        return read_all((self,), timeout)

    def sockets(self) -> list[socket.socket]:
        """Those on which something may come."""
        return [wire.socket for wire in self.wires.values() if not wire.ended]

    def take(self, readable: Collection[socket.socket]) -> bool:
        """Take in what came on these sockets; whether anything did."""
        alive = {wire.socket for wire in self.wires.values() if not wire.ended}
        came = False
        for wire in tuple(self.wires.values()):
            if wire.socket in readable and wire.socket in alive:
                wire.poll()
        for name, wire in tuple(self.wires.items()):
            received, wire.received = wire.received, []
            for each in received:
                came = True
                self._note(name, wire, each)
            if wire.ended and wire.socket in alive and wire.socket.fileno() >= 0:
                came = True
                self.trace.setdefault(f"{name}0", []).append("socket closed")
                wire.close()
                self._forget(name)
        return came

    def _note(self, name: str, wire: Wire, got: Received) -> None:
        key, method = (name, got.channel), got.method
        if type(method) is m.ChannelFlowOk and self._round_trips.get(key):
            self._round_trips[key] -= 1
            return
        if type(method) is m.BasicAck or type(method) is m.BasicNack:
            self._note_confirms(key, method)
            return
        line = describe(got, self._without)
        for theirs, ours in self._alike.items():
            line = line.replace(theirs, ours)
        self.trace.setdefault(f"{name}{got.channel}", []).append(line)
        if type(method) is m.ChannelClose:
            self._forget_confirms(key)
            wire.send(got.channel, m.ChannelCloseOk())
            self._close_channel(key)
        elif type(method) is m.ChannelCloseOk:
            self._close_channel(key)
        elif type(method) is m.TxCommitOk:
            self._committing.discard(key)
        elif type(method) is m.ConnectionUpdateSecretOk:
            self._unanswered.discard(key)
        elif type(method) is m.ConnectionClose:
            wire.send(0, m.ConnectionCloseOk())
            wire.close()
            self._forget(name)
        elif type(method) is m.ConnectionCloseOk:
            wire.close()
            self._forget(name)

    def _note_confirms(self, key: tuple[str, int], method: m.BasicAck | m.BasicNack) -> None:
        """One line per publication, sorted: how confirms are put together is the broker's business."""
        waiting = self._unconfirmed.get(key, [])
        tags = [tag for tag in waiting if tag == method.delivery_tag or (method.multiple and tag < method.delivery_tag)]
        lines = self.trace.setdefault(self._confirms(key), [])
        for tag in tags:
            waiting.remove(tag)
            lines.append(f"{tag} {method.NAME}")
        if not tags:
            lines.append(describe(Received(key[1], method, None)))
        lines.sort(key=lambda line: int(line.split()[0]) if line[0].isdigit() else 0)

    def _confirms(self, key: tuple[str, int]) -> str:
        return f"{key[0]}{key[1]}, confirms, opened {self._openings.get(key, 0)} times"

    def _forget_confirms(self, key: tuple[str, int]) -> None:
        """Of what a step published that ended in an error: whether RabbitMQ still sends them is chance."""
        before = self._published_before.get(key, 0)
        lines = self.trace.pop(self._confirms(key), [])
        if kept := [line for line in lines if not line[0].isdigit() or int(line.split()[0]) <= before]:
            self.trace[self._confirms(key)] = kept

    def close(self) -> None:
        """Close in order, so that exclusive queues are gone afterwards."""
        wires = [*self.wires.values(), *([self._observer] if self._observer is not None else [])]
        for wire in wires:
            if not wire.ended:
                wire.send(0, m.ConnectionClose(200, "done"))
        for wire in wires:
            deadline = time.monotonic() + 2
            while not wire.ended and time.monotonic() < deadline:
                if any(type(each.method) is m.ConnectionCloseOk for each in wire.received):
                    break
                wire.poll(0.05)
            wire.close()


def delete_all(wire: Wire, queues: Iterable[str], exchanges: Iterable[str]) -> None:
    """Delete them; again where one is locked, because the connection that it goes with is still being noticed."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        wire.channel(1)
        for queue in queues:
            wire.send(1, m.QueueDelete(queue, no_wait=True))
        for exchange in exchanges:
            wire.send(1, m.ExchangeDelete(exchange, no_wait=True))
        wire.send(1, m.ChannelClose(200, ""))
        wire.wait(lambda: any(isinstance(each.method, (m.ChannelCloseOk, m.ChannelClose)) for each in wire.received))
        refused = any(type(each.method) is m.ChannelClose for each in wire.received)
        if refused:
            wire.send(1, m.ChannelCloseOk())
            wire.expect(m.ChannelCloseOk)
        wire.received.clear()
        if not refused:
            return
    raise AssertionError(f"one of {queues} cannot be deleted")


_MADE_UP = re.compile(r"\bamq\.(gen-|ctag-|rabbitmq\.reply-to\.)[A-Za-z0-9_.+/=-]{22,}")


def describe(got: Received, without: Collection[str] = ()) -> str:
    method = got.method
    text = " ".join((method.NAME, *(f"{name}={getattr(method, name)!r}" for name in method.__slots__)))
    if got.content is not None:
        properties = got.content.decode_properties()
        for name in properties.__slots__:
            value = getattr(properties, name)
            if name == "headers" and value and without:
                value = {key: each for key, each in value.items() if key not in without} or None
            if value is not None:
                text += f" {name}={_plain(value)}"
        text += f" body={got.body!r}" if len(got.body) < 100 else f" body of {len(got.body)}"
    return _MADE_UP.sub(r"amq.\1*", text)


def _plain(value: object) -> str:
    if isinstance(value, datetime):
        return "*" if abs(value.timestamp() - time.time()) < 3600 else str(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_plain(each)}" for key, each in sorted(value.items())) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_plain, value)) + "]"
    return repr(value)


def run(
    script: Sequence[Step], first: Peer, second: Peer, *, agree: float = AGREE_SECONDS, watch: Sequence[str] = ()
) -> float:
    """Both peers through the script; their traces are complete afterwards.

    After every step the messages and consumers of the queues in `watch` are compared too. The answer is the longest
    time in seconds between the script's waits.
    """
    longest, since = 0.0, time.monotonic()
    for step in script:
        if isinstance(step, Wait):
            longest = max(longest, time.monotonic() - since)
        for peer in (first, second):
            peer.do(step)
        if isinstance(step, Wait):
            time.sleep(step.seconds)
            since = time.monotonic()
        if not isinstance(step, Raw):
            first.round_trip()
            second.round_trip()
        if isinstance(step, Send) and isinstance(step.method, m.QueueDeclare) and step.method.passive:
            _count_again(step, first, second, agree)
        if not _await_agreement(first, second, agree):
            agree = min(agree, KNOWN_SECONDS)
        if watch and not _compare_queues(first, second, watch, agree):
            break
    settle((first, second))
    while first.trace != second.trace and _await_agreement(first, second, agree):  # one of them is slower
        settle((first, second))
    return max(longest, time.monotonic() - since)


def _count_again(step: Send, first: Peer, second: Peer, seconds: float) -> None:
    """Ask how many messages the queue has until both say the same: what has left a queue may not be in the next."""
    deadline = time.monotonic() + seconds
    while not _await_agreement(first, second, min(seconds, COUNT_SECONDS)) and time.monotonic() < deadline:
        if not all(peer.take_back(step) for peer in (first, second)):
            return
        for peer in (first, second):
            peer.do(step)
            peer.round_trip()


def play_until_same(play: Callable[[], tuple[Peer, Peer]]) -> tuple[Peer, Peer]:
    """The peers of a script that was played, again where RabbitMQ said something else.

    RabbitMQ's queues are processes of their own: a dead letter that one of them has sent may not be in the other one
    when the next step counts it. What Harebell says is the same each time.
    """
    ours, theirs = play()
    for _ in range(OTHER_TIMES):
        if ours.trace == theirs.trace:
            break
        before = ours.trace
        for peer in (ours, theirs):
            peer.close()
        ours, theirs = play()
        assert ours.trace == before
    return ours, theirs


def settle(peers: Sequence[Peer]) -> None:
    """Read until nothing comes from any of them."""
    while read_all(peers, SETTLE_SECONDS):
        pass


def read_all(peers: Sequence[Peer], timeout: float) -> bool:
    """Take in what came from any of them, waiting for it at most that long; whether anything did."""
    sockets = [each for peer in peers for each in peer.sockets()]
    readable = set(select.select(sockets, [], [], timeout)[0] if sockets else ())
    return sum(peer.take(readable) for peer in peers) > 0


def _await_agreement(first: Peer, second: Peer, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while first.trace != second.trace:
        if time.monotonic() > deadline:
            return False
        read_all((first, second), AGREE_POLL_SECONDS)
    return True


def _compare_queues(first: Peer, second: Peer, queues: Sequence[str], seconds: float) -> bool:
    """Whether the queues come to hold the same; where they do not, the traces show what they held."""
    deadline = time.monotonic() + seconds
    while True:
        ours, theirs = first.counts(queues), second.counts(queues)
        if ours == theirs:
            return True
        read_all((first, second), POLL_SECONDS)
        if time.monotonic() > deadline:
            first.trace["queues"], second.trace["queues"] = [ours], [theirs]
            return False


_CLOSE = re.compile(r"(channel|connection)\.close reply_code=(\d+)")


def await_outcome(peer: Peer, wanted: str) -> str:
    """What the script came to, when it comes to that in time: RabbitMQ ends some connections after seconds."""
    deadline = time.monotonic() + PATIENCE
    while outcome(peer) != wanted and time.monotonic() < deadline:
        peer.read(0.05)
    return outcome(peer)


def outcome(peer: Peer) -> str:
    """What a script came to, in two words: "406 channel", "540 connection", "socket closed" or "works"."""
    for lines in peer.trace.values():
        for line in lines:
            if found := _CLOSE.match(line):
                return f"{found[2]} {found[1]}"
            if line == "socket closed":
                return line
    return "works"
