"""The layer of Django Channels 4: asynchronous, one channel at a time.

Settings (CONFIG of CHANNEL_LAYERS): see `ChannelLayer`. Any loop and any thread may call any method at any time; a
waiting `receive` outlives a lost connection, and one that is cancelled has taken nothing.
"""

from __future__ import annotations

import os
import random
import re
import string
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

from channels.exceptions import ChannelFull, MessageTooLarge
from channels.layers import BaseChannelLayer

from warren.channels.names import check_channel, check_group, is_local, non_local
from warren.channels.office import Office
from warren.channels.sending import Full
from warren.channels.serializing import ChannelMessage, Serializer, Unreadable, serializer_of
from warren.channels.settings import Capacities, Settings, urls_of
from warren.channels.mailbox import first_letter
from warren.channels.thread import AsyncAnswer

__all__ = ["ChannelLayer"]

LETTERS: Final = string.ascii_letters
RESERVED: Final = "__asgi_channel__"  # Channels keeps this key to itself


class ChannelLayer(BaseChannelLayer):  # type: ignore[misc]
    """A channel layer over AMQP.

    url, hosts        of the broker; several are tried in turn. "embedded://" starts one in this process
    prefix            the beginning of all names on the broker
    expiry            seconds that a message waits for its reader
    group_expiry      seconds that a membership lasts when nobody asks for it again
    capacity          messages that may wait in a channel; one more is ChannelFull
    channel_capacity  another capacity for channels by the first pattern (glob or compiled) that matches
    symmetric_encryption_keys  the first one encrypts what leaves this process, all of them are tried on what comes in
    serializer        "msgpack", "json", or an object with dumps and loads
    timeout           seconds after which a call fails when the broker is not there
    max_message_size  bytes of a serialized message; a larger one is MessageTooLarge
    on_missed         called, in a thread of the layer's, with the name of a channel whose message was dropped

    Raises InvalidArgument for a setting that cannot be understood.
    """

    ChannelFull = ChannelFull
    MessageTooLarge = MessageTooLarge
    extensions: ClassVar[list[str]] = ["groups", "flush"]

    def __init__(
        self,
        url: str | None = None,
        *,
        hosts: Sequence[str] | None = None,
        prefix: str = "asgi",
        expiry: float = 60,
        group_expiry: float = 86400,
        capacity: int = 100,
        channel_capacity: Mapping[str | re.Pattern[str], int] | None = None,
        symmetric_encryption_keys: Sequence[str | bytes] | None = None,
        serializer: str | Serializer = "msgpack",
        timeout: float = 30,
        max_message_size: int = 16 * 1024 * 1024,
        on_missed: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(expiry=expiry, capacity=capacity)
        self.channel_capacity = self.compile_capacities(channel_capacity or {})
        self.prefix = prefix
        self.group_expiry = group_expiry
        self.max_message_size = max_message_size
        self._serializer = serializer_of(serializer, symmetric_encryption_keys)
        self._settings = Settings(
            urls=urls_of(url, hosts),
            prefix=prefix,
            expiry=expiry,
            group_expiry=group_expiry,
            capacities=Capacities(capacity, channel_capacity),
            timeout=timeout,
        )
        self._on_missed = on_missed
        self._made: Office | None = None
        self._made_in = 0

    @property
    def _office(self) -> Office:
        """The layer's machinery in this process; another one after a fork."""
        if self._made is None or self._made_in != os.getpid():
            self._made, self._made_in = Office(self._settings, self._on_missed), os.getpid()
        return self._made

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
            office.full += 1
            raise ChannelFull(f"channel {channel!r} holds {self._settings.capacities.of(channel)} messages") from None

    async def receive(self, channel: str) -> ChannelMessage:
        """The next message of a channel; waits for it, over a lost connection too."""
        check_channel(channel)
        office = self._office
        if not is_local(channel):
            return await self._receive_shared(office, channel)
        process = non_local(channel)
        if not office.groups.is_own(channel):
            raise AssertionError(
                f"{channel!r} belongs to another process: only the one that made it with new_channel() can receive"
            )
        if not office.process.reads(process):
            await office.call(lambda: office.process.ensure(process))
        while True:
            box = office.boxes.reading(channel)
            letter = box.take(time.monotonic())
            if letter is None:
                await first_letter(office.thread, (box,))
            elif (message := self._read(office, letter.channel, letter.body)) is not None:
                return message

    async def _receive_shared(self, office: Office, channel: str) -> ChannelMessage:
        box = office.shared.reading(channel)
        try:
            while True:
                letter = box.take(time.monotonic())
                if letter is None:
                    await first_letter(office.thread, (box,))
                    continue
                office.shared.took(letter)
                if (message := self._read(office, channel, letter.body)) is not None:
                    return message
        finally:
            office.shared.done(channel)

    async def new_channel(self, prefix: str = "specific") -> str:
        """The name of a channel that only this process reads."""
        office = self._office
        # A generator of its own: programs seed the common one, and two of them must not get the same names.
        unique = "".join(_random.choices(LETTERS, k=20))
        channel = f"{prefix}.{office.core.client_id}!{unique}"
        check_channel(channel)
        process = non_local(channel)
        if not office.process.reads(process):
            await office.call(lambda: office.process.ensure(process))
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
        office.thread.post(lambda: office.sender.send_group(group, body, answer))
        await answer.future

    async def group_channels(self, group: str) -> list[str]:
        """The channels of this process in a group."""
        check_group(group)
        return sorted(self._office.members.of(group))

    # -- the whole ---------------------------------------------------------------------------------------------------

    async def flush(self) -> None:
        """No message waits any more, and no group has a member."""
        office = self._office
        await office.call(office.flush)

    async def close(self) -> None:
        """Say goodbye to the broker. The layer opens again when it is used again."""
        office, self._made = self._made, None
        if office is not None and self._made_in == os.getpid():
            await office.call(office.close)

    def statistics(self) -> dict[str, int]:
        """Counters of this process: see `Office.statistics`."""
        return self._office.statistics()

    # -- bodies ------------------------------------------------------------------------------------------------------

    def _written(self, message: ChannelMessage) -> bytes:
        if not isinstance(message, dict):
            raise TypeError(f"a message is a dict, not a {type(message).__name__}")
        if RESERVED in message:
            raise AssertionError(f"{RESERVED!r} in a message: Channels reserves that key")
        body = self._serializer.dumps(message)
        if len(body) > self.max_message_size:
            raise MessageTooLarge(f"the message has {len(body)} bytes; max_message_size is {self.max_message_size}")
        return body

    def _read(self, office: Office, channel: str, body: bytes) -> ChannelMessage | None:
        try:
            return self._serializer.loads(body)
        except Unreadable as error:
            office.unreadable(channel, error)
            return None


_random: Final[Any] = random.SystemRandom()
