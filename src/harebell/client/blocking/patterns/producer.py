"""The blocking API: publishing with confirms, a window and a graceful end, and the relay of an outbox.

The asyncio producer does it, on the I/O thread. Codecs and iterables are the program's own code: they run on its own
threads.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from harebell import errors
from harebell.client.blocking.docs import documented_by
from harebell.client.messages import Confirmation, Message, Publication, check_publication
from harebell.client.patterns import outbox as asyncio_outbox, pending as asyncio_pending, producer as asyncio_api
from harebell.client.patterns.codec import Codec, check_codec, message_of
from harebell.client.seconds import seconds_of

if TYPE_CHECKING:
    from collections import deque

    from harebell.client.blocking.connection import Connection

__all__ = ["Pending", "Producer", "Relay"]

T = TypeVar("T")


class Pending:
    """A publication under way, made by `producer.publish_soon`.

    position     its number among those of the producer, from 0
    publication  what was published
    """

    def __init__(self, connection: Connection, inner: asyncio_pending.Pending) -> None:
        self._connection = connection
        self._inner = inner
        self.position = inner.position
        self.publication = inner.publication

    @property
    def done(self) -> bool:
        """Whether it has its outcome."""
        return self._inner.done

    def result(self, timeout: float | None = None) -> Confirmation:
        """Its Confirmation, once it has one. Nacked, Unroutable, PublishOrphaned, or the broker's error.

        timeout  seconds to wait, for ever when left out: DeadlineExceeded, and it is still under way
        """
        inner = self._inner

        async def wait() -> Confirmation:
            try:
                async with asyncio.timeout(seconds_of(timeout, math.inf)):
                    return await inner
            finally:
                inner.taken = inner.done  # else `drain` tells its failure

        try:
            return self._connection.io.run(wait)
        except TimeoutError as error:
            if isinstance(error, errors.HarebellError):
                raise
            text = f"publication {self.position} has no confirm within {timeout:g} s, and is still under way"
            raise errors.DeadlineExceeded(text) from None


@documented_by(asyncio_api.Producer)
class Producer(Generic[T]):
    """Publishes with confirms, on a channel of its own, for any number of threads. Made by `connection.producer`."""

    def __init__(self, connection: Connection, inner: asyncio_api.Producer[Any], codec: Codec[T] | None) -> None:
        check_codec(codec)
        self._connection = connection
        self._io = connection.io
        self._inner = inner
        self._codec = codec

    @property
    def unconfirmed(self) -> int:
        return self._inner.unconfirmed

    @property
    def parked(self) -> deque[tuple[int, Publication]]:
        """Publications that were set aside: (publish tag, publication), for the program to take out."""
        return self._inner.parked

    def start(self) -> Self:
        """Open its channel. Done by `with`."""
        self._io.run(self._inner.start)
        return self

    def close(self) -> None:
        self._io.run(self._inner.close)

    def abandon(self) -> None:
        with self._io.turn:
            self._inner.abandon()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None and not isinstance(error, Exception):
            self.abandon()  # an interrupted program does not wait for the network
            return
        self._io.run(self._inner.__aexit__, kind, error, traceback)

    def publish(
        self,
        body: T | Message,
        routing_key: str = "",
        *,
        exchange: str | None = None,
        mandatory: bool | None = None,
        timeout: float | None = None,
    ) -> Confirmation:
        message = message_of(body, self._codec)
        return self._io.run(
            self._inner.publish, message, routing_key, exchange=exchange, mandatory=mandatory, timeout=timeout
        )

    def publish_soon(
        self,
        body: T | Message,
        routing_key: str = "",
        *,
        exchange: str | None = None,
        mandatory: bool | None = None,
        timeout: float | None = None,
    ) -> Pending:
        """Publish without waiting for the confirm: ask what this gives for its `result()`, or leave it to `drain`.

        Waits for room in the window, for a broker that blocks, and for the end of an outage, at most `timeout` seconds.
        """
        seconds_of(timeout, 0.0)  # what is no number is refused, whether it has to wait or not
        io, inner, message = self._io, self._inner, message_of(body, self._codec)
        io.check()
        if not io.loop.asleep:
            io.loop.wanted = True
        with io.turn:
            if inner.has_room:
                channel = inner.channel
                pending = io.step(
                    channel, lambda: inner.begin(message, routing_key, exchange=exchange, mandatory=mandatory)
                )
                return Pending(self._connection, pending)
        pending = io.run(
            inner.publish_soon, message, routing_key, exchange=exchange, mandatory=mandatory, timeout=timeout
        )
        return Pending(self._connection, pending)

    def publish_many(self, publications: Iterable[Publication], *, timeout: float | None = None) -> list[Confirmation]:
        """Publish all of them, and give the confirmation of each, in their order.

        publications  with an exchange of their own; a codec encodes their messages. All of them are taken from the
                      iterable before the first is published
        timeout       seconds for all of it

        PublishesFailed, once all are answered, when some did not get through: it has the error of each. ConfirmTimeout,
        or DeadlineExceeded where all that were sent are confirmed, when the time is over.
        """
        codec, many = self._codec, list(publications)
        if codec is not None:
            for publication in many:
                check_publication(publication)
            many = [
                Publication(message_of(p.message, codec), p.exchange, p.routing_key, p.mandatory, p.immediate)
                for p in many
            ]
        return self._io.run(self._inner.publish_many, many, timeout=timeout)

    def drain(self, *, timeout: float | None = None) -> None:
        self._io.run(self._inner.drain, timeout=timeout)


@documented_by(asyncio_outbox.Relay)
class Relay:
    """Publishes what an outbox holds. Made by `connection.relay`; enter it with `with`, or call `run()`.

    The coroutines of an outbox of your own run on the I/O thread, and must not block.
    """

    def __init__(self, connection: Connection, inner: asyncio_outbox.Relay) -> None:
        self._connection = connection
        self._io = connection.io
        self._inner = inner

    @property
    def published(self) -> int:
        """How many were confirmed."""
        return self._inner.published

    @property
    def refused(self) -> int:
        """How many can't be published."""
        return self._inner.refused

    def run(self) -> None:
        """Publish until the connection is closed for good: raises why. An interrupt ends it."""
        self._io.run(self._inner.run)

    def drain(self) -> int:
        return self._io.run(self._inner.drain)

    def wake(self) -> None:
        self._inner.wake()

    def close(self) -> None:
        self._io.run(self._inner.close)

    def __enter__(self) -> Self:
        self._io.run(self._inner.__aenter__)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._io.run(self._inner.__aexit__, kind, error, traceback)
