"""Both ends of a shovel: brokers of both makes, queues to fill, and what arrived."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import harebell
from harebell import Message, Publication
from harebell.bridge import Destination, Shovel, ShovelOptions, Source
from harebell.client.channel import Channel
from harebell.testing import FaultProxy

PATIENCE = 60.0  # seconds; reached only when something is broken


def message(number: int) -> Message:
    """A message with every property and every type of header, all of them different from message to message."""
    return Message(
        b"%d" % number,
        content_type="text/plain",
        content_encoding="identity",
        headers={
            "number": number,
            "large": 2**40 + number,
            "text": f"n° {number}",
            "ratio": number / 7,
            "money": Decimal("12.50"),
            "yes": True,
            "nothing": None,
            "when": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
            "list": [1, "two", {"three": 3}],
            "table": {"deep": {"er": [number]}},
        },
        delivery_mode=2,
        priority=number % 5,
        correlation_id=f"c{number}",
        reply_to="answers",
        message_id=f"m{number}",
        timestamp=datetime.fromtimestamp(1_700_000_000 + number, UTC),
        type="order",
        app_id="kit",
    )


def plain(number: int) -> Message:
    """One that RabbitMQ 3.10 puts into a stream: it keeps them as AMQP 1.0, and fails at decimals, lists and tables."""
    return Message(b"%d" % number, headers={"number": number, "text": f"n° {number}"}, message_id=f"m{number}")


class End:
    """One broker and one queue of it; `channel` has confirms on."""

    def __init__(self, url: str, queue: str, channel: Channel) -> None:
        self.url = url
        self.queue = queue
        self.channel = channel

    async def fill(self, count: int, start: int = 0, make: Callable[[int], Message] = message) -> None:
        await self.channel.publish_many(
            Publication(make(number), "", self.queue) for number in range(start, start + count)
        )

    async def ready(self, queue: str | None = None) -> int:
        return (await self.channel.queue_declare(queue or self.queue, passive=True)).message_count

    async def take(self, queue: str | None = None) -> list[harebell.Delivery]:
        """All that is in the queue."""
        found = []
        while (delivery := await self.channel.get(queue or self.queue, no_ack=True)) is not None:
            found.append(delivery)
        return found

    async def until(self, count: int, queue: str | None = None) -> None:
        """Wait until so many are ready."""
        async with asyncio.timeout(PATIENCE):
            while await self.ready(queue) < count:  # noqa: ASYNC110  of another process
                await asyncio.sleep(0.02)


def options(source: End, destination: End, **changes: Any) -> ShovelOptions:
    """From queue to queue. Names of fields of Source with `src_` before them, of Destination with `dest_`."""
    of_source = {name[4:]: value for name, value in changes.items() if name.startswith("src_")}
    of_destination = {name[5:]: value for name, value in changes.items() if name.startswith("dest_")}
    rest = {name: value for name, value in changes.items() if not name.startswith(("src_", "dest_"))}
    return ShovelOptions(
        Source(**{"uris": (source.url,), "queue": source.queue} | of_source),
        Destination(**{"uris": (destination.url,), "queue": destination.queue} | of_destination),
        **rest,
    )


async def move(shovel: Shovel) -> Shovel:
    """Run it to its end."""
    async with asyncio.timeout(PATIENCE):
        await shovel.run()
    return shovel


async def until(holds: Callable[[], bool]) -> None:
    """Wait for a state of the shovel for which it has no event."""
    async with asyncio.timeout(PATIENCE):
        while not holds():  # noqa: ASYNC110  it has no event
            await asyncio.sleep(0.01)


def same(deliveries: list[harebell.Delivery], count: int, start: int = 0) -> bool:
    """Whether these are exactly the messages of that range, each once, in order, equal in body and properties."""
    wanted = [message(number) for number in range(start, start + count)]
    return [(each.body, each.properties) for each in deliveries] == [(each.body, each.properties) for each in wanted]


def proxied(url: str, proxy: FaultProxy) -> str:
    host, slash, path = url.partition("@")[2].partition("/")
    del host
    return f"amqp://guest:guest@{proxy.host}:{proxy.port}{slash}{path}"
