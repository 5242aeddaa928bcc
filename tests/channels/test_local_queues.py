"""The queue of a process's own channels: it vanishes, fills, expires, and gets messages that no layer has sent."""

from __future__ import annotations

import asyncio
import time

import pytest

from harebell import errors
from harebell.channels import ChannelLayer, local_queues
from harebell.channels.names import Names, local_part, non_local
from harebell.client.channel import Channel
from harebell.client.messages import Message
from harebell.protocol.v091 import Table
from harebell.testing import FaultProxy
from tests.channels.conftest import Make, until

HELLO = {"type": "hello"}
MSGPACK = b"\x81\xa4type\xa5hello"


async def test_a_queue_that_was_deleted_is_declared_again(layer: ChannelLayer, amqp: Channel, names: Names) -> None:
    channel = await layer.new_channel()
    process = non_local(channel)
    await layer.group_add("g", channel)
    for number in range(3):
        waiting = asyncio.create_task(layer.receive(channel))
        await amqp.queue_delete(names.queue(process))

        async def consumed() -> bool:
            try:
                return (await amqp.queue_declare(names.queue(process), passive=True)).consumer_count == 1
            except errors.NotFound:
                return False

        await until(consumed)
        await layer.send(channel, {"type": "x", "n": number})
        assert (await asyncio.wait_for(waiting, 10))["n"] == number


async def test_a_queue_whose_settings_changed_meanwhile_is_asked_for_again(
    layer: ChannelLayer, amqp: Channel, names: Names, caplog: pytest.LogCaptureFixture
) -> None:
    channel = await layer.new_channel()
    queue = names.queue(channel)
    declare = layer.runtime.connection.declaring.queue_declare
    refusals = 2

    async def refuse_twice(name: str, **options: object) -> object:
        nonlocal refusals
        if name == queue and refusals:
            refusals -= 1
            raise errors.PreconditionFailed("inequivalent arg 'x-max-length' for queue 'q' in vhost '/'")
        return await declare(name, **options)  # type: ignore[arg-type]

    async def all_refused() -> bool:
        return not refusals

    layer.runtime.connection.declaring.queue_declare = refuse_twice  # type: ignore[assignment, method-assign]
    waiting = asyncio.create_task(layer.receive(channel))
    await amqp.queue_delete(queue)
    await until(all_refused)
    await layer.send(channel, HELLO)
    assert await asyncio.wait_for(waiting, 10) == HELLO
    assert "another capacity or channel_capacity" in caplog.text


@pytest.mark.parametrize(
    "headers, body",
    [
        ({}, MSGPACK),  # names no channel
        ({"asgi_channel": 7}, MSGPACK),
        ({"asgi_channel": None, "x-deduplication-header": {"a": []}}, MSGPACK),
        ({"x-first-death-queue": "no:member:queue", "x-death": "none"}, MSGPACK),
        ({"x-first-death-queue": "q", "x-death": [{"routing-keys": [1]}]}, MSGPACK),
        ({"asgi_control": "who"}, b""),
        ({"asgi_control": "members"}, b"[]"),  # an answer to no question
        ({"asgi_control": "members", "asgi_asked": "first"}, b"["),
        ({"asgi_control": "members", "asgi_asked": 10**6}, b"{"),
        ({"asgi_control": "discard"}, b""),
        ({"asgi_control": "later version"}, b"\xff"),
        ({"asgi_control": []}, MSGPACK),
        ({"asgi_channel": "CHANNEL", "x-deduplication-header": []}, MSGPACK),
        ({"asgi_channel": "CHANNEL"}, b"\xff"),
    ],
)
async def test_messages_of_other_programs_do_not_stop_the_reader(
    layer: ChannelLayer, amqp: Channel, names: Names, headers: Table, body: bytes
) -> None:
    channel = await layer.new_channel()
    await layer.group_add("g", channel)
    odd: Table = {key: local_part(channel) if value == "CHANNEL" else value for key, value in headers.items()}
    await amqp.publish(Message(body, headers=odd), "", names.queue(channel))
    await amqp.publish(Message(body, headers=odd), names.groups, "g")
    await layer.send(channel, {"type": "after"})
    while (message := await asyncio.wait_for(layer.receive(channel), 10)) == HELLO:
        pass
    assert message == {"type": "after"}
    assert await layer.group_channels("g", seconds=0.3) == [channel]


async def test_deliveries_are_acknowledged_many_at_a_time(make: Make, amqp: Channel, names: Names) -> None:
    layer = make(capacity=2000)
    channel = await layer.new_channel()
    count = local_queues.ACK_EVERY * 2 + 7
    await asyncio.gather(*(layer.send(channel, {"type": "x", "n": number}) for number in range(count)))
    assert [(await layer.receive(channel))["n"] for _ in range(count)] == list(range(count))

    async def acknowledged() -> bool:
        queue = await amqp.queue_declare(names.queue(channel), passive=True)
        return not queue.consumer_count and not queue.message_count

    await layer.send(channel, HELLO)
    assert await layer.receive(channel) == HELLO
    await asyncio.sleep(local_queues.ACK_SECONDS * 5)  # the last ones are acknowledged a moment later
    await layer.close()
    await until(acknowledged)


async def test_a_channel_that_nobody_reads_leaves_its_groups(make: Make) -> None:
    """Its messages expire, and after several expiries without a reader it leaves; who waits or reads, stays."""
    told: list[str] = []
    layer = make(expiry=60, on_missed=told.append)
    runtime, expiry = layer.runtime, 60
    abandoned, empty, waits, member = [await layer.new_channel() for _ in range(4)]
    reader = asyncio.create_task(layer.receive(waits))
    for group in ("g", "h"):
        await layer.group_add(group, abandoned)
    await layer.group_add("g", member)
    await layer.group_send("g", HELLO)
    assert await layer.receive(member) == HELLO

    async def sweep(later: float) -> list[tuple[str, str]]:
        return runtime.local_queues.sweep(time.monotonic() + later)

    assert await runtime.call(lambda: sweep(0)) == []
    assert (told, layer.statistics()["waiting"]) == ([], 1)
    assert await runtime.call(lambda: sweep(expiry + 1)) == []  # what waited has expired; its reader may come yet
    assert (told, layer.statistics()["waiting"]) == ([abandoned], 0)
    await layer.group_send("g", HELLO)
    assert await layer.receive(member) == HELLO
    over = await runtime.call(lambda: sweep(local_queues.ABANDONED * expiry + 1))
    assert sorted(over) == [("g", abandoned), ("h", abandoned)]
    assert told == [abandoned] * 2
    boxes = runtime.mailboxes
    assert boxes.get(empty) is None
    assert boxes.get(waits) is not None
    assert boxes.get(member) is not None  # a group may send to it
    for group, channel in over:
        await layer.group_discard(group, channel)
    assert await runtime.call(lambda: sweep(local_queues.ABANDONED * expiry + 1)) == []
    assert boxes.get(abandoned) is None
    for channel in (abandoned, empty, waits):  # a reader that comes back finds its channel
        await layer.send(channel, HELLO)
        assert await asyncio.wait_for(reader if channel == waits else layer.receive(channel), 10) == HELLO


async def test_a_full_mailbox_is_told(make: Make) -> None:
    told: list[str] = []
    layer = make(capacity=2, on_missed=told.append)
    channel, other = await layer.new_channel(), await layer.new_channel()
    for number in range(4):
        await layer.send(channel, {"type": "x", "n": number})
        await layer.send(other, HELLO)  # is delivered after it
        assert await layer.receive(other) == HELLO
    assert told == [channel] * 2
    assert layer.missed(channel) == 2
    assert [(await layer.receive(channel))["n"] for _ in range(2)] == [0, 1]


async def test_a_broker_that_was_not_there_is_asked_again(proxied_url: str, prefix: str, proxy: FaultProxy) -> None:
    layer = ChannelLayer(proxied_url, prefix=prefix, timeout=0.5)
    proxy.refuse()
    for _ in range(2):
        with pytest.raises(errors.DeadlineExceeded, match=r"no broker at .* within 0\.5 s"):
            await layer.new_channel()
    proxy.accept()

    async def made() -> bool:
        try:
            channel = await layer.new_channel()
        except errors.DeadlineExceeded:
            return False
        await layer.send(channel, HELLO)
        return await layer.receive(channel) == HELLO

    await until(made, 20)
    await layer.close()


async def test_a_message_that_hopped_arrives_once(make: Make, amqp: Channel, names: Names) -> None:
    """A member queue dead-letters what the broker delivers twice after a lost connection."""
    owner = make()
    channel = await owner.new_channel()
    headers: Table = {"x-first-death-queue": names.member(channel), "x-deduplication-header": "one"}
    for _ in range(2):
        await amqp.publish(Message(MSGPACK, headers=dict(headers)), "", names.queue(channel))
    await amqp.publish(Message(MSGPACK, headers={**headers, "x-deduplication-header": "two"}), "", names.queue(channel))
    await owner.send(channel, {"type": "after"})
    got = [(await owner.receive(channel))["type"] for _ in range(3)]
    assert got == ["hello", "hello", "after"]


async def test_another_process_ends_a_membership(make: Make) -> None:
    owner, other = make(), make()
    channel = await owner.new_channel()
    await owner.group_add("g", channel)
    await other.group_discard("g", channel)

    async def left() -> bool:
        return owner.runtime.members.of("g") == ()

    await until(left)
    await other.group_send("g", HELLO)
    await other.send(channel, {"type": "after"})
    assert await owner.receive(channel) == {"type": "after"}
