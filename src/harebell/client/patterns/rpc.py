"""Remote calls: a request through an exchange, the reply straight back (RabbitMQ's direct reply-to).

    async with connection.rpc() as rpc:                          # the client
        reply = await rpc.call(b"...", "resize", timeout=5)

    async with connection.serve("resize", handle) as server:     # the server
        await server.wait()

Any number of calls share one channel; a correlation id tells their replies apart. A call ends with the reply, or

    Unroutable           no queue is bound there; known at once
    RemoteError          the handler failed; its error travels in the headers x-error-type and x-error
    ConfirmTimeout       no reply in time (a DeadlineExceeded); one that comes later is dropped, and a request that is
                         not in process by then expires
    PublishOrphaned      the connection was lost, or the channel closed, while the request or the reply was under way:
                         it may or may not have been worked on. With idempotent=True it is asked again instead, within
                         its timeout.
    DeadlineExceeded, ConnectionLost, ChannelClosed   the request was not sent

A server acknowledges a request once its reply is published; a request whose server dies is processed again by another.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar, cast

from harebell import errors
from harebell.client import events as e
from harebell.client.channel import Channel
from harebell.client.core.channel import ChannelCore
from harebell.client.core.outcomes import cut_by
from harebell.client.core.slots import copy_of
from harebell.client.messages import Delivery, Message, Returned, copy_of_properties, encoded
from harebell.client.patterns.codec import Codec, check_codec, message_of
from harebell.client.patterns.source import ChannelSource
from harebell.client.seconds import seconds_of, setting_of
from harebell.protocol.v091 import Properties

__all__ = ["Rpc"]

logger = logging.getLogger("harebell.client")

Given = TypeVar("Given")
Reply = TypeVar("Reply")

REPLY_TO: Final = "amq.rabbitmq.reply-to"
ERROR_TYPE: Final = "x-error-type"
ERROR: Final = "x-error"
MOST_EXPIRATION: Final = 315_360_000  # seconds that a broker takes: ten years; what waits longer has none
MAX_ERROR: Final = 1000  # characters of an error that travel


class _Call:
    """One request under way; the waiter for its confirm. The future gets a Delivery or an error."""

    __slots__ = ("_returned", "core", "future", "where")

    def __init__(self, future: asyncio.Future[object], core: ChannelCore, where: str) -> None:
        self.future = future
        self.core = core  # its reply can come here alone
        self.where = where
        self._returned: Returned | None = None

    def settle(self, publish_tag: int, acked: bool) -> None:
        returned = self._returned
        if returned is not None:
            self.end(
                errors.Unroutable(
                    f"the request to {self.where} reached no queue ({returned.reply_code} {returned.reply_text}): "
                    "is a server there?",
                    returned,
                )
            )
        elif not acked:
            self.end(errors.Nacked(f"the broker refused the request to {self.where}", (publish_tag,)))

    def returned(self, publish_tag: int, returned: Returned) -> None:
        self._returned = returned

    def refused(self, publish_tag: int, error: errors.HarebellError) -> None:
        self.end(error)

    def orphaned(self, publish_tag: int, reason: errors.HarebellError) -> None:
        self.cut(cut_by(reason), reason)

    def cut(self, what: str, reason: errors.HarebellError) -> None:
        """No reply can come any more."""
        self.end(self.unknown(what, reason))

    def unknown(self, what: str, reason: errors.HarebellError) -> errors.PublishOrphaned:
        """The error for a request that was written and has no reply."""
        error = errors.PublishOrphaned(
            f"{what} while the request to {self.where} was under way: it may or may not have been worked on ({reason})"
        )
        error.__cause__ = copy_of(reason)
        return error

    def end(self, result: object) -> None:
        if not self.future.done():
            self.future.set_result(result)


class Rpc(Generic[Given, Reply]):
    """Asks, on a channel of its own. Made by `connection.rpc`; enter it with `async with`.

    Given  what it sends beside Messages: bytes; with a codec, anything, as the codec encodes it
    Reply  what `call` gives: a Delivery; with a codec, a value of its type
    """

    def __init__(
        self, connection: ChannelSource, exchange: str, *, timeout: float | None, codec: Codec[Reply] | None
    ) -> None:
        check_codec(codec)
        self._connection = connection
        self._loop = connection.recovery.availability.loop
        self._exchange = exchange
        self._timeout = setting_of(timeout, connection.recovery.availability.timeout)
        self._codec = codec
        self._opened: Channel | None = None
        self._calls: dict[str, _Call] = {}
        self._numbers = itertools.count(1)
        self._tasks: list[asyncio.Task[None]] = []
        self._events: e.Events | None = None

    @property
    def waiting(self) -> int:
        """How many calls wait for their reply."""
        return len(self._calls)

    async def start(self) -> Self:
        """Open the channel and listen for replies. Done by `async with`."""
        if self._opened is None:
            channel = await self._connection.channel(timeout=self._timeout)
            try:
                await channel.confirm_select(timeout=self._timeout)
                replies = channel.consume(REPLY_TO, no_ack=True, timeout=self._timeout)
                await replies.start()
            except BaseException:
                channel.recovery.say_goodbye()
                raise
            self._opened = channel
            self._events = self._connection.events()
            self._tasks = [
                self._loop.create_task(self._take(replies)),
                self._loop.create_task(self._watch(self._events)),
            ]
        return self

    async def call(
        self,
        body: Given | Message,
        routing_key: str,
        *,
        exchange: str | None = None,
        timeout: float | None = None,
        idempotent: bool = False,
    ) -> Reply:
        """The reply to a request: a Delivery; with a codec, the value in it.

        body        a Message, whose reply_to and correlation_id are set here; bytes; with a codec, a value
        exchange    in place of the one that `connection.rpc` said
        timeout     seconds for all of it
        idempotent  working on it twice does no harm: ask again after an outage

        Raises what the opening comment of this module lists, and UndecodableBody when the codec cannot read the reply.
        """
        if self._opened is None:
            raise errors.LocalProtocolError("the rpc is not started: enter it with `async with`, or await start()")
        seconds = seconds_of(timeout, self._timeout)
        exchange = self._exchange if exchange is None else exchange
        where = f"exchange {exchange!r} with routing key {routing_key!r}"
        message = message_of(body, self._codec)
        encoded(message)  # refused before anything is sent
        written: list[_Call] = []
        try:
            async with asyncio.timeout(seconds):
                while True:
                    result = await self._asked(message, exchange, routing_key, where, seconds, written)
                    if not (idempotent and isinstance(result, errors.PublishOrphaned)):
                        break
        except TimeoutError:  # of this call, or of a wait for the end of an outage
            why = "" if self._connection.is_open else f"; the connection is {self._connection.state}"
            kind = errors.ConfirmTimeout if written else errors.DeadlineExceeded
            raise kind(f"no reply from {where} within {seconds:g} s{why}") from None
        except (errors.ChannelClosed, errors.ConnectionLost) as error:
            if not written:
                raise
            raise written[-1].unknown(cut_by(error), error) from error  # it was to be asked again
        if isinstance(result, errors.HarebellError):
            raise result
        return self._value(cast(Delivery, result))

    async def _asked(
        self,
        message: Message | bytes,
        exchange: str,
        routing_key: str,
        where: str,
        seconds: float,
        written: list[_Call],
    ) -> object:
        """What became of one request. `call` keeps the time: `seconds` is more than is left.

        written  those that were; this one is added
        """
        channel = self._channel
        number = str(next(self._numbers))
        properties = copy_of_properties(message.properties) if isinstance(message, Message) else Properties()
        properties.reply_to, properties.correlation_id = REPLY_TO, number
        if properties.expiration is None and seconds <= MOST_EXPIRATION:
            properties.expiration = str(max(1, round(seconds * 1000)))
        request = Message(message.body if isinstance(message, Message) else message, properties=properties)
        await channel.wait_publish(timeout=seconds)
        call = self._calls[number] = _Call(self._loop.create_future(), channel.core, where)
        try:
            channel.publish_nowait(request, exchange, routing_key, mandatory=True, waiter=call, at_once=True)
            written.append(call)
            return await call.future
        finally:
            del self._calls[number]

    @property
    def _channel(self) -> Channel:
        assert self._opened is not None  # `call` has looked
        return self._opened

    def _value(self, reply: Delivery) -> Reply:
        headers = reply.headers
        if ERROR_TYPE in headers:
            kind, text = str(headers[ERROR_TYPE]), str(headers.get(ERROR, ""))
            raise errors.RemoteError(f"{kind}: {text}", kind)
        return cast(Reply, reply) if self._codec is None else self._codec.decode(reply)

    async def _take(self, replies: Any) -> None:
        """Give replies to their calls; the reply to a call that has ended is dropped."""
        reason: errors.HarebellError = errors.ChannelClosed("the rpc was closed")
        try:
            async for reply in replies:
                try:
                    number = reply.properties.correlation_id
                except errors.RemoteProtocolError as error:
                    logger.warning("a reply that cannot be read was dropped: %s", error)
                    continue
                call = self._calls.get(number or "")
                if call is not None:
                    call.end(reply)
                else:
                    logger.debug("a late reply was dropped: %r", reply)
        except errors.HarebellError as error:
            reason = error
        for call in self._calls.values():
            call.cut("the rpc ended", reason)

    async def _watch(self, events: e.Events) -> None:
        """An outage takes the address of every reply with it."""
        async for _ in events:
            for call in self._calls.values():
                if (reason := call.core.reason) is not None:
                    call.cut(cut_by(reason), reason)

    async def close(self) -> None:
        """Close its channel; calls that wait end with ChannelClosed."""
        self._forget()
        if self._opened is not None:
            await self._opened.close(timeout=self._timeout)

    def _forget(self) -> None:
        if self._events is not None:
            self._events.close()
        for task in self._tasks:
            task.cancel()
        for call in self._calls.values():
            call.cut("the rpc was closed", errors.ChannelClosed("the rpc was closed"))

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None and not isinstance(error, Exception):
            self._forget()
            if self._opened is not None and not self._opened.is_closed:
                self._opened.recovery.say_goodbye()
            return
        try:
            await self.close()
        except errors.HarebellError:
            if error is None:
                raise
