"""Publishers and consumers whose connections are lost thousands of times, and an account of every message.

    python -m tests.client.churn --broker harebell --losses 2000
    python -m tests.client.churn --broker rabbitmq --losses 500 --restarts 3

Each client has a connection of its own through a proxy of its own, which cuts it at a byte, at a frame, inside one,
with a reset or in order, a few milliseconds after it has come back; now and then one channel alone is lost. There is a
publisher for each `on_orphan`, on a channel and through a Producer, whose calls are cancelled at times; consumers that
acknowledge one by one, several at once, give back, and leave and come again; and Workers. With `--restarts` the broker
itself is stopped and started in between; the queue is durable then, and the messages are persistent. What must hold:

1. Every publication ends, once: acked, orphaned or returned (a broker that is well refuses none), or given up where
   the call was cancelled. "retry" ends in acked, or is orphaned where a later attempt came back; "park" leaves each
   orphan in `channel.parked`, exactly once.
2. What was acked is delivered, and in the end acknowledged: none is lost. What was never published does not come.
3. Tags go on without a gap over every loss. An acknowledgement tells exactly what it reached and what was orphaned.
4. What comes a second time is flagged as redelivered, unless it was published a second time ("retry").
5. A channel keeps nothing of what is over: no waiter of a confirm, no subscription that was left.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import sys
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

import harebell
from harebell import errors
from harebell.broker import Broker
from harebell.client.channel import Channel, OnOrphan
from harebell.client.connection import Connection
from harebell.client.messages import Publication
from harebell.client.patterns.pending import Pending
from harebell.client.patterns.producer import Producer
from harebell.client.recovery.policy import Backoff, Recovery
from harebell.testing import EmbeddedBroker, FaultProxy, RabbitMQ

POLICIES: tuple[OnOrphan, ...] = ("raise", "retry", "park")
CONSUMERS = 3
BACKLOG = 1000  # messages that wait for the consumers before the publishers do
PREFETCH = 20
PATIENCE = 60.0  # seconds for anything at all: what takes longer hangs


class Account:
    """Every message by its body, and what is wrong."""

    def __init__(self) -> None:
        self.ends: dict[str, str] = {}  # of each publication
        self.firsts: Counter[str] = Counter()  # deliveries that were not flagged as redelivered
        self.deliveries: Counter[str] = Counter()
        self.settled: Counter[str] = Counter()  # acknowledgements that were written
        self.figures: Counter[str] = Counter()
        self.breaches: list[str] = []

    def end(self, body: str, how: str) -> None:
        if body in self.ends:
            self.breaches.append(f"{body} ended twice: {self.ends[body]}, {how}")
        self.ends[body] = how

    def close(self, begun: int) -> None:
        """Draw the balance."""
        if len(self.ends) != begun:
            self.breaches.append(f"{begun} publications began, {len(self.ends)} ended")
        for body, how in self.ends.items():
            if how == "acked" and not self.settled[body]:
                self.breaches.append(f"{body} was acked and is lost: delivered {self.deliveries[body]} times")
            if how == "returned" and self.deliveries[body]:
                self.breaches.append(f"{body} was returned, and delivered")
            if self.firsts[body] > 1 and not body.startswith("retry"):
                self.breaches.append(f"{body} came {self.firsts[body]} times without being flagged as redelivered")
        for body in self.deliveries.keys() - self.ends.keys():
            self.breaches.append(f"{body} was never published")
        for how in ("acked", "orphaned", "returned", "given up"):
            self.figures[f"publications {how}"] = sum(end == how for end in self.ends.values())
        self.figures["orphans that had arrived"] = sum(
            how == "orphaned" and body in self.deliveries for body, how in self.ends.items()
        )
        self.figures["deliveries"] = self.deliveries.total()
        self.figures["deliveries, redelivered"] = self.deliveries.total() - self.firsts.total()
        self.figures["messages published twice by retry"] = sum(count > 1 for count in self.firsts.values())
        self.figures["lost"] = sum(how == "acked" and not self.settled[body] for body, how in self.ends.items())
        self.figures["breaches"] = len(self.breaches)

    def __str__(self) -> str:
        lines = [f"  {name:36} {count:>9,}" for name, count in self.figures.items()]
        return "\n".join([*lines, *(f"  BREACH: {breach}" for breach in self.breaches[:20])])


class Churn:
    """One run against one broker."""

    def __init__(
        self,
        url: str,
        losses: int,
        seed: int,
        progress: Callable[[str], None] = lambda text: None,
        restart: Callable[[], None] | None = None,
        restarts: int = 0,
    ) -> None:
        self.account = Account()
        self._url = url
        self._wanted = losses
        self._losses = 0
        self._random = random.Random(seed)
        self._progress = progress
        self._restart = restart if restarts else None
        self._losses_a_restart = losses // (restarts + 1)
        self._due = asyncio.Event()
        self._queue = f"churn.{seed}.{time.time_ns():x}"
        self._begun = 0
        self._backlog = 0
        self._enough = asyncio.Event()

    async def run(self) -> Account:
        async with harebell.connect(self._url) as own, own.channel() as observer:
            await observer.queue_declare(self._queue, durable=self._restart is not None)
            stop = asyncio.Event()
            async with asyncio.TaskGroup() as consumers:
                for _ in range(CONSUMERS):
                    consumers.create_task(self._consume(stop))
                consumers.create_task(self._work(stop))
                async with asyncio.TaskGroup() as publishers:
                    if self._restart is not None:
                        publishers.create_task(self._restarting(self._restart))
                    for policy in POLICIES:
                        publishers.create_task(self._publish(policy))
                await self._drained(observer)
                stop.set()
            await self._take_the_rest(observer)
            await observer.queue_delete(self._queue)
        self.account.figures["connections and channels lost"] = self._losses
        self.account.close(self._begun)
        return self.account

    async def _drained(self, observer: Channel) -> None:
        """Until the queue is empty."""
        async with asyncio.timeout(PATIENCE):
            while (await observer.queue_declare(self._queue, passive=True)).message_count:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async def _take_the_rest(self, observer: Channel) -> None:
        """What came back into the queue when the consumers had gone already."""
        account = self.account
        try:
            async with asyncio.timeout(PATIENCE):
                while True:
                    delivery = await observer.get(self._queue)
                    if delivery is not None:
                        self._came(delivery)
                        delivery.ack()
                        account.settled[delivery.body.decode()] += 1
                        account.figures["taken at the end"] += 1
                    elif all(account.settled[body] for body, how in account.ends.items() if how == "acked"):
                        return
        except TimeoutError:
            pass  # `close` says what is missing

    # -- losses ------------------------------------------------------------------------------------------------------

    @staticmethod
    def _connection_of(channel: Channel) -> harebell.Connection:
        connection = channel.test().connection
        assert isinstance(connection, harebell.Connection)
        return connection

    @asynccontextmanager
    async def _frail(self) -> AsyncIterator[Channel]:
        """A channel that is lost again and again until there were losses enough."""
        address = urlsplit(self._url)
        async with FaultProxy(address.hostname or "", address.port or 0) as proxy:
            url = f"amqp://guest:guest@{proxy.host}:{proxy.port}/?heartbeat=10"
            recovery = Recovery(backoff=Backoff(0.001, 0.02))
            connection = await harebell.connect(url, timeout=PATIENCE, recovery=recovery)
            channel = await connection.channel()
            cutter = asyncio.create_task(self._cut(connection, channel, proxy))
            try:
                yield channel
            finally:
                cutter.cancel()
                await asyncio.gather(cutter, return_exceptions=True)
                proxy.no_cut()
                await connection.close()

    async def _cut(self, connection: Connection, channel: Channel, proxy: FaultProxy) -> None:
        chance = self._random
        while not self._enough.is_set():
            signal = connection.test().signal_on_reconnect()
            if chance.random() < 0.1:
                signal = channel.test().signal_on_reconnect()
                if channel.is_open:
                    channel.test().disconnect_transport()
                    await signal.wait(PATIENCE)
                    self._lost()
                await asyncio.sleep(0)
                continue
            await asyncio.sleep(chance.uniform(0, 0.03))
            direction = chance.choice(("to_server", "to_client"))
            match chance.randrange(4):
                case 0:
                    proxy.cut(reset=chance.random() < 0.5)
                case 1:
                    proxy.cut_after(chance.randrange(2000), direction)  # type: ignore[arg-type]
                case 2:
                    proxy.cut_after_frames(chance.randrange(30), direction)  # type: ignore[arg-type]
                case 3:
                    inside = chance.randrange(1, 12)
                    proxy.cut_after_frames(chance.randrange(30), direction, inside=inside)  # type: ignore[arg-type]
            try:
                await signal.wait(1)
            except AssertionError:
                proxy.cut()  # nothing went that way
                await signal.wait(PATIENCE)
            proxy.no_cut()
            self._lost()

    async def _restarting(self, restart: Callable[[], None]) -> None:
        while True:
            await self._due.wait()
            self._due.clear()
            if self._enough.is_set():
                return
            await asyncio.to_thread(restart)
            self.account.figures["restarts of the broker"] += 1

    def _lost(self) -> None:
        self._losses += 1
        if self._losses >= self._wanted:
            self._enough.set()
            self._due.set()
        elif self._losses % self._losses_a_restart == 0:
            self._due.set()
        if self._losses % 500 == 0:
            self._progress(f"{self._losses:,} losses, {len(self.account.ends):,} publications")

    # -- publishers --------------------------------------------------------------------------------------------------

    def _bodies(self, policy: str, count: int) -> list[str]:
        first, self._begun = self._begun, self._begun + count
        return [f"{policy}.{n}" for n in range(first, self._begun)]

    def _message(self, body: str) -> harebell.Message:
        return harebell.Message(body.encode(), delivery_mode=2 if self._restart is not None else 1)

    async def _publish(self, policy: OnOrphan) -> None:
        chance = self._random
        async with (
            self._frail() as channel,
            self._connection_of(channel).producer(on_orphan=policy, window=16) as producer,
        ):
            await channel.confirm_select(on_orphan=policy)
            while not self._enough.is_set():
                if self._backlog > BACKLOG:
                    await asyncio.sleep(0.01)
                    continue
                if chance.random() < 0.25:
                    await self._produce(producer, self._bodies(policy, chance.randrange(1, 40)), policy)
                    continue
                way = chance.choice((self._at_once, self._batch, self._nowhere))
                bodies = self._bodies(policy, chance.randrange(1, 3 if way == self._nowhere else 40))
                call = asyncio.create_task(way(channel, bodies, policy))
                if chance.random() < 0.1:
                    await asyncio.sleep(chance.uniform(0, 0.02))
                    call.cancel()
                async with asyncio.timeout(PATIENCE):
                    await asyncio.wait({call})
                if call.cancelled():
                    for body in bodies:
                        if body not in self.account.ends:
                            self.account.end(body, "given up")
                    channel.parked.clear()
                else:
                    call.result()
                    self._parked(channel.parked, bodies, policy)
            await channel.confirm_select(on_orphan="retry")  # the last cut may still be to come
            await channel.publish(b"", "amq.fanout")  # once this is confirmed, all before it are
            self._nothing_kept(channel)

    async def _at_once(self, channel: Channel, bodies: list[str], policy: OnOrphan) -> None:
        """Each is awaited alone."""
        results = await asyncio.gather(
            *[channel.publish(self._message(body), "", self._queue) for body in bodies], return_exceptions=True
        )
        for body, result in zip(bodies, results, strict=True):
            if isinstance(result, harebell.Confirmation) and result.acked:
                self._ended(body, "acked")
            elif _orphaned(result, policy):
                self._ended(body, "orphaned")
            else:
                self._ended(body, repr(result))

    async def _batch(self, channel: Channel, bodies: list[str], policy: OnOrphan) -> None:
        """One publish_many. Which of them were orphaned is known by the tags, or by what was parked."""
        first = channel.core.publishes.last_tag + 1
        orphans: set[str] = set()
        try:
            publications = [Publication(self._message(body), "", self._queue) for body in bodies]
            count = await channel.publish_many(publications, window=16)
        except errors.PublishOrphaned as error:
            orphans = {bodies[tag - first] for tag in error.orphaned}
            if error.publish_tags != error.orphaned or policy != "raise":
                self.account.breaches.append(f"{policy}: {error!r}")
            count = len(bodies) - len(orphans)
        if policy == "park":
            orphans = {_body(publication) for _, publication in channel.parked}
        if count != len(bodies) - len(orphans):
            text = f"{policy}: publish_many counts {count} of {len(bodies)}, {len(orphans)} orphaned"
            self.account.breaches.append(text)
        for body in bodies:
            self._ended(body, "orphaned" if body in orphans else "acked")

    async def _produce(self, producer: Producer[harebell.Message | bytes], bodies: list[str], policy: OnOrphan) -> None:
        """Through a Producer; at times nobody waits for the outcomes any more, and `drain` tells the failures."""
        async with asyncio.timeout(PATIENCE):
            pending = [await producer.publish_soon(self._message(body), self._queue) for body in bodies]
            if self._random.random() < 0.2:
                first = pending[0].position
                failed: dict[int, errors.HarebellError] = {}
                try:
                    await producer.drain()
                except errors.PublishesFailed as error:
                    failed = error.failures
                outcomes: list[object] = [failed.get(first + n) for n in range(len(bodies))]
                if policy == "park":
                    parked = {_body(publication) for _, publication in producer.parked}
                    outcomes = [
                        harebell.Confirmation(1, body not in parked, orphaned=body in parked) for body in bodies
                    ]
            else:
                outcomes = list(await asyncio.gather(*map(_outcome, pending), return_exceptions=True))
        for body, outcome in zip(bodies, outcomes, strict=True):
            if outcome is None or (isinstance(outcome, harebell.Confirmation) and outcome.acked):
                self._ended(body, "acked")
            else:
                self._ended(body, "orphaned" if _orphaned(outcome, policy) else repr(outcome))
        self._parked(producer.parked, bodies, policy)
        if producer.unconfirmed:
            self.account.breaches.append(f"{policy}: {producer.unconfirmed} are under way when all are over")

    async def _nowhere(self, channel: Channel, bodies: list[str], policy: OnOrphan) -> None:
        """To no queue, and mandatory."""
        for body in bodies:
            try:
                confirmation = await channel.publish(body.encode(), "", f"{self._queue}.none", mandatory=True)
                self._ended(body, "orphaned" if _orphaned(confirmation, policy) else repr(confirmation))
            except errors.Unroutable as error:
                came_back = error.returned
                assert isinstance(came_back, harebell.Returned)
                self._ended(body, "returned" if came_back.body == body.encode() else f"another came back: {error!r}")
            except errors.PublishOrphaned as error:
                if isinstance(error.__cause__, errors.Unroutable):  # "retry": an attempt before this one had no answer
                    self.account.end(body, "orphaned")
                else:
                    self._ended(body, "orphaned" if _orphaned(error, policy) else repr(error))

    def _ended(self, body: str, how: str) -> None:
        if how not in ("acked", "orphaned", "returned"):
            self.account.breaches.append(f"{body}: {how}")
        if body.startswith("retry") and how == "orphaned":
            self.account.breaches.append(f"{body} was orphaned, and not published again")
        self._backlog += how == "acked" and not self.account.deliveries[body]
        self.account.end(body, how)

    def _nothing_kept(self, channel: Channel) -> None:
        core = channel.core
        for kept in (core.publishes.waiters, channel.subscriptions.active):
            if kept:
                self.account.breaches.append(f"kept, and over: {kept!r}")

    def _parked(self, queue: deque[tuple[int, Publication]], bodies: list[str], policy: OnOrphan) -> None:
        orphaned = [body for body in bodies if self.account.ends.get(body) == "orphaned"] if policy == "park" else []
        parked = [_body(publication) for _, publication in queue]
        if sorted(parked) != sorted(orphaned):
            self.account.breaches.append(f"{policy}: parked are {parked}, orphaned were {orphaned}")
        queue.clear()

    # -- consumers ---------------------------------------------------------------------------------------------------

    async def _consume(self, stop: asyncio.Event) -> None:
        chance = self._random
        async with self._frail() as channel:
            consumer = channel.consume(self._queue, prefetch=PREFETCH)
            await consumer.start()
            taken = 0
            held: list[harebell.Delivery] = []
            last = 0
            waiting: asyncio.Future[harebell.Delivery] | None = None
            stopped = asyncio.ensure_future(stop.wait())
            while True:
                waiting = waiting or asyncio.ensure_future(anext(consumer))
                both: set[asyncio.Future[Any]] = {waiting, stopped}
                await asyncio.wait(both, timeout=0.02, return_when=asyncio.FIRST_COMPLETED)
                if not waiting.done():
                    if held:
                        self._settle(channel, held, held[-1], multiple=True)
                    if stop.is_set():
                        break
                    continue
                delivery, waiting = waiting.result(), None
                taken += 1
                if delivery.delivery_tag != last + 1 and taken > 1:
                    self.account.breaches.append(f"delivery {delivery.delivery_tag} came after {last}")
                last = delivery.delivery_tag
                self._came(delivery)
                held.append(delivery)
                self._act(channel, held, chance)
                if chance.random() < 0.02:
                    leave = asyncio.create_task(consumer.cancel())
                    await asyncio.sleep(0)
                    if chance.random() < 0.5:
                        leave.cancel()  # it is under way, and must not come back by itself
                    await asyncio.wait({leave})
                    consumer, taken = channel.consume(self._queue, prefetch=PREFETCH), 0  # the rest was given back
                    self.account.figures["consumers that left"] += 1
            waiting.cancel()
            stopped.cancel()
            await asyncio.gather(waiting, stopped, return_exceptions=True)
            await consumer.cancel()
            await channel.exchange_declare("amq.direct", passive=True)  # the acknowledgements are there
            async with asyncio.timeout(PATIENCE):
                while channel.core.consumers:  # what was left before its answer is cancelled behind that
                    await channel.exchange_declare("amq.direct", passive=True)
            self._nothing_kept(channel)

    async def _work(self, stop: asyncio.Event) -> None:
        """Through Workers, which acknowledge by themselves."""
        account = self.account

        async def handle(delivery: harebell.Delivery) -> None:
            self._came(delivery)
            await asyncio.sleep(0)
            if self._random.random() < 0.1:
                account.figures["given back"] += 1
                raise harebell.Requeue
            account.settled[delivery.body.decode()] += 1
            account.figures["acknowledged by workers"] += 1

        def orphan(delivery: harebell.Delivery) -> None:
            account.figures["orphans of workers"] += 1
            if account.settled[delivery.body.decode()]:
                account.settled[delivery.body.decode()] -= 1

        async with (
            self._frail() as channel,
            self._connection_of(channel).consume(
                self._queue, handle, workers=4, prefetch=PREFETCH, on_orphan=orphan, grace=PATIENCE
            ),
        ):
            await stop.wait()

    def _came(self, delivery: harebell.Delivery) -> None:
        body, account = delivery.body.decode(), self.account
        if not account.deliveries[body] and account.ends.get(body) == "acked":
            self._backlog -= 1
        account.deliveries[body] += 1
        account.firsts[body] += not delivery.redelivered

    def _act(self, channel: Channel, held: list[harebell.Delivery], chance: random.Random) -> None:
        roll = chance.random()
        if roll < 0.5:
            self._settle(channel, held, held[-1], multiple=False)
        elif roll < 0.6:
            chosen = held.pop(chance.randrange(len(held)))
            try:
                chosen.nack()
                self.account.figures["given back"] += 1
            except errors.AcknowledgeOrphans:
                self.account.figures["acknowledgements orphaned"] += 1
        elif len(held) >= PREFETCH // 2:
            self._settle(channel, held, held[chance.randrange(len(held))], multiple=True)

    def _settle(
        self, channel: Channel, held: list[harebell.Delivery], chosen: harebell.Delivery, *, multiple: bool
    ) -> None:
        covered = [d for d in held if d is chosen or (multiple and d.delivery_tag <= chosen.delivery_tag)]
        held[:] = [d for d in held if d not in covered]
        alive = [d for d in covered if d.delivery_tag > channel.core.deliveries.offset]
        told = (0, len(alive))
        try:
            chosen.ack(multiple=multiple)
        except errors.AcknowledgeOrphans as error:
            told = (error.orphan_count, error.success_count)
        if told != (len(covered) - len(alive), len(alive)):
            self.account.breaches.append(f"ack {chosen.delivery_tag} told {told}, of {len(covered)} {len(alive)} alive")
        self.account.figures["acknowledgements orphaned"] += len(covered) - len(alive)
        self.account.figures["acknowledgements written"] += len(alive)
        self.account.settled.update(d.body.decode() for d in alive)


async def _outcome(pending: Pending) -> harebell.Confirmation:
    return await pending


def _orphaned(result: object, policy: OnOrphan) -> bool:
    """Whether the publication was orphaned, and that was told as the policy says."""
    if policy == "park":
        return isinstance(result, harebell.Confirmation) and result.orphaned and not result.acked
    return policy == "raise" and isinstance(result, errors.PublishOrphaned)


def _body(publication: Publication) -> str:
    message = publication.message
    return (message if isinstance(message, bytes) else message.body).decode()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.client.churn", description="A client on a very bad day.")
    parser.add_argument("--broker", default="harebell", help="harebell, rabbitmq, or a URL")
    parser.add_argument("--losses", type=int, default=2000)
    parser.add_argument("--restarts", type=int, default=0, help="of the broker, spread over the losses")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    options = parser.parse_args()
    logging.getLogger("harebell").setLevel(logging.ERROR)  # a line for each loss is a line too many
    print(f"churn: {options.broker}, {options.losses:,} losses, seed {options.seed}", flush=True)

    def run(url: str, restart: Callable[[], None] | None = None) -> Account:
        async def churn() -> Account:
            progress = lambda text: print(f"  {text}", flush=True)  # noqa: E731
            return await Churn(url, options.losses, options.seed, progress, restart, options.restarts).run()

        return asyncio.run(churn())

    if options.broker == "harebell":
        with TemporaryDirectory() as data, EmbeddedBroker(lambda: Broker(data=data)) as server:
            account = run(server.url, server.restart)
    elif options.broker == "rabbitmq":
        node = RabbitMQ()

        def restart() -> None:
            node.stop()
            node.start()

        try:
            node.start()
        except errors.ServerUnavailable as error:
            print(f"churn: left out: {error}")
            return 0
        with closing(node):
            account = run(node.url, restart)
    else:
        account = run(options.broker)
    print(account, flush=True)
    return 1 if account.breaches else 0


if __name__ == "__main__":
    sys.exit(main())
