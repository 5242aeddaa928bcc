"""The ordeals: a broker that is killed again and again, connections that are cut and stalled, a client that is heavy.

Each ends in the same way: publishers get their last confirms, consumers empty every queue, streams are read whole,
and the broker is stopped as it should be and started once more, to show that nothing is left. Then comes the verdict.

On a busy machine little may happen in a short ordeal. It goes on, up to PATIENCE, until the figures that are `wanted`
are above zero.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from random import Random
from typing import Final

from harebell.protocol.v091 import Content, methods as m
from harebell.testing import FaultProxy
from tests.torture.declarations import Declarer
from tests.torture.heavy import Heavy, Probe
from tests.torture.history import Book, History, Stream, Verdict
from tests.torture.peer import Peer
from tests.torture.scenery import FAN, LATER, QUEUES, Queue, sources
from tests.torture.server import Server
from tests.torture.workers import MOST_DELAY, Committer, Confirmer, Consumer, Reader, Stage, Worker, read

__all__ = ["OPEN_FILES", "churn", "kills", "soak"]

PATIENCE: Final = 120.0  # seconds in which the queues get no emptier, or nothing of a stream comes
OPEN_FILES: Final = 1024  # of the broker in a soak
LINGER: Final = 15.0  # ... and for a dead letter that waits to be sent again
Ordeal = Callable[[Server, Stage], Awaitable[None]]
Progress = Callable[[str], None]


def _silent(text: str) -> None:
    pass


class _Goal:
    """Whether an ordeal of so many seconds may end."""

    def __init__(self, stage: Stage, seconds: float, wanted: Collection[str]) -> None:
        self.end = time.monotonic() + seconds
        self._figures = stage.history.figures
        self._wanted = wanted

    @property
    def reached(self) -> bool:
        now = time.monotonic()
        return now > self.end and (now > self.end + PATIENCE or all(self._figures[name] for name in self._wanted))


async def kills(
    folder: Path,
    *,
    count: int,
    seed: int,
    queues: tuple[Queue, ...] = QUEUES,
    progress: Progress = _silent,
    wanted: Collection[str] = (),
) -> Verdict:
    """SIGKILL so many times, each after up to 1.5 seconds of work; one in ten while the broker is starting."""

    async def ordeal(server: Server, stage: Stage) -> None:
        server.up.set()
        goal, number = _Goal(stage, 0.0, wanted), 0
        while number < count or not goal.reached:
            number += 1
            await asyncio.sleep(stage.random.uniform(0.05, 1.5))
            await server.kill()
            stage.life += 1
            stage.history.figures["kills"] += 1
            while stage.random.random() < 0.1:
                if await server.start(give_up=stage.random.uniform(0.1, 1.0)):
                    await server.kill()
                stage.history.figures["kills while starting"] += 1
            await server.start()
            await _look(server, queues)
            server.up.set()
            progress(f"kill {number} of {count}: start {server.start_seconds:.2f} s, {_short(stage.history)}")

    return await _run(folder, seed, queues, ordeal, declaring=True)


async def churn(
    folder: Path,
    *,
    seconds: float,
    seed: int,
    queues: tuple[Queue, ...] = QUEUES,
    progress: Progress = _silent,
    wanted: Collection[str] = (),
) -> Verdict:
    """For so long, connections go through a proxy that cuts them, also within a frame, and stalls them."""

    async def ordeal(server: Server, stage: Stage) -> None:
        random, goal = stage.random, _Goal(stage, seconds, wanted)
        async with FaultProxy("127.0.0.1", server.port) as proxy:
            stage.port = proxy.port
            server.up.set()
            faults: list[Callable[[], object]] = [
                lambda: proxy.cut(reset=True),
                lambda: proxy.cut(reset=False),
                lambda: proxy.cut_after(random.randrange(100_000), "to_server"),
                lambda: proxy.cut_after(random.randrange(100_000), "to_client"),
                lambda: proxy.stall("to_server"),
                lambda: proxy.stall("to_client"),
                proxy.stall,
                lambda: proxy.throttle(random.randrange(50_000, 500_000)),
            ]
            told = 0.0
            while not goal.reached:
                await asyncio.sleep(random.uniform(0.1, 1.0))
                random.choice(faults)()
                stage.history.figures["faults"] += 1
                stage.life += 1
                await asyncio.sleep(random.uniform(0.05, 0.8))
                if random.random() < 0.3:
                    proxy.cut(reset=random.random() < 0.5)  # what is stalled too
                proxy.resume()
                proxy.throttle(None)
                if time.monotonic() > told + 5.0:
                    told = time.monotonic()
                    progress(f"{max(0.0, goal.end - told):.0f} s left: {_short(stage.history)}")
            stage.port = server.port
            proxy.cut()

    return await _run(folder, seed, queues, ordeal)


async def soak(
    folder: Path,
    *,
    seconds: float,
    seed: int,
    queues: tuple[Queue, ...] = QUEUES,
    progress: Progress = _silent,
    wanted: Collection[str] = (),
) -> Verdict:
    """For so long, another client does everything that takes long, beside a probe; a kill every minute or so.

    The broker may have OPEN_FILES files open.
    """
    every = min(60.0, seconds / 3)

    async def ordeal(server: Server, stage: Stage) -> None:
        goal, figures = _Goal(stage, seconds, wanted), stage.history.figures
        server.up.set()
        while not goal.reached:
            life = time.monotonic() + stage.random.uniform(0.5, 1.5) * every
            while time.monotonic() < life and not goal.reached:
                await asyncio.sleep(1.0)
                memory, files = server.usage()
                figures["peak memory, MiB"] = max(figures["peak memory, MiB"], memory >> 20)
                figures["most open files"] = max(figures["most open files"], files)
            await server.kill()
            stage.life += 1
            figures["kills"] += 1
            await server.start()
            await _look(server, queues)
            server.up.set()
            progress(f"{max(0.0, goal.end - time.monotonic()):.0f} s left: {_short(stage.history)}")

    return await _run(folder, seed, queues, ordeal, heavy=True, open_files=OPEN_FILES)


async def _run(
    folder: Path,
    seed: int,
    queues: tuple[Queue, ...],
    ordeal: Ordeal,
    *,
    declaring: bool = False,
    heavy: bool = False,
    open_files: int | None = None,
) -> Verdict:
    began = time.monotonic()
    history, server = History(), Server(folder / "data", open_files=open_files)
    try:
        await server.start()
        await _declare(server.port, queues)
        stage = Stage(history, Random(seed), server.port, server.up)
        workers = _workers(stage, queues)
        declarer = Declarer(stage) if declaring else None
        workers += [declarer] if declarer is not None else []
        busy = Heavy(stage) if heavy else None
        probe = Probe(stage, busy) if busy is not None else None
        workers += [busy, probe] if busy is not None and probe is not None else []
        async with asyncio.TaskGroup() as tasks:
            async with asyncio.TaskGroup() as publishing:
                for worker in workers:
                    group = publishing if isinstance(worker, Confirmer | Committer | Heavy | Probe) else tasks
                    group.create_task(worker.run())
                await ordeal(server, stage)
                stage.publishing = False
            await _drain(stage, queues, [worker for worker in workers if isinstance(worker, Consumer)])
        await _read_streams(server.port, queues, history)
        server.up.clear()
        await server.stop()
        await server.start()
        await _look(server, queues, left=history)
        if declarer is not None:
            peer = await Peer.connect(server.port)
            await declarer.look(peer)
            peer.close()
        await server.stop()
    finally:
        await server.kill()
    for line in server.complaints():
        history.breach(f"log: {line}")
    verdict = history.verdict()
    if probe is not None:
        for act, seconds in sorted(probe.longest.items(), key=lambda item: -item[1]):
            verdict.figures[f"longest wait, ms: {act}"] = int(seconds * 1000)
    verdict.figures["slowest start, ms"] = int(server.slowest_start * 1000)
    verdict.figures["seconds"] = int(time.monotonic() - began)
    verdict.figures["seed"] = seed
    return verdict


def _workers(stage: Stage, queues: tuple[Queue, ...]) -> list[Worker]:
    history = stage.history
    books: dict[str, Book | Stream] = {}
    workers: list[Worker] = []
    for queue in queues:
        if queue.stream:
            stream = books[queue.name] = history.stream(queue.name)
            workers.append(Reader(stage, queue, stream))
        else:
            sole, held_back = queue.consumers == 1, queue.exchange == LATER
            book = books[queue.name] = history.book(queue.name, sole=sole, dead=queue.dead, held_back=held_back)
            workers += [Consumer(stage, queue, book) for _ in range(queue.consumers)]
    for address, targets in sources(queues).items():
        told = [books[queue.name] for queue in targets]
        workers += [Confirmer(stage, address, told, durable=True) for _ in range(2 if address[0] == FAN else 1)]
        if not any(queue.stream for queue in targets if len(targets) == 1):
            workers.append(Committer(stage, address, told, durable=True))
        if address == ("", "work"):
            workers.append(Confirmer(stage, address, told, durable=False))
    return workers


async def _declare(port: int, queues: tuple[Queue, ...]) -> None:
    peer = await Peer.connect(port)
    await peer.call(m.ExchangeDeclare(FAN, "fanout", durable=True), m.ExchangeDeclareOk)
    if any(queue.exchange == LATER for queue in queues):
        delayed = m.ExchangeDeclare(LATER, "x-delayed-message", durable=True, arguments={"x-delayed-type": "fanout"})
        await peer.call(delayed, m.ExchangeDeclareOk)
    for queue in queues:
        await peer.call(m.QueueDeclare(queue.name, durable=True, arguments=queue.arguments), m.QueueDeclareOk)
        if queue.exchange:
            await peer.call(m.QueueBind(queue.name, queue.exchange), m.QueueBindOk)
    peer.close()


async def _look(server: Server, queues: tuple[Queue, ...], left: History | None = None) -> None:
    """Every queue is there; and, with `left`, empty."""
    peer = await Peer.connect(server.port)
    for queue in queues:
        count = await _count(peer, queue)
        if left is not None and count and not queue.stream:
            left.breach(f"{queue.name}: {count} messages after it was emptied")
    peer.close()


async def _count(peer: Peer, queue: Queue) -> int:
    """Its ready messages."""
    return (await peer.call(m.QueueDeclare(queue.name, passive=True), m.QueueDeclareOk)).message_count


async def _drain(stage: Stage, queues: tuple[Queue, ...], consumers: list[Consumer]) -> None:
    """Wait until the queues are empty; consumers are told to take everything."""
    stage.draining = True
    peer = await Peer.connect(stage.port)
    began, least = time.monotonic(), 1 << 62
    released = began + MOST_DELAY / 1000 + 1  # by then what was delayed has come, confirmed or not
    while True:
        await peer.sleep(0.1)
        counts = {queue.name: await _count(peer, queue) for queue in queues if not queue.stream}
        if (left := sum(counts.values())) < least:
            began, least = time.monotonic(), left
        emptied = not any(counts.values()) and all(consumer.idle for consumer in consumers)
        missing = any(book.missing() for book in stage.history.books.values())
        if emptied and not missing and time.monotonic() > released:
            break
        if emptied and time.monotonic() > began + LINGER:
            break  # what is missing does not come any more
        if time.monotonic() > began + PATIENCE:
            stage.history.breach(f"the queues are not emptied: {counts}")
            break
    stage.over = True
    peer.close()


async def _read_streams(port: int, queues: tuple[Queue, ...], history: History) -> None:
    for queue in queues:
        if queue.stream:
            await _read_stream(port, queue, history.streams[queue.name])


async def _read_stream(port: int, queue: Queue, stream: Stream) -> None:
    """All of it, from its first offset on."""
    peer = await Peer.connect(port)
    count = await _count(peer, queue)
    found: list[int] = []

    def receive(event: m.Method | Content) -> None:
        offset, message = read(event, stream)
        assert offset == len(found), f"{queue.name}: offset {offset} came where {len(found)} was due"
        found.append(message)
        if len(found) % 500 == 0:
            peer.send(m.BasicAck(0, multiple=True))

    peer.receive = receive
    await peer.call(m.BasicQos(0, 2000), m.BasicQosOk)
    await peer.call(m.BasicConsume(queue.name, "all", arguments={"x-stream-offset": "first"}), m.BasicConsumeOk)
    began, before = time.monotonic(), 0
    while len(found) < count and time.monotonic() < began + PATIENCE:
        if len(found) > before:
            began, before = time.monotonic(), len(found)
        await peer.sleep(0.02)
    peer.close()
    stream.read_whole(found)


def _short(history: History) -> str:
    figures = history.figures
    news = "".join(f"\n  BREACH: {breach}" for breach in history.news())
    return (
        f"{figures['confirmed']:,} confirmed, {figures['acknowledged']:,} acknowledged, "
        f"{history.left:,} left, {figures['breaches']} breaches{news}"
    )
