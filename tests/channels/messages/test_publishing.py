"""Messages on their way to the broker: returned, refused, cut off, late. Each ends in one result, and none twice."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Coroutine
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, strategies as st

from harebell import errors
from harebell.channels import ChannelLayer
from harebell.channels.links import embedded
from harebell.channels.links.connection import LayerConnection
from harebell.channels.links.io_thread import AsyncAnswer
from harebell.channels.messages import publishing
from harebell.channels.messages.publishing import PendingPublish, Publisher
from harebell.channels.names import Names
from harebell.client.channel import Channel
from harebell.client.messages import Returned
from harebell.testing import FaultProxy
from tests.channels.conftest import Make, until

HELLO = {"type": "hello"}


@pytest.fixture
async def far(broker_url: str, prefix: str, proxy: FaultProxy, proxied_url: str) -> AsyncIterator[ChannelLayer]:
    """A layer behind a proxy."""
    layer = ChannelLayer(proxied_url, prefix=prefix, timeout=60)
    yield layer
    await layer.close()


async def published(proxy: FaultProxy, before: int) -> None:
    """Wait until the proxy has forwarded more to the broker than that."""

    async def more() -> bool:
        return proxy.forwarded("to_server") > before

    await until(more)


@pytest.mark.parametrize("channel", ["work", "specific.other!there"])
async def test_a_queue_that_vanished_is_declared_and_gets_the_message(
    layer: ChannelLayer, amqp: Channel, names: Names, channel: str
) -> None:
    for number in range(3):
        await layer.send(channel, {"type": "x", "n": number})
        assert (await amqp.queue_declare(names.queue(channel), passive=True)).message_count == 1
        await amqp.queue_delete(names.queue(channel))
    await asyncio.gather(*(layer.send(channel, {"type": "x", "n": number}) for number in range(20)))
    assert (await amqp.queue_declare(names.queue(channel), passive=True)).message_count == 20


async def test_messages_keep_their_order_when_their_queue_vanished(
    layer: ChannelLayer, amqp: Channel, names: Names
) -> None:
    await layer.send("work", HELLO)
    await amqp.queue_delete(names.queue("work"))
    await asyncio.gather(*(layer.send("work", {"type": "x", "n": number}) for number in range(50)))
    assert [(await layer.receive("work"))["n"] for _ in range(50)] == list(range(50))


class SlowBroker:
    """A layer's connection to a broker with one queue, which answers one publication at a time, when it is told to."""

    client_id = "c"
    on_harebell = True
    may_publish = True
    closed = False

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.settings = SimpleNamespace(timeout=60)
        self.names = SimpleNamespace(queue=lambda channel: channel, groups="groups")
        self.thread = self.publishing = self.link = self
        self.exists = self.declared = True
        self.in_flight: deque[tuple[PendingPublish, bytes]] = deque()
        self.queue: list[int] = []
        self.tasks: list[asyncio.Task[None]] = []

    def start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(self.loop.create_task(coroutine))

    async def ready(self, seconds: float) -> SlowBroker:
        return self

    async def drain(self, timeout: float) -> None: ...

    def is_declared(self, channel: str) -> bool:
        return self.declared

    def undeclared(self, channel: str) -> None:
        self.declared = False

    async def declare(self, channel: str) -> None:
        await asyncio.sleep(0)
        self.exists = self.declared = True

    def publish_nowait(self, body: bytes, exchange: str, key: str, *, waiter: PendingPublish, **_: object) -> None:
        self.in_flight.append((waiter, body))

    def answer(self) -> None:
        if self.in_flight:
            waiter, body = self.in_flight.popleft()
            if self.exists:
                self.queue.append(int(body))
            else:
                waiter.returned(0, cast(Returned, None))
            waiter.settle(0, True)


class NeverFull:
    """No process-local channel is full (`publishing.Fullness`)."""

    def is_full(self, channel: str, on_way: int) -> bool:
        return False

    def sending(self, channel: str) -> None: ...
    def arrived(self, channel: str) -> None: ...


class Outcomes:
    """Answers of several messages."""

    def __init__(self) -> None:
        self.results: list[BaseException | None] = []

    def give(self, result: None) -> None:
        self.results.append(None)

    def fail(self, error: BaseException) -> None:
        self.results.append(error)


@given(st.lists(st.sampled_from(["send", "send", "send", "answer", "answer", "turn", "delete"]), max_size=60))
def test_returned_messages_keep_their_order_whenever_their_answers_come(script: list[str]) -> None:
    async def run() -> None:
        broker = SlowBroker()
        publisher = Publisher(cast(LayerConnection, broker), NeverFull())
        outcomes, sent = Outcomes(), 0
        for step in script:
            if step == "send":
                publisher.send("work", b"%d" % sent, outcomes)
                sent += 1
            elif step == "answer":
                broker.answer()
            elif step == "turn":
                await asyncio.sleep(0)
            else:  # another process deletes the queue, and what is in it
                broker.exists = False
                broker.queue.clear()
        while broker.in_flight or not all(task.done() for task in broker.tasks):
            broker.answer()
            await asyncio.sleep(0)
        assert broker.queue == sorted(broker.queue)
        assert outcomes.results == [None] * sent

    asyncio.run(run())


async def test_a_queue_that_always_vanishes_ends_in_an_error(
    layer: ChannelLayer, amqp: Channel, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "MOST_TRIES", 0)
    await layer.send("work", HELLO)
    await amqp.queue_delete(names.queue("work"))
    with pytest.raises(errors.DeadlineExceeded, match="the queue of 'work' vanishes as fast as it is made"):
        await layer.send("work", HELLO)
    await layer.send("work", HELLO)  # it is known not to be declared
    assert await layer.receive("work") == HELLO


async def test_a_full_queue_refuses_one_and_takes_the_next(make: Make) -> None:
    layer = make(capacity=2)
    results = await asyncio.gather(*(layer.send("work", HELLO) for _ in range(5)), return_exceptions=True)
    assert [result is None for result in results] == [True, True, False, False, False]
    assert layer.statistics()["full"] == 3
    await layer.receive("work")
    await layer.send("work", HELLO)


@pytest.mark.parametrize("channel, repeatable", [("work", False), ("specific.other!there", True)])
async def test_a_connection_lost_before_the_confirm(
    far: ChannelLayer, proxy: FaultProxy, amqp: Channel, names: Names, channel: str, repeatable: bool
) -> None:
    await far.send(channel, HELLO)
    connection = far.runtime.connection
    repeatable = repeatable or connection.on_harebell  # its queues recognise duplicates
    proxy.stall("to_client")
    before = proxy.forwarded("to_server")
    sending = asyncio.create_task(far.send(channel, HELLO))
    await published(proxy, before)

    async def arrived() -> bool:
        return (await amqp.queue_declare(names.queue(channel), passive=True)).message_count >= 2

    await until(arrived)
    proxy.cut()
    proxy.resume()
    if repeatable:
        await sending
    else:
        with pytest.raises(errors.PublishOrphaned, match=f"message to {channel!r}: it may or may not have arrived"):
            await sending
    await far.send(channel, HELLO)  # after the second copy, if there is one
    count = (await amqp.queue_declare(names.queue(channel), passive=True)).message_count
    copies = repeatable and not (connection.on_harebell and channel == "work")
    assert count == 3 + copies


async def test_a_broker_that_does_not_answer(far: ChannelLayer, proxy: FaultProxy) -> None:
    await far.send("work", HELLO)
    connection = far.runtime.connection
    patient = connection.settings
    with proxy.stalled():
        connection.settings = replace(patient, timeout=0.5)
        for send in (far.send("work", HELLO), far.group_send("g", HELLO)):
            with pytest.raises(errors.DeadlineExceeded, match=r"not confirmed within .* it may or may not arrive"):
                await send
        connection.settings = patient
    await far.send("other", HELLO)  # the late confirms disturb no later message
    assert await far.receive("other") == HELLO


async def test_a_message_that_was_never_published_is_not_said_to_arrive_perhaps() -> None:
    """Whichever of the two timers sees its deadline first: the thread of the layer is busy beyond it."""
    layer = ChannelLayer("amqp://guest:secret@127.0.0.1:9/", timeout=0.3)
    with pytest.raises(errors.DeadlineExceeded, match="no broker at"):
        await layer.group_send("g", HELLO)
    sends = [asyncio.ensure_future(layer.group_send("g", HELLO)) for _ in range(3)]
    await asyncio.sleep(0)
    layer.runtime.connection.thread.loop.call_soon_threadsafe(time.sleep, 1.0)
    for send in sends:
        with pytest.raises(errors.DeadlineExceeded, match="no broker at"):
            await send
    await layer.close()


async def test_a_message_that_was_on_its_way_may_have_arrived_when_the_broker_stays_away(
    far: ChannelLayer, proxy: FaultProxy
) -> None:
    await far.group_send("g", HELLO)
    connection = far.runtime.connection
    patient = connection.settings
    proxy.stall("to_client")
    before = proxy.forwarded("to_server")
    connection.settings = replace(patient, timeout=2.0)
    sending = asyncio.create_task(far.group_send("g", HELLO))
    await published(proxy, before)
    proxy.refuse()
    proxy.cut()
    proxy.resume()
    with pytest.raises(errors.DeadlineExceeded, match="it may or may not arrive"):
        await sending
    connection.settings = patient
    proxy.accept()


async def test_messages_that_wait_for_a_connection_end_with_the_layer(far: ChannelLayer, proxy: FaultProxy) -> None:
    proxy.stall()
    sends = [asyncio.ensure_future(far.send("work", HELLO)) for _ in range(3)]
    sends.append(asyncio.ensure_future(far.group_send("g", HELLO)))
    await proxy.wait_connections(1)
    await far.close()
    proxy.resume()
    for send in sends:
        with pytest.raises(errors.ChannelClosed, match="closed"):
            async with asyncio.timeout(60):
                await send
    await asyncio.wait_for(proxy.wait_connections(0), 60)


async def test_messages_on_their_way_end_with_the_layer(far: ChannelLayer, proxy: FaultProxy) -> None:
    await far.send("work", HELLO)
    proxy.stall("to_client")
    before = proxy.forwarded("to_server")
    sends = [
        asyncio.ensure_future(far.send("specific.other!there", HELLO)),
        asyncio.ensure_future(far.send("work", HELLO)),
    ]
    await published(proxy, before)
    closing = asyncio.create_task(far.close())
    await asyncio.sleep(0)
    proxy.cut()
    proxy.resume()
    await closing
    for send in sends:
        with pytest.raises(errors.HarebellError):
            async with asyncio.timeout(60):
                await send


async def test_a_broker_that_is_not_installed(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def missing() -> str:
        raise ImportError("no harebell.broker here")

    with monkeypatch.context() as patch:
        patch.setattr(embedded, "url", missing)
        layer = ChannelLayer("embedded://", prefix=prefix)
        for call in (layer.send("work", HELLO), layer.receive("work"), layer.group_send("g", HELLO)):
            with pytest.raises(ImportError, match=r"no harebell\.broker here"):
                async with asyncio.timeout(60):
                    await call
    await layer.send("work", HELLO)  # each call tries again
    assert await layer.receive("work") == HELLO
    await layer.close()


class Text:
    """A serializer of text, as the module json: no bytes."""

    def dumps(self, message: dict[str, Any]) -> Any:
        return "text" if message["type"] == "bad" else b"{}"

    def loads(self, body: bytes) -> dict[str, Any]:
        return HELLO


async def test_a_message_that_is_not_written_costs_no_other_one(make: Make) -> None:
    """A send that fails, at once and alone; who waits goes on waiting."""
    layer = make(serializer=Text())
    own = await layer.new_channel()
    await layer.group_add("g", own)
    waiting = [asyncio.create_task(layer.receive(name)) for name in (own, "work")]
    bad = {"type": "bad"}
    calls: list[Coroutine[Any, Any, None]] = []
    for _ in range(5):
        calls += [layer.send("work", HELLO), layer.send("work", bad), layer.send(own, bad), layer.group_send("g", bad)]
    results = await asyncio.gather(*calls, return_exceptions=True)
    for at, result in enumerate(results):
        assert result is None if at % 4 == 0 else isinstance(result, TypeError), result
    await layer.send(own, HELLO)
    assert await asyncio.wait_for(asyncio.gather(*waiting), 60) == [HELLO, HELLO]


@pytest.mark.parametrize("channel", ["work", "own"])
async def test_a_publication_that_is_refused_is_the_only_one(make: Make, channel: str) -> None:
    """Also one that waits for its connection or its queue, among others that do."""
    layer = make()
    if channel == "own":
        channel = await layer.new_channel()
    publisher, thread = layer.runtime.publisher, layer.runtime.thread
    answers: list[AsyncAnswer[None]] = []
    bodies: list[Any] = [layer.encode(HELLO), "text", layer.encode(HELLO), None, layer.encode(HELLO)]
    for body in bodies:
        for sending in (publisher.send, publisher.send_group):
            answer: AsyncAnswer[None] = AsyncAnswer(thread)
            answers.append(answer)
            to = channel if sending == publisher.send else "g"
            thread.post(lambda sending=sending, to=to, body=body, answer=answer: sending(to, body, answer))  # type: ignore[misc]
    results = await asyncio.gather(*(answer.future for answer in answers), return_exceptions=True)
    for result, body in zip(results, (body for body in bodies for _ in range(2)), strict=True):
        assert result is None if isinstance(body, bytes) else isinstance(result, errors.HarebellError), result
    for _ in range(3):
        assert await asyncio.wait_for(layer.receive(channel), 60) == HELLO
