"""The layer of Django Channels 4: asynchronous, one channel at a time.

Settings (CONFIG of CHANNEL_LAYERS): see `ChannelLayer`. Any loop and any thread may call any method at any time; a
waiting `receive` outlives a lost connection, and one that is cancelled has taken nothing.
"""

from __future__ import annotations

import time
from typing import ClassVar

from channels.exceptions import ChannelFull, MessageTooLarge
from channels.layers import BaseChannelLayer

from harebell.channels.base_layer import BaseLayer, random_letters
from harebell.channels.io_thread import AsyncAnswer
from harebell.channels.mailbox import MailboxEntry
from harebell.channels.names import check_channel, check_group, is_local, non_local
from harebell.channels.publishing import QueueFull
from harebell.channels.runtime import LayerRuntime
from harebell.channels.serializers import ChannelMessage
from harebell.errors import InvalidArgument

__all__ = ["ChannelLayer"]


class ChannelLayer(BaseLayer, BaseChannelLayer):  # type: ignore[misc]
    """A channel layer over AMQP; the settings are those of `BaseLayer`."""

    ChannelFull = ChannelFull
    MessageTooLarge = MessageTooLarge
    extensions: ClassVar[list[str]] = ["groups", "flush"]

    # -- channels ----------------------------------------------------------------------------------------------------

    async def send(self, channel: str, message: ChannelMessage) -> None:
        """Send to a channel. ChannelFull when its capacity is reached; MessageTooLarge; TypeError for a bad name."""
        check_channel(channel)
        body = self.encode(message)
        runtime = self.runtime
        answer: AsyncAnswer[None] = AsyncAnswer(runtime.thread)
        runtime.thread.post(lambda: runtime.publisher.send(channel, body, answer))
        try:
            await answer.future
        except QueueFull:
            raise ChannelFull(self.full(runtime, channel)) from None

    async def receive(self, channel: str) -> ChannelMessage:
        """The next message of a channel; waits for it, over a lost connection too.

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
        while True:
            entry = box.take(time.monotonic())
            if entry is not None:
                if (message := self.decode(runtime, entry)) is not None:
                    return message
                continue
            if not await box.wait_entry(runtime.thread):
                box = runtime.mailboxes.reading(channel)

    async def _reads(self, runtime: LayerRuntime, channel: str) -> None:
        """Have this process read the queue of its own process-local channel."""
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
                elif await self._secured(runtime, entry) and (message := self.decode(runtime, entry)) is not None:
                    return message
        finally:
            runtime.shared_queues.done(channel)

    async def _secured(self, runtime: LayerRuntime, entry: MailboxEntry) -> bool:
        """Whether the entry is this reader's; when it is cancelled meanwhile, the next reader's."""
        try:
            return await runtime.call(lambda: runtime.shared_queues.secure(entry))
        except BaseException:
            runtime.thread.post(lambda: runtime.thread.start(runtime.shared_queues.disclaim(entry)))
            raise

    async def new_channel(self, prefix: str = "specific") -> str:
        """The name of a channel that only this process reads."""
        runtime = self.runtime
        channel = f"{prefix}.{runtime.connection.client_id}!{random_letters(20)}"
        check_channel(channel)
        await self._reads(runtime, channel)
        runtime.mailboxes.reading(channel)
        return channel

    # -- groups ------------------------------------------------------------------------------------------------------

    async def group_add(self, group: str, channel: str) -> None:
        """Put a channel into a group; again to have it stay longer."""
        check_group(group)
        check_channel(channel)
        runtime = self.runtime
        if runtime.groups.is_own(channel):
            expires = time.monotonic() + self.group_expiry
            if runtime.members.refresh(group, channel, non_local(channel), expires):
                return
        await runtime.call(lambda: runtime.groups.add(group, channel))

    async def group_discard(self, group: str, channel: str) -> None:
        """Take a channel out of a group; no error when it is not in it."""
        check_group(group)
        check_channel(channel)
        runtime = self.runtime
        await runtime.call(lambda: runtime.groups.discard(group, channel))

    async def group_send(self, group: str, message: ChannelMessage) -> None:
        """Send to all channels of a group; one that is full misses it."""
        check_group(group)
        body = self.encode(message)
        runtime = self.runtime
        answer: AsyncAnswer[None] = AsyncAnswer(runtime.thread)
        if runtime.history.keeps(group) and group not in runtime.history.known:
            await runtime.call(lambda: runtime.history.ensure(group))
        runtime.thread.post(lambda: runtime.publisher.send_group(group, body, answer))
        await answer.future

    async def group_history(self, group: str, *, seconds: float = 10.0) -> list[ChannelMessage]:
        """The group's last messages, the oldest first, as many as the setting `group_history` says.

        InvalidArgument for a group that it does not name; DeadlineExceeded.
        """
        check_group(group)
        runtime = self.runtime
        if not runtime.history.keeps(group):
            raise InvalidArgument(f"no history is kept of group {group!r}: name it in the setting group_history")
        bodies = await runtime.call(lambda: runtime.history.read(group, seconds))
        messages = [self.decode_body(runtime, group, body) for body in bodies]
        return [message for message in messages if message is not None]

    async def group_channels(self, group: str, *, seconds: float = 1.0) -> list[str]:
        """The channels in a group, of every process, as far as they answer within `seconds`; see `presence`."""
        check_group(group)
        runtime = self.runtime
        return await runtime.call(lambda: runtime.presence.of(group, seconds))

    # -- the whole ---------------------------------------------------------------------------------------------------

    async def flush(self) -> None:
        """No message waits any more, and no group has a member."""
        runtime = self.runtime
        await runtime.call(runtime.flush)

    async def close(self) -> None:
        """Say goodbye to the broker. The layer opens again when it is used again."""
        runtime = self.detach_runtime()
        if runtime is not None:
            await runtime.call(runtime.close)
