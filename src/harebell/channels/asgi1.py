"""The layer of ASGI 1 (Channels 1): synchronous, thread-safe, several channels at a time.

It talks to layers of `layer` with the same prefix. A whole queue of process-local channels ("name!") is read by one
process; that process must not read the same channels through the other face.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import Any, ClassVar, Final

from channels.exceptions import ChannelFull, MessageTooLarge

from harebell.channels.base import Face, random_letters
from harebell.channels.io_thread import SyncAnswer
from harebell.channels.mailbox import SyncWaiter
from harebell.channels.names import check_channel, check_group, non_local
from harebell.channels.parts import Office
from harebell.channels.publishing import Full
from harebell.channels.serializing import ChannelMessage

__all__ = ["AsgiChannelLayer"]

BLOCK_SECONDS: Final = 5.0
UNIQUE: Final = 20  # random letters of a single-reader channel


class AsgiChannelLayer(Face):
    """A channel layer over AMQP with ASGI 1's methods; the settings are those of `Face`.

    block_seconds  after which a blocking receive gives (None, None), as the specification allows
    """

    ChannelFull = ChannelFull
    MessageTooLarge = MessageTooLarge
    extensions: ClassVar[list[str]] = ["groups", "flush", "statistics"]

    def __init__(self, url: str | None = None, *, block_seconds: float = BLOCK_SECONDS, **settings: Any) -> None:
        super().__init__(url, **settings)
        self.block_seconds = block_seconds
        self._sent = 0

    # -- channels ----------------------------------------------------------------------------------------------------

    def send(self, channel: str, message: ChannelMessage) -> None:
        """Send to a channel. ChannelFull when its capacity is reached; MessageTooLarge; TypeError for a bad name."""
        check_channel(channel)
        body = self._written(message)
        office = self._office
        answer: SyncAnswer[None] = SyncAnswer()
        office.thread.post(lambda: office.sender.send(channel, body, answer))
        try:
            answer.wait()
        except Full:
            raise ChannelFull(self._full(office, channel)) from None
        self._sent += 1

    def receive(self, channels: Sequence[str], block: bool = False) -> tuple[str | None, ChannelMessage | None]:
        """(channel, message) of the first of the channels that has one, in an order of its own each time.

        (None, None) when none has one; with `block` after `block_seconds`. A process-local channel is named up to its
        "!", and the name that is given back is the whole one.
        """
        names = [check_channel(channel) for channel in channels]
        for name in names:
            if non_local(name) != name:
                raise TypeError(f"{name!r}: in receive() a process-local channel is named up to its !")
        random.shuffle(names)  # else a busy channel would starve those behind it
        office = self._office
        for name in names:
            while (letter := office.call_blocking(lambda name=name: office.shared.get(name))) is not None:  # type: ignore[misc]
                if (message := self._read(office, letter)) is not None:
                    return letter.channel, message
        return self._receive_blocking(office, names) if block and names else (None, None)

    def _receive_blocking(self, office: Office, names: list[str]) -> tuple[str | None, ChannelMessage | None]:
        deadline = time.monotonic() + self.block_seconds
        boxes = [office.shared.reading(name) for name in names]
        try:
            while True:
                for box in boxes:
                    while (letter := box.take(time.monotonic())) is not None:
                        secured = office.call_blocking(lambda letter=letter: office.shared.secure(letter))  # type: ignore[misc]
                        if secured and (message := self._read(office, letter)) is not None:
                            return letter.channel, message
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
                office.shared.done(name)

    def new_channel(self, pattern: str) -> str:
        """The name of a single-reader channel: the pattern, which ends in "?", and random letters."""
        if not pattern.endswith("?"):
            raise TypeError(f"{pattern!r}: the pattern of a single-reader channel ends in ?")
        channel = pattern + random_letters(UNIQUE)
        check_channel(channel)
        office = self._office

        async def declare() -> None:
            await office.core.ready()
            await office.core.declare(channel)

        office.call_blocking(declare)
        return channel

    # -- groups ------------------------------------------------------------------------------------------------------

    def group_add(self, group: str, channel: str) -> None:
        """Put a channel into a group; again to have it stay longer."""
        check_group(group)
        check_channel(channel)
        office = self._office
        office.call_blocking(lambda: office.groups.add(group, channel))

    def group_discard(self, group: str, channel: str) -> None:
        """Take a channel out of a group; no error when it is not in it."""
        check_group(group)
        check_channel(channel)
        office = self._office
        office.call_blocking(lambda: office.groups.discard(group, channel))

    def send_group(self, group: str, message: ChannelMessage) -> None:
        """Send to all channels of a group; one that is full misses it."""
        check_group(group)
        body = self._written(message)
        office = self._office
        answer: SyncAnswer[None] = SyncAnswer()
        office.thread.post(lambda: office.sender.send_group(group, body, answer))
        answer.wait()
        self._sent += 1

    def group_channels(self, group: str, seconds: float = 1.0) -> list[str]:
        """The channels in a group, of every process, as far as they answer within `seconds`; see `presence`."""
        check_group(group)
        office = self._office
        return office.call_blocking(lambda: office.presence.of(group, seconds))

    # -- the whole ---------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """No message waits any more, and no group has a member, of those that this layer knows."""
        office = self._office
        office.call_blocking(office.flush)

    def close(self) -> None:
        """Say goodbye to the broker. The layer opens again when it is used again."""
        office = self._left()
        if office is not None:
            office.call_blocking(office.close)

    def global_statistics(self) -> dict[str, int]:
        """messages_count: sent by this layer; channel_full_count: how often it was told ChannelFull."""
        return {"messages_count": self._sent, "channel_full_count": self._office.full}

    def channel_statistics(self, channel: str) -> dict[str, int]:
        """messages_pending: how many wait in the channel now."""
        check_channel(channel)
        office = self._office
        return {"messages_pending": office.call_blocking(lambda: office.core.pending(channel))}
