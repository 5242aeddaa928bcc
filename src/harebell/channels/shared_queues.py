"""Reading queues for which processes compete: normal channels, single-reader channels, and, for ASGI 1, whole queues
of process-local channels. In the I/O thread.

A consumer stands as long as somebody asks, and a moment longer; it holds few messages, and what nobody took goes back
to the queue, in its place. A message is handed over once, or not at all: it is acknowledged first, and only when the
broker has answered something that was said after that (`secure`) is it its reader's. Where the connection is lost
between, the broker may have heard the acknowledgement, or deliver the message again: it is not handed over, and counted
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
from harebell.channels.connection import Core
from harebell.channels.mailbox import FOREVER, Letter, Mailbox
from harebell.channels.names import local_part, non_local
from harebell.channels.publishing import CHANNEL_HEADER, CONTROL_HEADER, ID_HEADER
from harebell.client.channel import Channel
from harebell.client.consumer import Consumer
from harebell.client.messages import Delivery

__all__ = ["SharedReaders"]

logger = logging.getLogger("harebell.channels")

PREFETCH: Final = 10  # messages that one process holds ready
LINGER: Final = 0.05  # seconds without a reader after which what is held goes back


class SharedReader:
    """One queue's consumer."""

    def __init__(self, name: str, now: float) -> None:
        self.name = name
        self.box = Mailbox(1 << 30, now)
        self.channel: Channel | None = None
        self.consumer: Consumer | None = None
        self.readers = 0  # who wait for it this moment
        self.left = now  # when the last one went


class SharedReaders:
    """The consumers of one layer; `reading` and `done` are for any thread.

    resend     publishes a body to a channel
    uncertain  messages that a lost connection made nobody's: the broker forgot them, or delivers them again
    """

    def __init__(self, core: Core, resend: Callable[[str, bytes], None]) -> None:
        self._core = core
        self._resend = resend
        self.uncertain = 0
        self._lock = threading.Lock()
        self._readers: dict[str, SharedReader] = {}
        self._sweeping = False

    def reading(self, name: str) -> Mailbox:
        """Somebody reads the queue of that (non-local) name; `done` must follow."""
        with self._lock:
            reader = self._readers.get(name)
            if reader is None:
                reader = self._readers[name] = SharedReader(name, time.monotonic())
                self._core.thread.post(lambda: self._start(reader))
            reader.readers += 1
            return reader.box

    def done(self, name: str) -> None:
        """He has what he wanted, or gave up."""
        with self._lock:
            reader = self._readers.get(name)
            if reader is not None:
                reader.readers -= 1
                reader.left = time.monotonic()

    # -- in the thread, as coroutines --------------------------------------------------------------------------------

    async def secure(self, letter: Letter) -> bool:
        """Make a letter the reader's own; False when it is not to be handed over: it comes again, or is uncertain."""
        letter.claim = self._core.thread.loop.create_future()
        secured = letter.delivery is None or await self._acknowledge(letter, letter.delivery)
        letter.claim.set_result(secured)
        return secured

    async def _acknowledge(self, letter: Letter, delivery: Delivery) -> bool:
        reader = self._readers.get(non_local(letter.channel))
        if reader is None or reader.channel is None:
            return False  # it goes back to its queue
        channel, sent = reader.channel, _sent(letter)
        connected = channel.test().reconnection_count
        try:
            delivery.ack()
        except errors.HarebellError:
            return False  # its connection was lost: it comes again
        letter.delivery = None
        try:
            await channel.qos(prefetch_count=PREFETCH)
        except errors.HarebellError:
            self.uncertain += 1
            return False
        if channel.test().reconnection_count != connected:
            self.uncertain += 1
            return False
        self._core.is_new(sent, letter.channel)  # should it come again, it is known
        return True

    async def disclaim(self, letter: Letter) -> None:
        """Its reader went before he had it: it is the next one's."""
        if letter.claim is not None and await letter.claim:
            reader = self._readers.get(non_local(letter.channel))
            if reader is not None:
                reader.box.put_back(letter)
            else:
                self._return_to_sender(letter)

    def _return_to_sender(self, letter: Letter) -> None:
        """It is no longer its queue's, and nobody reads here: it goes through the broker again."""
        self._resend(letter.channel, letter.body)

    # -- in the thread -----------------------------------------------------------------------------------------------

    def _start(self, reader: SharedReader) -> None:
        self._core.thread.start(self._read(reader))
        if not self._sweeping:
            self._sweeping = True
            self._core.thread.loop.call_later(LINGER, self._sweep)

    async def _read(self, reader: SharedReader) -> None:
        core = self._core
        while not core.closed and self._readers.get(reader.name) is reader:
            try:
                await core.ready()
                await core.declare(reader.name)
                if reader.channel is None:
                    reader.channel = await core.connection.channel()
                reader.consumer = reader.channel.consume(core.names.queue(reader.name), prefetch=PREFETCH)
                await reader.consumer.start()
                async for delivery in reader.consumer:
                    self._take(reader, delivery)
                return
            except errors.ConsumerCancelled:
                core.undeclared(reader.name)  # somebody deleted the queue: it is declared again
            except (errors.InvalidArgument, errors.AccessRefused, ImportError) as error:
                with self._lock:  # the next one who reads tries again
                    if self._readers.get(reader.name) is reader:
                        del self._readers[reader.name]
                reader.box.fail(error)
                return
            except errors.HarebellError as error:
                if core.closed:
                    return
                logger.warning("reading %s: %s", reader.name, error)
                await asyncio.sleep(0.2)

    def _take(self, reader: SharedReader, delivery: Delivery) -> None:
        letter = self._letter(reader.name, delivery)
        if letter is None or self._core.was_seen(_sent(letter), letter.channel):
            _ack(delivery)
            return
        sent = _sent(letter)
        if delivery.redelivered and sent is not None:  # a lost connection had brought it, and nobody took it yet
            reader.box.remove(lambda other: _sent(other) == sent and other.channel == letter.channel)
        reader.box.put(letter)

    def _letter(self, name: str, delivery: Delivery) -> Letter | None:
        """What was sent, under the channel's full name; None for a word from layer to layer."""
        headers = delivery.headers
        if CONTROL_HEADER in headers:
            return None
        local = headers.get(CHANNEL_HEADER)
        if not isinstance(local, str):
            hopped = headers.get("x-first-death-queue")
            member = self._core.names.channel_of("member", hopped) if isinstance(hopped, str) else None
            local = local_part(member) if member is not None else ""
        letter = Letter(name + local, delivery.body, FOREVER)  # its queue knows when it expires
        letter.delivery = delivery
        return letter

    def _sweep(self) -> None:
        """End the consumers that nobody waits for."""
        now = time.monotonic()
        with self._lock:
            idle = [reader for reader in self._readers.values() if not reader.readers and now - reader.left >= LINGER]
            for reader in idle:
                del self._readers[reader.name]
            self._sweeping = bool(self._readers)
        for reader in idle:
            self._core.thread.start(self._end(reader))
        if self._sweeping:
            self._core.thread.loop.call_later(LINGER, self._sweep)

    def fail(self, failure: errors.HarebellError) -> None:
        """No letters come any more: whoever waits is told why."""
        with self._lock:
            readers = list(self._readers.values())
        for reader in readers:
            reader.box.fail(failure)

    async def get(self, name: str) -> Letter | None:
        """One message, if there is one now, off its queue."""
        core = self._core
        await core.ready()
        if not core.is_declared(name):
            await core.declare(name)
        while True:
            delivery = await core.declaring.get(core.names.queue(name), no_ack=True)
            if delivery is None:
                return None
            letter = self._letter(name, delivery)
            sent = _sent(letter) if letter is not None else None
            if letter is not None and core.is_new(sent, letter.channel):
                letter.delivery = None
                return letter

    async def _end(self, reader: SharedReader) -> None:
        """Give back what it holds."""
        letters = reader.box.empty()
        try:
            if reader.consumer is not None:
                await reader.consumer.cancel()
            letters += reader.box.empty()
            for letter in reversed(letters):
                if letter.delivery is not None:
                    letter.delivery.nack(requeue=True)
                else:
                    self._return_to_sender(letter)
            if reader.channel is not None:
                await reader.channel.close()
        except errors.HarebellError:
            pass  # the connection is gone, and its messages are back in their queue


def _ack(delivery: Delivery) -> None:
    try:
        delivery.ack()
    except errors.HarebellError:
        pass  # its connection was lost


def _sent(letter: Letter) -> object:
    """The id that its sender gave it."""
    return letter.delivery.headers.get(ID_HEADER) if letter.delivery is not None else None
