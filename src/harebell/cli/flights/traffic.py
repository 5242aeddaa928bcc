"""Publishes the flights, processes flights.ops, and counts the messages of queues, all with the client.

Rules: the consumer decides by the message alone, as a real one would: it acknowledges a flight that departed and
rejects one that did not. No wait is endless: a number that has not changed for PATIENCE seconds is taken as it is, and
the comparison of the counts then fails.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from harebell import Message, Publication
from harebell.cli.flights import topology
from harebell.cli.flights.data import Expected, Flight

if TYPE_CHECKING:
    from harebell import Connection, Delivery
    from harebell.client.consumer import Consumer

__all__ = ["PATIENCE", "Tally", "collect_alerts", "depth", "depth_once_steady", "log_length", "move"]

PATIENCE: Final = 30.0  # seconds; a RabbitMQ under load may pause for some
PUBLISH_SECONDS: Final = 1800.0  # for all flights together
PREFETCH: Final = 2000
WINDOW: Final = 5000  # unconfirmed publications
SILENCE: Final = 0.5  # seconds without a delivery after which a stream at rest has been read to its end
POLL_SECONDS: Final = 0.05  # between two readings of a number
PERSISTENT: Final = 2


class Tally:
    """The progress of publisher and consumer; the display reads it while they run. Times are seconds."""

    def __init__(self) -> None:
        self.published = 0  # passed to the client
        self.confirmed = 0  # confirmed by the broker; set at the end
        self.acked = 0
        self.rejected = 0
        self.publishing = 0.0
        self.consuming = 0.0

    @property
    def handled(self) -> int:
        return self.acked + self.rejected


async def move(
    publishing: Connection, consuming: Connection, flights: Iterable[Flight], expected: Expected, tally: Tally
) -> None:
    """Publish the flights and, at the same time, process flights.ops; returns when both are done.

    Uses two connections, so that a broker that slows down the publisher does not slow down the consumer.
    """
    async with consuming.channel() as channel:
        started = time.perf_counter()
        deliveries = channel.consume(topology.OPS, prefetch=PREFETCH)
        await deliveries.start()
        worker = asyncio.create_task(work(deliveries, tally))
        try:
            tally.confirmed = await publish(publishing, flights, expected, tally)
            tally.publishing = time.perf_counter() - started
            await wait_steady(lambda: tally.handled, tally.confirmed, unless=worker.done)
            tally.consuming = time.perf_counter() - started
            await deliveries.cancel()
            await worker
        finally:
            worker.cancel()


async def publish(connection: Connection, flights: Iterable[Flight], expected: Expected, tally: Tally) -> int:
    """Publish the flights; returns how many the broker confirmed: all of them, else raises Nacked."""

    def publications() -> Iterator[Publication]:
        for flight in flights:
            expected.add(flight)
            tally.published += 1
            message = Message(
                flight.body,
                content_type="application/json",
                message_id=flight.message_id,
                headers={"haul": "long" if flight.long_haul else "short"},
                delivery_mode=PERSISTENT,
                timestamp=int(time.time()),
            )
            yield Publication(message, topology.EXCHANGE, flight.routing_key)

    async with connection.channel() as channel:
        await channel.confirm_select()
        return await channel.publish_many(publications(), window=WINDOW, timeout=PUBLISH_SECONDS)


async def work(deliveries: Consumer, tally: Tally) -> None:
    """Process the deliveries of flights.ops."""
    async for delivery in deliveries:
        if json.loads(delivery.body)["dep_time"] is None:
            delivery.reject(requeue=False)
            tally.rejected += 1
        else:
            delivery.ack()
            tally.acked += 1


async def wait_steady(number: Callable[[], int], target: int, unless: Callable[[], bool] = lambda: False) -> None:
    """Return when the number has reached its target, `unless` holds, or nothing has changed for PATIENCE seconds."""
    seen, deadline = number(), time.monotonic() + PATIENCE
    while seen < target and not unless() and time.monotonic() < deadline:
        await asyncio.sleep(POLL_SECONDS)
        if number() != seen:
            seen, deadline = number(), time.monotonic() + PATIENCE


async def depth(connection: Connection, queue: str) -> int:
    """The number of ready messages of a classic queue."""
    async with connection.channel() as channel:
        return (await channel.queue_declare(queue, passive=True)).message_count


async def depth_once_steady(connection: Connection, queue: str, target: int) -> int:
    """`depth` once it has reached the target or no longer changes, because dead-lettering may take time."""
    seen, deadline = await depth(connection, queue), time.monotonic() + PATIENCE
    while seen < target and time.monotonic() < deadline:
        await asyncio.sleep(POLL_SECONDS)
        now = await depth(connection, queue)
        if now != seen:
            seen, deadline = now, time.monotonic() + PATIENCE
    return seen


async def log_length(connection: Connection, queue: str) -> int:
    """The number of messages of a stream queue that gets no more: the offset of its last message, plus one.

    A passive declare would do for Harebell; RabbitMQ's count of a stream is seconds late.
    """
    length = 0
    async with (
        connection.channel() as channel,
        # "last" is the last chunk; its messages arrive together.
        channel.consume(queue, prefetch=PREFETCH, arguments={"x-stream-offset": "last"}) as deliveries,
    ):
        while (delivery := await next_within(deliveries, SILENCE)) is not None:
            offset = delivery.headers["x-stream-offset"]
            assert isinstance(offset, int)  # the demonstration declared the queue as a stream
            length = max(length, offset + 1)
            delivery.ack()
    return length


async def collect_alerts(connection: Connection, published: int) -> tuple[int, dict[str, dict[str, object]]]:
    """(deliveries, alerts by message_id) of alerts.desk, acknowledged; at most PATIENCE seconds of waiting for each.

    After `published` alerts it waits a moment longer, to find alerts in excess.
    """
    alerts: dict[str, dict[str, object]] = {}
    taken = 0
    async with (
        connection.channel() as channel,
        channel.consume(topology.ALERT_DESK, prefetch=PREFETCH) as deliveries,
    ):
        while True:
            delivery = await next_within(deliveries, SILENCE if taken >= published else PATIENCE)
            if delivery is None:
                return taken, alerts
            taken += 1
            alerts[delivery.properties.message_id or f"without message_id, {taken}"] = json.loads(delivery.body)
            delivery.ack()


async def next_within(deliveries: Consumer, seconds: float) -> Delivery | None:
    """The next delivery, or None when none arrives within `seconds`."""
    try:
        async with asyncio.timeout(seconds):
            return await anext(deliveries)
    except TimeoutError:
        return None
