"""A RabbitMQ cluster of three nodes whose nodes are killed in turn: every publication is accounted for.

A producer publishes numbers to a quorum queue, and a shovel moves others from a Harebell broker to another one, while
nodes are killed and started again. Afterwards: what was confirmed is there, what was told never sent or refused is not,
each was told once, and the shovel has lost nothing. A part of `make torture`, for a cluster takes half a minute to
start: with HAREBELL_CLUSTER=n each node is killed n times.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Iterator

import pytest

import harebell
from harebell import errors
from harebell.bridge import Shovel
from harebell.bridge.options import Destination, ShovelOptions, Source
from harebell.broker import Broker
from harebell.client.messages import Message
from harebell.client.patterns.producer import Producer
from harebell.client.recovery.policy import Backoff, Recovery
from harebell.testing.cluster import RabbitMQCluster
from tests.fixtures.rabbitmq import root_of

ROUNDS = int(os.environ.get("HAREBELL_CLUSTER", "0"))  # how often each node is killed
BETWEEN = 200  # publications that are confirmed between two events
WINDOW = 50
PATIENCE = 60.0
QUICK = Recovery(backoff=Backoff(0.05, 1.0))


@pytest.fixture(params=["3.10", "4.0"])
def cluster(request: pytest.FixtureRequest) -> Iterator[RabbitMQCluster]:
    with RabbitMQCluster(root=root_of(request.param)) as cluster:
        yield cluster


class Account:
    """What became of each publication, by its number."""

    def __init__(self) -> None:
        self.told: dict[int, list[str]] = {}
        self.confirmed = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopped = False

    async def publish(self, producer: Producer[Message | bytes], queue: str) -> None:
        """Publish numbers until it is stopped."""
        number = 0
        while not self._stopped:
            task = asyncio.create_task(self._one(producer, queue, number))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            number += 1
            while len(self._tasks) >= WINDOW:
                await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.gather(*self._tasks)

    async def _one(self, producer: Producer[Message | bytes], queue: str, number: int) -> None:
        told = self.told.setdefault(number, [])
        try:
            await producer.publish(Message(b"%d" % number, delivery_mode=2), queue)
        except errors.PublishOrphaned:
            told.append("maybe")
        except errors.HarebellError:
            told.append("not there")
        else:
            told.append("confirmed")
            self.confirmed += 1

    async def more(self, count: int = BETWEEN) -> None:
        """Until so many more are confirmed."""
        until = self.confirmed + count
        async with asyncio.timeout(PATIENCE):
            while self.confirmed < until:  # noqa: ASYNC110  counted by many tasks
                await asyncio.sleep(0.01)

    def stop(self) -> None:
        self._stopped = True


async def taken(url: str, queue: str) -> Counter[int]:
    """What is in the queue, by number."""
    found: Counter[int] = Counter()
    async with harebell.connect(url, timeout=PATIENCE) as connection, connection.channel() as channel:
        await channel.confirm_select(on_nack="retry")
        await channel.publish(Message(b"last", delivery_mode=2), "", queue, timeout=PATIENCE)
        async with asyncio.timeout(PATIENCE), channel.consume(queue, no_ack=True) as deliveries:
            async for delivery in deliveries:
                if delivery.body == b"last":
                    break
                found[int(delivery.body)] += 1
    return found


@pytest.mark.rabbitmq
@pytest.mark.skipif(not ROUNDS, reason="a part of make torture")
async def test_every_publication_is_accounted_for_while_nodes_are_killed(cluster: RabbitMQCluster, name: str) -> None:
    moved = f"{name}.moved"
    quorum = {"x-queue-type": "quorum"}
    account = Account()
    async with (
        harebell.connect(cluster.urls, timeout=PATIENCE, recovery=QUICK) as connection,
        connection.channel() as channel,
        Broker() as broker,
        harebell.connect(broker.url) as home,
        home.channel() as source,
    ):
        for queue in (name, moved):
            await channel.queue_declare(queue, durable=True, arguments=quorum)
        await source.queue_declare("from")
        options = ShovelOptions(Source((broker.url,), queue="from"), Destination(tuple(cluster.urls), queue=moved))
        shovel = Shovel(options)
        shovelling = asyncio.create_task(shovel.run())
        async with connection.producer(on_orphan="retry", on_nack="retry", timeout=PATIENCE) as producer:
            publishing = asyncio.create_task(account.publish(producer, name))
            put = 0
            for node in cluster.nodes * ROUNDS:
                await source.publish_many([harebell.Publication(b"%d" % n, "", "from") for n in range(put, put + 100)])
                put += 100
                await account.more()
                await asyncio.to_thread(node.kill)
                await account.more()
                await asyncio.to_thread(node.start)
                await asyncio.to_thread(cluster.wait_running)
                await account.more()
            account.stop()
            await publishing
        async with asyncio.timeout(PATIENCE):
            while shovel.pending or await source.message_count("from"):  # noqa: ASYNC110  it has no event
                await asyncio.sleep(0.05)
        shovelling.cancel()
        await asyncio.gather(shovelling, return_exceptions=True)
    url = cluster.nodes[-1].url
    found = await taken(url, name)
    wrong = [n for n, told in account.told.items() if len(told) != 1]
    wrong += [n for n, told in account.told.items() if told == ["confirmed"] and not found[n]]
    wrong += [n for n, told in account.told.items() if told == ["not there"] and found[n]]
    assert not wrong, {n: (account.told[n], found[n]) for n in wrong}
    assert set(found) <= set(account.told)
    arrived = await taken(url, moved)
    assert set(arrived) == set(range(put))
    ends = Counter(told for each in account.told.values() for told in each)
    print(f"{len(cluster.nodes) * ROUNDS} kills: {dict(ends)}; lost 0, untold 0, told wrong 0; twice in the queue "
          f"{found.total() - len(found)}; moved by the shovel {put}, twice {arrived.total() - put}")  # fmt: skip
