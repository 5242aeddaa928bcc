"""What a connection offers above its channels: each of these owns the channels that it needs.

    producer        publishing with confirms and a window           `producer`
    deliveries      an iterator over a queue                        `reader`
    consume         a queue worked on by a handler                  `workers`, `retry`
    dead_letters    what was given up, and why                      `dead_letters`
    rpc, serve      remote calls                                    `rpc`
    channel_pool    channels to borrow                              `pools`

This module only makes them, and loads each when it is first asked for: most programs use one or two.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from harebell.client.messages import Delivery, Message
from harebell.protocol.v091 import TableLike

if TYPE_CHECKING:
    from harebell.client.channel import Channel, OnOrphan
    from harebell.client.connection import Connection
    from harebell.client.patterns.codec import Codec
    from harebell.client.patterns.dead_letters import DeadLetters
    from harebell.client.patterns.pools import ChannelPool
    from harebell.client.patterns.producer import Producer
    from harebell.client.patterns.reader import QueueReader
    from harebell.client.patterns.retry import Retry
    from harebell.client.patterns.rpc import Rpc, Server
    from harebell.client.patterns.workers import Workers

__all__ = ["Faces"]

T = TypeVar("T")

OnError = Callable[[Delivery, Exception], object]
Answer = Message | bytes | None


class Faces:
    """The part of a Connection that makes them."""

    @overload
    def producer(
        self,
        exchange: str = ...,
        *,
        window: int = ...,
        on_orphan: OnOrphan = ...,
        mandatory: bool = ...,
        timeout: float | None = ...,
        on_blocked: Callable[[str | None], object] | None = ...,
        codec: None = ...,
    ) -> Producer[Message | bytes]: ...
    @overload
    def producer(
        self,
        exchange: str = ...,
        *,
        window: int = ...,
        on_orphan: OnOrphan = ...,
        mandatory: bool = ...,
        timeout: float | None = ...,
        on_blocked: Callable[[str | None], object] | None = ...,
        codec: Codec[T],
    ) -> Producer[T]: ...
    def producer(
        self,
        exchange: str = "",
        *,
        window: int = 1000,
        on_orphan: OnOrphan = "raise",
        mandatory: bool = False,
        timeout: float | None = None,
        on_blocked: Callable[[str | None], object] | None = None,
        codec: Codec[Any] | None = None,
    ) -> Producer[Any]:
        """Publishing with confirms: `async with connection.producer("orders") as producer`.

        exchange    where to publish, unless a publication says otherwise
        window      how many publications may be unconfirmed; who comes then waits
        on_orphan   what becomes of a publication whose confirm an outage cut off, as for `channel.confirm_select`
        mandatory   have what reaches no queue raise Unroutable, unless a publication says otherwise
        timeout     seconds for a publication, and for the confirms at the end; the connection's when left out
        on_blocked  called with the reason when the broker blocks publishers, and with None when it takes more again
        codec       bodies are values of its type, and it encodes them
        """
        from harebell.client.patterns.producer import Producer

        return Producer(
            _of(self), exchange, window=window, on_orphan=on_orphan, mandatory=mandatory, timeout=timeout,
            on_blocked=on_blocked, codec=codec,
        )  # fmt: skip

    def deliveries(
        self,
        queue: str,
        *,
        prefetch: int = 100,
        resubscribe: bool = False,
        exclusive: bool = False,
        arguments: TableLike | None = None,
        timeout: float | None = None,
    ) -> QueueReader:
        """An iterator over what a queue delivers, on a channel of its own: `async for d in connection.deliveries("q")`.

        prefetch     how many unacknowledged deliveries may be under way; 0: no limit
        resubscribe  when the broker cancels the consumer, declare the queue again and go on
        timeout      seconds for subscribing; waiting for a delivery has no deadline
        """
        from harebell.client.patterns.reader import QueueReader

        return QueueReader(
            _of(self), queue, prefetch=prefetch, resubscribe=resubscribe, exclusive=exclusive, arguments=arguments,
            timeout=timeout,
        )  # fmt: skip

    @overload
    def consume(
        self,
        queue: str,
        handler: Callable[[Delivery], Awaitable[object] | None],
        *,
        workers: int = ...,
        prefetch: int | None = ...,
        retry: Retry | None = ...,
        dead_letter: str | None = ...,
        on_error: OnError | None = ...,
        on_orphan: Callable[[Delivery], object] | None = ...,
        handler_timeout: float | None = ...,
        grace: float = ...,
        codec: None = ...,
        resubscribe: bool = ...,
        exclusive: bool = ...,
        arguments: TableLike | None = ...,
        timeout: float | None = ...,
    ) -> Workers: ...
    @overload
    def consume(
        self,
        queue: str,
        handler: Callable[[T, Delivery], Awaitable[object] | None],
        *,
        workers: int = ...,
        prefetch: int | None = ...,
        retry: Retry | None = ...,
        dead_letter: str | None = ...,
        on_error: OnError | None = ...,
        on_orphan: Callable[[Delivery], object] | None = ...,
        handler_timeout: float | None = ...,
        grace: float = ...,
        codec: Codec[T],
        resubscribe: bool = ...,
        exclusive: bool = ...,
        arguments: TableLike | None = ...,
        timeout: float | None = ...,
    ) -> Workers: ...
    def consume(
        self,
        queue: str,
        handler: Callable[..., object],
        *,
        workers: int = 16,
        prefetch: int | None = None,
        retry: Retry | None = None,
        dead_letter: str | None = None,
        on_error: OnError | None = None,
        on_orphan: Callable[[Delivery], object] | None = None,
        handler_timeout: float | None = None,
        grace: float = 30,
        codec: Codec[Any] | None = None,
        resubscribe: bool = False,
        exclusive: bool = False,
        arguments: TableLike | None = None,
        timeout: float | None = None,
    ) -> Workers:
        """A queue worked on by a handler: `async with connection.consume("work", handle) as workers`, or `await
        connection.consume("work", handle).run()`.

        handler          called with each Delivery, with a codec: with the value and the Delivery. A coroutine function;
                         a plain one runs in the loop. It returns: ack. It raises: as `workers` says
        workers          how many messages are worked on at a time
        prefetch         how many unacknowledged deliveries may be under way; twice the workers when left out
        retry            what becomes of a message whose handler failed; None: it is rejected
        dead_letter      a queue for messages that are given up; it is declared, durable
        on_error         called with the delivery and the error of each failure; may be a coroutine function
        on_orphan        called with a delivery that was worked on and could not be acknowledged after an outage: it
                         comes again
        handler_timeout  seconds for one message, then its handler is cancelled, and that is a failure
        grace            seconds that handlers have to finish when the consumer is stopped
        codec            decodes the body; one that it cannot read is given up at once
        resubscribe      when the broker cancels the consumer, declare the queue again and go on
        timeout          seconds for subscribing and for moving a message
        """
        from harebell.client.patterns.workers import Workers

        return Workers(
            _of(self), queue, handler, workers=workers, prefetch=prefetch, retry=retry, dead_letter=dead_letter,
            on_error=on_error, on_orphan=on_orphan, handler_timeout=handler_timeout, grace=grace, codec=codec,
            resubscribe=resubscribe, exclusive=exclusive, arguments=arguments, timeout=timeout,
        )  # fmt: skip

    def dead_letters(self, queue: str, *, prefetch: int = 100, timeout: float | None = None) -> DeadLetters:
        """An iterator over a dead-letter queue: each DeadLetter says why it is there; acknowledge its `delivery`."""
        from harebell.client.patterns.dead_letters import DeadLetters
        from harebell.client.patterns.reader import QueueReader

        return DeadLetters(
            QueueReader(
                _of(self), queue, prefetch=prefetch, resubscribe=False, exclusive=False, arguments=None,
                timeout=timeout,
            )
        )  # fmt: skip

    @overload
    def rpc(
        self, exchange: str = ..., *, timeout: float | None = ..., codec: None = ...
    ) -> Rpc[Message | bytes, Delivery]: ...
    @overload
    def rpc(self, exchange: str = ..., *, timeout: float | None = ..., codec: Codec[T]) -> Rpc[object, T]: ...
    def rpc(
        self, exchange: str = "", *, timeout: float | None = None, codec: Codec[Any] | None = None
    ) -> Rpc[Any, Any]:
        """Remote calls: `async with connection.rpc() as rpc: reply = await rpc.call(b"...", "resize")`.

        exchange  where requests go, unless a call says otherwise
        timeout   seconds for a call; the connection's when left out
        codec     encodes requests and decodes replies; these are of its type, those need not be
        """
        from harebell.client.patterns.rpc import Rpc

        return Rpc(_of(self), exchange, timeout=timeout, codec=codec)

    @overload
    def serve(
        self,
        queue: str,
        handler: Callable[[Delivery], Awaitable[Answer] | Answer],
        *,
        workers: int = ...,
        prefetch: int | None = ...,
        on_error: OnError | None = ...,
        handler_timeout: float | None = ...,
        grace: float = ...,
        codec: None = ...,
        timeout: float | None = ...,
    ) -> Server: ...
    @overload
    def serve(
        self,
        queue: str,
        handler: Callable[[T, Delivery], object],
        *,
        workers: int = ...,
        prefetch: int | None = ...,
        on_error: OnError | None = ...,
        handler_timeout: float | None = ...,
        grace: float = ...,
        codec: Codec[T],
        timeout: float | None = ...,
    ) -> Server: ...
    def serve(
        self,
        queue: str,
        handler: Callable[..., object],
        *,
        workers: int = 16,
        prefetch: int | None = None,
        on_error: OnError | None = None,
        handler_timeout: float | None = None,
        grace: float = 30,
        codec: Codec[Any] | None = None,
        timeout: float | None = None,
    ) -> Server:
        """The other end of `rpc`: what the handler returns for a request is the reply, what it raises RemoteError.

        The arguments are those of `consume`; with a codec the reply is a value, too.
        """
        from harebell.client.patterns.rpc import Server

        return Server(
            _of(self), queue, handler, workers=workers, prefetch=prefetch, retry=None, dead_letter=None,
            on_error=on_error, on_orphan=None, handler_timeout=handler_timeout, grace=grace, codec=codec,
            resubscribe=False, exclusive=False, arguments=None, timeout=timeout,
        )  # fmt: skip

    def channel_pool(
        self,
        max_size: int = 10,
        *,
        setup: Callable[[Channel], Awaitable[object]] | None = None,
        idle: float | None = 60,
        timeout: float = 30,
    ) -> ChannelPool:
        """Channels to borrow: `async with connection.channel_pool() as pool`, `async with pool.acquire() as channel`.

        The arguments are those of `ChannelPool`.
        """
        from harebell.client.patterns.pools import ChannelPool

        return ChannelPool(_of(self), max_size, setup=setup, idle=idle, timeout=timeout)


def _of(faces: Faces) -> Connection:
    """The connection that these are a part of."""
    return cast("Connection", faces)
