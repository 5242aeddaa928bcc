"""Fixtures of the Spark tests: a broker with streams, and a way to fill it."""

from __future__ import annotations

import asyncio
import queue
import threading
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harebell.broker import Broker as HarebellBroker
from harebell.client.blocking import connect
from harebell.client.messages import Message, Publication
from harebell.client.servers import product_of
from harebell.protocol.v091.fields import Table


class Broker:
    """The broker under test, with queues of this test that are deleted after it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._connection = connect(url, timeout=30.0)
        self._channel = self._connection.channel()
        self._queues: list[str] = []

    @property
    def product(self) -> str:
        """What it calls itself: "Harebell" or "RabbitMQ"."""
        return str(product_of(self._connection.server_properties))

    def queue(self, kind: str, arguments: Table | None = None, name: str | None = None) -> str:
        """A new queue of that x-queue-type; its name."""
        name = name or f"spark.{kind}.{uuid.uuid4().hex[:8]}"
        self._channel.queue_declare(name, durable=True, arguments={"x-queue-type": kind, **(arguments or {})})
        self._queues.append(name)
        return name

    def declare(self, name: str) -> None:
        """A classic queue of that name."""
        self._channel.queue_declare(name, durable=True)
        self._queues.append(name)

    def delete(self, name: str) -> None:
        """Deletes a queue, there or not."""
        self._channel.queue_delete(name)

    def forget_later(self, queue: str) -> None:
        """Deletes a queue after the test that others declared."""
        self._queues.append(queue)

    @contextmanager
    def bound(self, queue: str, kind: str) -> Iterator[str]:
        """An exchange of that type, bound to the queue by "#", until the block ends; its name."""
        name = f"{queue}.exchange"
        self._channel.exchange_declare(name, kind)
        self._channel.queue_bind(queue, name, "#")
        yield name
        self._channel.exchange_delete(name)

    def send(self, publications: Iterable[Publication]) -> None:
        """Publishes them; returns when all are confirmed."""
        with connect(self.url, timeout=30.0) as connection:
            channel = connection.channel()
            channel.confirm_select()
            channel.publish_many(publications, window=5000, timeout=60)

    def publish(self, queue: str, messages: Iterable[Message]) -> None:
        """Publishes to the queue through the default exchange; returns when all are confirmed."""
        self.send(Publication(message, "", queue) for message in messages)

    def numbered(self, queue: str, count: int, start: int = 0) -> None:
        """Publishes `count` messages whose body and message_id are their number."""
        self.publish(queue, (Message(b"%d" % n, message_id=str(n)) for n in range(start, start + count)))

    def ready(self, queue: str) -> int:
        return self._channel.queue_declare(queue, passive=True).message_count

    def reject_all(self, queue: str, count: int) -> None:
        """Rejects so many messages without requeueing: they are dead-lettered."""
        with connect(self.url, timeout=30.0) as connection:
            channel = connection.channel()
            for _ in range(count):
                delivery = channel.get(queue)
                assert delivery is not None
                channel.reject(delivery.delivery_tag, requeue=False)

    def close(self) -> None:
        try:
            for name in self._queues:
                self._channel.queue_delete(name)
        finally:
            self._connection.close()


@pytest.fixture(scope="session")
def harebell_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HarebellBroker]:
    """Harebell's broker with a loop and a thread of its own: tests and Spark block, it must not."""
    ready: queue.Queue[tuple[HarebellBroker, asyncio.Event, asyncio.AbstractEventLoop]] = queue.Queue()

    async def serve() -> None:
        stop = asyncio.Event()
        async with HarebellBroker(data=tmp_path_factory.mktemp("broker")) as server:
            ready.put((server, stop, asyncio.get_running_loop()))
            await stop.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    server, stop, loop = ready.get(timeout=60)
    yield server
    loop.call_soon_threadsafe(stop.set)
    thread.join()


RABBITMQ = pytest.param("rabbitmq_server", marks=pytest.mark.rabbitmq)
RABBITMQ4 = pytest.param("rabbitmq4_server", marks=pytest.mark.rabbitmq)
# Which broker has which queues that are drained: for `parametrize("broker, kind", DRAINED, indirect=["broker"])`.
DRAINED = [
    pytest.param("rabbitmq_server", "classic", marks=pytest.mark.rabbitmq),
    pytest.param("rabbitmq_server", "quorum", marks=pytest.mark.rabbitmq),
    pytest.param("rabbitmq4_server", "classic", marks=pytest.mark.rabbitmq),
    pytest.param("rabbitmq4_server", "quorum", marks=pytest.mark.rabbitmq),
    ("harebell_server", "classic"),
]


@pytest.fixture(params=[RABBITMQ, RABBITMQ4, "harebell_server"])
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A broker with stream, classic and quorum queues."""
    broker = Broker(request.getfixturevalue(request.param).url)
    yield broker
    broker.close()


@pytest.fixture
def spool(tmp_path: Path) -> str:
    return str(tmp_path / "spool")


def cause(error: Exception) -> str:
    """The text of the last harebell error inside a Spark exception."""
    lines = [line for line in str(error).splitlines() if "harebell.errors." in line]
    assert lines, f"no harebell error in: {error}"
    return lines[-1]
