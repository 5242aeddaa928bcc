"""A broker of AMQP 0-10 that does what a test tells it: an engine in the server's role, on a socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from harebell.protocol.v010 import AttachmentState, Command, Content, Control, Engine, Role, controls as k
from harebell.protocol.v010.session import Again, Session as State

__all__ = ["Peer", "scripted"]


class Peer:
    """One connection. Controls and commands are in `seen`; sessions are attached, new each time, and complete all.

    on  called with each control and command; True: the script has answered it
    """

    def __init__(self, writer: asyncio.StreamWriter, on: Callable[[Peer, object], object]) -> None:
        self._writer = writer
        self._on = on
        self.engine = Engine(Role.SERVER)
        self.state: State[Command] = State(b"")
        self.seen: list[object] = []

    def receive(self, data: bytes) -> None:
        self.engine.receive_data(data)
        self._go_on()

    def _go_on(self) -> None:
        if self.engine.state.name == "AWAIT_START":
            self.control(k.ConnectionStart({"product": "scripted"}, ["PLAIN"], ["en_US"]))
        for _, event in self.engine.events():
            self.seen.append(event)
            if not self._on(self, event):
                self._answer(event)
        if self.engine.waiting:
            self.receive(b"")
        self.write()

    def write(self) -> None:
        self._writer.write(self.engine.data_to_send())

    def control(self, control: Control) -> None:
        self.engine.send_control(0, control)

    def command(self, command: Command) -> None:
        """Send a command of the broker's."""
        self.state.sending.send(command, 1)
        self.engine.send_command(0, command)
        self.write()

    def bytes(self, data: bytes) -> None:
        """Send octets as they are."""
        self.write()
        self._writer.write(data)

    def hang_up(self) -> None:
        """Cut the connection."""
        self._writer.transport.abort()

    def _answer(self, event: object) -> None:
        match event:
            case k.ConnectionStartOk():
                self.control(k.ConnectionTune(10, 65_535, 0, 0))
            case k.ConnectionOpen():
                self.control(k.ConnectionOpenOk())
            case k.ConnectionClose():
                self.control(k.ConnectionCloseOk())
                self.write()
                self._writer.close()
            case k.SessionAttach():
                self.state = State(event.name)
                self.control(k.SessionAttached(event.name))
                for control in self.state.attached(new=True):
                    self.control(control)
            case k.SessionDetach():
                self.control(k.SessionDetached(event.name, 0))
            case _ if self.engine.attachments.get(0) is not AttachmentState.ATTACHED:
                pass  # a detach came in the same piece of input
            case k.SessionRequestTimeout():
                self.control(k.SessionTimeout(event.timeout))
            case k.SessionTimeout():
                pass
            case Control():
                for said in self.state.receive_control(event).to_send:
                    assert not isinstance(said, Again)
                    self.control(said)
            case Command() | Content():
                self.complete(event)

    def complete(self, event: Command | Content) -> None:
        """Complete a command that came."""
        number = self.state.receiving.receive(event.sync)
        if number is not None:
            self.state.receiving.complete(number)
        for control in self.state.due(idle=True):
            self.control(control)


@asynccontextmanager
async def scripted(on: Callable[[Peer, object], object]) -> AsyncIterator[tuple[str, list[Peer]]]:
    """Its URL, and the connections that it had."""
    peers: list[Peer] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(writer, on)
        peers.append(peer)
        while data := await reader.read(65_536):
            peer.receive(data)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"amqp://127.0.0.1:{server.sockets[0].getsockname()[1]}", peers
