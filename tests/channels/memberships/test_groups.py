"""Memberships over outages: what others have ended meanwhile stays ended when a process comes back; no other ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

import pytest

import harebell
from harebell import errors
from harebell.channels import ChannelLayer
from harebell.channels.names import Names, non_local
from harebell.client.channel import Channel
from harebell.client.messages import Message
from harebell.testing import FaultProxy
from tests.channels.conftest import Make, MakeSync, until

HELLO = {"type": "hello"}


async def has(layer: ChannelLayer, channel: str, message: Mapping[str, object]) -> bool:
    """Whether that is the channel's next message."""
    return await asyncio.wait_for(layer.receive(channel), 60) == message


@pytest.mark.parametrize("expiry", [60.0, 0.4])
async def test_who_was_removed_during_an_outage_is_no_member_after_it(
    make: Make, proxied_url: str, prefix: str, proxy: FaultProxy, amqp: Channel, names: Names, expiry: float
) -> None:
    """Also when the outage has outlasted the process's queue, and all that was in it."""
    layer = ChannelLayer(proxied_url, prefix=prefix, timeout=60, expiry=expiry)
    other = make(expiry=expiry)
    leaves, stays, comes = [await layer.new_channel() for _ in range(3)]
    for channel in (leaves, stays):
        await layer.group_add("g", channel)
    proxy.refuse()
    proxy.cut()
    await other.group_discard("g", leaves)
    await other.group_add("g", comes)
    if expiry < 1:
        queue = names.queue(non_local(leaves))

        async def gone() -> bool:
            await asyncio.sleep(2.5 * expiry)  # each look counts as use
            try:
                await amqp.queue_declare(queue, passive=True)
            except errors.NotFound:
                return True
            return False

        await until(gone)
    proxy.accept()
    await layer.send("ready", HELLO)  # over the next connection
    await other.group_send("g", {"type": "after"})
    assert await has(layer, stays, {"type": "after"})
    assert await has(layer, comes, {"type": "after"})
    await layer.send(leaves, {"type": "direct"})
    assert await has(layer, leaves, {"type": "direct"})
    assert layer.runtime.members.of("g") == (stays, comes)
    await layer.close()


async def test_a_normal_channel_that_another_process_removed_stays_removed(
    make: Make, proxied_url: str, prefix: str, proxy: FaultProxy
) -> None:
    layer, other = ChannelLayer(proxied_url, prefix=prefix, timeout=60, expiry=60), make()
    for channel in ("leaves", "stays"):
        await layer.group_add("g", channel)
    ready = await layer.new_channel()
    for _ in range(3):
        proxy.cut()
        await other.group_discard("g", "leaves")
        await layer.send(ready, HELLO)  # over the next connection
    await other.group_send("g", HELLO)
    assert await has(other, "stays", HELLO)
    await other.send("leaves", {"type": "direct"})
    assert await has(other, "leaves", {"type": "direct"})
    await layer.close()


async def test_a_word_that_a_lost_connection_had_comes_before_what_was_sent_after_it(
    make: Make, proxied_url: str, prefix: str, proxy: FaultProxy, broker_url: str, names: Names
) -> None:
    """A broker may not know yet that the old connection is lost, when the new one reads the same queue."""
    layer, other = ChannelLayer(proxied_url, prefix=prefix, timeout=60, expiry=60), make()
    channel = await layer.new_channel()
    await layer.group_add("before", channel)
    proxy.refuse()
    proxy.cut()
    async with harebell.connect(broker_url, timeout=60) as lost:
        old = await lost.channel()
        queue, consumers = names.queue(non_local(channel)), 0
        readers = [old.consume(queue), old.consume(names.control(layer.runtime.connection.client_id))]
        for reader in readers:
            await reader.start()
        proxy.accept()
        await layer.send("ready", HELLO)  # over the next connection
        while consumers < 2:
            consumers = (await old.queue_declare(queue, passive=True)).consumer_count
        for number in range(6):
            await other.group_add(f"g{number}", channel)
            for _ in range(1 + number % 2):
                await other.group_send(f"g{number}", {"type": "after", "n": number})
    found = [(await asyncio.wait_for(layer.receive(channel), 60))["n"] for _ in range(9)]
    assert sorted(found) == [0, 1, 1, 2, 3, 3, 4, 5, 5]
    await layer.close()


async def test_what_a_lost_connection_unbinds_late_is_no_binding_of_now(
    make: Make, amqp: Channel, names: Names
) -> None:
    layer, other = make(), make()
    channel = await layer.new_channel()
    process = non_local(channel)
    late = set[str]()
    for turn in range(3):
        await layer.group_add("g", channel)
        for key in late:
            await amqp.queue_unbind(names.queue(process), names.group("g"), key)
        await other.group_send("g", {"type": "x", "n": turn})
        assert await has(layer, channel, {"type": "x", "n": turn})
        late |= layer.runtime.groups._at_broker["g", process]
        await layer.group_discard("g", channel)
        assert not layer.runtime.groups._at_broker


async def test_leaving_without_a_connection(make: Make, proxied_url: str, prefix: str, proxy: FaultProxy) -> None:
    """An own channel is no member at once; nothing waits for the broker."""
    layer, other = ChannelLayer(proxied_url, prefix=prefix, timeout=60, expiry=60), make()
    channel = await layer.new_channel()
    await layer.group_add("g", channel)
    proxy.refuse()
    proxy.cut()

    async def lost() -> bool:
        return layer.runtime.connection.link is None

    await until(lost)
    await asyncio.wait_for(layer.group_discard("g", channel), 60)
    await other.group_send("g", HELLO)
    proxy.accept()
    await other.send(channel, {"type": "direct"})
    assert await has(layer, channel, {"type": "direct"})
    await layer.close()


@pytest.mark.parametrize("joins", [True, False])
async def test_what_another_process_said_before_comes_late(
    make: Make, proxied_url: str, prefix: str, proxy: FaultProxy, joins: bool
) -> None:
    """The owner hears that its channel joins after it has left, or that it leaves after it has joined again."""
    layer, other = ChannelLayer(proxied_url, prefix=prefix, timeout=60), make(expiry=60)
    channel = await layer.new_channel()
    members = layer.runtime.members
    if not joins:
        await layer.group_add("g", channel)
    with proxy.stalled("to_client"):
        if joins:
            await other.group_add("g", channel)
            later = asyncio.ensure_future(layer.group_discard("g", channel))
        else:
            await other.group_discard("g", channel)
            later = asyncio.ensure_future(layer.group_add("g", channel))
        await asyncio.wait([later], timeout=0.5)  # without a connection its answer waits, its effect does not
        assert members.of("g") == (() if joins else (channel,))
    await later
    await other.group_send("g", {"type": "to the group"})
    await other.send(channel, HELLO)  # behind all that was said
    if not joins:
        assert await has(layer, channel, {"type": "to the group"})
    assert await has(layer, channel, HELLO)
    assert members.of("g") == (() if joins else (channel,))
    await layer.close()


async def test_dead_names_are_not_declared_again(
    proxied_url: str, prefix: str, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names of channels that nobody reads are neither kept for ever nor asked for after an outage."""
    monkeypatch.setattr("harebell.channels.links.connection.DECLARED", 20)
    layer = ChannelLayer(proxied_url, prefix=prefix, timeout=60)
    for number in range(60):
        await layer.send(f"dead.{number}", HELLO)
    assert len(layer.runtime.connection.known_queues) == 20
    mine = await layer.new_channel()
    proxy.cut()
    before = proxy.forwarded("to_server")
    await layer.send(mine, HELLO)
    assert await has(layer, mine, HELLO)
    assert proxy.forwarded("to_server") - before < 5000  # the handshake, what every layer needs, and this
    assert layer.runtime.connection.known_queues == [non_local(mine)]
    await layer.close()


async def test_an_old_dead_letter_does_not_end_a_fresh_membership(make: Make, amqp: Channel, names: Names) -> None:
    """As after all processes were down for a while: the letters of before wait for the first that comes."""
    layer = make()
    connection = layer.runtime.connection
    await layer.group_add("g", "work")
    old = f"{'0' * 12}{int(time.time() * 1e6) - 10**7:x}"
    new = f"{'0' * 12}{int(time.time() * 1e6) + 10**7:x}"

    async def letter(sent: str, counted: int) -> None:
        headers = {
            "x-first-death-queue": names.queue("work"),
            "x-first-death-reason": "expired",
            "x-deduplication-header": sent,
        }
        await amqp.publish(Message(b"", headers=headers), names.dead_letters, "")

        async def handled() -> bool:
            return layer.statistics()["expired"] == counted

        await until(handled)
        await connection.ready()

    await letter(old, 1)
    await layer.group_send("g", HELLO)
    assert await has(layer, "work", HELLO)

    async def not_read() -> bool:  # a channel with a reader stays in its groups
        return not (await amqp.queue_declare(names.queue("work"), passive=True)).consumer_count

    await until(not_read)
    await letter(new, 2)

    async def left() -> bool:
        try:
            await amqp.exchange_declare(names.channel("work"), passive=True)
        except errors.NotFound:
            return True
        return False

    await until(left)


async def test_a_letter_that_cannot_be_handled_does_not_stop_the_others(
    make: Make, amqp: Channel, names: Names, caplog: pytest.LogCaptureFixture
) -> None:
    """Such as one of a queue that a process with another capacity has declared."""
    layer, other = make(capacity=3), make(capacity=4)
    await layer.send("three", HELLO)
    await other.send("four", HELLO)
    before = layer.statistics()["expired"] + other.statistics()["expired"]
    for channel in ("three", "four", "three", "four", "", "x" * 200):
        headers = {"x-first-death-queue": names.queue(channel), "x-first-death-reason": "expired"}
        for _ in range(10):
            await amqp.publish(Message(b"", headers=headers), names.dead_letters, "")

    async def handled() -> bool:
        return layer.statistics()["expired"] + other.statistics()["expired"] - before == 60

    await until(handled)
    await layer.group_add("g", "three")
    await layer.group_send("g", HELLO)


async def test_memberships_that_are_added_again_are_not_listed_as_dropped(
    make: Make, amqp: Channel, names: Names
) -> None:
    layer = make(group_expiry=0.5)
    for _ in range(5):
        await layer.group_add("g", "work")

    async def expired() -> bool:
        return layer.statistics()["expired"] == 1

    await until(expired)

    async def noted() -> bool:
        return (await amqp.queue_declare(names.dropped, passive=True)).message_count == 1

    await until(noted)  # that it has expired, once
    assert layer.runtime.dead_letters.counted["maxlen"] == 4


@pytest.mark.parametrize("error", [RuntimeError("mine"), SystemExit(3), StopIteration(), KeyboardInterrupt()], ids=repr)
async def test_a_callback_that_fails_stops_nothing(
    make: Make, caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    def fail(channel: str) -> None:
        raise error

    layer = make(capacity=1, on_missed=fail)
    full, other = await layer.new_channel(), await layer.new_channel()
    for channel in (full, other):
        await layer.group_add("g", channel)
    for number in range(5):
        await layer.group_send("g", {"type": "x", "n": number})
        assert await has(layer, other, {"type": "x", "n": number})
    assert layer.missed(full) == 4
    assert caplog.text.count("on_missed failed") == 1


async def test_another_process_leaves_nothing_behind(
    make: Make, make_sync: MakeSync, amqp: Channel, names: Names
) -> None:
    owner, other = make(), make()
    channel = await owner.new_channel()
    await owner.group_add("g", channel)
    await other.group_discard("g", channel)

    async def gone() -> bool:
        try:
            await amqp.exchange_declare(names.group("g"), passive=True)
        except errors.NotFound:
            return True
        return False

    await until(gone)
