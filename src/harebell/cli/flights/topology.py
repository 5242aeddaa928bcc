"""Declares and removes the exchanges, queues and bindings of the demonstration.

    flights (topic) --#--> flights.log        a stream queue: reading does not empty it
                    --#--> flights.ops        the work queue; rejected messages go to flights.dlx
                    --EWR.#--> flights.EWR    the same for JFK and LGA
                    --#--> flights.haul (headers) --haul=long--> flights.long-haul
    flights.dlx (fanout) ----> flights.dead
    alerts (topic) --#--> alerts.desk

Rules: the demonstration removes only what an earlier run of it left. The exchange `flights.demo` marks that: it is
declared before all others and deleted after them. Where it is missing and one of the names is in use, the name belongs
to another program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from harebell.errors import HarebellError, NotFound
from harebell.routing.definitions import (
    BindingDefinition,
    Definitions,
    ExchangeDefinition,
    QueueDefinition,
    VirtualHost,
    emit_definitions,
)

if TYPE_CHECKING:
    from harebell import Connection
    from harebell.protocol.v091 import Table

__all__ = [
    "AIRPORTS",
    "ALERTS",
    "ALERT_DESK",
    "DEAD",
    "EXCHANGE",
    "LOG",
    "LONG_HAUL",
    "OPS",
    "NamesTaken",
    "airport_queue",
    "declare",
    "definitions",
    "remove",
    "reserve",
]

MARK: Final = "flights.demo"
EXCHANGE: Final = "flights"
HAUL: Final = "flights.haul"
DEAD_LETTERS: Final = "flights.dlx"
ALERTS: Final = "alerts"
EXCHANGES: Final = (EXCHANGE, HAUL, DEAD_LETTERS, ALERTS)

AIRPORTS: Final = ("EWR", "JFK", "LGA")
LOG: Final = "flights.log"
OPS: Final = "flights.ops"
DEAD: Final = "flights.dead"
LONG_HAUL: Final = "flights.long-haul"
ALERT_DESK: Final = "alerts.desk"


def airport_queue(airport: str) -> str:
    return f"flights.{airport}"


QUEUES: Final = (LOG, OPS, DEAD, LONG_HAUL, ALERT_DESK, *map(airport_queue, AIRPORTS))


class NamesTaken(HarebellError):
    """The broker has exchanges or queues of these names that are not the demonstration's."""


async def reserve(connection: Connection) -> bool:
    """Reserve the names; returns whether an earlier run had left something, which is then removed.

    Raises NamesTaken, and changes nothing, when another program uses them.
    """
    left = await _exists(connection, exchange=MARK)
    if left:
        await remove(connection)
    else:
        taken = [f"exchange '{name}'" for name in EXCHANGES if await _exists(connection, exchange=name)]
        taken += [f"queue '{name}'" for name in QUEUES if await _exists(connection, queue=name)]
        if taken:
            raise NamesTaken(
                f"the broker already has {', '.join(taken)}, not made by this demonstration: "
                "give it a virtual host of its own, --url amqp://.../VHOST"
            )
    async with connection.channel() as channel:
        await channel.exchange_declare(MARK, "fanout", durable=True)
    return left


class Declaring(Protocol):
    """What `declare` needs: a channel, or a recorder of declarations."""

    async def exchange_declare(self, name: str, type: str, /, *, durable: bool) -> object: ...
    async def exchange_bind(self, destination: str, source: str, binding_key: str, /) -> object: ...
    async def queue_declare(self, name: str, /, *, durable: bool, arguments: Table | None = None) -> object: ...
    async def queue_bind(
        self, queue: str, exchange: str, binding_key: str = "", /, *, arguments: Table | None = None
    ) -> object: ...


async def declare(channel: Declaring) -> None:
    """Declare everything, durable: a broker that stores it has it again after a restart."""
    await channel.exchange_declare(EXCHANGE, "topic", durable=True)
    await channel.exchange_declare(HAUL, "headers", durable=True)
    await channel.exchange_declare(DEAD_LETTERS, "fanout", durable=True)
    await channel.exchange_declare(ALERTS, "topic", durable=True)

    await channel.queue_declare(LOG, durable=True, arguments={"x-queue-type": "stream"})
    await channel.queue_bind(LOG, EXCHANGE, "#")

    await channel.queue_declare(OPS, durable=True, arguments={"x-dead-letter-exchange": DEAD_LETTERS})
    await channel.queue_bind(OPS, EXCHANGE, "#")

    # A classic queue: RabbitMQ 3.10 loses messages that are dead-lettered into a stream.
    await channel.queue_declare(DEAD, durable=True)
    await channel.queue_bind(DEAD, DEAD_LETTERS)

    for airport in AIRPORTS:
        await channel.queue_declare(airport_queue(airport), durable=True)
        await channel.queue_bind(airport_queue(airport), EXCHANGE, f"{airport}.#")

    await channel.queue_declare(LONG_HAUL, durable=True)
    await channel.exchange_bind(HAUL, EXCHANGE, "#")
    await channel.queue_bind(LONG_HAUL, HAUL, arguments={"x-match": "all", "haul": "long"})

    await channel.queue_declare(ALERT_DESK, durable=True)
    await channel.queue_bind(ALERT_DESK, ALERTS, "#")


class _Written:
    """Records declarations as the records of a definitions file."""

    def __init__(self) -> None:
        self.exchanges: list[ExchangeDefinition] = []
        self.queues: list[QueueDefinition] = []
        self.bindings: list[BindingDefinition] = []

    async def exchange_declare(self, name: str, type: str, /, *, durable: bool) -> None:
        self.exchanges.append(ExchangeDefinition("/", name, type, durable))

    async def exchange_bind(self, destination: str, source: str, binding_key: str, /) -> None:
        self.bindings.append(BindingDefinition("/", source, destination, "exchange", binding_key))

    async def queue_declare(self, name: str, /, *, durable: bool, arguments: Table | None = None) -> None:
        self.queues.append(QueueDefinition("/", name, durable, arguments=arguments or {}))

    async def queue_bind(
        self, queue: str, exchange: str, binding_key: str = "", /, *, arguments: Table | None = None
    ) -> None:
        self.bindings.append(BindingDefinition("/", exchange, queue, "queue", binding_key, arguments or {}))


async def definitions() -> dict[str, object]:
    """The topology as a definitions file for the virtual host /, for brokers and `harebell spark simulate`."""
    written = _Written()
    await declare(written)
    made = Definitions(
        (VirtualHost("/"),),
        queues=tuple(written.queues),
        exchanges=tuple(written.exchanges),
        bindings=tuple(written.bindings),
    )
    return emit_definitions(made)


async def remove(connection: Connection) -> None:
    """Delete everything, the mark last. A missing queue or exchange is no error."""
    async with connection.channel() as channel:
        for queue in QUEUES:
            await channel.queue_delete(queue)
        for exchange in (*EXCHANGES, MARK):
            await channel.exchange_delete(exchange)


async def _exists(connection: Connection, *, exchange: str = "", queue: str = "") -> bool:
    """Whether the broker has the exchange or queue; uses a new channel, because a "no" closes the channel."""
    channel = await connection.channel()
    try:
        if exchange:
            await channel.exchange_declare(exchange, passive=True)
        else:
            await channel.queue_declare(queue, passive=True)
    except NotFound:
        return False
    await channel.close()
    return True
