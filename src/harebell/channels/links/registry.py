"""Which layers, queues and memberships there are, over all processes: a queue of records. In the I/O thread.

Brokers do not list over AMQP what they hold. So whoever makes something writes a record; whoever ends a membership that
the broker keeps writes that. Whoever wants to know reads all of them, removes those that later ones make void, and
leaves the others there. Readers take turns: each is the only consumer of the queue while it reads.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections import OrderedDict
from typing import Final

from harebell import errors
from harebell.channels.links.batch import Part, Publish
from harebell.channels.links.link import Link, declare_queue
from harebell.channels.names import Names
from harebell.channels.settings import Settings
from harebell.client.channel import Channel
from harebell.client.messages import Delivery, Message

__all__ = ["GONE", "LAYER", "LEFT", "MEMBER", "QUEUE", "Registered", "Registry"]

LAYER: Final = "layer"  # and its id
QUEUE: Final = "queue"  # and a channel that is no process-local one of a layer, up to its "!"
MEMBER: Final = "member"  # a group, and a channel whose membership the broker keeps
LEFT: Final = "left"  # the same two, when that has ended
GONE: Final = "gone"  # a channel that has left all its groups

KNOWN: Final = 10_000  # records of this layer that are remembered as written
BUSY_SECONDS: Final = 0.02  # until the next attempt, while another layer reads
END_HEADER: Final = "asgi_end"

Record = tuple[str, ...]


class Registered:
    """What the records say.

    layers   ids of layers, also of some that have ended
    queues   channels with a queue, up to their "!"; also of queues that the broker has deleted meanwhile
    members  memberships that the broker keeps, as (group, channel)
    """

    def __init__(self) -> None:
        self.layers: set[str] = set()
        self.queues: set[str] = set()
        self.members: set[tuple[str, str]] = set()


class Registry:
    """The records of one layer's prefix."""

    def __init__(self, settings: Settings, names: Names) -> None:
        self._settings = settings
        self._names = names
        self._written: OrderedDict[Record, float] = OrderedDict()

    def note(self, *record: str) -> list[Part]:
        """The requests that write a record; none for a layer or a queue that was written lately."""
        if record[0] in (LAYER, QUEUE):
            now, written = time.monotonic(), self._written
            if now - written.get(record, -self._settings.group_expiry) < self._settings.group_expiry / 2:
                return []
            written[record] = now
            written.move_to_end(record)
            if len(written) > KNOWN:
                written.popitem(last=False)
        message = Message(json.dumps(record).encode(), delivery_mode=2)
        return [Publish(message, "", self._names.registry)]

    def forget(self) -> None:
        """Write all records again: the broker may be another one."""
        self._written.clear()

    async def read(self, link: Link) -> Registered:
        """What all records together say. DeadlineExceeded when another consumer has their queue all the time."""
        seconds, queue = self._settings.timeout, self._names.registry
        await link.ask([declare_queue(queue, self._settings.registry_arguments())])
        try:
            async with asyncio.timeout(seconds) as limit:
                while True:
                    channel = await link.client.channel()
                    try:
                        return await self._read(link, channel)
                    except errors.AccessRefused:
                        await asyncio.sleep(BUSY_SECONDS)
                    finally:
                        await _closed(channel)  # the records go back to their places
        except TimeoutError:
            if not limit.expired():  # the broker has not answered
                raise
            raise errors.DeadlineExceeded(
                f"queue {queue!r}, which tells the layers and their channels, could not be read within {seconds:g} s: "
                "layers consume it in turn; end any other consumer of it"
            ) from None

    async def _read(self, link: Link, channel: Channel) -> Registered:
        end = uuid.uuid4().hex
        consumer = channel.consume(self._names.registry, exclusive=True)
        await consumer.start()
        await link.ask([Publish(Message(b"", headers={END_HEADER: end}), "", self._names.registry)])
        valid: dict[Record, Delivery] = {}
        async for delivery in consumer:
            word = delivery.headers.get(END_HEADER)
            if word is None:
                _apply(delivery, valid)
                continue
            delivery.ack()
            if word == end:
                break
        found = Registered()
        for kind, *words in valid:
            if kind == LAYER:
                found.layers.add(words[0])
            elif kind == QUEUE:
                found.queues.add(words[0])
            elif kind == MEMBER:
                found.members.add((words[0], words[1]))
        return found


def _apply(delivery: Delivery, valid: dict[Record, Delivery]) -> None:
    """Take one more record into account, and remove from the queue what it makes void."""
    try:
        record = tuple(map(str, json.loads(delivery.body)))
        kind, name = record[0], record[1]
        void = {
            LEFT: lambda: [(MEMBER, *record[1:])],
            GONE: lambda: [known for known in valid if known[0] == MEMBER and known[2] == name],
        }.get(kind, lambda: [record])()
    except (ValueError, IndexError):
        delivery.ack()  # another program's
        return
    for each in void:
        if each in valid:
            valid.pop(each).ack()
    if kind in (LEFT, GONE):
        delivery.ack()
    else:
        valid[record] = delivery


async def _closed(channel: Channel) -> None:
    try:
        await channel.close()
    except errors.HarebellError:
        pass  # with its connection
