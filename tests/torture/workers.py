"""Publishers, consumers and readers of streams, each on a connection that it makes anew whenever it is gone.

They note in the history what they send before they send it, and what comes when it comes.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass
from random import Random
from typing import ClassVar, Final

from harebell.protocol.v091 import Content, Properties, Table, methods as m
from tests.torture.history import Book, History, Publisher as Told, Stream, key
from tests.torture.peer import Ended, Peer
from tests.torture.scenery import LATER, Queue

__all__ = ["Committer", "Confirmer", "Consumer", "Reader", "Stage", "Worker"]

WINDOW: Final = 400  # publications that wait for their confirm
MOST_LEFT: Final = 20_000  # messages in a queue: more, and its publishers wait for consumers
MOST_DELAY: Final = 1_500  # milliseconds in a delayed exchange
PAUSE: Final = 0.02  # seconds


@dataclass
class Stage:
    """What all workers share. `port`: where they connect to. They go on while `up` is set and it is not `over`."""

    history: History
    random: Random
    port: int
    up: asyncio.Event
    life: int = 0  # of the broker: it grows with every kill
    publishing: bool = True
    draining: bool = False  # consumers acknowledge all that comes
    over: bool = False


class Worker(ABC):
    def __init__(self, stage: Stage) -> None:
        self.stage, self.history, self.random = stage, stage.history, Random(stage.random.random())

    @property
    def goes_on(self) -> bool:
        return not self.stage.over

    @abstractmethod
    async def session(self, peer: Peer) -> None:
        """Work on this connection until it is gone (Ended) or there is no more to do."""

    async def run(self) -> None:
        while self.goes_on:
            if not self.stage.up.is_set():
                await asyncio.sleep(PAUSE)
                continue
            peer = None
            try:
                peer = await Peer.connect(self.stage.port)
                await self.session(peer)
            except Ended:
                self.history.figures["connections lost"] += 1
                await asyncio.sleep(PAUSE)
            except TimeoutError:
                self.history.breach(f"{self!r}: no answer came")
            finally:
                if peer is not None:
                    peer.close()
                    if peer.closed:
                        self.history.breach(f"{self!r}: the broker closed it: {peer.closed}")


class _Publisher(Worker):
    """`address`: exchange and routing key. `durable`: whether the messages are persistent."""

    def __init__(self, stage: Stage, address: tuple[str, str], targets: list[Book | Stream], *, durable: bool) -> None:
        super().__init__(stage)
        self.address, self.targets, self.durable = address, targets, durable

    def __repr__(self) -> str:
        return f"{type(self).__name__.lower()} to {self.address}"

    @property
    def goes_on(self) -> bool:
        return self.stage.publishing

    @property
    def held_up(self) -> bool:
        return any(target.left > MOST_LEFT for target in self.targets if isinstance(target, Book))

    def publish(self, peer: Peer, told: Told) -> int:
        """One message: most are small, some are large. Its number."""
        level = self.random.randrange(5)
        number = told.next()
        dice = self.random.random()
        size = self.random.randrange(200) if dice < 0.9 else self.random.randrange(5_000 if dice < 0.995 else 300_000)
        body = b"%d %d %d %s" % (told.number, number, level, b"." * size)
        headers: Table | None = {"x-delay": self.random.randrange(MOST_DELAY)} if self.address[0] == LATER else None
        mode = 2 if self.durable else 1
        peer.publish(*self.address, body, Properties(delivery_mode=mode, priority=level, headers=headers))
        return number


class Confirmer(_Publisher):
    """Publishes with confirms."""

    async def session(self, peer: Peer) -> None:
        told = self.history.publisher(self.targets, durable=self.durable)
        waiting: deque[int] = deque()

        def receive(event: m.Method | Content) -> None:
            assert isinstance(event, m.BasicAck | m.BasicNack), event
            tags = [event.delivery_tag]
            if event.multiple:
                tags = [tag for tag in waiting if tag <= event.delivery_tag]
            for tag in tags:
                waiting.remove(tag)  # from the left, nearly always
            if isinstance(event, m.BasicAck):
                told.confirmed(tags)
            else:
                told.refused(tags)

        peer.receive = receive
        await peer.call(m.ConfirmSelect(), m.ConfirmSelectOk)
        while self.stage.publishing:
            if len(waiting) < WINDOW and not self.held_up:
                for _ in range(self.random.randrange(1, 40)):
                    waiting.append(self.publish(peer, told))
            await peer.drain()
            await peer.sleep(PAUSE * self.random.random() * 2)
        while waiting:
            await peer.sleep(PAUSE)


class Committer(_Publisher):
    """Publishes in transactions, and takes one in five back."""

    async def session(self, peer: Peer) -> None:
        told = self.history.publisher(self.targets, durable=self.durable)
        await peer.call(m.TxSelect(), m.TxSelectOk)
        while self.stage.publishing:
            if not self.held_up:
                numbers = [self.publish(peer, told) for _ in range(self.random.randrange(1, 30))]
                if self.random.random() < 0.2:
                    told.rolled_back(numbers)
                    await peer.call(m.TxRollback(), m.TxRollbackOk)
                else:
                    await peer.call(m.TxCommit(), m.TxCommitOk)
                    told.confirmed(numbers)
            await peer.sleep(PAUSE * self.random.random() * 2)


class Consumer(Worker):
    """Acknowledges most messages, some together, some late; puts some back, and rejects some if they go anywhere."""

    EVERY: ClassVar = 3  # a rare consumer is there in one life of so many

    def __init__(self, stage: Stage, queue: Queue, book: Book) -> None:
        super().__init__(stage)
        self.queue, self.book = queue, book
        self._levels = queue.arguments.get("x-max-priority") is not None
        self._held: dict[int, int] = {}  # delivery tag -> message, of what came and was not answered
        self._acked: list[int] = []  # messages, since the broker answered anything

    def __repr__(self) -> str:
        return f"consumer of {self.queue.name}"

    @property
    def idle(self) -> bool:
        return not self._held and not self._acked

    @property
    def absent(self) -> bool:
        return self.queue.rare and self.stage.life % self.EVERY != 0 and not self.stage.draining

    async def session(self, peer: Peer) -> None:
        self._held, self._acked = {}, []
        number = self.history.consumer()
        prefetch = self.random.choice([1, 5, 50, 300])

        def receive(event: m.Method | Content) -> None:
            assert isinstance(event, Content), event
            delivery = event.decode_method()
            assert isinstance(delivery, m.BasicDeliver), delivery
            publisher, count, level = map(int, event.body.split(b" ", 3)[:3])
            message = key(publisher, count)
            self.book.received(message, delivery.redelivered, number, min(level, 3) if self._levels else 0)
            self._held[delivery.delivery_tag] = message
            self._answer(peer, delivery.delivery_tag)

        while self.absent and self.goes_on:
            await peer.sleep(PAUSE)
        peer.receive = receive
        await peer.call(m.BasicQos(0, prefetch), m.BasicQosOk)
        await peer.call(m.BasicConsume(self.queue.name, "c"), m.BasicConsumeOk)
        while self.goes_on:
            await peer.sleep(PAUSE * 2 * self.random.random())
            if self._held and (self.stage.draining or self.random.random() < 0.5):
                self._ack(peer, max(self._held), multiple=True)
            acked, self._acked = self._acked, []
            await peer.call(m.BasicQos(0, prefetch), m.BasicQosOk)
            self.book.taken(acked)

    def _answer(self, peer: Peer, tag: int) -> None:
        dice = 0.5 if self.stage.draining else self.random.random()
        if dice < 0.02:
            self.book.returned(self._held.pop(tag))
            peer.send(m.BasicNack(tag, multiple=False, requeue=True))
        elif dice < 0.05 and self.book.dead is not None and self._held[tag] in self.book.states:
            self.book.rejected(self._held.pop(tag))
            peer.send(m.BasicReject(tag, requeue=False))
        elif dice < 0.1:
            self._ack(peer, tag, multiple=True)
        elif dice < 0.8:
            self._ack(peer, tag, multiple=False)
        # else later, with those behind it, or never

    def _ack(self, peer: Peer, tag: int, *, multiple: bool) -> None:
        tags = [each for each in self._held if each <= tag] if multiple else [tag]
        messages = [self._held.pop(each) for each in tags]
        known = [message for message in messages if message in self.book.states]
        self.book.acked(known)
        self._acked += known
        peer.send(m.BasicAck(tag, multiple))


class Reader(Worker):
    """Reads a stream from anywhere, again and again."""

    def __init__(self, stage: Stage, queue: Queue, stream: Stream) -> None:
        super().__init__(stage)
        self.queue, self.stream = queue, stream

    def __repr__(self) -> str:
        return f"reader of {self.queue.name}"

    async def session(self, peer: Peer) -> None:
        known = self.random.randrange(len(self.stream.offsets) + 1)
        starts: list[str | int] = ["next", "first", "last", known]
        start = self.random.choice(starts)
        expected = start if isinstance(start, int) else None

        def receive(event: m.Method | Content) -> None:
            nonlocal expected
            offset = read(event, self.stream)[0]
            if expected is not None and offset != expected:
                self.history.breach(f"{self!r}: {offset} came where {expected} was due")
            expected = offset + 1
            method = event.decode_method() if isinstance(event, Content) else event
            assert isinstance(method, m.BasicDeliver)
            peer.send(m.BasicAck(method.delivery_tag))

        peer.receive = receive
        await peer.call(m.BasicQos(0, 100), m.BasicQosOk)
        await peer.call(m.BasicConsume(self.queue.name, "r", arguments={"x-stream-offset": start}), m.BasicConsumeOk)
        for _ in range(self.random.randrange(20, 200)):
            if self.goes_on:
                await peer.sleep(PAUSE)


def read(event: m.Method | Content, stream: Stream) -> tuple[int, int]:
    """(offset, message) of a stream's delivery; the stream's history is told."""
    assert isinstance(event, Content), event
    offset = (event.decode_properties().headers or {})["x-stream-offset"]
    assert isinstance(offset, int)
    publisher, number = map(int, event.body.split(b" ", 2)[:2])
    stream.received(key(publisher, number), offset)
    return offset, key(publisher, number)
