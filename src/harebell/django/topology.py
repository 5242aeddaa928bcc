"""What tasks need on the broker: names, queues, and delays. Sends nothing by itself but for declarations.

PREFIX               direct exchange: the name of a Django queue leads to its AMQP queue
PREFIX.queue.NAME    the tasks of a Django queue, with priorities
PREFIX.delayed       on Harebell: an exchange that keeps a message for as long as its header says
PREFIX.wait.K        elsewhere, a ladder: a topic exchange and a queue for each power of two in seconds. A delay is
                     written into the routing key as binary digits; at each rung the message waits in the queue or
                     passes by it, and from the last one it comes to PREFIX.due, which leads to the queues of tasks.
                     Each queue has one time to live, so that a short delay never stands behind a long one
PREFIX.unrouted      the alternate of the exchanges that lead there, and its queue: messages that were due and reached
                     no queue, because somebody has deleted it, or a binding, meanwhile. Workers publish them again
PREFIX.dead          tasks that have failed for good, for a while
"""

from __future__ import annotations

import math
from typing import Final

from harebell.client.channel import Channel
from harebell.client.servers import HAREBELL
from harebell.django.options import Options
from harebell.protocol.v091 import Table

__all__ = [
    "MAX_DELAY",
    "Names",
    "bind_delayed",
    "declare_dead",
    "declare_delays",
    "declare_queue",
    "declare_unrouted",
    "route",
]

RUNGS: Final = 20  # 2 ** 20 seconds are twelve days; a longer delay waits several times
RUNG_MS: Final = 1000  # how long the lowest rung waits
MAX_DELAY: Final = (2**RUNGS - 1) * RUNG_MS / 1000
DELAY_HEADER: Final = "x-delay"


class Names:
    """The AMQP names of one prefix."""

    __slots__ = ("dead", "delayed", "due", "exchange", "prefix", "unrouted")

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.exchange = prefix
        self.delayed = f"{prefix}.delayed"
        self.due = f"{prefix}.due"
        self.unrouted = f"{prefix}.unrouted"
        self.dead = f"{prefix}.dead"

    def queue(self, name: str) -> str:
        return f"{self.prefix}.queue.{name}"

    def rung(self, number: int) -> str:
        return f"{self.prefix}.wait.{number}"


async def declare_queue(channel: Channel, names: Names, options: Options, product: str | None, name: str) -> None:
    """Declare a Django queue."""
    arguments: Table = {"x-queue-type": "classic", "x-max-priority": options.priority_levels - 1}
    if options.priority_levels == 1:
        del arguments["x-max-priority"]
    if product == HAREBELL:
        arguments["x-message-deduplication"] = True
        arguments["x-cache-size"] = 100_000
        arguments["x-cache-ttl"] = 3_600_000
    await channel.exchange_declare(names.exchange, "direct", durable=True)
    await channel.queue_declare(names.queue(name), durable=True, arguments=arguments)
    await channel.queue_bind(names.queue(name), names.exchange, name)


async def declare_dead(channel: Channel, names: Names, options: Options) -> None:
    """Declare the queue of dead tasks."""
    arguments: Table = {"x-queue-type": "classic", "x-message-ttl": round(options.dead_ttl * 1000)}
    await channel.queue_declare(names.dead, durable=True, arguments=arguments)


async def declare_unrouted(channel: Channel, names: Names) -> None:
    """Declare the queue of tasks that were due and reached no queue."""
    await channel.exchange_declare(names.unrouted, "fanout", durable=True)
    await channel.queue_declare(names.unrouted, durable=True, arguments={"x-queue-type": "classic"})
    await channel.queue_bind(names.unrouted, names.unrouted, "")


async def declare_delays(channel: Channel, names: Names, product: str | None) -> None:
    """Declare what keeps messages until they are due."""
    await channel.exchange_declare(names.exchange, "direct", durable=True)
    await declare_unrouted(channel, names)
    alternate: Table = {"alternate-exchange": names.unrouted}
    if product == HAREBELL:
        await channel.exchange_declare(
            names.delayed, "x-delayed-message", durable=True, arguments={"x-delayed-type": "direct", **alternate}
        )
        return
    for exchange in (names.due, *map(names.rung, range(RUNGS))):
        await channel.exchange_declare(exchange, "topic", durable=True, arguments=alternate)
    for number in range(RUNGS):
        below = names.rung(number - 1) if number else names.due
        arguments: Table = {
            "x-queue-type": "classic",
            "x-message-ttl": 2**number * RUNG_MS,
            "x-dead-letter-exchange": below,
        }
        await channel.queue_declare(names.rung(number), durable=True, arguments=arguments)
        waits, passes = _patterns(number)
        await channel.queue_bind(names.rung(number), names.rung(number), waits)
        await channel.exchange_bind(below, names.rung(number), passes)


async def bind_delayed(channel: Channel, names: Names, product: str | None, name: str) -> None:
    """Have delayed tasks of a Django queue reach it when they are due."""
    if product == HAREBELL:
        await channel.queue_bind(names.queue(name), names.delayed, name)
    else:
        key = ".".join(["*"] * RUNGS + [name.replace(".", "/")])
        await channel.queue_bind(names.queue(name), names.due, key)


def _patterns(number: int) -> tuple[str, str]:
    """The binding keys of a rung: for messages that wait there, and for those that pass by. High digits come first."""
    words = ["*"] * RUNGS
    words[RUNGS - 1 - number] = "1"
    waits = ".".join([*words, "#"])
    words[RUNGS - 1 - number] = "0"
    return waits, ".".join([*words, "#"])


def route(names: Names, product: str | None, name: str, delay: float) -> tuple[str, str, Table]:
    """The exchange, the routing key and more headers for a task of a Django queue that is due in `delay` seconds."""
    if delay <= 0:
        return names.exchange, name, {}
    if product == HAREBELL:
        return names.delayed, name, {DELAY_HEADER: min(math.ceil(delay * 1000), 2**31 - 1)}
    waits = min(math.ceil(delay * 1000 / RUNG_MS), 2**RUNGS - 1)
    digits = f"{waits:0{RUNGS}b}"
    return names.rung(RUNGS - 1), ".".join([*digits, name.replace(".", "/")]), {}
