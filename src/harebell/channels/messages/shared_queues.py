"""Reads queues for which processes compete: normal channels, single-reader channels, and, for ASGI 1, whole queues
of process-local channels. In the I/O thread.

A consumer lives as long as a reader waits, and a moment longer; it holds few messages, and requeues those that no
reader took. A reader gets a message once, or not at all: the message is acknowledged first, and its reader gets it
only when the broker has answered a later request (`secure`). If the connection is lost in between, the broker may have
processed the acknowledgement, or may deliver the message again: no reader gets it here, and it is counted as
`uncertain`.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from harebell import errors
from harebell.channels.links.connection import LayerConnection, is_final
from harebell.channels.links.link import Link
from harebell.channels.messages.controls import CONTROL_HEADER
from harebell.channels.messages.mailbox import FOREVER, Mailbox, MailboxEntry
from harebell.channels.messages.publishing import CHANNEL_HEADER, ID_HEADER
from harebell.channels.names import local_part, non_local
from harebell.channels.settings import explained
from harebell.client.channel import Channel
from harebell.client.consumer import Consumer
from harebell.client.messages import Delivery
from harebell.protocol.v091 import methods as m

__all__ = ["SharedQueueReaders"]

logger = logging.getLogger("harebell.channels")

PREFETCH: Final = 10  # messages that one process holds
LINGER: Final = 0.05  # seconds without a reader after which held messages are requeued


class SharedQueueReader:
    """The consumer of one shared queue."""

    def __init__(self, name: str, now: float) -> None:
        self.name = name
        self.box = Mailbox(1 << 30, now)
        self.channel: Channel | None = None
        self.consumer: Consumer | None = None
        self.readers = 0  # readers that wait now
        self.left = now  # when the last reader left
        self.starting = asyncio.Lock()  # it is not ended in the middle of its start


class SharedQueueReaders:
    """The consumers of one layer; `reading` and `done` are for any thread.

    resend     publishes a body to a channel
    uncertain  messages whose acknowledgement a lost connection cut off: removed, or delivered again
    """

    def __init__(self, connection: LayerConnection, resend: Callable[[str, bytes], None]) -> None:
        self._connection = connection
        self._resend = resend
        self.uncertain = 0
        self._lock = threading.Lock()
        self._readers: dict[str, SharedQueueReader] = {}
        self._sweeping = False

    def reading(self, name: str) -> Mailbox:
        """The mailbox of the queue of that (non-local) name, for a reader; `done` must follow."""
        with self._lock:
            reader = self._readers.get(name)
            if reader is None:
                reader = self._readers[name] = SharedQueueReader(name, time.monotonic())
                self._connection.thread.post(lambda: self._start(reader))
            reader.readers += 1
            return reader.box

    def done(self, name: str) -> None:
        """Note that a reader has a message, or has stopped waiting."""
        with self._lock:
            reader = self._readers.get(name)
            if reader is not None:
                reader.readers -= 1
                reader.left = time.monotonic()

    async def secure(self, entry: MailboxEntry) -> bool:
        """Secure an entry for its reader; False when the reader must not get it: it comes again, or is uncertain.

        The first reader does that. Those who get the entry because others were cancelled wait for what came of it.
        """
        if entry.claim is None:
            entry.claim = self._connection.thread.loop.create_future()
            secured = False
            try:
                secured = entry.delivery is None or await self._acknowledge(entry, entry.delivery)
            finally:
                entry.claim.set_result(secured)  # whatever happens: others may wait for it
        return await entry.claim

    async def _acknowledge(self, entry: MailboxEntry, delivery: Delivery) -> bool:
        reader = self._readers.get(non_local(entry.channel))
        if reader is None or reader.channel is None:
            return False  # it is requeued
        channel, sent = reader.channel, _sent(entry)
        try:
            delivery.ack()
        except errors.HarebellError:
            return False  # its connection was lost: it comes again
        entry.delivery = None
        try:
            await channel.qos(prefetch_count=PREFETCH)
        except errors.HarebellError:
            self.uncertain += 1
            return False
        self._connection.is_new(sent, entry.channel)  # a duplicate of it will be recognised
        return True

    def disclaim(self, box: Mailbox, entry: MailboxEntry) -> None:
        """Put back an entry whose reader was cancelled before it had the message: the next reader gets it.

        For any thread, and at once: that reader may come before the I/O thread does, and takes what is there.
        """
        box.put_back(entry)
        self._connection.thread.post(lambda: self._connection.thread.start(self._put_elsewhere(box, entry)))

    async def _put_elsewhere(self, box: Mailbox, entry: MailboxEntry) -> None:
        """Take an entry out of a mailbox that nobody reads any more."""
        name = non_local(entry.channel)
        reader = self._readers.get(name)
        if reader is not None and reader.box is box:
            return
        if not box.remove(lambda other: other is entry):
            return  # a reader has it, or the end of the consumer gave it back
        if entry.claim is None or not await entry.claim:
            return  # it comes again, or is uncertain
        reader = self._readers.get(name)
        if reader is not None:
            reader.box.put_back(entry)
        else:
            self._return_to_sender(entry)

    def _return_to_sender(self, entry: MailboxEntry) -> None:
        """Publish a message again that is acknowledged at the broker and has no reader here."""
        self._resend(entry.channel, entry.body)

    def _start(self, reader: SharedQueueReader) -> None:
        self._connection.thread.start(self._read(reader))
        if not self._sweeping:
            self._sweeping = True
            self._connection.thread.loop.call_later(LINGER, self._sweep)

    async def _read(self, reader: SharedQueueReader) -> None:
        connection = self._connection
        while not connection.closed and self._readers.get(reader.name) is reader:
            try:
                link = await connection.ready()
                async with reader.starting:
                    if self._readers.get(reader.name) is not reader:
                        return  # what it would take nobody would read
                    consumer = await self._consumer(reader, link)
                async for delivery in consumer:
                    self._take(reader, delivery)
                return
            except (errors.ConsumerCancelled, errors.NotFound):
                connection.undeclared(reader.name)  # the queue was deleted: declare it again
                if reader.channel is not None:
                    await self._closed(reader.channel)
            except (errors.HarebellError, ImportError) as error:
                if connection.closed:
                    return
                if is_final(error):
                    with self._lock:  # the next reader retries
                        if self._readers.get(reader.name) is reader:
                            del self._readers[reader.name]
                    reader.box.fail(error)
                    return
                if connection.link is not None:  # else the next link is awaited
                    logger.warning("reading %s: %s", reader.name, error)
                await asyncio.sleep(0.2)

    async def _consumer(self, reader: SharedQueueReader, link: Link) -> Consumer:
        if not self._connection.is_declared(reader.name):
            await self._connection.declare(reader.name)
        reader.channel = await link.client.channel()
        queue = self._connection.names.queue(reader.name)
        reader.consumer = consumer = reader.channel.consume(queue, prefetch=PREFETCH)
        await consumer.start()
        return consumer

    async def _closed(self, channel: Channel) -> None:
        try:
            await channel.close()
        except errors.HarebellError:
            pass  # with its connection

    def _take(self, reader: SharedQueueReader, delivery: Delivery) -> None:
        entry = self._entry(reader.name, delivery)
        if entry is None or self._connection.was_seen(_sent(entry), entry.channel):
            _ack(delivery)
            return
        sent = _sent(entry)
        if (
            delivery.redelivered and sent is not None
        ):  # it was delivered over a lost connection, and no reader took it yet
            reader.box.remove(lambda other: _sent(other) == sent and other.channel == entry.channel)
        reader.box.put(entry)

    def _entry(self, name: str, delivery: Delivery) -> MailboxEntry | None:
        """The entry of a delivery, with the channel's full name; None for a control message."""
        headers = delivery.headers
        if CONTROL_HEADER in headers:
            return None
        local = headers.get(CHANNEL_HEADER)
        if not isinstance(local, str):
            hopped = headers.get("x-first-death-queue")
            member = self._connection.names.channel_of("member", hopped) if isinstance(hopped, str) else None
            local = local_part(member) if member is not None else ""
        entry = MailboxEntry(name + local, delivery.body, FOREVER)  # its queue knows when it expires
        entry.delivery = delivery
        return entry

    def _sweep(self) -> None:
        """End the consumers without a reader."""
        now = time.monotonic()
        with self._lock:
            idle = [reader for reader in self._readers.values() if not reader.readers and now - reader.left >= LINGER]
            for reader in idle:
                del self._readers[reader.name]
            self._sweeping = bool(self._readers)
        for reader in idle:
            self._connection.thread.start(self._end(reader))
        if self._sweeping:
            self._connection.thread.loop.call_later(LINGER, self._sweep)

    def fail(self, failure: Exception) -> None:
        """Raise this error in waiting readers: no messages come any more."""
        with self._lock:
            readers = list(self._readers.values())
            self._readers.clear()
        for reader in readers:
            reader.box.fail(failure)

    def drop(self) -> None:
        """Drop the messages that wait here for a reader."""
        with self._lock:
            readers = list(self._readers.values())
        for reader in readers:
            for entry in reader.box.empty():
                if entry.delivery is not None:
                    _ack(entry.delivery)

    async def get(self, name: str) -> MailboxEntry | None:
        """Get one message from a queue with basic.get; None without a ready one."""
        connection = self._connection

        async def ask(link: Link) -> Delivery | None:
            request = m.BasicGet(connection.names.queue(name), True)
            if connection.is_declared(name):
                try:
                    (answer,) = await link.ask([request])
                except errors.NotFound:
                    connection.undeclared(name)
                else:
                    return answer if isinstance(answer, Delivery) else None
            *_, answer = await link.ask([*connection.queue_declaration(link, name), request])
            connection.declared(name)
            return answer if isinstance(answer, Delivery) else None

        while True:
            try:
                delivery = await connection.over_links(ask)
            except errors.PreconditionFailed as error:
                raise explained(error) from error
            if delivery is None:
                return None
            entry = self._entry(name, delivery)
            sent = _sent(entry) if entry is not None else None
            if entry is not None and connection.is_new(sent, entry.channel):
                entry.delivery = None
                return entry

    async def _end(self, reader: SharedQueueReader) -> None:
        """Cancel the consumer and requeue the messages that it holds."""
        entries = reader.box.empty()
        try:
            async with reader.starting:
                pass
            if reader.consumer is not None:
                await reader.consumer.cancel()
        except errors.HarebellError:
            pass  # the connection is gone, and what is unacknowledged is back in its queue
        entries += reader.box.empty()
        for entry in entries:
            if entry.claim is not None and await entry.claim:
                self._return_to_sender(entry)
        try:
            for entry in reversed(entries):
                if entry.claim is None and entry.delivery is not None:
                    entry.delivery.nack(requeue=True)
            if reader.channel is not None:
                await reader.channel.close()
        except errors.HarebellError:
            pass  # as above


def _ack(delivery: Delivery) -> None:
    try:
        delivery.ack()
    except errors.HarebellError:
        pass  # its connection was lost


def _sent(entry: MailboxEntry) -> object:
    """The id that the sender gave the message."""
    return entry.delivery.headers.get(ID_HEADER) if entry.delivery is not None else None
