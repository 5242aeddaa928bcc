"""The transport of a connection of AMQP 0-10: the engine on a `Wire`, and what it receives, sorted to the sessions.

Sessions gather settlements and completions during a turn of the loop; they are sent when the turn's output is written.
A transport never comes back once `reason` is set: the sessions go on with another one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from harebell import errors
from harebell.client.sessions.core.handshake import Handshake, close_error
from harebell.client.transport.wire import Wire
from harebell.client.url import ConnectionParameters
from harebell.protocol.v010 import ConnectionState, Control, Engine, Event, Role, controls as k
from harebell.protocol.v010.domains import CloseCode

__all__ = ["Carried", "SessionTransport"]


class Carried(Protocol):
    """A session on a channel."""

    def receive(self, event: object) -> None:
        """Process what the broker sent on the channel. Raises RemoteProtocolError for what cannot be."""

    def violated(self, error: errors.RemoteProtocolError) -> None:
        """The broker broke the protocol on the channel: end the session."""

    def before_write(self) -> None:
        """The turn's output is written next."""

    def writable(self) -> None:
        """The transport takes output again."""

    def transport_lost(self, reason: errors.HarebellError) -> None: ...


class SessionTransport(Wire):
    """One connection on one transport.

    channels  the sessions on it, by channel
    on_end    called with the reason when it has ended without our doing
    """

    engine: Engine

    def __init__(self, parameters: ConnectionParameters, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self.parameters = parameters
        self.engine = Engine(Role.CLIENT)
        self.handshake = Handshake(self.engine, parameters)
        self.reason: errors.HarebellError | None = None
        self.channels: dict[int, Carried] = {}
        self.on_end: Callable[[errors.HarebellError], None] | None = None

    # -- hooks of the wire -------------------------------------------------------------------------------------------

    @property
    def stage(self) -> str:
        return self.handshake.stage

    def made(self) -> None:
        self.handshake.start()
        self.flush()

    def read(self, data: bytes) -> None:
        while True:
            try:
                self.engine.receive_data(data)
            except errors.RemoteProtocolError as error:
                self._process(self.engine.events())
                carried = self.channels.get(error.channel)
                if error.scope != "channel" or self.engine.deaf or carried is None:
                    self._violated(error)
                    break
                carried.violated(error)
                data = b""
            else:
                self._process(self.engine.events())
                break
        self.flush()

    def broke(self, text: str, cause: BaseException | None = None) -> None:
        hint = "" if self.handshake.done else f" while {self.stage}{self.handshake.lost_reason()}"
        error = errors.ConnectionLost(f"{self.parameters.peer}: {text}{hint}")
        error.__cause__ = cause
        self._fail(error)

    def writable(self) -> None:
        for carried in tuple(self.channels.values()):
            carried.writable()

    def flush_now(self) -> None:
        if self.reason is None:
            for carried in tuple(self.channels.values()):
                carried.before_write()
        super().flush_now()

    # -- events ------------------------------------------------------------------------------------------------------

    def _process(self, events: list[Event]) -> None:
        channels = self.channels
        for number, event in events:
            if isinstance(event, Control) and event.KEY[0] == 1:
                self._control(event)
                continue
            carried = channels.get(number)
            if carried is None:
                continue
            try:
                carried.receive(event)
            except errors.RemoteProtocolError as error:
                carried.violated(error)

    def _control(self, control: Control) -> None:
        if not self.handshake.done:
            try:
                self.handshake.receive(control)
            except errors.HarebellError as error:
                self._fail(error)
                self.closed()
                return
            if self.handshake.done and not self.opened.done():
                self.opened.set_result(None)
                self.beat(self.handshake.heartbeat)
        elif isinstance(control, k.ConnectionClose):
            self.engine.send_control(0, k.ConnectionCloseOk())
            reason = close_error(control)
            reason.add_note(f"{self.parameters.peer} closed the connection")
            self._fail(reason)
            self.closed()
        elif isinstance(control, k.ConnectionCloseOk):
            self.closed()

    def _violated(self, error: errors.RemoteProtocolError) -> None:
        """The broker broke the protocol: close the connection, with that error as reason."""
        if ConnectionState.AWAIT_START.value < self.engine.state.value <= ConnectionState.OPEN.value:
            self.engine.send_control(0, k.ConnectionClose(CloseCode.FRAMING_ERROR, error.reply_text))
        other_dialect = not self.handshake.done and isinstance(error.answer, errors.NotImplemented)
        self._fail(error.answer if other_dialect else error)
        self.closed()

    # -- the end -----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Say goodbye: the transport closes when the broker has answered."""
        if self.reason is None:
            self.flush_now()
            if self.engine.state is ConnectionState.OPEN:
                self.engine.send_control(0, k.ConnectionClose(CloseCode.NORMAL))
            self._fail(errors.ChannelClosed("the connection was closed by this client"), ours=True)
            self.flush()

    def _fail(self, reason: errors.HarebellError, *, ours: bool = False) -> None:
        if self.reason is not None:
            return
        self.reason = reason
        channels, self.channels = self.channels, {}
        for carried in channels.values():
            carried.transport_lost(reason)
        if not self.opened.done():
            self.opened.set_result(None)
        if not ours and self.on_end is not None:
            self.on_end(reason)
