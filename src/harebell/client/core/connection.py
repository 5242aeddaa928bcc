"""A connection without I/O: its handshake, its channels, and what the broker sends, sorted to the channels.

An I/O layer feeds what it read to `ConnectionCore.receive`, writes what `engine.data_to_send` gives, and overrides the
hooks (`flush`, `closed`, `resumed`). A close fails every request that waits on the connection or a channel, each with
an exception of its own. A core lives as long as its transport and never comes back. The rules of channels: `channel`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import cast

from harebell import errors
from harebell.client.core.channel import ChannelCore
from harebell.client.core.handshake import Handshake
from harebell.client.core.slots import REPLIES, Slot, closed, copy_of
from harebell.client.servers import RABBITMQ, product_of
from harebell.client.url import ConnectionParameters
from harebell.protocol.v091 import ConnectionState, Content, Engine, Event, Role, methods as m
from harebell.protocol.v091.hot import IMMEDIATE

__all__ = ["ConnectionCore"]


class ConnectionCore:
    """One connection, from the protocol header to the end; it never comes back once `reason` is set.

    reason   why it is closed; None before that
    blocked  the broker's reason for taking no publishes now (connection.blocked); None when it does
    """

    def __init__(self, parameters: ConnectionParameters) -> None:
        self.parameters = parameters
        self.engine = Engine(Role.CLIENT)
        self.handshake = Handshake(self.engine, parameters)
        self.channels: dict[int, ChannelCore] = {}
        self.reason: errors.HarebellError | None = None
        self.blocked: str | None = None
        self.slots: deque[Slot] = deque()
        self._free: list[int] = []
        self._highest = 0

    # -- hooks of the I/O layer ---------------------------------------------------------------------------------------

    def flush(self) -> None:
        """The engine has output: have it written."""

    def expecting(self) -> None:
        """An answer will be waited for."""

    def ask(self) -> None:
        """The engine has output whose answer will be waited for: have it written."""
        self.expecting()
        self.flush()

    def resumed(self) -> None:
        """Publishers that were held up (blocked, flow) should try again."""

    def closed(self) -> None:
        """The connection has ended: close the transport once the output is written."""

    def ending(self, reason: errors.HarebellError) -> None:
        """The connection ends without a close by the program; its channels follow."""

    def blocking(self) -> None:
        """`blocked` has changed."""

    # -- calls -------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self.handshake.start()
        self.flush()

    @property
    def open(self) -> bool:
        return self.handshake.done and self.reason is None

    def check_open(self) -> None:
        if self.reason is not None:
            raise closed(f"the connection to {self.parameters.peer}", self.reason)

    def new_channel(self, slot: Slot, make: Callable[[ConnectionCore, int], ChannelCore]) -> ChannelCore:
        """A channel with the next free number, its open on its way. InvalidArgument when all numbers are in use."""
        self.check_open()
        if self._free:
            number = self._free.pop()
        elif self._highest < self.engine.channel_max:
            self._highest += 1
            number = self._highest
        else:
            raise errors.InvalidArgument(
                f"all {self.engine.channel_max} channels that were agreed on are open: close some, or connect again"
            )
        channel = make(self, number)
        self.channels[number] = channel
        channel.request(slot)
        return channel

    def forget(self, channel: ChannelCore) -> None:
        """The channel's number may be used again."""
        if self.channels.pop(channel.number, None) is not None:
            self._free.append(channel.number)

    def request(self, slot: Slot) -> None:
        """Send a request on channel 0 (update-secret)."""
        self.check_open()
        self.engine.send_method(0, slot.request)
        self.slots.append(slot)
        self.ask()

    def check_flags(self, flags: int) -> None:
        """LocalProtocolError for a flag of basic.publish that would cost the connection."""
        if flags & IMMEDIATE and product_of(self.handshake.server_properties) == RABBITMQ:
            raise errors.LocalProtocolError(
                "immediate=True: RabbitMQ has no immediate and would close the connection (540): leave it out; a "
                "message with expiration '0' is dropped unless a consumer takes it at once"
            )

    def answer(self, number: int, method: m.Method) -> None:
        """Answer what the broker said, unless something it said after that, in the same read, makes it pointless."""
        try:
            self.engine.send_method(number, method)
        except errors.LocalProtocolError:
            return
        self.flush()

    def close(self, slot: Slot) -> None:
        """Send connection.close and fail what waits on any channel; the slot gets the close-ok."""
        self.check_open()
        self.engine.send_method(0, m.ConnectionClose(200, "closed by the client"))
        self._fail(errors.ChannelClosed("the connection was closed by this client"), ours=True)
        self.slots.append(slot)
        self.ask()

    # -- what the broker sends ---------------------------------------------------------------------------------------

    def receive(self, data: bytes) -> None:
        """Sort what was read. A protocol error of the broker's closes the connection, with that error as reason."""
        confirm = self.engine.lone_confirm(data)
        if confirm is not None:
            number, tag, multiple = confirm
            if (channel := self.channels.get(number)) is not None:
                channel.publishes.settle(tag, multiple, True)
            return
        violation: errors.RemoteProtocolError | None = None
        try:
            self.engine.receive_data(data)
        except errors.RemoteProtocolError as error:
            violation = error
        try:
            self._dispatch(self.engine.events())
        except errors.RemoteProtocolError as error:
            violation = error
        if violation is not None:
            self._violated(violation)

    def _dispatch(self, events: Sequence[Event]) -> None:
        channels = self.channels
        for number, event in events:
            if number == 0:
                self._receive_method(cast(m.Method, event))
                continue
            channel = channels.get(number)
            if channel is None:
                continue
            if isinstance(event, Content):
                channel.receive_content(event)
            elif isinstance(event, m.Method):
                channel.receive_method(event)
            else:
                raise errors.RemoteProtocolError(
                    errors.ContentTooLarge,
                    f"a message of {event.body_size} bytes was announced, the limit is {self.engine.max_message_size}",
                )

    def _receive_method(self, method: m.Method) -> None:
        if isinstance(method, m.ConnectionCloseOk):
            slots, self.slots = self.slots, deque()
            for slot in slots:
                slot.resolve(method)
            self.closed()
        elif not self.handshake.done:
            try:
                self.handshake.receive(method)
            except errors.LocalProtocolError as error:
                if self.engine.state is not ConnectionState.CLOSED_BY_SERVER:  # else its close comes next, and says why
                    self._fail(error)
                    self.closed()
            except errors.AmqpError as error:
                self._fail(error)
                self.flush()
                self.closed()
            else:
                self.flush()
                if self.handshake.done:
                    self.resumed()
        elif isinstance(method, m.ConnectionClose):
            self.answer(0, m.ConnectionCloseOk())
            if self.reason is not None:
                return
            reason = errors.from_reply(method.reply_code, method.reply_text, method.class_id, method.method_id)
            reason.add_note(f"{self.parameters.peer} closed the connection")
            self._fail(reason)
            self.closed()
        elif isinstance(method, m.ConnectionBlocked):
            self.blocked = method.reason or "no reason given"
            self.blocking()
        elif isinstance(method, m.ConnectionUnblocked):
            self.blocked = None
            self.blocking()
            self.resumed()
        elif self.slots and type(method) in REPLIES.get(type(self.slots[0].request), ()):
            slot = self.slots.popleft()
            if not slot.abandoned:
                slot.resolve(method)

    def _violated(self, error: errors.RemoteProtocolError) -> None:
        if self.reason is None:
            error.add_note(f"{self.parameters.peer} broke the protocol; the connection was closed")
            self._fail(error)
            try:
                answer = error.answer
                self.engine.send_method(
                    0, m.ConnectionClose(answer.reply_code, answer.reply_text, answer.class_id, answer.method_id)
                )
            except errors.LocalProtocolError:
                pass  # too early or too late for a goodbye
            self.flush()
        self.closed()

    def lost(self, why: str, cause: BaseException | None = None) -> None:
        """The transport has ended, or does not answer: everything that waits fails with ConnectionLost."""
        if self.reason is None:
            hint = "" if self.handshake.done else f" while {self.handshake.stage}{self.handshake.lost_reason()}"
            error = errors.ConnectionLost(f"{self.parameters.peer}: {why}{hint}")
            error.__cause__ = cause
            self._fail(error)
        slots, self.slots = self.slots, deque()
        for slot in slots:  # our own close was not answered; it is closed all the same
            slot.resolve(m.ConnectionCloseOk())

    def _fail(self, reason: errors.HarebellError, *, ours: bool = False) -> None:
        self.reason = reason
        self.blocked = None
        if not ours:
            self.ending(reason)
        slots, self.slots = self.slots, deque()
        for slot in slots:
            if not slot.abandoned:
                slot.fail(copy_of(reason))
        channels, self.channels = self.channels, {}
        for channel in channels.values():
            channel.connection_closed(reason, ours=ours)
        self.resumed()
