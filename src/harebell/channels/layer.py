"""The layer of Django Channels 4: asynchronous; receives from one channel at a time.

Settings (CONFIG of CHANNEL_LAYERS): see `BaseLayer`. Any loop and any thread may call any method at any time; a
waiting `receive` survives a lost connection, and a cancelled one has taken no message.
"""

from __future__ import annotations

import time
from typing import ClassVar

from harebell.channels.base_layer import BaseLayer, random_letters
from harebell.channels.exceptions import ChannelFull, MessageTooLarge
from harebell.channels.links.io_thread import AsyncAnswer
from harebell.channels.messages.mailbox import Mailbox, MailboxEntry
from harebell.channels.messages.publishing import QueueFull
from harebell.channels.messages.serializers import ChannelMessage
from harebell.channels.names import check_channel, check_group, is_local, non_local
from harebell.channels.runtime import LayerRuntime
from harebell.errors import InvalidArgument

try:
    from channels.layers import BaseChannelLayer
except ImportError as error:
    raise ImportError(
        f"harebell.channels.ChannelLayer needs the package channels: pip install 'harebell[channels]' ({error}); "
        "AsgiChannelLayer does without"
    ) from error

__all__ = ["ChannelLayer"]


class ChannelLayer(BaseLayer, BaseChannelLayer):  # type: ignore[misc]
    """A channel layer over AMQP; the settings are those of `BaseLayer`."""

    ChannelFull = ChannelFull
    MessageTooLarge = MessageTooLarge
    extensions: ClassVar[list[str]] = ["groups", "flush"]

    async def send(self, channel: str, message: ChannelMessage) -> None:
        """Send to a channel. ChannelFull when its capacity is reached; MessageTooLarge; TypeError for a bad name."""
        check_channel(channel)
        body = self.encode(message)
        runtime = self.runtime
        answer: AsyncAnswer[None] = AsyncAnswer(runtime.thread)
        runtime.counts.sent(channel)
        runtime.thread.post(lambda: runtime.publisher.send(channel, body, answer))
        try:
            await answer.future
        except QueueFull:
            raise ChannelFull(self.full(runtime, channel)) from None

    async def receive(self, channel: str) -> ChannelMessage:
        """The next message of a channel; waits for it, also while a lost connection is restored.

        Raises ChannelClosed when the layer is closed meanwhile.
        """
        runtime = self.runtime
        box = runtime.mailboxes.get(channel)
        if box is None:
            check_channel(channel)
            if not is_local(channel):
                return await self._receive_shared(runtime, channel)
            await self._reads(runtime, channel)
            box = runtime.mailboxes.reading(channel)
            if runtime.connection.link is None:
                runtime.thread.post(runtime.connection.begin)
        while True:
            entry = box.take(time.monotonic())
            if entry is not None:
                if (message := self.decode(runtime, entry)) is not None:
                    return message
                continue
            if not await box.wait_entry(runtime.thread):
                box = runtime.mailboxes.reading(channel)

    async def _reads(self, runtime: LayerRuntime, channel: str) -> None:
        """Make this process read the queue of its own process-local channel."""
        process = non_local(channel)
        if not runtime.groups.is_own(channel):
            raise AssertionError(
                f"{channel!r} belongs to another process: only the one that made it with new_channel() can receive"
            )
        if not runtime.local_queues.reads(process):
            await runtime.call(lambda: runtime.local_queues.ensure(process))

    async def _receive_shared(self, runtime: LayerRuntime, channel: str) -> ChannelMessage:
        box = runtime.shared_queues.reading(channel)
        try:
            while True:
                entry = box.take(time.monotonic())
                if entry is None:
                    await box.wait_entry(runtime.thread)
                elif await self._secured(runtime, box, entry) and (message := self.decode(runtime, entry)) is not None:
                    return message
        finally:
            runtime.shared_queues.done(channel)

    async def _secured(self, runtime: LayerRuntime, box: Mailbox, entry: MailboxEntry) -> bool:
        """Whether the entry now belongs to this reader; if the reader is cancelled meanwhile, the next one gets it."""
        try:
            return await runtime.call(lambda: runtime.shared_queues.secure(entry))
        except BaseException:
            runtime.shared_queues.disclaim(box, entry)
            raise

    async def new_channel(self, prefix: str = "specific") -> str:
        """The name of a channel that only this process reads."""
        runtime = self.runtime
        channel = f"{prefix}.{runtime.connection.client_id}!{random_letters(20)}"
        check_channel(channel)
        await self._reads(runtime, channel)
        runtime.mailboxes.reading(channel)
        return channel

    async def group_add(self, group: str, channel: str) -> None:
        """Add a channel to a group, or extend its membership."""
        check_group(group)
        check_channel(channel)
        runtime = self.runtime
        if runtime.groups.is_own(channel):
            expires = time.monotonic() + self.group_expiry
            if runtime.members.refresh(group, channel, non_local(channel), expires):
                return
        await runtime.call(lambda: runtime.groups.add(group, channel))

    async def group_discard(self, group: str, channel: str) -> None:
        """Remove a channel from a group; no error when it is not a member."""
        check_group(group)
        check_channel(channel)
        runtime = self.runtime
        runtime.members.leaving(group, channel)
        await runtime.call(lambda: self._discard(runtime, group, channel))

    async def _discard(self, runtime: LayerRuntime, group: str, channel: str) -> None:
        try:
            await runtime.groups.discard(group, channel)
        finally:
            runtime.members.left(group, channel)

    async def group_send(self, group: str, message: ChannelMessage) -> None:
        """Send to all channels of a group; a full channel does not get the message."""
        check_group(group)
        body = self.encode(message)
        runtime = self.runtime
        answer: AsyncAnswer[None] = AsyncAnswer(runtime.thread)
        if runtime.history.keeps(group) and not runtime.history.is_declared(group):
            await runtime.call(lambda: runtime.history.ensure(group))
        runtime.counts.sent(None)
        runtime.thread.post(lambda: runtime.publisher.send_group(group, body, answer))
        await answer.future

    async def group_history(self, group: str, *, seconds: float = 10.0) -> list[ChannelMessage]:
        """The group's last messages, the oldest first, as many as the setting `group_history` says.

        Raises InvalidArgument for a group that the setting does not match, and DeadlineExceeded.
        """
        check_group(group)
        runtime = self.runtime
        if not runtime.history.keeps(group):
            raise InvalidArgument(f"no history is kept of group {group!r}: name it in the setting group_history")
        bodies = await runtime.call(lambda: runtime.history.read(group, seconds))
        messages = [self.decode_body(runtime, group, body) for body in bodies]
        return [message for message in messages if message is not None]

    async def group_channels(self, group: str, *, seconds: float = 1.0) -> list[str]:
        """The channels in a group, of all processes that answer within `seconds`; see `presence`."""
        check_group(group)
        runtime = self.runtime
        return await runtime.call(lambda: runtime.presence.of(group, seconds))

    async def flush(self) -> None:
        """Delete all messages and end all memberships, of all processes with this prefix."""
        runtime = self.runtime
        await runtime.call(runtime.census.flush)

    async def close(self) -> None:
        """Close the connection to the broker. The next use of the layer opens it again."""
        runtime = self.detach_runtime()
        if runtime is not None:
            await runtime.call(runtime.close)
