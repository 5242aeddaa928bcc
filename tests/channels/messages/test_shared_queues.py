"""Queues for which processes compete: a message reaches one reader, whatever happens to queue and connection."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest

from harebell import errors
from harebell.channels import ChannelLayer
from harebell.channels.messages.mailbox import FOREVER, MailboxEntry
from harebell.channels.names import Names
from harebell.client.channel import Channel
from harebell.client.messages import Message
from harebell.testing import FaultProxy
from tests.channels.conftest import Make, MakeSync, until

HELLO = {"type": "hello"}
MSGPACK = b"\x81\xa4type\xa5hello"


def async_(holds: Callable[[], bool]) -> Callable[[], Awaitable[bool]]:
    """For `until`."""

    async def ask() -> bool:
        return holds()

    return ask


async def consumers(amqp: Channel, queue: str) -> int:
    """The consumers of a queue; -1 without the queue."""
    try:
        return (await amqp.queue_declare(queue, passive=True)).consumer_count
    except errors.NotFound:
        return -1


async def test_a_reader_that_leaves_while_its_consumer_starts_takes_nothing_along(
    layer: ChannelLayer, amqp: Channel, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The consumer starts after it was given up; what it would hold comes to the next reader."""
    connection = layer.runtime.connection
    declare, begun, go_on = connection.declare, threading.Event(), threading.Event()

    async def slow(name: str) -> None:
        begun.set()
        while not go_on.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await declare(name)

    monkeypatch.setattr(connection, "declare", slow)
    leaving = asyncio.create_task(layer.receive("work"))
    await until(async_(begun.is_set))
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    await until(async_(lambda: not layer.runtime.shared_queues._readers))
    monkeypatch.setattr(connection, "declare", declare)
    go_on.set()
    for number in range(5):
        await layer.send("work", {"type": "x", "n": number})
    for number in range(5):
        assert (await asyncio.wait_for(layer.receive("work"), 60))["n"] == number

    async def ended() -> bool:
        return await consumers(amqp, names.queue("work")) == 0

    await until(ended)


async def test_a_queue_deleted_under_a_reader_is_declared_again(
    layer: ChannelLayer, amqp: Channel, names: Names
) -> None:
    queue = names.queue("work")

    async def consumed() -> bool:
        return await consumers(amqp, queue) == 1

    for number in range(3):
        waiting = asyncio.create_task(layer.receive("work"))
        await until(consumed)
        await amqp.queue_delete(queue)
        await until(consumed)
        await layer.send("work", {"type": "x", "n": number})
        assert (await asyncio.wait_for(waiting, 60))["n"] == number


async def test_a_consumer_ends_with_its_last_reader(layer: ChannelLayer, amqp: Channel, names: Names) -> None:
    for number in range(25):
        await layer.send("work", {"type": "x", "n": number})
    assert [(await layer.receive("work"))["n"] for _ in range(3)] == [0, 1, 2]

    async def given_back() -> bool:
        queue = await amqp.queue_declare(names.queue("work"), passive=True)
        return not queue.consumer_count and queue.message_count == 22

    await until(given_back)
    assert [(await layer.receive("work"))["n"] for _ in range(22)] == list(range(3, 25))


async def test_a_control_message_is_nobodys(make: Make, make_sync: MakeSync, amqp: Channel, names: Names) -> None:
    layer, sync = make(), make_sync()
    await layer.send("work", HELLO)
    assert await layer.receive("work") == HELLO
    waiting = asyncio.create_task(layer.receive("work"))
    control = Message(MSGPACK, headers={"asgi_control": "who"})
    await amqp.publish(control, "", names.queue("work"))
    await layer.send("work", {"type": "after"})
    assert await asyncio.wait_for(waiting, 60) == {"type": "after"}
    await layer.close()
    await amqp.publish(control, "", names.queue("work"))
    assert await asyncio.to_thread(sync.receive, ["work"]) == (None, None)
    await amqp.publish(control, "", names.queue("work"))
    await asyncio.to_thread(sync.send, "work", {"type": "after"})
    assert await asyncio.to_thread(sync.receive, ["work"]) == ("work", {"type": "after"})


async def test_a_message_published_twice_arrives_once(layer: ChannelLayer, amqp: Channel, names: Names) -> None:
    """As a sender does whose connection was lost before the confirm, when the broker does not deduplicate."""
    await layer.send("work!", HELLO)  # RabbitMQ and Harebell: a process's queue keeps duplicates
    process, entry = (
        names.queue("work!"),
        Message(MSGPACK, headers={"x-deduplication-header": "one", "asgi_channel": "a"}),
    )
    readers = layer.runtime.shared_queues
    assert await layer.runtime.call(lambda: readers.get("work!")) is not None
    for _ in range(3):
        await amqp.publish(entry, "", process)
    got = await layer.runtime.call(lambda: readers.get("work!"))
    assert got is not None
    assert (got.channel, got.body) == ("work!a", MSGPACK)
    assert await layer.runtime.call(lambda: readers.get("work!")) is None

    other = Message(MSGPACK, headers={"x-deduplication-header": "two", "asgi_channel": "a"})
    for message in (entry, other):
        await amqp.publish(message, "", process)
    found = await entry_of(layer, "work!")
    assert found.delivery is not None
    assert found.delivery.headers["x-deduplication-header"] == "two"
    readers.done("work!")


async def test_a_reader_whose_queue_is_refused_is_told_and_the_next_one_tries_again(
    layer: ChannelLayer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await layer.send("other", HELLO)
    refused = errors.AccessRefused("access to queue 'work' refused")

    async def refuse(name: str) -> object:
        raise refused

    with monkeypatch.context() as patch:
        patch.setattr(layer.runtime.connection, "declare", refuse)
        results = await asyncio.gather(*(layer.receive("work") for _ in range(3)), return_exceptions=True)
        assert [str(result) for result in results] == [str(refused)] * 3
        assert all(result is not refused for result in results)
    await layer.send("work", HELLO)
    assert await asyncio.wait_for(layer.receive("work"), 60) == HELLO


async def test_an_error_that_may_pass_is_logged_and_tried_again(
    layer: ChannelLayer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await layer.send("other", HELLO)
    connection = layer.runtime.connection
    declare, failures = connection.declare, 2

    async def fail_twice(name: str) -> object:
        nonlocal failures
        if failures:
            failures -= 1
            raise errors.ResourceLocked("not now")
        return await declare(name)

    monkeypatch.setattr(connection, "declare", fail_twice)
    waiting = asyncio.create_task(layer.receive("work"))
    assert await arrives(layer, waiting) == HELLO
    assert not failures
    assert "reading work: " in caplog.text


async def arrives(layer: ChannelLayer, waiting: asyncio.Task[object]) -> object:
    async def sent() -> bool:
        try:
            await layer.send("work", HELLO)
        except errors.ResourceLocked:
            return False
        return True

    await until(sent)
    return await asyncio.wait_for(waiting, 60)


async def entry_of(layer: ChannelLayer, channel: str) -> MailboxEntry:
    """The next entry of a channel, which no reader has secured yet; `done` must follow."""
    box = layer.runtime.shared_queues.reading(channel)
    async with asyncio.timeout(60):
        while (entry := box.take(0.0)) is None:
            await box.wait_entry(layer.runtime.thread)
    return entry


@pytest.mark.parametrize("processed", [True, False])
async def test_a_connection_lost_after_the_acknowledgement(
    broker_url: str, proxied_url: str, prefix: str, proxy: FaultProxy, processed: bool
) -> None:
    """The reader does not get the message, and it is counted: the broker may have removed it, or deliver it again."""
    layer = ChannelLayer(proxied_url, prefix=prefix, timeout=60)
    other = ChannelLayer(broker_url, prefix=prefix, timeout=60)
    for number in range(2):
        await other.send("work", {"type": "x", "n": number})
    runtime = layer.runtime
    entry = await entry_of(layer, "work")
    proxy.stall("to_client" if processed else "to_server")
    before = proxy.forwarded("to_server")
    securing = asyncio.ensure_future(runtime.call(lambda: runtime.shared_queues.secure(entry)))

    async def acknowledged() -> bool:
        return entry.delivery is None and (not processed or proxy.forwarded("to_server") > before)

    await until(acknowledged)
    proxy.cut()
    proxy.resume()
    assert not await asyncio.wait_for(securing, 60)
    assert layer.statistics()["uncertain"] == 1
    assert (await asyncio.wait_for(layer.receive("work"), 60))["n"] == int(processed)
    runtime.shared_queues.done("work")
    await layer.close()
    await other.close()


async def test_a_connection_lost_before_the_acknowledgement(
    broker_url: str, proxied_url: str, prefix: str, proxy: FaultProxy
) -> None:
    layer = ChannelLayer(proxied_url, prefix=prefix, timeout=60)
    await layer.send("work", HELLO)
    runtime = layer.runtime
    entry = await entry_of(layer, "work")
    again = asyncio.create_task(layer.receive("work"))
    proxy.cut()
    assert await asyncio.wait_for(again, 60) == HELLO  # over the next connection
    assert not await runtime.call(lambda: runtime.shared_queues.secure(entry))
    assert layer.statistics()["uncertain"] == 0
    runtime.shared_queues.done("work")
    await layer.close()


async def test_a_message_whose_reader_ended_goes_to_the_next_one(layer: ChannelLayer) -> None:
    await layer.send("work", HELLO)
    readers = layer.runtime.shared_queues
    entry, box = await entry_of(layer, "work"), readers._readers["work"].box
    assert await layer.runtime.call(lambda: readers.secure(entry))
    next_one = asyncio.create_task(layer.receive("work"))
    await asyncio.sleep(0)
    readers.disclaim(box, entry)
    assert await asyncio.wait_for(next_one, 60) == HELLO
    readers.done("work")


async def test_nobody_waits_for_a_reader_that_failed(layer: ChannelLayer, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(*_: object) -> bool:
        raise RuntimeError("unforeseen")

    await layer.send("work", HELLO)
    readers = layer.runtime.shared_queues
    entry = await entry_of(layer, "work")
    monkeypatch.setattr(readers, "_acknowledge", fails)
    with pytest.raises(RuntimeError, match="unforeseen"):
        await layer.runtime.call(lambda: readers.secure(entry))
    assert not await asyncio.wait_for(layer.runtime.call(lambda: readers.secure(entry)), 60)
    readers.done("work")


@pytest.mark.parametrize("steps", range(4))
@pytest.mark.parametrize("together", [1, 2, 3])
@pytest.mark.parametrize("last_first", [False, True])
async def test_cancelled_receives_leave_the_order_as_it_was(
    layer: ChannelLayer, steps: int, together: int, last_first: bool
) -> None:
    for number in range(6):
        await layer.send("work", {"type": "x", "n": number})
    runtime = layer.runtime
    box = runtime.shared_queues.reading("work")
    await until(async_(lambda: len(box) == 6))
    with runtime.thread.loop.lock:  # the I/O thread comes after all of this
        for _ in range(2):
            leaving = [asyncio.create_task(layer.receive("work")) for _ in range(together)]
            for _ in range(steps):
                await asyncio.sleep(0)
            for receive in reversed(leaving) if last_first else leaving:
                receive.cancel()
                await asyncio.wait([receive])
        receive = asyncio.create_task(layer.receive("work"))
        for _ in range(steps):
            await asyncio.sleep(0)
    received = [await asyncio.wait_for(receive, 60)]
    while len(received) < 6:
        received.append(await asyncio.wait_for(layer.receive("work"), 60))
    assert [message["n"] for message in received] == list(range(6))
    runtime.shared_queues.done("work")


@pytest.mark.parametrize("late", [False, True])
async def test_without_a_next_one_it_goes_back_to_the_broker(
    layer: ChannelLayer, amqp: Channel, names: Names, late: bool
) -> None:
    await layer.send("work", HELLO)
    readers = layer.runtime.shared_queues
    entry, box = await entry_of(layer, "work"), readers._readers["work"].box
    assert await layer.runtime.call(lambda: readers.secure(entry))
    readers.done("work")

    async def ended() -> bool:
        return await consumers(amqp, names.queue("work")) == 0

    if late:
        await until(ended)
    readers.disclaim(box, entry)
    await until(ended)
    assert await asyncio.wait_for(layer.receive("work"), 60) == HELLO


async def test_an_entry_of_a_reader_that_ended_is_not_secured(layer: ChannelLayer) -> None:
    await layer.send("work", HELLO)
    runtime = layer.runtime
    entry = await entry_of(layer, "work")
    elsewhere = MailboxEntry("elsewhere", b"", FOREVER)
    elsewhere.delivery = entry.delivery
    assert not await runtime.call(lambda: runtime.shared_queues.secure(elsewhere))
    assert await runtime.call(lambda: runtime.shared_queues.secure(entry))
    runtime.shared_queues.done("work")
