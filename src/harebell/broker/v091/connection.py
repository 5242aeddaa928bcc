"""The broker's side of a connection: login, channels, errors; bytes in, bytes out. It knows no sockets.

Input is processed in pieces, and each piece is one batch: the engine splits it into events, publications go to their
channel's publisher, methods to their channel's handler, and the batch is ended (delivers, writes, confirms). A refusal
(AmqpError) closes the channel or the connection, by its scope, and the rest of the batch is processed.

How input is cut into pieces and slices is in `connections.base`: requests there are methods here.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import chain, repeat
from typing import Final

from harebell.broker import clients
from harebell.broker.audit import Origin, requested
from harebell.broker.connections.base import CLOSING_TIMEOUT, BaseConnection
from harebell.broker.connections.deferred_input import METHOD_BYTES, DeferredInput
from harebell.broker.connections.phase import Phase
from harebell.broker.connections.transport import Transport
from harebell.broker.node import Node
from harebell.broker.operations.leases import LeaseRequest
from harebell.broker.rules.limits import channel_refusal
from harebell.broker.slices import SLICE, Work
from harebell.broker.v091.cached_targets import CachedTargets
from harebell.broker.v091.channel import Channel
from harebell.broker.v091.handshake import Handshake
from harebell.errors import AmqpError, ChannelError, RemoteProtocolError
from harebell.protocol.v091 import (
    ChannelState,
    ConnectionState,
    Content,
    Engine,
    OversizedContent,
    Role,
    methods as m,
)
from harebell.protocol.v091.codec import HEARTBEAT_FRAME, encode_method
from harebell.protocol.v091.engine import Grouped
from harebell.protocol.v091.large_frames import LARGE, Frames
from harebell.protocol.v091.runs import AckRun, ContentRun

__all__ = ["Connection"]

log = logging.getLogger("harebell.broker.connection")

_PUBLICATIONS: Final = {Content: lambda content: len(content.frames), ContentRun: lambda run: run.size}
_MANY: Final = {AckRun: lambda run: METHOD_BYTES * len(run.tags)}
PIECE: Final = 1 << 12  # average bytes of the pieces of output above which they are not joined
_LISTENING: Final = frozenset({ChannelState.OPEN, ChannelState.AWAIT_OPEN_OK})


class Connection(BaseConnection[Grouped]):
    """One client's connection."""

    protocol = "{0,9,1}"
    heartbeat_frame = HEARTBEAT_FRAME

    def __init__(self, node: Node, transport: Transport) -> None:
        limits = node.limits
        self.engine = Engine(
            Role.SERVER,
            frame_max=limits.frame_max,
            channel_max=limits.channel_max,
            max_message_size=limits.max_message_size,
        )
        super().__init__(
            node,
            transport,
            self.engine,
            DeferredInput(_PUBLICATIONS, m.ConnectionClose, _MANY),
        )
        self.channels: dict[int, Channel] = {}
        self._handshake = Handshake(self, transport)
        self._targets = CachedTargets(self.channels)

    # -- input ---------------------------------------------------------------------------------------------------

    def take_in(self, data: bytes, at: int, most: int) -> tuple[bytes, int]:
        engine, failure, before = self.engine, None, len(data) - at
        try:
            data, at = engine.receive_part(data, at, most)
        except RemoteProtocolError as error:
            failure, data, at = error, b"", 0
        size = before - len(data) + at
        events: Sequence[tuple[int, Grouped]] = engine.grouped_events()
        if events:
            self.read_size += self.partial_size + size
            self.partial_size = 0
        else:
            self.partial_size += size
        if self.busy or self.choked or self.awaits_letters or self.node.alarms:
            events = self.sift(events)
        self.process(events)
        if failure is not None:
            self._fail(failure)
        elif engine.state is ConnectionState.AWAIT_START:
            engine.send_method(0, self._handshake.start())
        if engine.pending:
            self.has_output(0)
        return data, at

    def process_events(self, events: Sequence[tuple[int, Grouped]]) -> None:
        if self.vhost.router.version != self._targets.topology:
            self._targets.forget(self.vhost.router.version)
        channels, self.events, stopwatch, end = self.channels, iter(events), self.batch.slices.stopwatch, 0.0
        for number, event in self.events:
            channel = channels.get(number)
            try:
                if type(event) is Content:
                    if channel is not None:  # else an error closed it earlier in this batch
                        channel.publisher.publish(event)
                    continue
                if type(event) is ContentRun:
                    if channel is not None and not channel.publisher.publish_run(event):
                        self._publish_each(number, channel, event)
                    continue
                if type(event) is m.BasicAck and channel is not None and self.phase is Phase.OPEN:
                    channel.ack(event)
                    continue
                if type(event) is AckRun:
                    if channel is not None and self.phase is Phase.OPEN:
                        channel.ack_each(event.tags)
                    continue
                late = self.batch.letters.waits  # those of a publication or a rejection before this method
                if not end:
                    end = stopwatch() + SLICE
                elif stopwatch() > end:
                    late = True
                if late:
                    self.waiting.add(((number, event),))
                    self.take_turns()
                    return
                if self.batch.scheduled:  # what was published before goes to consumers first, as if sent with a pause
                    self.batch.deliver()
                self._handle(number, event)
            except AmqpError as error:
                self.refuse(number, error, event)
            except RemoteProtocolError as error:
                self.refuse(number, error.answer, event)
            except OSError as error:
                self.batch.fail(error)
            if self.vhost.router.version != self._targets.topology:
                self._targets.forget(self.vhost.router.version)

    def _publish_each(self, number: int, channel: Channel, run: ContentRun) -> None:
        """Publish these messages one by one, until a long work lets the rest wait with the other events."""
        events, contents = self.events, iter(run.contents)
        self.events = chain(zip(repeat(number), contents), events)
        try:
            channel.publisher.spend_effort()
            for content in contents:
                channel.publisher.publish(content)
                if self.vhost.router.version != self._targets.topology:
                    self._targets.forget(self.vhost.router.version)
        finally:
            self.events = events

    def remember_target(self) -> None:
        """Count one more cached target; beyond a limit the channels drop them all."""
        self._targets.remember()

    def _handle(self, number: int, event: Grouped) -> None:
        if number == 0:
            if isinstance(event, m.Method):
                self._handle_connection(event)
            return
        if self.phase is not Phase.OPEN:
            return  # an error closed it earlier in this batch
        channel = self.channels.get(number)
        if isinstance(event, m.ChannelOpen):
            refusal = channel_refusal(self.node, self)
            if refusal is not None:
                self.close(refusal)  # without the method's ids, as RabbitMQ
                return
            channel = self.channels[number] = Channel(self, number)
            self.node.churn.channel_created += 1
            self.node.events.channel_created(channel)
            self.send(number, m.ChannelOpenOk())
        elif isinstance(event, m.ChannelClose):
            if channel is not None:
                del self.channels[number]
            self.work(number, event, self._close_channel(number, channel))
        elif channel is None:
            return
        elif isinstance(event, OversizedContent):
            channel.publisher.refuse(event)
        elif isinstance(event, m.Method):
            channel.handle(event)

    def _handle_connection(self, method: m.Method) -> None:
        match method:
            case m.ConnectionTuneOk():
                self.heartbeat = method.heartbeat
            case m.ConnectionClose():
                self.work(0, method, self._closing())
            case m.ConnectionCloseOk():
                self.end()
            case _:
                self._handshake.handle(method)

    @property
    def origin(self) -> Origin:
        """Who asks, for the audit log."""
        return requested(self.user, self.peer, self.protocol)

    @property
    def frame_max(self) -> int:
        return self.engine.frame_max

    @property
    def channel_max(self) -> int:
        return self.engine.channel_max

    def capability(self, name: str) -> bool:
        """Whether the client announced this capability."""
        capabilities = self.client_properties.get("capabilities")
        return isinstance(capabilities, dict) and capabilities.get(name) is True

    def lease(self, channel: int, asked: LeaseRequest) -> list[int]:
        """Grant deliveries of that channel a lease. Returns their tags."""
        return self.channels[channel].lease(asked)

    def give_back_overdue(self, now: int, default: int, least: int) -> Work:
        """Return overdue deliveries of all channels: see Channel.give_back_overdue."""
        for channel in tuple(self.channels.values()):
            try:
                yield from channel.give_back_overdue(now, default, least)
            except AmqpError as error:
                self.refuse_channel(channel, error)
            yield

    # -- errors and the end --------------------------------------------------------------------------------------

    def refuse_channel(self, channel: clients.Channel, error: AmqpError) -> None:
        """Close a channel because of an error that no method caused, if it is still one of the connection's."""
        if self.channels.get(channel.number) is channel:
            self.refuse(channel.number, error, m.BasicAck())
            self.has_output(0)

    def refuse(self, number: int, error: AmqpError, event: Grouped) -> None:
        class_id, method_id = error.class_id, error.method_id
        if not class_id:
            ids = event if isinstance(event, m.Method) else m.BasicAck if isinstance(event, AckRun) else m.BasicPublish
            class_id, method_id = ids.CLASS_ID, ids.METHOD_ID
        if isinstance(error, ChannelError) and number:
            log.info("%s: channel %d closed: %s", self.transport.peer, number, error)
            channel = self.channels.pop(number)
            channel.confirm_what_is_safe()
            channel.close()
            if self.engine.state is ConnectionState.OPEN:
                close = m.ChannelClose(error.reply_code, error.reply_text, class_id, method_id)
                self.engine.send_method(number, close)
        else:
            self.close(error, class_id, method_id)

    def close(self, error: AmqpError, class_id: int = 0, method_id: int = 0) -> None:
        """Close the connection with a reply code; the transport is closed when the client has answered."""
        if self.phase in (Phase.CLOSING, Phase.CLOSED):
            return
        log.warning("%s: connection closed: %s", self.transport.peer, error)
        self.release()
        if self.engine.state.value <= ConnectionState.AWAIT_START.value:
            self.end()  # the broker may send nothing before connection.start
            return
        self.phase = Phase.CLOSING
        self.pause_or_resume()  # the client's close-ok must be read
        self.engine.send_method(0, m.ConnectionClose(error.reply_code, error.reply_text, class_id, method_id))
        self.transport.close(CLOSING_TIMEOUT)
        self.has_output(0)

    def _fail(self, error: RemoteProtocolError) -> None:
        """Answer an error that the engine found. Where no close-ok can follow, the answer ends the connection."""
        if self.engine.state is ConnectionState.CLOSED:
            log.warning("%s: %s", self.transport.peer, error)
            self.end()
        else:
            self.close(error.answer, error.answer.class_id, error.answer.method_id)
            if self.engine.deaf:
                self.end()

    def _close_channel(self, number: int, channel: Channel | None) -> Work:
        if channel is not None:
            yield from channel.closing()
        if self.engine.state is ConnectionState.OPEN:
            self.engine.send_method(number, m.ChannelCloseOk())
            self.has_output(0)

    def _closing(self) -> Work:
        """Answer connection.close when the exclusive queues are gone: the client may declare them again at once.

        The client closes the socket: to some, its end is an error that overtakes the answer (amqp091-go, AMQPStorm).
        """
        self.phase = Phase.CLOSING
        yield from self.releasing()
        self.engine.send_method(0, m.ConnectionCloseOk())
        self.end(CLOSING_TIMEOUT)

    def releasing(self) -> Work:
        self.waiting.clear()
        channels = tuple(self.channels.values())
        self.channels.clear()
        for channel in channels:
            yield from channel.closing()
        yield from self.vhost.deleting(self.exclusive_queues)

    # -- alarms --------------------------------------------------------------------------------------------------

    def notify_blocked(self, blocked: bool) -> None:
        if self.capability("connection.blocked") and self.engine.state is ConnectionState.OPEN:
            reasons = " & ".join(sorted(self.node.alarms))
            self.engine.send_method(0, m.ConnectionBlocked(f"low on {reasons}") if blocked else m.ConnectionUnblocked())

    # -- output --------------------------------------------------------------------------------------------------

    def send(self, number: int, method: m.Method, frames: Frames = b"") -> None:
        """Send a method on a channel, with the frames of a content where the method carries one.

        Nothing is sent when the client has closed the channel or the connection later in the same batch: it then
        accepts only the close-ok.
        """
        if self.listens(number):
            if frames:
                self.engine.send_frames(encode_method(number, method), frames)
            else:
                self.engine.send_method(number, method)
            self.has_output(len(frames))

    def listens(self, number: int) -> bool:
        """Whether the client accepts more than a close-ok on that channel."""
        engine = self.engine
        return engine.state is ConnectionState.OPEN and engine.channels.get(number) in _LISTENING

    def pieces(self, size: int) -> Sequence[bytes | memoryview]:
        engine = self.engine
        if size > LARGE or size > engine.pending * PIECE:
            return engine.pieces_to_send()
        return (engine.data_to_send(),)

    def forget(self) -> None:
        self.node.forget_connection(self)

    def has_channel(self, number: int) -> bool:
        return number in self.channels

    def schedule_consumers(self) -> None:
        for channel in self.channels.values():
            for consumer in channel.consumers.values():
                consumer.queue.schedule()
