"""A client of AMQP 0-10 on a node without sockets: an engine, and the state of its sessions."""

from __future__ import annotations

from typing import Any, TypeVar

from harebell.broker.auth.users import make_user
from harebell.broker.v010.connection import Connection
from harebell.broker.v010.sessions import Sessions
from harebell.protocol.v010 import (
    AttachmentState,
    Command,
    ConnectionState,
    Content,
    Control,
    DeliveryProperties,
    Engine,
    MessageProperties,
    Role,
    Struct,
    commands as c,
    controls as k,
)
from harebell.protocol.v010.codec import unpack_struct
from harebell.protocol.v010.session import Again, Session as State
from harebell.routing.definitions import Permission
from tests.broker.kit import FakeTransport, NodeKit

ALL = 0xFFFF_FFFF
S = TypeVar("S", bound=Struct)


def add_user(kit: NodeKit, name: str, pattern: str = ".*") -> None:
    """A user with that word as the password too, who may use what the pattern matches."""
    kit.node.users.put(make_user(name, name))
    kit.node.users.set_permission(Permission("/", name, pattern, pattern, pattern))


class Kit(NodeKit):
    """A node with the sessions of AMQP 0-10."""

    def __init__(self, *args: Any, **rest: Any) -> None:
        super().__init__(*args, **rest)
        self.sessions = Sessions(self.node)
        self.peers: list[Peer] = []

    def peer(self, **rest: Any) -> Peer:
        peer = Peer(self, **rest)
        self.peers.append(peer)
        return peer

    def settle(self) -> None:
        """Let timers and long work have their turns, and every peer receive what came of it."""
        self.run_syncs()
        self.node.run_timers()
        self.run_syncs()
        for peer in self.peers:
            peer.receive()


class Peer:
    """One connection, logged in. `closed` is the broker's connection.close.

    sends, takes  bytes until the transport is cut in that direction; None: it is not
    """

    def __init__(self, kit: Kit, *, vhost: str = "/", user: str = "guest", frame: int = 65_535) -> None:
        self.kit = kit
        self.transport = FakeTransport()
        self.connection = Connection(kit.node, self.transport, kit.sessions)
        kit.node.add_connection(self.connection)
        self.engine = Engine(Role.CLIENT)
        self.sessions: dict[int, Client] = {}
        self.events: list[tuple[int, object]] = []
        self.closed: k.ConnectionClose | None = None
        self.lost = False
        self.sends: int | None = None
        self.takes: int | None = None
        self.sent = self.taken = 0
        self.engine.send_header()
        self.pump()
        kit.node.run_timers()
        self.control(0, k.ConnectionStartOk({}, "PLAIN", f"\0{user}\0{user}".encode(), "en_US"))
        kit.node.run_timers()
        self.receive()
        while self.closed is None and self.engine.state is ConnectionState.AWAIT_TUNE:
            kit.run_sync()  # a password is verified by another thread
            kit.node.run_timers()
            self.receive()
        if self.closed is None:
            self.control(0, k.ConnectionTuneOk(100, frame, 0))
            self.control(0, k.ConnectionOpen(vhost))

    def control(self, channel: int, control: Control) -> None:
        self.engine.send_control(channel, control)
        self.pump()

    def pump(self) -> None:
        """Send what the engine has, and receive the answers."""
        while not self.lost and (data := self.engine.data_to_send()):
            if self.sends is not None:
                data = data[: self.sends]
                self.sends -= len(data)
            self.sent += len(data)
            self.connection.receive_data(data)
            if self.sends == 0:
                self.lose()
                return
            self.receive()
            self.kit.run_syncs()
            self.receive()

    def receive(self) -> None:
        if self.lost:
            return
        data = bytes(self.transport.written)
        self.transport.written.clear()
        if self.takes is not None:
            data = data[: self.takes]
            self.takes -= len(data)
        self.taken += len(data)
        self.engine.receive_data(data)
        for channel, event in self.engine.events():
            self.events.append((channel, event))
            if isinstance(event, k.ConnectionClose):
                self.closed = event
                self.engine.send_control(0, k.ConnectionCloseOk())
            elif channel in self.sessions:
                self.sessions[channel].hear(event)
        if self.takes == 0:
            self.lose()
        elif self.engine.pending:
            self.pump()

    def lose(self) -> None:
        """End the transport."""
        self.lost = True
        self.connection.lost()
        self.kit.run_syncs()
        for client in self.sessions.values():
            client.attached = False
            client.state.detached()

    def session(
        self,
        name: bytes = b"s",
        channel: int = 0,
        *,
        state: State[Any] | None = None,
        force: bool = False,
        timeout: int | None = None,
    ) -> Client:
        """`timeout`: seconds that it asks for before anything else."""
        client = Client(self, name, channel, state)
        client.asks = timeout
        for old in [each for peer in self.kit.peers for each in peer.sessions.values() if each.state is state]:
            client.complete, client.results = old.complete, old.results
            client.accepted, client.rejected = old.accepted, old.rejected
            if not old.moved:
                old.moved = True
                old.state.detached()
        self.sessions[channel] = client
        self.control(channel, k.SessionAttach(name, force))
        return client


class Client:
    """A client's session on a channel. It completes every transfer at once, unless `completes` is False."""

    def __init__(self, peer: Peer, name: bytes, channel: int, state: State[Any] | None) -> None:
        self.peer, self.name, self.channel = peer, name, channel
        self.state: State[Any] = State(name) if state is None else state
        self.completes = self.answers = True  # what it completes: transfers, and other commands
        self.moved = False  # another connection goes on with the state
        self.attached = False
        self.detached: int | None = None
        self.asks: int | None = None
        self.timeout: int | None = None
        self.exception: c.ExecutionException | None = None
        self.results: dict[int, Struct] = {}
        self.accepted: set[int] = set()
        self.rejected: dict[int, int] = {}
        self.messages: list[tuple[int, Content]] = []
        self.complete: set[int] = set()
        self.lost = False

    def hear(self, event: object) -> None:
        engine, channel = self.peer.engine, self.channel
        match event:
            case k.SessionAttached():
                self.attached = True
                if self.asks is not None:
                    self._control(k.SessionRequestTimeout(self.asks))
                for control in self.state.attached():
                    self._control(control)
            case k.SessionDetached() if event.name not in (b"", self.name):
                pass
            case k.SessionDetached() if self.moved:
                self.attached, self.detached = False, event.code
            case k.SessionDetached():
                self.attached, self.detached = False, event.code
                self.state.detached()
            case k.SessionDetach():
                self.attached = False
                engine.send_control(channel, k.SessionDetached(event.name, 0))
                self.state.detached()
            case k.SessionTimeout():
                self.timeout = event.timeout
            case Control():
                self._react(event)
            case Command() | Content():
                number = self.state.receiving.receive(event.sync)
                if number is not None:
                    self._take(number, event)
        if self.attached and not self.peer.lost:
            for control in self.state.due():
                self._control(control)

    def _react(self, control: Control) -> None:
        reaction = self.state.receive_control(control)
        for low, high in reaction.complete:
            self.complete.update(range(low, high + 1))
        self.lost |= reaction.lost
        if reaction.lost:
            for each in self.state.start_over()[0]:
                self._control(each)
        for said in reaction.to_send:
            if isinstance(said, Again):
                self._put(said.item)
            else:
                self._control(said)

    def _control(self, control: Control) -> None:
        if self.peer.engine.attachments.get(self.channel) is AttachmentState.ATTACHED:
            self.peer.engine.send_control(self.channel, control)

    def _take(self, number: int, event: Command | Content) -> None:
        match event:
            case Content():
                self.messages.append((number, event))
                if not self.completes:
                    return
            case c.ExecutionResult() if event.value is not None:
                found = unpack_struct(event.value)
                assert isinstance(found, Struct)
                self.results[event.command_id] = found
            case c.ExecutionException():
                self.exception = event
            case c.MessageAccept():
                for low, high in event.transfers:
                    self.accepted.update(range(low, high + 1))
            case c.MessageReject():
                for low, high in event.transfers:
                    self.rejected.update(dict.fromkeys(range(low, high + 1), event.code))
        if self.answers:
            self.state.receiving.complete(number)

    # -- sending -------------------------------------------------------------------------------------------------

    def _put(self, item: Any) -> None:
        if isinstance(item, Command):
            self.peer.engine.send_command(self.channel, item)
        else:
            self.peer.engine.send_content(self.channel, *item)

    def send(self, item: Any) -> int:
        number = self.state.sending.send(item, 100)
        if self.attached and self.state.ready and not self.peer.lost:
            self._put(item)
            self.peer.pump()
        return number

    def call(self, command: Command) -> int:
        """Send a command that is to be completed at once. Returns its number."""
        command.sync = True
        number = self.send(command)
        self.wait(number)
        return number

    def wait(self, number: int) -> None:
        """Wait until a command is complete, or the session has ended."""
        self.peer.kit.settle()
        while number not in self.complete and self.attached and self.peer.closed is None and not self.peer.lost:
            self.peer.kit.run_sync()
            self.peer.kit.settle()

    def ask(self, command: Command, result: type[S]) -> S:
        found = self.results[self.call(command)]
        assert isinstance(found, result)
        return found

    def publish(
        self,
        key: str = "",
        body: bytes = b"",
        exchange: str = "",
        *,
        accept_mode: int | None = None,
        sync: bool = True,
        message: MessageProperties | None = None,
        **delivery: Any,
    ) -> int:
        structs: list[Struct] = [DeliveryProperties(routing_key=key, **delivery)]
        if message is not None:
            structs.append(message)
        command = c.MessageTransfer(exchange, accept_mode, sync=sync)
        number = self.send((command, structs, body))
        if sync:
            self.wait(number)
        return number

    def subscribe(
        self, queue: str, tag: str = "t", messages: int | None = ALL, size: int | None = ALL, **rest: Any
    ) -> int:
        number = self.call(c.MessageSubscribe(queue, tag, **rest))
        if messages is not None:
            self.call(c.MessageFlow(tag, 0, messages))
        if size is not None:
            self.call(c.MessageFlow(tag, 1, size))
        return number

    def report(self) -> None:
        """Send the completions of the transfers so far."""
        if not self.attached or self.peer.lost:
            return
        for control in self.state.due(idle=True):
            self._control(control)
        self.peer.pump()

    def finish(self, *numbers: int) -> None:
        """Complete these transfers."""
        for number in numbers:
            self.state.receiving.complete(number)
        self.report()

    def bodies(self) -> list[bytes]:
        """The bodies of the messages since the last call."""
        self.peer.kit.settle()
        found = [content.body for _, content in self.messages]
        self.messages.clear()
        return found

    def taken(self) -> list[tuple[int, Content]]:
        """The messages since the last call, with their numbers."""
        self.peer.kit.settle()
        found, self.messages = self.messages, []
        return found
