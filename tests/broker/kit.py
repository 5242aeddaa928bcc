"""A node without sockets and loop: clients are engines, and what the sync thread has to say waits in a queue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import pytest

from harebell.broker import letters, slices
from harebell.broker.connections import base, consumer_timeouts, unread_input
from harebell.broker.node import Node
from harebell.broker.operations.startup import start_node
from harebell.broker.plugins import Plugins
from harebell.broker.queues import expiry
from harebell.broker.queues.contents import backlog, plain, removed
from harebell.broker.store.data_folder import LastStop
from harebell.broker.v091 import transactions, unacked
from harebell.broker.v091.connection import Connection
from harebell.config import Limits
from harebell.protocol.v091 import Content, Engine, Properties, Role, Table, methods as m

PATIENCE = 60.0
FINEST = (
    (base, "PART"), (unread_input, "PART"), (unacked, "DELIVERIES_PER_STEP"), (unacked, "TAGS_PER_LOOKUP"),
    (slices, "CHECK"), (slices, "DISCARD"),
    (plain, "FEED"), (backlog, "FEED"), (removed, "STEP"),
    (transactions, "PUBLICATIONS_PER_STEP"), (transactions, "DELIVERIES_PER_STEP"),
    (consumer_timeouts, "STEP"), (expiry, "SHARE"), (letters, "QUEUES_AT_ONCE"), (letters, "QUEUES_PER_STEP"),
)  # fmt: skip
M = TypeVar("M", bound=m.Method)


class FakeTransport:
    peer, peer_host, local = "127.0.0.1:1", "127.0.0.1", "127.0.0.1:5672"
    tls: tuple[str, str] | None = None
    certificate_user: str | None = None

    def __init__(self) -> None:
        self.written = bytearray()
        self.closed: float | None = None  # the delay that was asked for last
        self.heartbeat = -1
        self.reading = True
        self.unsent = 0  # what a test says that the socket has not taken

    def write(self, data: bytes | memoryview) -> None:
        self.written += data

    def write_all(self, pieces: Sequence[bytes | memoryview]) -> None:
        self.write(b"".join(pieces))

    def close(self, after: float = 0.0) -> None:
        self.closed = after

    def finish(self, within: float) -> None:
        self.closed = 0.0

    def set_heartbeat(self, seconds: int) -> None:
        self.heartbeat = seconds

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


def connect(node: Node, transport: FakeTransport) -> Connection:
    """A connection of a client that has said nothing yet."""
    connection = Connection(node, transport)
    node.add_connection(connection)
    return connection


class Clock:
    """Milliseconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1_000_000

    def __call__(self) -> int:
        return self.now


class Stopwatch:
    """Seconds that pass by `step` at each look: with 0 no work takes long, with 1 every step of one is a slice."""

    def __init__(self) -> None:
        self.now = self.step = 0.0

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def cut_finely(patch: pytest.MonkeyPatch) -> None:
    """Make each step of long work as small as it can be; how many of them are a slice is up to the stopwatch."""
    for module, name in FINEST:
        patch.setattr(module, name, 1)


class NodeKit:
    """A node; `run_syncs` lets what the sync thread reported happen, and long work; `pass_time` the clock go on."""

    def __init__(
        self,
        data: Path,
        *,
        sync: bool = True,
        events: bool = False,
        open_files: int | None = None,
        last_stop: LastStop = LastStop.KILLED,
        plugins: Plugins | None = None,
        **limits: Any,
    ) -> None:
        self.calls: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self.clock, self.stopwatch = Clock(), Stopwatch()
        self.clients: list[Client] = []
        self.node = start_node(
            data, self.calls.put, sync=sync, events=events, limits=Limits(**limits), clock=self.clock,
            open_files=open_files, last_stop=last_stop, stopwatch=self.stopwatch, plugins=plugins,
        )  # fmt: skip

    def client(
        self, frame_max: int = 131_072, capabilities: Table | None = None, *, vhost: str = "/", user: str = "guest"
    ) -> Client:
        """`user` has that word as the password too."""
        client = Client(self.node, frame_max, capabilities, vhost, user)
        self.clients.append(client)
        return client

    def pass_time(self, milliseconds: int) -> None:
        """As the sockets' loop would: every timer on the way gets its turn at its time."""
        end = self.clock.now + milliseconds
        while (deadline := self.node.timers.next_deadline) is not None and deadline <= end:
            self.clock.now = max(deadline, self.clock.now)
            self.node.run_timers()
            self.node.batch.slices.finish()
        self.clock.now = end
        for client in self.clients:
            client.receive()

    def run_sync(self) -> None:
        self.calls.get(timeout=PATIENCE)()

    def run_syncs(self) -> None:
        try:
            while True:
                self.calls.get_nowait()()
        except Empty:
            pass

    def stop(self) -> None:
        self.node.stop()
        self.run_syncs()


class Client:
    """One connection to the node, logged in with channel 1 open. `events` are (channel, Method or Content) in order.

    Where the login is refused, `events` has the connection.close.
    """

    def __init__(
        self,
        node: Node,
        frame_max: int = 131_072,
        capabilities: Table | None = None,
        vhost: str = "/",
        user: str = "guest",
    ) -> None:
        self.transport = FakeTransport()
        self.connection: Connection = connect(node, self.transport)
        self.engine = Engine(Role.CLIENT)
        self.events: list[tuple[int, object]] = []
        self.engine.send_header()
        self.pump()
        capabilities = {"consumer_cancel_notify": True} if capabilities is None else capabilities
        self.send(0, m.ConnectionStartOk({"capabilities": capabilities}, "PLAIN", f"\0{user}\0{user}".encode()))
        self.send(0, m.ConnectionTuneOk(2047, frame_max, 0))
        self.send(0, m.ConnectionOpen(vhost))
        if not any(isinstance(event, m.ConnectionClose) for _, event in self.events):
            self.open()
            self.events.clear()

    def open(self, channel: int = 1) -> None:
        self.send(channel, m.ChannelOpen())

    def send(self, channel: int, method: m.Method) -> None:
        self.engine.send_method(channel, method)
        self.pump()

    def call(self, method: m.Method, answer: type[M], channel: int = 1) -> M:
        """Send and return the answer, which must be the last thing said."""
        self.send(channel, method)
        _, event = self.events.pop()
        assert isinstance(event, answer), event
        return event

    def publish(self, key: str, body: bytes = b"", exchange: str = "", channel: int = 1, **rest: Any) -> None:
        properties = Properties(**rest)
        self.engine.send_content(channel, m.BasicPublish(exchange, key), properties, body)
        self.pump()

    def declare(self, queue: str = "q", **arguments: Any) -> None:
        """x_message_ttl stands for x-message-ttl."""
        table = {name.replace("_", "-"): value for name, value in arguments.items()}
        self.call(m.QueueDeclare(queue, durable=True, arguments=table), m.QueueDeclareOk)

    def count(self, queue: str = "q") -> int:
        """Ready messages."""
        return self.call(m.QueueDeclare(queue, passive=True), m.QueueDeclareOk).message_count

    def get(self, queue: str = "q", no_ack: bool = True) -> Content | None:
        """The next message, the content with its headers; None when there is none."""
        self.send(1, m.BasicGet(queue, no_ack=no_ack))
        _, event = self.events.pop()
        return event if isinstance(event, Content) else None

    def pump(self) -> None:
        """What the client sent goes to the broker as one batch; what the broker wrote comes back."""
        data = self.engine.data_to_send()
        if data:
            self.connection.receive_data(data)
        self.receive()

    def receive(self) -> None:
        data = bytes(self.transport.written)
        self.transport.written.clear()
        if data:
            self.engine.receive_data(data)
        for channel, event in self.engine.events():
            self.events.append((channel, event))

    def take(self, kind: type[M]) -> list[M]:
        """All methods of that kind that came, also those that carry content; they leave `events`."""
        found, rest = [], []
        for channel, event in self.events:
            method = event.decode_method() if isinstance(event, Content) else event
            if isinstance(method, kind):
                found.append(method)
            else:
                rest.append((channel, event))
        self.events = rest
        return found

    def deliveries(self) -> list[tuple[int, bool, bytes]]:
        """(delivery tag, redelivered, body) of what was delivered; they leave `events`."""
        found, rest = [], []
        for channel, event in self.events:
            method = event.decode_method() if isinstance(event, Content) else None
            if isinstance(event, Content) and isinstance(method, m.BasicDeliver):
                found.append((method.delivery_tag, method.redelivered, event.body))
            else:
                rest.append((channel, event))
        self.events = rest
        return found
