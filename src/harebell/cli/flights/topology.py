"""What the demonstration has in the broker: exchanges, queues and bindings, made and removed.

    flights (topic) --#--> flights.log        a stream queue: reading does not empty it
                    --#--> flights.ops        the work queue; what is rejected goes on to flights.dlx
                    --EWR.#--> flights.EWR    and so for JFK and LGA
                    --#--> flights.haul (headers) --haul=long--> flights.long-haul
    flights.dlx (fanout) ----> flights.dead
    alerts (topic) --#--> alerts.desk

Rules: it removes only what an earlier run of itself has left. The exchange `flights.demo`, made before all others and
removed after them, is the mark of that: where it is missing and one of the names is in use, the
names belong to others.
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
    """Make sure that the names are ours, and free. Whether an earlier run had left something, which is gone now.

    Raises NamesTaken, and touches nothing, when others use them.
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
    """What `declare` needs: a channel, or something that only writes down what is declared."""

    async def exchange_declare(self, name: str, type: str, /, *, durable: bool) -> object: ...
    async def exchange_bind(self, destination: str, source: str, binding_key: str, /) -> object: ...
    async def queue_declare(self, name: str, /, *, durable: bool, arguments: Table | None = None) -> object: ...
    async def queue_bind(
        self, queue: str, exchange: str, binding_key: str = "", /, *, arguments: Table | None = None
    ) -> object: ...


async def declare(channel: Declaring) -> None:
    """Make everything. All of it is durable: a broker that comes back has it again, where the broker keeps it."""
    await channel.exchange_declare(EXCHANGE, "topic", durable=True)
    await channel.exchange_declare(HAUL, "headers", durable=True)
    await channel.exchange_declare(DEAD_LETTERS, "fanout", durable=True)
    await channel.exchange_declare(ALERTS, "topic", durable=True)

    await channel.queue_declare(LOG, durable=True, arguments={"x-queue-type": "stream"})
    await channel.queue_bind(LOG, EXCHANGE, "#")

    await channel.queue_declare(OPS, durable=True, arguments={"x-dead-letter-exchange": DEAD_LETTERS})
    await channel.queue_bind(OPS, EXCHANGE, "#")

    # A classic queue: a RabbitMQ of version 3.10 loses what is dead-lettered into a stream.
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
    """What was declared, as the records of a definitions file."""

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
    """The same as a definitions file for the virtual host /, as brokers import and `harebell spark simulate` reads."""
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
    """Remove everything, the mark last. What is not there is no error."""
    async with connection.channel() as channel:
        for queue in QUEUES:
            await channel.queue_delete(queue)
        for exchange in (*EXCHANGES, MARK):
            await channel.exchange_delete(exchange)


async def _exists(connection: Connection, *, exchange: str = "", queue: str = "") -> bool:
    """Whether the broker has it; a channel of its own, because a no closes the channel."""
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
