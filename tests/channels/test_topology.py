"""What the layer leaves on the broker, by the paragraphs of its document; and the races of that design (R1 to R19).

The rows R4, R6, R15, R18 and R19 are about how the layer is built: their tests look at the topology itself.
"""

from __future__ import annotations

import asyncio
import sys
import threading

import pytest

import harebell
from harebell import errors
from harebell.channels import ChannelLayer
from harebell.channels.names import Names
from harebell.client.channel import Channel
from tests.channels.conftest import Make, MakeSync, until

HELLO = {"type": "hello"}


async def waiting(amqp: Channel, queue: str) -> int:
    return (await amqp.queue_declare(queue, passive=True)).message_count


async def is_gone(amqp: Channel, queue: str) -> bool:
    try:
        await amqp.queue_declare(queue, passive=True)
    except errors.NotFound:
        return True
    return False


# -- the document's paragraphs -----------------------------------------------------------------------------------------


async def test_channels_are_queues(layer: ChannelLayer, amqp: Channel, names: Names) -> None:
    await layer.send("websocket.receive", HELLO)
    assert await waiting(amqp, names.queue("websocket.receive")) == 1


async def test_process_local_channels_share_the_queue_of_their_non_local_part(
    make_sync: MakeSync, amqp: Channel, names: Names
) -> None:
    layer = make_sync()
    await asyncio.to_thread(layer.send, "http.response.A1B2C3!D4E5F6", HELLO)
    queue = names.queue("http.response.A1B2C3!")
    assert queue.endswith("http.response.A1B2C3!")
    delivery = await amqp.get(queue)
    assert delivery is not None
    assert delivery.headers["asgi_channel"] == "D4E5F6"


async def test_a_group_is_a_fanout_exchange_that_ends_with_its_last_member(
    layer: ChannelLayer, amqp: Channel, names: Names
) -> None:
    await layer.group_add("g", "work")
    await amqp.publish(b"x", names.group("g"), "")
    assert await waiting(amqp, names.queue("work")) == 1
    await layer.group_discard("g", "work")
    with pytest.raises(errors.NotFound):  # R13: no exchange is left behind
        await amqp.exchange_declare(names.group("g"), passive=True)


async def test_a_normal_member_stands_behind_an_exchange_of_its_own(
    layer: ChannelLayer, amqp: Channel, names: Names
) -> None:
    await layer.group_add("g", "work")
    await amqp.publish(b"x", names.channel("work"), "")
    assert await waiting(amqp, names.queue("work")) == 1
    assert await waiting(amqp, names.marker("g", "work")) == 1


async def test_a_second_group_add_pushes_out_the_marker(layer: ChannelLayer, amqp: Channel, names: Names) -> None:
    for _ in range(3):
        await layer.group_add("g", "work")
    assert await waiting(amqp, names.marker("g", "work")) == 1
    await layer.group_send("g", HELLO)
    assert await layer.receive("work") == HELLO


async def test_an_expired_message_ends_the_memberships_of_a_channel_without_reader(
    make: Make, amqp: Channel, names: Names
) -> None:
    layer = make(expiry=0.3)
    await layer.group_add("g", "work")
    await layer.group_add("h", "work")
    await layer.send("work", HELLO)

    async def gone() -> bool:
        try:
            await amqp.exchange_declare(names.channel("work"), passive=True)
        except errors.NotFound:
            return True
        return False

    await until(gone)


async def test_a_local_member_without_an_owner_has_a_queue_of_length_zero(
    make_sync: MakeSync, amqp: Channel, names: Names
) -> None:
    layer, reader = make_sync(), make_sync()
    await asyncio.to_thread(layer.group_add, "g", "foo!bar")
    await asyncio.to_thread(layer.send_group, "g", HELLO)
    assert await asyncio.to_thread(reader.receive, ["foo!"], True) == ("foo!bar", HELLO)
    assert await waiting(amqp, names.member("foo!bar")) == 0
    await asyncio.to_thread(reader.group_discard, "g", "foo!bar")
    assert await is_gone(amqp, names.marker("g", "foo!bar"))
    await asyncio.to_thread(layer.send_group, "g", HELLO)
    assert await asyncio.to_thread(reader.receive, ["foo!"]) == (None, None)


async def test_a_member_that_another_process_adds_and_removes(
    make: Make, make_sync: MakeSync, amqp: Channel, names: Names
) -> None:
    owner, layer = make(), make_sync()
    channel = await owner.new_channel()
    await asyncio.to_thread(layer.group_add, "g", channel)
    await asyncio.to_thread(layer.send_group, "g", HELLO)
    assert await owner.receive(channel) == HELLO
    assert owner.runtime.members.of("g") == (channel,)
    await asyncio.to_thread(layer.group_discard, "g", channel)
    await asyncio.to_thread(layer.send_group, "g", HELLO)
    await asyncio.to_thread(layer.send, channel, {"type": "after"})
    assert await owner.receive(channel) == {"type": "after"}

    async def gone() -> bool:  # nothing of it stays at the broker
        try:
            await amqp.exchange_declare(names.group("g"), passive=True)
        except errors.NotFound:
            return True
        return False

    await until(gone)


async def test_queues_end_after_two_expiries(make: Make, amqp: Channel, names: Names) -> None:
    layer = make(expiry=0.3)
    await layer.send("work", HELLO)

    async def gone() -> bool:
        await asyncio.sleep(0.7)  # each look counts as use
        return await is_gone(amqp, names.queue("work"))

    await until(gone)
    await layer.send("work", {"type": "again"})  # and come again
    assert await layer.receive("work") == {"type": "again"}


# -- the races ---------------------------------------------------------------------------------------------------------


async def test_r1_concurrent_senders_cannot_exceed_the_capacity(make: Make) -> None:
    senders = [make(capacity=5) for _ in range(3)]
    results = await asyncio.gather(*(layer.send("work", HELLO) for layer in senders * 10), return_exceptions=True)
    assert sum(result is None for result in results) == 5
    assert all(result is None or isinstance(result, senders[0].ChannelFull) for result in results)


async def test_r2_other_settings_are_told_apart(make: Make) -> None:
    await make(expiry=3).group_add("g", "work")
    with pytest.raises(errors.InvalidArgument, match="another expiry"):
        await make(expiry=4).send("work", HELLO)


async def test_r4_a_foreign_channel_is_there_before_its_reader(make_sync: MakeSync) -> None:
    layer = make_sync()
    await asyncio.to_thread(layer.group_add, "g", "foo!bar")
    await asyncio.to_thread(layer.send_group, "g", HELLO)  # nobody has read foo! yet
    assert await asyncio.to_thread(layer.receive, ["foo!"], True) == ("foo!bar", HELLO)


async def test_r5_no_layer_is_in_the_way_of_a_group_message(make: Make, make_sync: MakeSync) -> None:
    adder = make_sync()
    await asyncio.to_thread(adder.group_add, "g", "foo!bar")
    await asyncio.to_thread(adder.close)  # who added it is gone
    sender, reader = make_sync(), make_sync()
    for number in range(20):
        await asyncio.to_thread(sender.send_group, "g", {"n": number})
    got = [(await asyncio.to_thread(reader.receive, ["foo!"], True))[1] for _ in range(20)]
    assert got == [{"n": number} for number in range(20)]


def test_r6_no_two_memberships_share_a_marker(names: Names) -> None:
    assert names.marker("a.b", "c") != names.marker("a", "b.c")
    assert names.marked(names.marker("a.b", "c!d")) == ("a.b", "c!d")


async def test_r7_groups_and_channels_may_have_the_same_name(layer: ChannelLayer) -> None:
    for name in ("both", "dead-letters", "amq.direct", "groups"):
        await layer.group_add(name, name)
        await layer.group_send(name, {"type": name})
        assert await layer.receive(name) == {"type": name}


async def test_r8_a_stale_marker_does_not_end_a_fresh_membership(make: Make, amqp: Channel, names: Names) -> None:
    layer = make(group_expiry=60)
    await layer.group_add("g", "work")
    stale = harebell.Message(
        b"", headers={"x-first-death-queue": names.marker("g", "work"), "x-first-death-reason": "expired"}
    )
    await amqp.publish(stale, names.dead_letters, "")

    async def handled() -> bool:
        return layer.statistics()["expired"] == 1

    await until(handled)
    await layer.group_send("g", HELLO)
    assert await layer.receive("work") == HELLO


async def test_r9_a_reader_who_is_slow_stays_a_member(make: Make) -> None:
    layer = make(expiry=0.4)
    reader = asyncio.create_task(layer.receive("work"))  # it holds a consumer
    await layer.group_add("g", "work")
    await layer.group_send("g", HELLO)
    assert await reader == HELLO


async def test_r10_joining_and_leaving_at_once(make: Make) -> None:
    one, two = make(), make()
    mine, yours = await one.new_channel(), await two.new_channel()
    for _ in range(15):
        await asyncio.gather(one.group_add("g", mine), two.group_add("g", yours), one.group_add("g", "work"))
        leaving = (one.group_discard("g", mine), two.group_discard("g", yours), two.group_discard("g", "work"))
        await asyncio.gather(*leaving)
    await asyncio.gather(one.group_add("g", mine), two.group_add("g", yours))
    await one.group_send("g", HELLO)
    assert await one.receive(mine) == HELLO
    assert await two.receive(yours) == HELLO


async def test_r11_a_single_reader_channel_that_expired_can_join(
    make_sync: MakeSync, amqp: Channel, names: Names
) -> None:
    layer = make_sync()
    channel = await asyncio.to_thread(layer.new_channel, "body?")
    await amqp.queue_delete(names.queue(channel))
    await asyncio.to_thread(layer.group_add, "g", channel)
    await asyncio.to_thread(layer.send_group, "g", HELLO)
    assert await asyncio.to_thread(layer.receive, [channel], True) == (channel, HELLO)


async def test_r12_groups_respect_the_capacity(make: Make, amqp: Channel, names: Names) -> None:
    layer = make(capacity=3)
    await layer.group_add("g", "work")
    for _ in range(20):
        await layer.group_send("g", HELLO)
    assert await waiting(amqp, names.queue("work")) == 3


async def test_r14_members_of_a_process_that_died_end_with_its_queue(make: Make, amqp: Channel, names: Names) -> None:
    layer, dies = make(expiry=0.3), make(expiry=0.3)
    channel = await dies.new_channel()
    await dies.group_add("g", channel)
    await dies.close()

    async def gone() -> bool:
        await asyncio.sleep(0.7)
        return await is_gone(amqp, names.queue(channel))

    await until(gone)
    await layer.group_send("g", HELLO)
    with pytest.raises(errors.NotFound):
        await amqp.exchange_declare(names.group("g"), passive=True)


async def test_r15_many_members_of_one_process_are_one_binding(
    layer: ChannelLayer, amqp: Channel, names: Names
) -> None:
    channels = [await layer.new_channel() for _ in range(20)]
    for channel in channels:
        await layer.group_add("g", channel)
    assert await is_gone(amqp, names.member(channels[0]))
    assert await is_gone(amqp, names.marker("g", channels[0]))
    await layer.group_send("g", HELLO)
    assert [await layer.receive(channel) for channel in channels] == [HELLO] * 20


async def test_r16_a_busy_channel_does_not_starve_the_next(make_sync: MakeSync) -> None:
    layer = make_sync()
    for _ in range(30):
        await asyncio.to_thread(layer.send, "busy", HELLO)
    await asyncio.to_thread(layer.send, "quiet", HELLO)
    taken = [(await asyncio.to_thread(layer.receive, ["busy", "quiet"]))[0] for _ in range(30)]
    assert "quiet" in taken  # by chance not, once in a billion runs


async def test_r17_what_a_cancelled_reader_did_not_take_is_given_to_the_next(make: Make) -> None:
    one, two = make(), make()
    for number in range(10):
        await one.send("work", {"type": "x", "n": number})
    assert (await one.receive("work"))["n"] == 0  # and holds some more
    assert sorted([(await two.receive("work"))["n"] for _ in range(9)]) == list(range(1, 10))


async def test_r18_every_queue_is_durable(layer: ChannelLayer, amqp: Channel, names: Names) -> None:
    channel = await layer.new_channel()
    await layer.group_add("g", "work")
    for queue in (names.queue(channel), names.queue("work"), names.marker("g", "work"), names.dead_letters):
        with pytest.raises(errors.PreconditionFailed, match=r"arg 'durable'"):
            await amqp.queue_declare(queue, durable=False)


def test_r19_the_listener_lives_over_any_dead_letter(make_sync: MakeSync, broker_url: str, names: Names) -> None:
    layer = make_sync()
    layer.send("work", HELLO)

    async def publish() -> None:
        async with harebell.connect(broker_url) as connection, connection.channel() as channel:
            await channel.publish(b"\xff", names.dead_letters, "")
            odd = harebell.Message(b"", headers={"x-first-death-queue": 1, "x-first-death-reason": []})
            await channel.publish(odd, names.dead_letters, "")
            good = harebell.Message(b"", headers={"x-first-death-queue": "q", "x-first-death-reason": "expired"})
            await channel.publish(good, names.dead_letters, "")

    asyncio.run(publish())
    for _ in range(200):
        if layer.statistics()["expired"]:
            break
        threading.Event().wait(0.05)
    assert layer.statistics()["expired"] == 1


async def test_r20_a_layer_that_is_closed_leaves_no_control_queue(make: Make, amqp: Channel, names: Names) -> None:
    layer = make()
    await layer.group_channels("g", seconds=0.1)
    queue = layer.runtime.controls.queue
    assert not await is_gone(amqp, queue)
    await layer.close()
    assert await is_gone(amqp, queue)
    await layer.new_channel()  # it works again, as another


LEFT_BEHIND = """
import asyncio, sys
from harebell import errors
from harebell.channels import ChannelLayer

async def main():
    layer = ChannelLayer(sys.argv[1], prefix=sys.argv[2], expiry=0.5, group_expiry=1.0, timeout=60)
    while True:
        try:
            channel = await layer.new_channel()
            await layer.group_add("g", channel)
            break
        except errors.HarebellError:  # on a machine under load a queue may expire before it is read
            await asyncio.sleep(0.1)
    print(channel, layer.runtime.controls.queue, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


async def test_r21_of_a_process_that_is_killed_nothing_is_left(
    broker_url: str, prefix: str, amqp: Channel, names: Names
) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", LEFT_BEHIND, broker_url, prefix, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        channel, control = (await process.stdout.readline()).decode().split()
        queues = [names.queue(channel), control]
        for queue in queues:  # which it reads: they cannot have expired
            assert (await amqp.queue_declare(queue, passive=True)).consumer_count == 1
    finally:
        process.kill()
        await process.wait()
    for queue in (*queues, names.dead_letters, names.registry):
        await until(lambda queue=queue: reaches_nothing(amqp, queue), 60)  # type: ignore[misc]
    with pytest.raises(errors.NotFound):
        await amqp.exchange_declare(names.group("g"), passive=True)


async def reaches_nothing(amqp: Channel, queue: str) -> bool:
    """Whether there is no such queue. A passive declaration would begin its time anew."""
    try:
        await amqp.publish(b"", "", queue, mandatory=True)
    except errors.Unroutable:
        return True
    await asyncio.sleep(0.1)
    return False


async def test_messages_of_other_programs_are_taken_as_they_are(
    layer: ChannelLayer, amqp: Channel, names: Names
) -> None:
    await layer.send("work", HELLO)
    await layer.receive("work")
    for _ in range(3):
        await amqp.publish(b"\x81\xa4type\xa1x", "", names.queue("work"))  # msgpack, and no id
    assert [await layer.receive("work") for _ in range(3)] == [{"type": "x"}] * 3
