"""The layer of ASGI 1 (Channels 1): synchronous, thread-safe, several channels at a time.

It exchanges messages with layers of `layer` with the same prefix. One process reads a whole queue of process-local
channels ("name!"); that process must not read the same channels through the asynchronous layer.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import Any, ClassVar, Final

from channels.exceptions import ChannelFull, MessageTooLarge

from harebell.channels.base_layer import BaseLayer, random_letters
from harebell.channels.links.io_thread import SyncAnswer
from harebell.channels.messages.mailbox import SyncWaiter
from harebell.channels.messages.publishing import QueueFull
from harebell.channels.messages.serializers import ChannelMessage
from harebell.channels.names import check_channel, check_group, non_local
from harebell.channels.runtime import LayerRuntime

__all__ = ["AsgiChannelLayer"]

BLOCK_SECONDS: Final = 5.0
UNIQUE: Final = 20  # random letters of a single-reader channel


class AsgiChannelLayer(BaseLayer):
    """A channel layer over AMQP with ASGI 1's methods; the settings are those of `BaseLayer`.

    block_seconds  after which a blocking receive returns (None, None), as the specification allows
    """

    ChannelFull = ChannelFull
    MessageTooLarge = MessageTooLarge
    extensions: ClassVar[list[str]] = ["groups", "flush", "statistics"]

    def __init__(self, url: str | None = None, *, block_seconds: float = BLOCK_SECONDS, **settings: Any) -> None:
        super().__init__(url, **settings)
        self.block_seconds = block_seconds
        self._sent = 0

    def send(self, channel: str, message: ChannelMessage) -> None:
        """Send to a channel. ChannelFull when its capacity is reached; MessageTooLarge; TypeError for a bad name."""
        check_channel(channel)
        body = self.encode(message)
        runtime = self.runtime
        answer: SyncAnswer[None] = SyncAnswer()
        runtime.thread.post(lambda: runtime.publisher.send(channel, body, answer))
        try:
            answer.wait()
        except QueueFull:
            raise ChannelFull(self.full(runtime, channel)) from None
        self._sent += 1

    def receive(self, channels: Sequence[str], block: bool = False) -> tuple[str | None, ChannelMessage | None]:
        """(channel, message) of the first of the channels that has a message, in a random order.

        (None, None) when none has a message; with `block` after `block_seconds`. A process-local channel is given up
        to its "!"; the returned name is the whole one.
        """
        names = [check_channel(channel) for channel in channels]
        for name in names:
            if non_local(name) != name:
                raise TypeError(f"{name!r}: in receive() a process-local channel is named up to its !")
        random.shuffle(names)  # else a busy channel would starve the channels after it
        runtime = self.runtime
        for name in names:
            while (entry := runtime.call_blocking(lambda name=name: runtime.shared_queues.get(name))) is not None:  # type: ignore[misc]
                if (message := self.decode(runtime, entry)) is not None:
                    return entry.channel, message
        return self._receive_blocking(runtime, names) if block and names else (None, None)

    def _receive_blocking(self, runtime: LayerRuntime, names: list[str]) -> tuple[str | None, ChannelMessage | None]:
        deadline = time.monotonic() + self.block_seconds
        boxes = [runtime.shared_queues.reading(name) for name in names]
        try:
            while True:
                for box in boxes:
                    while (entry := box.take(time.monotonic())) is not None:
                        secured = runtime.call_blocking(lambda entry=entry: runtime.shared_queues.secure(entry))  # type: ignore[misc]
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
        runtime.thread.post(lambda: runtime.publisher.send_group(group, body, answer))
        answer.wait()
        self._sent += 1

    def group_channels(self, group: str, seconds: float = 1.0) -> list[str]:
        """The channels in a group, of all processes that answer within `seconds`; see `presence`."""
        check_group(group)
        runtime = self.runtime
        return runtime.call_blocking(lambda: runtime.presence.of(group, seconds))

    def flush(self) -> None:
        """Delete all waiting messages and end all memberships of the groups that this layer knows."""
        runtime = self.runtime
        runtime.call_blocking(runtime.flush)

    def close(self) -> None:
        """Close the connection to the broker. The next use of the layer opens it again."""
        runtime = self.detach_runtime()
        if runtime is not None:
            runtime.call_blocking(runtime.close)

    def global_statistics(self) -> dict[str, int]:
        """Counts of this layer: messages_count, the messages sent; channel_full_count, the sends refused as full."""
        return {"messages_count": self._sent, "channel_full_count": self.runtime.full}

    def channel_statistics(self, channel: str) -> dict[str, int]:
        """Counts of a channel: messages_pending, the messages that wait in it now."""
        check_channel(channel)
        runtime = self.runtime
        return {"messages_pending": runtime.call_blocking(lambda: runtime.connection.pending(channel))}
