"""A model of memberships: processes join, leave, expire, are cut, killed and restarted in any order, and groups talk.

    python -m tests.channels.membership_model [--steps 10000] [--seed N] [--rabbitmq]

Three layers, as of three processes, each behind a proxy of its own, and one beside them that nothing happens to. Each
step makes one to four things happen at once: a channel joins a group or leaves it (told by its own process, or by
another one; a process-local channel, or a normal one), a connection is cut for a moment or for a while, a process is
killed and another one starts, or a group gets a message. Each message has a number. Promised is: who is in a group when
a message is sent gets it, once; who is not in the group then does not, unless it joins, or leaves, while the message is
under way. A membership that is about to expire, and one whose change an error has cut short, promises nothing.
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
from harebell.channels.names import non_local
from harebell.testing import FaultProxy, RabbitMQ

GROUPS = ("g", "h", "i")
PROCESSES = 3
CHANNELS = 3  # of each process
NORMAL = ("work", "jobs")
GROUP_EXPIRY = 8.0
SURE = 4.0  # seconds before it may expire that a membership certainly lasts
LATE = 4.0  # seconds after it may last that it certainly does not
OUTAGE = 1.0  # seconds at most
PATIENCE = 60.0
CHECK_EVERY = 10  # steps


@dataclass
class Process:
    layer: ChannelLayer
    proxy: FaultProxy
    channels: list[str]


@dataclass
class Outcome:
    """What the run came to."""

    steps: int = 0
    sent: int = 0
    promised: int = 0
    delivered: int = 0
    cuts: int = 0
    kills: int = 0
    failed: int = 0  # calls that ended in an error
    wrong: list[str] = field(default_factory=list)


class Model:
    def __init__(self, url: str, seed: int) -> None:
        self.url = url
        self.random = random.Random(seed)
        self.prefix = f"model{uuid.uuid4().hex[:8]}"
        self.outcome = Outcome()
        self.numbers = itertools.count(1)
        self.processes: list[Process] = []
        self.dead: list[str] = []
        self.closing: list[asyncio.Task[None]] = []
        # By (group, channel): when the membership expires, at the earliest and at the latest; None: it is not known
        # whether it is one.
        self.members: dict[tuple[str, str], tuple[float, float] | None] = {}
        self.left: dict[tuple[str, str], float] = {}
        self.promises: dict[str, dict[int, float]] = {}  # by channel: numbers, and when the membership ends
        self.heard: dict[tuple[str, int], float] = {}  # when a process's channels first got a number
        self.forbidden: dict[str, set[int]] = {}
        self.under_way: dict[str, set[int]] = {group: set() for group in GROUPS}  # since the last check
        self.got: dict[str, Counter[int]] = {}
        self.readers: dict[str, asyncio.Task[None]] = {}
        self.history: list[str] = []

    def layer(self, port: int | None = None) -> ChannelLayer:
        address = urlsplit(self.url)
        credentials = f"{address.username or 'guest'}:{address.password or 'guest'}"
        url = self.url if port is None else f"amqp://{credentials}@127.0.0.1:{port}/"
        settings = {"timeout": PATIENCE, "expiry": 60, "group_expiry": GROUP_EXPIRY, "capacity": 100_000}
        return ChannelLayer(url, prefix=self.prefix, **settings)  # type: ignore[arg-type]

    async def process(self) -> Process:
        address = urlsplit(self.url)
        proxy = FaultProxy(address.hostname or "127.0.0.1", address.port or 5672)
        await proxy.start()
        layer = self.layer(proxy.port)
        channels = [await layer.new_channel() for _ in range(CHANNELS)]
        for channel in channels:
            self.listen(layer, channel)
        return Process(layer, proxy, channels)

    def listen(self, layer: ChannelLayer, channel: str) -> None:
        self.got[channel] = Counter()
        self.promises[channel], self.forbidden[channel] = {}, set()
        self.readers[channel] = asyncio.create_task(self.read(layer, channel))

    async def read(self, layer: ChannelLayer, channel: str) -> None:
        while True:
            number = (await layer.receive(channel))["n"]
            self.outcome.delivered += 1
            got = self.got[channel]
            got[number] += 1
            self.heard.setdefault((non_local(channel), number), time.monotonic())
            if number in self.forbidden[channel]:
                self.wrong(f"{channel} got {number}, which was sent when it was not in the group")
            if got[number] > 1:
                self.wrong(f"{channel} got {number} twice")

    def wrong(self, what: str) -> None:
        self.outcome.wrong.append(f"step {self.outcome.steps}: {what}; before: {', '.join(self.history[-12:])}")

    async def run(self, steps: int) -> Outcome:
        self.observer = self.layer()
        try:
            self.processes = [await self.process() for _ in range(PROCESSES)]
            for channel in NORMAL:
                self.listen(self.observer, channel)
            for number in range(steps):
                self.outcome.steps = number + 1
                await self.step()
                if number % CHECK_EVERY == CHECK_EVERY - 1 or number == steps - 1:
                    await self.check()
                if self.outcome.wrong:
                    break
        finally:
            for task in self.readers.values():
                task.cancel()
            await asyncio.gather(*self.readers.values(), *self.closing, return_exceptions=True)
            for process in self.processes:
                await self.ended(process)
            await self.observer.close()
        return self.outcome

    # -- what happens ------------------------------------------------------------------------------------------------

    async def step(self) -> None:
        chance = self.random.random()
        if chance < 0.05:
            await self.cut(self.random.choice(self.processes))
        elif chance < 0.07:
            await self.kill(self.random.choice(self.processes))
        elif chance < 0.09:
            self.history.append("pause")
            await asyncio.sleep(self.random.uniform(0, 1.5))
        elif chance < 0.4:
            await self.send()
        else:
            pairs = {(self.random.choice(GROUPS), self.channel()) for _ in range(self.random.randint(1, 4))}
            await asyncio.gather(*(self.change(group, channel) for group, channel in pairs))

    def channel(self) -> str:
        if self.dead and self.random.random() < 0.05:
            return self.random.choice(self.dead)
        own = [channel for process in self.processes for channel in process.channels]
        return self.random.choice([*own, *own, *NORMAL])

    def teller(self, channel: str) -> ChannelLayer:
        """The layer that says it: the channel's own, or another one."""
        owner = next((process.layer for process in self.processes if channel in process.channels), None)
        if owner is not None and self.random.random() < 0.6:
            return owner
        return self.random.choice([*(process.layer for process in self.processes), self.observer])

    async def change(self, group: str, channel: str) -> None:
        key, layer, joins = (group, channel), self.teller(channel), self.random.random() < 0.6
        self.members[key] = None
        if channel in self.promises:  # what is under way to a channel that comes or goes may reach it, or not
            for number in self.under_way[group]:
                if joins:
                    self.forbidden[channel].discard(number)
                else:
                    self.promises[channel].pop(number, None)
        self.history.append(
            f"{'join' if joins else 'leave'} {group} {channel[-6:]} by {layer.runtime.connection.client_id}"
        )
        began = time.monotonic()
        try:
            if joins:
                await layer.group_add(group, channel)
            else:
                await layer.group_discard(group, channel)
        except errors.HarebellError:
            self.outcome.failed += 1
            return
        if joins:
            self.members[key] = began + GROUP_EXPIRY, time.monotonic() + GROUP_EXPIRY
        else:
            del self.members[key]

    async def send(self) -> None:
        group = self.random.choice(GROUPS)
        layer = self.random.choice([*(process.layer for process in self.processes), self.observer])
        number, now = next(self.numbers), time.monotonic()
        self.history.append(f"send {number} to {group}")
        self.outcome.sent += 1
        self.under_way[group].add(number)
        promised: dict[str, float] = {}
        for channel in self.promises:
            expires = self.members.get((group, channel), (0.0, 0.0))
            if expires is None:
                continue
            if expires[0] - now > SURE:
                promised[channel] = expires[0]
            elif now - expires[1] > LATE:
                self.forbidden[channel].add(number)
        try:
            await layer.group_send(group, {"type": "x", "n": number})
        except errors.HarebellError:  # it may have arrived or not
            self.outcome.failed += 1
            return
        now = time.monotonic()
        for channel, ends in promised.items():
            if channel in self.promises and ends > now:  # an outage can take longer than the membership lasts
                self.promises[channel][number] = ends
                self.outcome.promised += 1

    async def cut(self, process: Process) -> None:
        self.outcome.cuts += 1
        if self.random.random() < 0.6:
            self.history.append("cut")
            process.proxy.cut()
            return
        self.history.append("outage")
        process.proxy.refuse()
        process.proxy.cut()
        asyncio.get_running_loop().call_later(self.random.uniform(0, OUTAGE), process.proxy.accept)

    async def kill(self, process: Process) -> None:
        """The process ends without a word, and another one starts."""
        self.outcome.kills += 1
        self.history.append("kill")
        process.proxy.refuse()
        process.proxy.cut()
        for channel in process.channels:
            self.readers.pop(channel).cancel()
            del self.promises[channel]
            self.dead.append(channel)
            for group in GROUPS:
                self.members.pop((group, channel), None)
        self.dead = self.dead[-10:]
        self.closing.append(asyncio.create_task(self.ended(process)))
        self.processes[self.processes.index(process)] = await self.process()

    async def ended(self, process: Process) -> None:
        await process.layer.close()
        process.proxy.accept()
        await process.proxy.wait_connections(0)
        await process.proxy.aclose()

    def missing(self) -> list[tuple[str, int]]:
        """The promises that are not kept yet."""
        return [
            (channel, n) for channel, promised in self.promises.items() for n in promised if n not in self.got[channel]
        ]

    def is_missed(self, channel: str, number: int) -> bool:
        """Whether the channel should have got it: its process has not got it after the membership had ended.

        A process that was away gets it when it is back, and the owner of a channel then knows that this is no member.
        """
        heard = self.heard.get((non_local(channel), number))
        return heard is None or heard < self.promises[channel][number] or channel in NORMAL

    async def check(self) -> None:
        """Wait until all that is promised has come."""
        try:
            async with asyncio.timeout(PATIENCE):
                while any(self.is_missed(channel, number) for channel, number in self.missing()):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        except TimeoutError:
            for channel, number in self.missing():
                if self.is_missed(channel, number):
                    self.wrong(f"{channel} (of {non_local(channel)}) did not get {number}")
        fence = -next(self.numbers)  # comes after all that is under way
        for channel in self.promises:
            self.promises[channel].clear()
            await self.observer.send(channel, {"type": "x", "n": fence})
        async with asyncio.timeout(PATIENCE):
            while not all(fence in self.got[channel] for channel in self.promises):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        for numbers in self.under_way.values():
            numbers.clear()


async def run_model(url: str, *, steps: int, seed: int) -> Outcome:
    """Run it against the broker there."""
    return await Model(url, seed).run(steps)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--rabbitmq", action="store_true")
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    if arguments.rabbitmq:
        with RabbitMQ() as server:
            outcome = asyncio.run(run_model(server.url, steps=arguments.steps, seed=arguments.seed))
    else:
        outcome = asyncio.run(_on_harebell(arguments.steps, arguments.seed))
    print(outcome)
    return bool(outcome.wrong)


async def _on_harebell(steps: int, seed: int) -> Outcome:
    from harebell.broker import Broker

    async with Broker() as broker:
        return await run_model(broker.url, steps=steps, seed=seed)


if __name__ == "__main__":
    sys.exit(main())
