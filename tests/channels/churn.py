"""Clients of a channel layer that join groups, leave them and talk while their connections are cut; what is promised.

    python -m tests.channels.churn [--seconds 600] [--clients 100] [--rabbitmq]

Four layers, as of four processes, each behind a proxy of its own that cuts every second or so. Every message has a
number of its own. Promised is: nobody gets a message twice; who is in a group from before a message is sent until it
comes gets it; so does one of the readers of a normal channel, but for messages that the layers count as uncertain. A
client reads all it is promised before it leaves, then the next one comes: at the end there are as many mailboxes and
memberships as in the beginning.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import sys
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from harebell import errors
from harebell.channels import ChannelLayer
from harebell.testing import FaultProxy, RabbitMQ

GROUPS = 12
LAYERS = 4
WORKERS = 3  # readers of the normal channel in each
PATIENCE = 60.0  # seconds for a promised message
QUIET_LOOKS = 15  # of 0.2 s, without one for the workers


@dataclass
class Counts:
    """What the run came to."""

    sent: int = 0
    promised: int = 0
    delivered: int = 0
    worked: int = 0
    joined: int = 0
    cuts: int = 0
    unsent: int = 0
    unworked: int = 0
    uncertain: int = 0
    twice: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    mailboxes: tuple[int, int] = (0, 0)
    memberships: tuple[int, int] = (0, 0)


class Churn:
    def __init__(self, layers: list[ChannelLayer], proxies: list[FaultProxy], clients: int, seed: int) -> None:
        self.layers = layers
        self.proxies = proxies
        self.clients = clients
        self.random = random.Random(seed)
        self.counts = Counts()
        self.numbers = itertools.count(1)
        self.members: dict[str, dict[Client, None]] = {f"room{number}": {} for number in range(GROUPS)}
        self.work_sent: set[int] = set()
        self.work_got: Counter[int] = Counter()
        self.over = asyncio.Event()

    async def run(self, seconds: float) -> Counts:
        workers = [asyncio.create_task(self.work(layer)) for layer in self.layers for _ in range(WORKERS)]
        cutters = [asyncio.create_task(self.cut(proxy)) for proxy in self.proxies]
        asyncio.get_running_loop().call_later(seconds, self.over.set)
        async with asyncio.TaskGroup() as group:
            for number in range(self.clients):
                group.create_task(self.come_and_go(self.layers[number % LAYERS]))
            group.create_task(self.watch())
        for task in cutters:
            task.cancel()
        await self.all_worked()
        for task in workers:
            task.cancel()
        await asyncio.gather(*workers, *cutters, return_exceptions=True)
        counts = self.counts
        counts.worked = len(self.work_got)
        counts.twice += [f"work {number}" for number, times in self.work_got.items() if times > 1]
        counts.unworked = len(self.work_sent - set(self.work_got))
        counts.uncertain = sum(layer.statistics()["uncertain"] for layer in self.layers)
        counts.mailboxes = counts.mailboxes[0], self.mailboxes()
        counts.memberships = counts.memberships[0], self.memberships()
        return counts

    async def all_worked(self) -> None:
        """Until the workers have nothing more to do: no message waits, and for a while none has come."""
        layer = self.layers[0]
        got, quiet = -1, 0
        while quiet < QUIET_LOOKS and self.work_sent - set(self.work_got):
            runtime = layer.runtime
            waiting = await runtime.call(lambda runtime=runtime: runtime.connection.pending("work"))  # type: ignore[misc]
            quiet = 0 if waiting or got != len(self.work_got) else quiet + 1
            got = len(self.work_got)
            await asyncio.sleep(0.2)

    def mailboxes(self) -> int:
        return sum(len(layer.runtime.mailboxes) for layer in self.layers)

    def memberships(self) -> int:
        return sum(len(layer.runtime.members) for layer in self.layers)

    async def watch(self) -> None:
        began = time.monotonic()
        while not self.over.is_set():
            await asyncio.sleep(1)
            if sys.stderr.isatty():
                counts = self.counts
                print(
                    f"\r{time.monotonic() - began:5.0f} s: {counts.sent} sent, {counts.delivered} delivered, "
                    f"{counts.cuts} cuts, {len(counts.twice)} twice, {len(counts.lost)} lost",
                    end="",
                    file=sys.stderr,
                )

    async def cut(self, proxy: FaultProxy) -> None:
        while True:
            await asyncio.sleep(self.random.uniform(0.3, 2.0))
            self.counts.cuts += proxy.cut()

    async def work(self, layer: ChannelLayer) -> None:
        while True:
            self.work_got[(await layer.receive("work"))["n"]] += 1

    async def come_and_go(self, layer: ChannelLayer) -> None:
        while not self.over.is_set():
            client = Client(self, layer)
            await client.live()


class Client:
    """One client's life: it joins, talks and leaves, and reads to the end what it is promised."""

    def __init__(self, churn: Churn, layer: ChannelLayer) -> None:
        self.churn = churn
        self.layer = layer
        self.promised: set[int] = set()
        self.got: Counter[int] = Counter()

    async def live(self) -> None:
        churn = self.churn
        self.channel = await self.layer.new_channel()
        reader = asyncio.create_task(self.read())
        rooms = churn.random.sample(sorted(churn.members), 2)
        for room in rooms:
            await self.layer.group_add(room, self.channel)
            churn.members[room][self] = None
            churn.counts.joined += 1
        for _ in range(churn.random.randint(1, 8)):
            await asyncio.sleep(churn.random.uniform(0, 0.2))
            await self.say(churn.random.choice(rooms))
        for room in rooms:
            del churn.members[room][self]  # from now on nothing is promised
        await self.settle()
        for room in rooms:
            await self.layer.group_discard(room, self.channel)
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)
        self.layer.runtime.mailboxes.forget(self.channel, time.monotonic() + 1)

    async def say(self, room: str) -> None:
        churn = self.churn
        number, before = next(churn.numbers), list(churn.members[room])
        churn.counts.sent += 1
        await self.layer.group_send(room, {"type": "x", "n": number})
        for member in before:
            if member in churn.members[room]:  # it was there before, and still is
                member.promised.add(number)
                churn.counts.promised += 1
        job = next(churn.numbers)
        churn.counts.sent += 1
        try:
            await self.layer.send("work", {"type": "x", "n": job})
            churn.work_sent.add(job)
        except errors.PublishOrphaned:
            churn.counts.unsent += 1  # RabbitMQ's queues know no ids: it may or may not have arrived

    async def read(self) -> None:
        while True:
            number = (await self.layer.receive(self.channel))["n"]
            self.got[number] += 1
            self.churn.counts.delivered += 1
            if self.got[number] > 1:
                self.churn.counts.twice.append(f"{number} at {self.channel}")

    async def settle(self) -> None:
        """Until all that is promised came."""
        try:
            async with asyncio.timeout(PATIENCE):
                while not self.promised <= set(self.got):  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
        except TimeoutError:
            self.churn.counts.lost += [f"{number} at {self.channel}" for number in self.promised - set(self.got)]


async def churned(url: str, *, seconds: float, clients: int, seed: int = 0) -> Counts:
    """Run it against the broker there."""
    address = urlsplit(url)
    prefix = f"churn{uuid.uuid4().hex[:8]}"
    proxies = [FaultProxy(address.hostname or "127.0.0.1", address.port or 5672) for _ in range(LAYERS)]
    for proxy in proxies:
        await proxy.start()
    layers = [
        ChannelLayer(
            f"amqp://{address.username or 'guest'}:{address.password or 'guest'}@127.0.0.1:{proxy.port}/",
            prefix=prefix,
            timeout=PATIENCE,
            capacity=100_000,
            expiry=3600,  # what waits for a worker is not to be lost for being late
        )
        for proxy in proxies
    ]
    try:
        return await Churn(layers, proxies, clients, seed).run(seconds)
    finally:
        for layer in layers:
            await layer.close()
        for proxy in proxies:
            await proxy.aclose()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--rabbitmq", action="store_true")
    arguments = parser.parse_args()
    if arguments.rabbitmq:
        with RabbitMQ() as server:
            counts = asyncio.run(churned(server.url, seconds=arguments.seconds, clients=arguments.clients))
    else:
        counts = asyncio.run(_on_harebell(arguments.seconds, arguments.clients))
    print(counts)
    return bool(counts.twice or counts.lost or counts.memberships[1] or counts.unworked > counts.uncertain)


async def _on_harebell(seconds: float, clients: int) -> Counts:
    from harebell.broker import Broker

    async with Broker() as broker:
        return await churned(broker.url, seconds=seconds, clients=clients)


if __name__ == "__main__":
    sys.exit(main())
