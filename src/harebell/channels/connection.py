"""One layer's connection to the broker: its AMQP channels, and which queues are declared. In the I/O thread.

The client restores the connection, its topology and its consumers. Each kind of work has an AMQP channel of its own,
so that a refused declaration (406) disturbs no publication.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import harebell
from harebell import errors
from harebell.channels import embedded
from harebell.channels.io_thread import IOThread
from harebell.channels.names import Names, non_local
from harebell.channels.settings import Settings, explained
from harebell.client.channel import Channel
from harebell.client.connection import Connection
from harebell.client.messages import QueueInfo
from harebell.client.recovery.policy import Backoff, Recovery
from harebell.client.servers import HAREBELL, product_of

__all__ = ["FINAL", "LayerConnection"]

logger = logging.getLogger("harebell.channels")

FAST: Final = Recovery(backoff=Backoff(0.1, 5.0))
# Errors in the settings: whoever waits is told at once, and the next call tries again.
FINAL: Final = (errors.InvalidArgument, errors.AccessRefused, errors.NotAllowed, ImportError)
DISTURBED: Final = 20  # times that a declaration may fail because of another call
REMEMBERED: Final = 20_000  # message ids stored to recognise duplicates


class LayerConnection:
    """A layer's connection with its AMQP channels, and the queues that are known to be declared.

    client_id  identifies this layer in this process: the part of its channels' names before the "!"
    """

    def __init__(self, settings: Settings, thread: IOThread) -> None:
        self.settings = settings
        self.names = Names(settings.prefix)
        self.thread = thread
        self.client_id = uuid.uuid4().hex[:12]
        self.closed = False
        self.client: Connection
        self.publishing: Channel
        self.declaring: Channel
        self.on_harebell = False  # whether the broker is Harebell: it deduplicates, and lists bindings
        self.on_open: list[Callable[[LayerConnection], None]] = []
        self._opening: asyncio.Future[None] | None = None
        self._unavailable = ""  # why there is no broker yet
        self._declared: dict[str, float] = {}  # by queue: the time of declaration
        self._declaring: dict[str, asyncio.Task[QueueInfo]] = {}
        self._seen: OrderedDict[tuple[object, str], None] = OrderedDict()

    @property
    def is_open(self) -> bool:
        return self._opening is not None and self._opening.done() and not self.closed

    async def ready(self) -> None:
        """Wait until the first connection. DeadlineExceeded after the layer's timeout, ChannelClosed after close."""
        if self.closed:
            raise errors.ChannelClosed("the channel layer is closed")
        if self._opening is None:
            self._opening = self.thread.loop.create_future()
            self.thread.start(self._open(self._opening))
        if not self._opening.done():
            try:
                async with asyncio.timeout(self.settings.timeout):
                    await asyncio.shield(self._opening)
            except TimeoutError:
                why = f": {self._unavailable}" if self._unavailable else ""
                raise errors.DeadlineExceeded(
                    f"no broker at {', '.join(map(_shown, self.settings.urls))} within {self.settings.timeout:g} s{why}"
                ) from None
        else:
            self._opening.result()

    async def _open(self, opened: asyncio.Future[None]) -> None:
        """Connect, and retry until the broker answers; an error in the settings is final."""
        attempts = 0
        self._unavailable = ""
        while not self.closed:
            try:
                await self._connect()
            except FINAL as error:
                self._opening = None  # the next call retries: a password may have been set meanwhile
                if not opened.done():
                    opened.set_exception(error)
                    opened.exception()  # no caller may be left to retrieve it
                return
            except errors.PreconditionFailed as error:
                self._opening = None
                if not opened.done():
                    opened.set_exception(explained(error))
                    opened.exception()
                return
            except errors.HarebellError as error:
                if str(error) != self._unavailable:  # the same error is logged once
                    self._unavailable = str(error)
                    logger.warning("the channel layer has no broker yet: %s", error)
                attempts += 1
                await asyncio.sleep(FAST.backoff.delay(attempts))
            else:
                if not opened.done():
                    opened.set_result(None)
                return

    async def _connect(self) -> None:
        settings, names = self.settings, self.names
        urls = [await embedded.url() if url.startswith("embedded:") else url for url in settings.urls]
        client = await harebell.connect(urls, timeout=settings.timeout, recovery=FAST)
        try:
            self.on_harebell = product_of(client.server_properties) == HAREBELL
            self.declaring = declaring = await client.channel()
            await declaring.exchange_declare(names.groups, "direct", durable=True)
            await declaring.exchange_declare(names.dead_letters, "fanout", durable=True)
            await declaring.queue_declare(names.dead_letters, durable=True, arguments=settings.dead_letter_arguments())
            await declaring.queue_bind(names.dead_letters, names.dead_letters)
            await declaring.queue_declare(names.dropped, durable=True, arguments=settings.dropped_arguments())
            await declaring.queue_bind(names.dropped, names.dead_letters)
            self.publishing = await client.channel()
            await self.publishing.confirm_select()
        except BaseException:
            await client.close()
            raise
        if self.closed:  # while it was connecting
            await client.close()
            return
        self.client = client
        for callback in self.on_open:
            callback(self)

    async def close(self) -> None:
        """Close the connection; calls that wait for it fail."""
        if self.closed:
            return
        was_open = self.is_open
        self.closed = True
        if self._opening is not None and not self._opening.done():
            self._opening.set_exception(errors.ChannelClosed("the channel layer was closed"))
            self._opening.exception()
        if was_open:
            await self.client.close()

    def is_declared(self, channel: str) -> bool:
        """Whether the channel's queue was declared recently: the broker deletes one that is unused for two expiries."""
        at = self._declared.get(non_local(channel))
        return at is not None and time.monotonic() - at < self.settings.expiry / 2

    async def declare(self, channel: str) -> None:
        """Declare the channel's queue. InvalidArgument when another process has declared it with other settings."""
        name = non_local(channel)
        task = self._declaring.get(name)
        if task is None:
            task = self._declaring[name] = self.thread.loop.create_task(self._declare(name))
            task.add_done_callback(lambda _: self._declaring.pop(name))
        await asyncio.shield(task)

    async def _declare(self, name: str) -> QueueInfo:
        arguments = self.settings.queue_arguments(self.names, name, self.on_harebell)
        for last in (*[False] * DISTURBED, True):
            try:
                info = await self.declaring.queue_declare(self.names.queue(name), durable=True, arguments=arguments)
            except errors.NotFound:  # a declaration cannot cause it: another call of the AMQP channel was refused
                if last:
                    raise
                continue
            except errors.PreconditionFailed as error:
                raise explained(error) from error
            break
        self._declared[name] = time.monotonic()
        return info

    async def pending(self, channel: str) -> int:
        """The number of messages in the channel's queue."""
        await self.ready()
        return (await self._declare(non_local(channel))).message_count

    def undeclared(self, channel: str) -> None:
        """Note that the broker does not have the channel's queue."""
        self._declared.pop(non_local(channel), None)

    @property
    def known_queues(self) -> list[str]:
        """The channels whose queues this layer has declared, by their non-local names."""
        return list(self._declared)

    def is_new(self, sent: object, place: str) -> bool:
        """Whether the message is new at that place, not a duplicate redelivered after a lost connection.

        sent   the message's id; a message without one is always new
        place  a message to a group arrives at several places, and once at each
        """
        seen, key = self._seen, (sent, place)
        if sent is None:
            return True
        if key in seen:
            return False
        seen[key] = None
        if len(seen) > REMEMBERED:
            seen.popitem(last=False)
        return True

    def was_seen(self, sent: object, place: str) -> bool:
        return sent is not None and (sent, place) in self._seen


def _shown(url: str) -> str:
    """The URL without the password."""
    scheme, found, rest = url.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}" if found else url
