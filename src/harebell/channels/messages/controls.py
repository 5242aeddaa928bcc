"""Messages from layer to layer: who joins and leaves, questions and answers. In the I/O thread.

A layer that needs them reads a queue of its own for them, which outlasts its process's queues: what is told to a layer
whose connection is lost waits there for as long as a membership lasts, and is read before any other message when the
connection is back. What has to come before later messages of a group is also put into the process's own queue; a word
that comes twice is heard once, by its number.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from harebell import errors
from harebell.channels.links.batch import Part, Publish
from harebell.channels.links.connection import LayerConnection
from harebell.channels.links.link import Link, declare_queue
from harebell.channels.links.registry import LAYER
from harebell.channels.names import owner_of
from harebell.client.consumer import Consumer
from harebell.client.messages import Delivery, Message
from harebell.protocol.v091 import Table, methods as m

__all__ = ["ASKED_HEADER", "CONTROL_HEADER", "Controls"]

logger = logging.getLogger("harebell.channels")

CONTROL_HEADER: Final = "asgi_control"  # names a control message from layer to layer
ASKED_HEADER: Final = "asgi_asked"  # the number of a question, in its answers
END_SECONDS: Final = 1.0  # for the broker to delete the queue of a layer that is closed
HEARD: Final = 10_000  # numbers of words that were heard, to recognise their second copies
PERSISTENT: Final = 2

# Handles a control message: the process queue it came to ("": the layer's own), its headers, body and reply_to.
Handler = Callable[[str, Table, bytes, str], None]
# Handles a word about a membership: the group, the channel, its number, and how many seconds ago it was said.
Word = Callable[[str, str, str, float], None]


class Controls:
    """The control messages of one layer.

    on     handlers of the words "join" and "leave"
    other  handlers of all other control messages
    """

    def __init__(self, connection: LayerConnection) -> None:
        self._connection = connection
        self.on: dict[str, Word] = {}
        self.other: dict[str, Handler] = {}
        self._heard: OrderedDict[str, None] = OrderedDict()
        self._used = False
        self._starting: asyncio.Task[None] | None = None
        self._read_on: Link | None = None
        connection.on_link.append(self._restore)

    @property
    def queue(self) -> str:
        """The name of this layer's own queue, as address of answers."""
        return self._connection.names.control(self._connection.client_id)

    @property
    def is_current(self) -> bool:
        """Whether it has heard what waited for it, and hears what comes."""
        return self._read_on is not None and self._read_on is self._connection.link

    def _declaration(self, client_id: str) -> m.QueueDeclare:
        connection = self._connection
        return declare_queue(connection.names.control(client_id), connection.settings.control_arguments())

    async def ensure(self) -> None:
        """Read this layer's queue from now on."""
        while self._read_on is None or self._read_on is not self._connection.link:
            if self._starting is None:
                self._used = True
                self._starting = self._connection.thread.share(self._begin())
            await asyncio.shield(self._starting)

    async def _begin(self) -> None:
        try:
            await self._connection.over_links(self._start)
        finally:
            self._starting = None

    async def _restore(self, link: Link) -> None:
        if self._used:
            await self._start(link)

    async def _start(self, link: Link) -> None:
        """Read what waits in the queue, then listen."""
        if self._read_on is link:
            return
        declare = self._declaration(self._connection.client_id)
        answer, *_ = await link.ask([declare, *self._connection.registry.note(LAYER, self._connection.client_id)])
        if isinstance(answer, m.QueueDeclareOk) and answer.message_count:
            while True:
                (answer,) = await link.ask([m.BasicGet(self.queue)])
                if not isinstance(answer, Delivery):
                    break
                self._take(answer)
        channel = await link.channel()
        consumer = channel.consume(self.queue)
        await consumer.start()
        self._read_on = link
        self._connection.thread.start(self._read(link, consumer))

    async def end(self) -> None:
        """Delete this layer's queue: its id does not come back."""
        link, self._read_on, self._used = self._read_on, None, False
        if link is None or link is not self._connection.link:
            return  # it was not used, or ends after its time
        try:
            async with asyncio.timeout(END_SECONDS):
                await link.ask([m.QueueDelete(self.queue)])
        except (errors.HarebellError, TimeoutError):
            pass

    async def _read(self, link: Link, consumer: Consumer) -> None:
        try:
            async for delivery in consumer:
                self._take(delivery)
        except errors.HarebellError:
            pass  # the link is lost, or the queue was deleted
        if self._read_on is link:
            self._read_on = None
            if link.is_open and not self._connection.closed:
                await self._connection.over_links(self._start)

    def _take(self, delivery: Delivery) -> None:
        self.hear("", delivery)
        try:
            delivery.ack()
        except errors.HarebellError:
            pass  # it comes again, and is recognised

    def hear(self, process: str, delivery: Delivery) -> None:
        """Handle a control message that came to a process's queue, or to the layer's own ("")."""
        headers, body = delivery.headers, delivery.body
        word = headers.get(CONTROL_HEADER)
        try:
            if not isinstance(word, str):
                return
            if word in self.on:
                said = json.loads(body)
                number, group, channel = (str(said[key]) for key in ("id", "group", "channel"))
                age = max(time.time() - float(said["at"]), 0.0)
                if number in self._heard:
                    return
                self._heard[number] = None
                if len(self._heard) > HEARD:
                    self._heard.popitem(last=False)
                self.on[word](group, channel, number, age)
            elif word in self.other:
                self.other[word](process, headers, body, delivery.properties.reply_to or "")
        except Exception:
            logger.exception("a control message %r cannot be understood", word)

    def tell_owner(self, word: str, group: str, channel: str) -> tuple[list[Part], str]:
        """The requests that tell a channel's owner that it joins or leaves a group, and the number of that word."""
        names, owner = self._connection.names, owner_of(channel)
        assert owner is not None
        number = uuid.uuid4().hex
        said = {"id": number, "group": group, "channel": channel, "at": time.time()}
        headers: Table = {CONTROL_HEADER: word}
        message = Message(json.dumps(said).encode(), headers=headers, delivery_mode=PERSISTENT)
        return [
            self._declaration(owner),
            Publish(message, "", names.control(owner)),
            Publish(message, "", names.queue(channel)),  # a full queue refuses it, as it does what comes later
        ], number

    async def say(
        self, word: str, body: bytes, queue: str, headers: Table | None = None, ms: int | None = None
    ) -> bool:
        """Publish a control message to a queue; False when there is no such queue.

        ms  milliseconds after which nobody needs to hear it any more
        """
        expiration = None if ms is None else str(ms)
        message = Message(body, headers={**(headers or {}), CONTROL_HEADER: word}, expiration=expiration)

        async def ask(link: Link) -> bool:
            (answer,) = await link.ask([Publish(message, "", queue, mandatory=True)])
            return answer is True

        return await self._connection.over_links(ask)

    def say_later(
        self, word: str, body: bytes, queue: str, headers: Table | None = None, ms: int | None = None
    ) -> None:
        """As `say`, without waiting: nothing depends on its being heard."""
        self._connection.thread.start(self._said(word, body, queue, headers, ms))

    async def _said(self, word: str, body: bytes, queue: str, headers: Table | None, ms: int | None) -> None:
        try:
            await self.say(word, body, queue, headers, ms)
        except (errors.HarebellError, ImportError):
            pass
