"""The queue of a process's own channels: it vanishes, fills, expires, and gets messages that no layer has sent."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest
from channels.exceptions import ChannelFull

from harebell import errors
from harebell.channels import ChannelLayer
from harebell.channels.messages import fullness, local_queues
from harebell.channels.messages.mailboxes import SURPLUS
from harebell.channels.names import Names, local_part, non_local
from harebell.channels.settings import Capacities
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
        assert (await asyncio.wait_for(waiting, 60))["n"] == number


async def test_a_queue_whose_settings_changed_meanwhile_is_asked_for_again(
    layer: ChannelLayer, amqp: Channel, names: Names, caplog: pytest.LogCaptureFixture
) -> None:
    channel = await layer.new_channel()
    queue = names.queue(channel)
    waiting = asyncio.create_task(layer.receive(channel))
    other = replace(layer.runtime.settings, capacities=Capacities(7, None)).queue_arguments(names, channel, False)

    async def is_read() -> bool:
        return (await amqp.queue_declare(queue, passive=True)).consumer_count == 1

    async def replaced() -> bool:
        """Unless the layer has declared it between the two."""
        try:
            await asyncio.gather(amqp.queue_delete(queue), amqp.queue_declare(queue, durable=True, arguments=other))
        except errors.PreconditionFailed:
            return False
        return True

    await until(is_read)
    await until(replaced)

    async def refused() -> bool:
        return "another capacity or channel_capacity" in caplog.text

    await until(refused)
    await amqp.queue_delete(queue)
    await layer.send(channel, HELLO)
    assert await asyncio.wait_for(waiting, 60) == HELLO


async def test_a_queue_that_a_sender_has_declared_again_is_bound_to_its_groups(
    make: Make, amqp: Channel, names: Names
) -> None:
    layer, other = make(), make()
    channel = await layer.new_channel()
    await layer.group_add("g", channel)
    queue = names.queue(channel)
    arguments = layer.runtime.settings.queue_arguments(names, channel, layer.runtime.connection.on_harebell)
    await asyncio.gather(amqp.queue_delete(queue), amqp.queue_declare(queue, durable=True, arguments=arguments))

    async def arrived() -> bool:
        await other.group_send("g", HELLO)
        box = layer.runtime.mailboxes.get(channel)
        return box is not None and len(box) > 0

    await until(arrived)
    assert await layer.receive(channel) == HELLO


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
    while (message := await asyncio.wait_for(layer.receive(channel), 60)) == HELLO:
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
    runtime, patience = layer.runtime, local_queues.ABANDONED * 60
    abandoned, empty, waits, member = [await layer.new_channel() for _ in range(4)]
    reader = asyncio.create_task(layer.receive(waits))
    for group in ("g", "h"):
        await layer.group_add(group, abandoned)
    await layer.group_add("g", member)
    await layer.group_send("g", HELLO)
    assert await layer.receive(member) == HELLO

    async def sweep(later: float) -> None:
        runtime.local_queues.sweep(time.monotonic() + later)

    await runtime.call(lambda: sweep(0))
    assert (told, layer.statistics()["waiting"]) == ([], 1)
    await runtime.call(lambda: sweep(62))  # what waited has expired; its reader may come yet
    assert (told, layer.statistics()["waiting"]) == ([abandoned], 0)
    assert runtime.members.groups_of(abandoned) == ["g", "h"]
    await layer.group_send("g", HELLO)
    assert await layer.receive(member) == HELLO
    await runtime.call(lambda: sweep(patience + 5))
    assert told == [abandoned] * 2
    boxes = runtime.mailboxes
    assert boxes.get(empty) is None
    assert boxes.get(waits) is not None
    assert boxes.get(member) is not None  # a group may send to it

    async def left() -> bool:
        return not runtime.members.groups_of(abandoned)

    await until(left)
    assert runtime.members.groups_of(member) == ["g"]
    for channel in (abandoned, empty, waits):  # a reader that comes back finds its channel
        await layer.send(channel, HELLO)
        assert await asyncio.wait_for(reader if channel == waits else layer.receive(channel), 60) == HELLO


async def test_idle_mailboxes_are_not_looked_at(make: Make) -> None:
    layer = make(expiry=60)
    boxes, looked = layer.runtime.mailboxes, list[str]()
    for number in range(1000):
        boxes.of(f"x!{number}")
    now = time.monotonic()
    for second in range(60):
        boxes.sweep(now + second, lambda channel, dropped, abandoned: looked.append(channel))
    assert looked == []
    boxes.sweep(now + local_queues.ABANDONED * 60 + 2, lambda channel, dropped, abandoned: looked.append(channel))
    assert len(looked) == 1000


async def test_a_full_local_channel_refuses_what_its_own_process_sends(make: Make) -> None:
    layer = make(capacity=10)
    channel = await layer.new_channel()
    results = [await outcome(layer, channel, number) for number in range(30)]
    assert results == [True] * 10 + [False] * 20
    assert layer.statistics()["full"] == 20
    assert (await layer.receive(channel))["n"] == 0
    assert [await outcome(layer, channel, 100), await outcome(layer, channel, 101)] == [True, False]
    assert [(await layer.receive(channel))["n"] for _ in range(10)] == [*range(1, 10), 100]


async def test_a_full_local_channel_refuses_all_at_once(make: Make) -> None:
    layer = make(capacity=10)
    channel = await layer.new_channel()
    results = await asyncio.gather(*(outcome(layer, channel, number) for number in range(300)))
    assert results.count(True) == 10
    assert [(await layer.receive(channel))["n"] for _ in range(10)] == list(range(10))


@pytest.mark.parametrize("at_once", [True, False])
async def test_a_full_local_channel_refuses_what_others_send(make: Make, at_once: bool) -> None:
    """Whatever was accepted arrives; and once the news has come nothing more is accepted."""
    layer, other = make(capacity=10), make(capacity=10)
    channel = await layer.new_channel()
    if at_once:
        results = await asyncio.gather(*(outcome(other, channel, number) for number in range(300)))
    else:
        results = [await outcome(other, channel, number) for number in range(300)]
    accepted = [number for number, result in enumerate(results) if result]
    assert 10 <= len(accepted) <= 10 + SURPLUS  # what the mailbox keeps for senders that have no news yet
    assert [(await layer.receive(channel))["n"] for _ in accepted] == accepted

    async def room() -> bool:
        return await outcome(other, channel, 1000)

    await until(room)
    assert (await layer.receive(channel))["n"] == 1000
    assert layer.statistics()["dropped"] == 0


async def test_what_a_full_channel_is_told_is_forgotten_after_a_while(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fullness, "LASTS", 0.2)
    layer, other = make(capacity=1), make(capacity=1)
    channel = await layer.new_channel()

    async def refused() -> bool:
        return not await outcome(other, channel, 1)

    await until(refused)
    told = other.runtime.fullness
    assert told.is_full(channel, 0)

    async def tried_again() -> bool:
        return not await other.runtime.call(is_full)

    async def is_full() -> bool:
        return told.is_full(channel, 0)

    await until(tried_again)


async def outcome(layer: ChannelLayer, channel: str, number: int) -> bool:
    """Whether the channel takes the message."""
    try:
        await layer.send(channel, {"type": "x", "n": number})
    except ChannelFull:
        return False
    return True


async def test_a_broker_that_was_not_there_is_asked_again(proxied_url: str, prefix: str, proxy: FaultProxy) -> None:
    layer = ChannelLayer(proxied_url, prefix=prefix, timeout=0.5)
    proxy.refuse()
    for _ in range(2):
        with pytest.raises(errors.DeadlineExceeded, match=r"no broker at .* within 0\.5 s"):
            await layer.new_channel()
    proxy.accept()
    connection = layer.runtime.connection
    connection.settings = replace(connection.settings, timeout=60)
    channel = await layer.new_channel()
    await layer.send(channel, HELLO)
    assert await layer.receive(channel) == HELLO
    await layer.close()


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
