"""The answering end of remote calls: a queue of requests, a handler, and replies that are confirmed.

    async with connection.serve("resize", handle) as server:
        await server.wait()

A server acknowledges a request once its reply is confirmed; another server processes a request that it dies with. How
an error travels, and what a caller gets: `rpc`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

from harebell.client.callbacks import check_callable
from harebell.client.messages import Delivery, Message, copy_of_properties, encoded
from harebell.client.patterns.codec import Codec, message_of
from harebell.client.patterns.handling import Handler
from harebell.client.patterns.outcomes import OnError, notify_error
from harebell.client.patterns.producer import Producer
from harebell.client.patterns.reader import Setup
from harebell.client.patterns.rpc import ERROR, ERROR_TYPE
from harebell.client.patterns.settlements import Settlements
from harebell.client.patterns.source import ChannelSource
from harebell.client.patterns.workers import Workers
from harebell.client.settling import Requeue
from harebell.protocol.v091 import Properties, Table

__all__ = ["Server"]

logger = logging.getLogger("harebell.client")

MAX_ERROR: Final = 1000  # characters of an error that travel


class ReplyOutcome:
    """A request's: its reply is published, then it is acknowledged."""

    def __init__(
        self,
        connection: ChannelSource,
        queue: str,
        *,
        codec: Codec[Any] | None,
        on_error: OnError | None,
        timeout: float | None,
    ) -> None:
        if on_error is not None:
            check_callable("on_error", on_error, "delivery", "error")
        self.before: Callable[[Delivery], None] | None = None
        self.after: Callable[[Delivery, object], Coroutine[Any, Any, None]] | None = self._answer
        self.failing = False
        self._queue = queue
        self._codec = codec
        self._on_error = on_error
        self._settlements = Settlements(None)
        self._replies = Producer[Message | bytes](connection, on_orphan="retry", mandatory=False, timeout=timeout)

    async def start(self, settlements: Settlements, capacity: int) -> None:
        self._settlements = settlements
        await self._replies.start()

    def succeeded(self) -> None: ...

    async def _answer(self, delivery: Delivery, result: object) -> None:
        await self._reply(delivery, message_of(b"" if result is None and self._codec is None else result, self._codec))

    async def failed(self, delivery: Delivery, error: Exception) -> None:
        if isinstance(error, Requeue) or self._settlements.is_settled(delivery):
            self._settlements.refuse(delivery, requeue=True)
            return
        logger.error("request %d of queue %r failed: %r", delivery.delivery_tag, self._queue, error, exc_info=error)
        await notify_error(self._on_error, delivery, error)
        headers: Table = {ERROR_TYPE: type(error).__name__, ERROR: str(error)[:MAX_ERROR]}
        await self._reply(delivery, Message(b"", headers=headers))
        self._settlements.done(delivery)

    async def _reply(self, request: Delivery, message: Message | bytes) -> None:
        """Published and confirmed; a caller that is gone meanwhile is no error."""
        asked = request.properties
        if asked.reply_to is None:
            return
        encoded(message)
        properties = copy_of_properties(message.properties) if isinstance(message, Message) else Properties()
        properties.correlation_id = asked.correlation_id
        reply = Message(message.body if isinstance(message, Message) else message, properties=properties)
        await self._replies.publish(reply, asked.reply_to, exchange="")

    async def close(self) -> None:
        await self._replies.close()

    def abandon(self) -> None:
        self._replies.abandon()


class Server(Workers):
    """Answers requests, made by `connection.serve`. What the handler returns is the reply; what it raises, too.

    Only `raise Requeue` gives the request to another server.
    """

    def __init__(
        self,
        connection: ChannelSource,
        queue: str,
        handler: Handler,
        *,
        workers: int,
        prefetch: int | None,
        on_error: OnError | None,
        handler_timeout: float | None,
        grace: float,
        codec: Codec[Any] | None,
        setup: Setup | None,
        cleanup: Setup | None,
        timeout: float | None,
    ) -> None:
        super().__init__(
            connection, queue, handler, workers=workers, prefetch=prefetch,
            outcome=ReplyOutcome(connection, queue, codec=codec, on_error=on_error, timeout=timeout),
            on_orphan=None, handler_timeout=handler_timeout, grace=grace, codec=codec, setup=setup,
            cleanup=cleanup, resubscribe=False, exclusive=False, arguments=None, timeout=timeout,
        )  # fmt: skip
