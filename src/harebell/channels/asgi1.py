"""The layer of ASGI 1: for applications on asgiref 1 and servers such as Daphne 1. Synchronous, thread-safe.

It needs neither Django nor Channels; Channels 1 itself runs on Pythons that are too old for Harebell. It exchanges
messages with layers of `layer` with the same prefix. One process reads a whole queue of process-local channels
("name!"); that process must not read the same channels through the asynchronous layer.
"""

from __future__ import annotations

import random
import time
import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Final

from harebell.channels.base_layer import BaseLayer, random_letters
from harebell.channels.exceptions import ChannelFull, MessageTooLarge
from harebell.channels.links.io_thread import SyncAnswer
from harebell.channels.messages.mailbox import AsyncWaiter, Mailbox, MailboxEntry, SyncWaiter
from harebell.channels.messages.publishing import QueueFull
from harebell.channels.messages.serializers import ChannelMessage
from harebell.channels.names import check_channel, check_group, non_local
from harebell.channels.runtime import LayerRuntime
from harebell.channels.settings import LOCALHOST
from harebell.client.seconds import check_seconds

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred

__all__ = ["AsgiChannelLayer"]

BLOCK_SECONDS: Final = 5.0
UNIQUE: Final = 20  # random letters of a single-reader channel

Received = tuple[str | None, ChannelMessage | None]


class AsgiChannelLayer(BaseLayer):
    """A channel layer over AMQP with ASGI 1's methods; the settings are those of `BaseLayer`.

    block_seconds  after which a blocking receive returns (None, None), as the specification allows
    """

    ChannelFull = ChannelFull
    MessageTooLarge = MessageTooLarge
    extensions: ClassVar[list[str]] = ["groups", "flush", "statistics", "twisted", "async"]

    def __init__(self, url: str | None = LOCALHOST, *, block_seconds: float = BLOCK_SECONDS, **settings: Any) -> None:
        super().__init__(url, **settings)
        self.block_seconds = check_seconds(block_seconds, "block_seconds")

    def send(self, channel: str, message: ChannelMessage) -> None:
        """Send to a channel. ChannelFull when its capacity is reached; MessageTooLarge; TypeError for a bad name."""
        check_channel(channel)
        body = self.encode(message)
        runtime = self.runtime
        answer: SyncAnswer[None] = SyncAnswer()
        runtime.counts.sent(channel)
        runtime.thread.post(lambda: runtime.publisher.send(channel, body, answer))
        try:
            answer.wait()
        except QueueFull:
            raise ChannelFull(self.full(runtime, channel)) from None

    def receive(self, channels: Iterable[str], block: bool = False) -> Received:
        """(channel, message) of the first of the channels that has a message, in a random order.

        (None, None) when none has a message; with `block` after `block_seconds`. A process-local channel is given up
        to its "!"; the returned name is the whole one.
        """
        names = _names(channels)
        runtime = self.runtime
        for name in names:
            while (entry := runtime.call_blocking(lambda name=name: runtime.shared_queues.get(name))) is not None:  # type: ignore[misc]
                if (message := self.decode(runtime, entry)) is not None:
                    return entry.channel, message
        return self._receive_blocking(runtime, names) if block and names else (None, None)

    def receive_many(self, channels: Iterable[str], block: bool = False) -> Received:
        """The same as `receive`, under the name that ASGI 1 had for it first."""
        warnings.warn("receive_many is deprecated: use receive", DeprecationWarning, stacklevel=2)
        return self.receive(channels, block)

    def _receive_blocking(self, runtime: LayerRuntime, names: list[str]) -> Received:
        deadline = time.monotonic() + self.block_seconds
        boxes = [runtime.shared_queues.reading(name) for name in names]
        try:
            while True:
                for box in boxes:
                    while (entry := box.take(time.monotonic())) is not None:
                        secured = self._secured_blocking(runtime, box, entry)
                        if secured and (message := self.decode(runtime, entry)) is not None:
                            return entry.channel, message
                waiter = SyncWaiter()
                try:
                    if all(box.wait(waiter) for box in boxes):
                        waiter.future.result(max(deadline - time.monotonic(), 0))
                except TimeoutError:
                    return None, None
                finally:
                    for box in boxes:
                        box.leave(waiter)
        finally:
            for name in names:
                runtime.shared_queues.done(name)

    def _secured_blocking(self, runtime: LayerRuntime, box: Mailbox, entry: MailboxEntry) -> bool:
        """Whether the entry now belongs to this reader; if a signal interrupts it meanwhile, the next one gets it."""
        try:
            return runtime.call_blocking(lambda: runtime.shared_queues.secure(entry))
        except BaseException:
            runtime.shared_queues.disclaim(box, entry)
            raise

    async def receive_async(self, channels: Iterable[str]) -> Received:
        """As `receive` with `block`, for coroutines of any loop. When it is cancelled, it has taken no message."""
        names, runtime = _names(channels), self.runtime
        if not names:
            return None, None
        deadline = time.monotonic() + self.block_seconds
        boxes = [runtime.shared_queues.reading(name) for name in names]
        try:
            while True:
                for box in boxes:
                    while (entry := box.take(time.monotonic())) is not None:
                        secured = await self._secured(runtime, box, entry)
                        if secured and (message := self.decode(runtime, entry)) is not None:
                            return entry.channel, message
                waiter = AsyncWaiter(runtime.thread)
                try:
                    if all(box.wait(waiter) for box in boxes):
                        await waiter.within(deadline - time.monotonic())
                except TimeoutError:
                    return None, None
                finally:
                    for box in boxes:
                        box.leave(waiter)
        finally:
            for name in names:
                runtime.shared_queues.done(name)

    async def _secured(self, runtime: LayerRuntime, box: Mailbox, entry: MailboxEntry) -> bool:
        """Whether the entry now belongs to this reader; if the reader is cancelled meanwhile, the next one gets it."""
        try:
            return await runtime.call(lambda: runtime.shared_queues.secure(entry))
        except BaseException:
            runtime.shared_queues.disclaim(box, entry)
            raise

    def receive_twisted(self, channels: Iterable[str]) -> Deferred[Received]:
        """As `receive` with `block`, as a Deferred of Twisted's reactor. Cancelled, it has taken no message."""
        from twisted.internet import defer, reactor

        runtime, names = self.runtime, _names(channels)
        tasks: list[Any] = []

        async def receive() -> None:
            try:
                received = await self.receive_async(names)
            except Exception as error:
                call(_errback, deferred, error)
            else:
                call(_callback, deferred, received)

        def cancel(_: object) -> None:
            runtime.thread.post(lambda: [task.cancel() for task in tasks])

        call: Any = getattr(reactor, "callFromThread")  # noqa: B009  the module is the reactor, which mypy cannot know
        deferred: Deferred[Received] = defer.Deferred(cancel)
        runtime.thread.post(lambda: tasks.append(runtime.thread.start(receive())))
        return deferred

    def new_channel(self, pattern: str) -> str:
        """The name of a single-reader channel: the pattern, which ends in "?", and random letters."""
        if not pattern.endswith("?"):
            raise TypeError(f"{pattern!r}: the pattern of a single-reader channel ends in ?")
        channel = pattern + random_letters(UNIQUE)
        check_channel(channel)
        runtime = self.runtime

        runtime.call_blocking(lambda: runtime.connection.declare(channel))
        return channel

    def group_add(self, group: str, channel: str) -> None:
        """Add a channel to a group, or extend its membership."""
        check_group(group)
        check_channel(channel)
        runtime = self.runtime
        runtime.call_blocking(lambda: runtime.groups.add(group, channel))

    def group_discard(self, group: str, channel: str) -> None:
        """Remove a channel from a group; no error when it is not a member."""
        check_group(group)
        check_channel(channel)
        runtime = self.runtime
        runtime.call_blocking(lambda: runtime.groups.discard(group, channel))

    def send_group(self, group: str, message: ChannelMessage) -> None:
        """Send to all channels of a group; a full channel does not get the message."""
        check_group(group)
        body = self.encode(message)
        runtime = self.runtime
        answer: SyncAnswer[None] = SyncAnswer()
        runtime.counts.sent(None)
        runtime.thread.post(lambda: runtime.publisher.send_group(group, body, answer))
        answer.wait()

    def group_channels(self, group: str, seconds: float = 1.0) -> list[str]:
        """The channels in a group, of all processes that answer within `seconds`; see `presence`."""
        check_group(group)
        runtime = self.runtime
        return runtime.call_blocking(lambda: runtime.presence.of(group, seconds))

    def flush(self) -> None:
        """Delete all messages and end all memberships, of all processes with this prefix."""
        runtime = self.runtime
        runtime.call_blocking(runtime.census.flush)

    def close(self) -> None:
        """Close the connection to the broker. The next use of the layer opens it again."""
        runtime = self.detach_runtime()
        if runtime is not None:
            runtime.call_blocking(runtime.close)

    def global_statistics(self) -> dict[str, float]:
        """The statistics of the whole layer: of all processes that are alive, messages to groups included.

        messages_count, messages_count_per_second            messages sent; per second over the last ten
        messages_pending, messages_max_age                   that wait now; seconds that the oldest has waited
        channel_full_count, channel_full_count_per_second    sends refused because the channel was full
        """
        runtime = self.runtime
        return runtime.call_blocking(lambda: runtime.census.statistics(None))

    def channel_statistics(self, channel: str) -> dict[str, float]:
        """The same of one channel, without messages that came by a group."""
        check_channel(channel)
        runtime = self.runtime
        return runtime.call_blocking(lambda: runtime.census.statistics(channel))


def _names(channels: Iterable[str]) -> list[str]:
    """The names, in a random order: else a busy channel would starve the channels after it."""
    names = [check_channel(channel) for channel in channels]
    for name in names:
        if non_local(name) != name:
            raise TypeError(f"{name!r}: in receive() a process-local channel is named up to its !")
    random.shuffle(names)
    return names


def _callback(deferred: Deferred[Received], received: Received) -> None:
    if not deferred.called:
        deferred.callback(received)


def _errback(deferred: Deferred[Received], error: Exception) -> None:
    if not deferred.called:
        deferred.errback(error)
