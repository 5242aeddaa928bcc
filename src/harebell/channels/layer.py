"""The layer of Django Channels 4: asynchronous, one channel at a time.

Settings (CONFIG of CHANNEL_LAYERS): see `ChannelLayer`. Any loop and any thread may call any method at any time; a
waiting `receive` outlives a lost connection, and one that is cancelled has taken nothing.
"""

from __future__ import annotations

import time
from typing import ClassVar

from channels.exceptions import ChannelFull, MessageTooLarge
from channels.layers import BaseChannelLayer

from harebell.channels.base import Face, random_letters
from harebell.channels.io_thread import AsyncAnswer
from harebell.channels.mailbox import Letter
from harebell.channels.names import check_channel, check_group, is_local, non_local
from harebell.channels.parts import Office
from harebell.channels.publishing import Full
from harebell.channels.serializing import ChannelMessage
from harebell.errors import InvalidArgument

__all__ = ["ChannelLayer"]


class ChannelLayer(Face, BaseChannelLayer):  # type: ignore[misc]
    """A channel layer over AMQP; the settings are those of `Face`."""

    ChannelFull = ChannelFull
    MessageTooLarge = MessageTooLarge
    extensions: ClassVar[list[str]] = ["groups", "flush"]

    # -- channels ----------------------------------------------------------------------------------------------------

    async def send(self, channel: str, message: ChannelMessage) -> None:
        """Send to a channel. ChannelFull when its capacity is reached; MessageTooLarge; TypeError for a bad name."""
        check_channel(channel)
        body = self._written(message)
        office = self._office
        answer: AsyncAnswer[None] = AsyncAnswer(office.thread)
        office.thread.post(lambda: office.sender.send(channel, body, answer))
        try:
            await answer.future
        except Full:
            raise ChannelFull(self._full(office, channel)) from None

    async def receive(self, channel: str) -> ChannelMessage:
        """The next message of a channel; waits for it, over a lost connection too.

        ChannelClosed for who waits when the layer is closed.
        """
        office = self._office
        box = office.boxes.get(channel)
        if box is None:
            check_channel(channel)
            if not is_local(channel):
                return await self._receive_shared(office, channel)
            await self._reads(office, channel)
            box = office.boxes.reading(channel)
        while True:
            letter = box.take(time.monotonic())
            if letter is not None:
                if (message := self._read(office, letter)) is not None:
                    return message
                continue
            if not await box.letter_comes(office.thread):
                box = office.boxes.reading(channel)

    async def _reads(self, office: Office, channel: str) -> None:
        """Have this process read the queue of its own process-local channel."""
        process = non_local(channel)
        if not office.groups.is_own(channel):
            raise AssertionError(
                f"{channel!r} belongs to another process: only the one that made it with new_channel() can receive"
            )
        if not office.process.reads(process):
            await office.call(lambda: office.process.ensure(process))

    async def _receive_shared(self, office: Office, channel: str) -> ChannelMessage:
        box = office.shared.reading(channel)
        try:
            while True:
                letter = box.take(time.monotonic())
                if letter is None:
                    await box.letter_comes(office.thread)
                elif await self._secured(office, letter) and (message := self._read(office, letter)) is not None:
                    return message
        finally:
            office.shared.done(channel)

    async def _secured(self, office: Office, letter: Letter) -> bool:
        """Whether the letter is ours; if we are cancelled meanwhile it is the next reader's."""
        try:
            return await office.call(lambda: office.shared.secure(letter))
        except BaseException:
            office.thread.post(lambda: office.thread.start(office.shared.disclaim(letter)))
            raise

    async def new_channel(self, prefix: str = "specific") -> str:
        """The name of a channel that only this process reads."""
        office = self._office
        channel = f"{prefix}.{office.core.client_id}!{random_letters(20)}"
        check_channel(channel)
        await self._reads(office, channel)
        office.boxes.reading(channel)
        return channel

    # -- groups ------------------------------------------------------------------------------------------------------

    async def group_add(self, group: str, channel: str) -> None:
        """Put a channel into a group; again to have it stay longer."""
        check_group(group)
        check_channel(channel)
        office = self._office
        if office.groups.is_own(channel):
            expires = time.monotonic() + self.group_expiry
            if office.members.refresh(group, channel, non_local(channel), expires):
                return
        await office.call(lambda: office.groups.add(group, channel))

    async def group_discard(self, group: str, channel: str) -> None:
        """Take a channel out of a group; no error when it is not in it."""
        check_group(group)
        check_channel(channel)
        office = self._office
        await office.call(lambda: office.groups.discard(group, channel))

    async def group_send(self, group: str, message: ChannelMessage) -> None:
        """Send to all channels of a group; one that is full misses it."""
        check_group(group)
        body = self._written(message)
        office = self._office
        answer: AsyncAnswer[None] = AsyncAnswer(office.thread)
        if office.history.keeps(group) and group not in office.history.known:
            await office.call(lambda: office.history.ensure(group))
        office.thread.post(lambda: office.sender.send_group(group, body, answer))
        await answer.future

    async def group_history(self, group: str, *, seconds: float = 10.0) -> list[ChannelMessage]:
        """The group's last messages, the oldest first, as many as the setting `group_history` says.

        InvalidArgument for a group that it does not name; DeadlineExceeded.
        """
        check_group(group)
        office = self._office
        if not office.history.keeps(group):
            raise InvalidArgument(f"no history is kept of group {group!r}: name it in the setting group_history")
        bodies = await office.call(lambda: office.history.read(group, seconds))
        messages = [self._loaded(office, group, body) for body in bodies]
        return [message for message in messages if message is not None]

    async def group_channels(self, group: str, *, seconds: float = 1.0) -> list[str]:
        """The channels in a group, of every process, as far as they answer within `seconds`; see `presence`."""
        check_group(group)
        office = self._office
        return await office.call(lambda: office.presence.of(group, seconds))

    # -- the whole ---------------------------------------------------------------------------------------------------

    async def flush(self) -> None:
        """No message waits any more, and no group has a member."""
        office = self._office
        await office.call(office.flush)

    async def close(self) -> None:
        """Say goodbye to the broker. The layer opens again when it is used again."""
        office = self._left()
        if office is not None:
            await office.call(office.close)
