"""The contract of Channels 4, on both brokers: each test is a line of its documentation, or of its base class."""

from __future__ import annotations

import asyncio
import gc
import math
import random
import re
from typing import Any

import pytest
from channels.exceptions import ChannelFull, MessageTooLarge

from harebell import errors
from harebell.channels import ChannelLayer
from harebell.channels.links.link import Link, bind_exchange
from harebell.channels.names import non_local
from tests.channels.conftest import Make, until
from tests.client.conftest import broker_url  # noqa: F401

HELLO = {"type": "hello"}


async def nothing(layer: ChannelLayer, channel: str, seconds: float = 0.3) -> None:
    """Nothing comes: what was sent before something that came would be there."""
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(layer.receive(channel), seconds)


async def test_a_message_arrives_whole(layer: ChannelLayer) -> None:
    message = {"type": "x", "text": "grüße", "bytes": b"\0\xff", "int": -(2**63), "float": 0.5, "none": None,
               "list": [1, [True, False]], "dict": {"a": {"b": b"c"}}}  # fmt: skip
    await layer.send("work", message)
    assert await layer.receive("work") == message


async def test_messages_come_in_order_once(layer: ChannelLayer) -> None:
    channel = await layer.new_channel()
    for number in range(50):
        await layer.send(channel, {"type": "x", "n": number})
    assert [(await layer.receive(channel))["n"] for _ in range(50)] == list(range(50))
    await nothing(layer, channel)


async def test_competing_readers_share_a_normal_channel(make: Make) -> None:
    one, two = make(), make()
    readers = [asyncio.create_task(layer.receive("work")) for layer in (one, two, one, two)]
    for number in range(4):
        await one.send("work", {"type": "x", "n": number})
    assert sorted([message["n"] for message in await asyncio.gather(*readers)]) == [0, 1, 2, 3]


async def test_a_new_channel_is_unique_and_ours(make: Make) -> None:
    layer, other = make(), make()
    random.seed(1)
    first = await layer.new_channel()
    random.seed(1)
    second = await layer.new_channel("prefix")
    assert first.startswith("specific.")
    assert second.startswith("prefix.")
    assert first.partition("!")[2] != second.partition("!")[2]
    await other.send(first, HELLO)
    assert await layer.receive(first) == HELLO
    with pytest.raises(AssertionError, match="another process"):
        await other.receive(first)


async def test_local_channels_of_one_process_do_not_mix(layer: ChannelLayer) -> None:
    one, two = await layer.new_channel(), await layer.new_channel()
    await layer.send(two, {"type": "two"})
    await layer.send(one, {"type": "one"})
    assert (await layer.receive(one))["type"] == "one"
    assert (await layer.receive(two))["type"] == "two"


async def test_the_capacity_is_exact(make: Make) -> None:
    layer = make(capacity=3)
    for _ in range(3):
        await layer.send("work", HELLO)
    with pytest.raises(ChannelFull, match="'work' holds 3"):
        await layer.send("work", HELLO)
    assert layer.ChannelFull is ChannelFull
    await layer.receive("work")


async def test_capacities_by_pattern(make: Make) -> None:
    layer = make(channel_capacity={"http.*": 1, re.compile(r"jobs\d"): 2})
    for channel, capacity in (("http.request", 1), ("jobs1", 2)):
        for _ in range(capacity):
            await layer.send(channel, HELLO)
        with pytest.raises(ChannelFull):
            await layer.send(channel, HELLO)
    assert layer.get_capacity("http.request") == 1


NOT_ASCII = [
    "é",
    "\u0663",
    "\uff11",
    "\uff41",
    "a\u0301",
    "\u00aa",
]  # letters and digits of other alphabets, and wide ones


@pytest.mark.parametrize(
    "name",
    ["", "a b", "x" * 100, 7, None, "a!b!c", "!a", "a/b", "a\n"]
    + [form % sign for sign in NOT_ASCII for form in ("%s", "a%s", "%s!a", "a!%s", "a?%s", "a!b%sc")],
)
async def test_bad_channel_names(layer: ChannelLayer, name: Any) -> None:
    for call in (layer.send(name, HELLO), layer.receive(name), layer.group_add("g", name)):
        with pytest.raises(TypeError, match="no channel name"):
            await call


@pytest.mark.parametrize(
    "name", ["", "a b", "a!b", "x" * 100, 7, "a\n", *NOT_ASCII, *[f"a{sign}" for sign in NOT_ASCII]]
)
async def test_bad_group_names(layer: ChannelLayer, name: Any) -> None:
    for call in (layer.group_add(name, "c"), layer.group_discard(name, "c"), layer.group_send(name, HELLO)):
        with pytest.raises(TypeError, match="no group name"):
            await call


async def test_bad_messages(make: Make) -> None:
    layer = make(max_message_size=100)
    with pytest.raises(TypeError, match="is a dict"):
        await layer.send("work", "text")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="cannot be written"):
        await layer.send("work", {"type": object()})
    with pytest.raises(AssertionError, match="reserves"):
        await layer.send("work", {"__asgi_channel__": "x"})
    with pytest.raises(MessageTooLarge, match="max_message_size is 100"):
        await layer.group_send("g", {"type": "x" * 100})


async def test_a_message_of_a_megabyte(layer: ChannelLayer) -> None:
    message = {"type": "x", "text": "y" * 1_000_000}
    await layer.send("work", message)
    assert await layer.receive("work") == message


async def test_a_group_reaches_each_member_once(make: Make) -> None:
    layer, other = make(), make()
    here, there = await layer.new_channel(), await other.new_channel()
    for _ in range(2):  # twice is no more than once
        await layer.group_add("g", here)
        await other.group_add("g", there)
        await layer.group_add("g", "work")
    await other.group_send("g", HELLO)
    assert await layer.receive(here) == HELLO
    assert await other.receive(there) == HELLO
    assert await other.receive("work") == HELLO
    for one, channel in ((layer, here), (other, there), (layer, "work")):
        await nothing(one, channel, 0.1)


async def test_members_have_messages_of_their_own(layer: ChannelLayer) -> None:
    one, two = await layer.new_channel(), await layer.new_channel()
    await layer.group_add("g", one)
    await layer.group_add("g", two)
    await layer.group_send("g", {"type": "x", "list": []})
    first = await layer.receive(one)
    first["list"].append("changed")
    assert (await layer.receive(two))["list"] == []


async def test_who_has_left_gets_nothing(layer: ChannelLayer) -> None:
    one, two = await layer.new_channel(), await layer.new_channel()
    for channel in (one, two, "work"):
        await layer.group_add("g", channel)
    for channel in (one, "work"):
        await layer.group_discard("g", channel)
        await layer.group_discard("g", channel)  # again: no error
    await layer.group_discard("nobody", one)
    await layer.group_send("g", HELLO)
    assert await layer.receive(two) == HELLO
    await nothing(layer, one, 0.1)
    await nothing(layer, "work", 0.1)


async def test_who_is_in_a_group(make: Make) -> None:
    one, two = make(), make()
    channels = [await one.new_channel(), await one.new_channel("other"), await two.new_channel()]
    for layer, channel in zip((one, one, two), channels, strict=True):
        await layer.group_add("g", channel)
    await two.group_add("h", channels[0])
    assert await two.group_channels("g", seconds=0.5) == sorted(channels)
    assert await two.group_channels("nobody", seconds=0.2) == []
    await one.group_discard("g", channels[0])
    assert await one.group_channels("g", seconds=0.5) == sorted(channels[1:])


async def test_harebell_knows_normal_channels_of_a_group_too(prefix: str, harebell_url: str) -> None:
    layer = ChannelLayer(harebell_url, prefix=prefix)
    other = ChannelLayer(harebell_url, prefix=prefix)
    mine = await layer.new_channel()
    await other.group_add("g", "work")
    await other.group_add("g", mine)
    assert await layer.group_channels("g") == sorted([mine, "work"])
    await layer.close()
    await other.close()


async def test_a_group_of_nobody(layer: ChannelLayer) -> None:
    await layer.group_send("nobody", HELLO)


async def test_a_full_member_does_not_disturb_the_others(make: Make) -> None:
    layer = make(capacity=2)
    slow, fast = await layer.new_channel(), await layer.new_channel()
    for channel in (slow, fast, "work"):
        await layer.group_add("g", channel)
    for number in range(4):
        await layer.group_send("g", {"type": "x", "n": number})
        assert (await layer.receive(fast))["n"] == number
    for channel in (slow, "work"):
        assert [(await layer.receive(channel))["n"] for _ in range(2)] == [0, 1]
    assert layer.statistics()["dropped"] == 2


async def test_messages_expire(make: Make) -> None:
    layer = make(expiry=0.3)
    channel = await layer.new_channel()
    await layer.send(channel, {"type": "old"})
    await layer.send("work", {"type": "old"})
    await asyncio.sleep(0.6)  # what is tested is that time passes
    await layer.send(channel, {"type": "new"})
    await layer.send("work", {"type": "new"})
    assert (await layer.receive(channel))["type"] == "new"
    assert (await layer.receive("work"))["type"] == "new"


async def test_a_slow_reader_stays_in_its_groups(make: Make) -> None:
    layer = make(expiry=0.3)
    channel = await layer.new_channel()
    await layer.group_add("g", channel)
    await layer.group_send("g", {"type": "old"})
    await asyncio.sleep(0.6)
    await layer.group_send("g", {"type": "new"})
    assert (await layer.receive(channel))["type"] == "new"


async def test_memberships_expire(make: Make) -> None:
    layer, other = make(group_expiry=0.5), make(group_expiry=0.5)
    channel, stays = await layer.new_channel(), await layer.new_channel()
    await layer.group_add("g", channel)
    await other.group_add("h", channel)  # through the broker
    await layer.group_add("g", "work")
    for _ in range(8):
        await asyncio.sleep(0.2)
        await layer.group_add("g", stays)
    await layer.group_send("g", HELLO)
    await layer.group_send("h", HELLO)
    assert await layer.receive(stays) == HELLO
    await nothing(layer, channel, 0.1)
    await nothing(layer, "work", 0.1)


async def test_flush(layer: ChannelLayer) -> None:
    channel = await layer.new_channel()
    await layer.send("work", HELLO)
    await layer.send(channel, HELLO)
    await layer.group_add("g", channel)
    await layer.group_add("g", "work")
    await layer.flush()
    await layer.group_send("g", HELLO)
    await layer.send("after", HELLO)
    await layer.receive("after")
    await nothing(layer, channel, 0.1)
    await nothing(layer, "work", 0.1)
    await layer.group_add("g", channel)
    await layer.group_send("g", HELLO)
    assert await layer.receive(channel) == HELLO


async def test_a_cancelled_receive_takes_nothing(layer: ChannelLayer) -> None:
    channel = await layer.new_channel()
    for name in (channel, "work"):
        for number in range(30):
            reader = asyncio.create_task(layer.receive(name))
            await asyncio.sleep(0)
            sender = asyncio.create_task(layer.send(name, {"type": "x", "n": number}))
            await asyncio.sleep(0.0005 * (number % 7))
            reader.cancel()
            result = (await asyncio.gather(reader, return_exceptions=True))[0]
            await sender
            if isinstance(result, BaseException):
                result = await layer.receive(name)
            assert result["n"] == number, name
    await nothing(layer, channel, 0.1)


async def test_being_told_what_was_missed(make: Make) -> None:
    told: list[str] = []
    layer = make(capacity=2, on_missed=told.append)
    channel, other = await layer.new_channel(), await layer.new_channel()
    await layer.group_add("g", channel)
    await layer.group_add("g", other)
    for _ in range(5):
        await layer.group_send("g", HELLO)
        await layer.receive(other)
    assert told == [channel] * 3
    assert layer.missed(channel) == 3
    assert layer.missed(channel) == 0
    assert layer.missed(other) == 0


async def test_another_key_is_not_read(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    old, both, new = (make(symmetric_encryption_keys=keys) for keys in (["a"], ["b", "a"], ["b"]))
    await old.send("work", {"type": "by a"})
    assert await both.receive("work") == {"type": "by a"}
    await old.send("more", {"type": "by a"})
    await both.send("more", {"type": "by b"})
    assert await new.receive("more") == {"type": "by b"}
    assert new.statistics()["unreadable"] == 1
    assert "another key" in caplog.text


async def test_json_has_bytes_too(make: Make) -> None:
    layer = make(serializer="json")
    await layer.send("work", {"type": "x", "bytes": b"\xff", "list": [b"y"]})
    assert await layer.receive("work") == {"type": "x", "bytes": b"\xff", "list": [b"y"]}


async def test_different_settings_are_explained(make: Make) -> None:
    await make(capacity=3).send("work", HELLO)
    with pytest.raises(errors.InvalidArgument, match="another capacity or channel_capacity"):
        await make(capacity=4).send("work", HELLO)
    with pytest.raises(errors.InvalidArgument, match="another expiry"):
        await make(capacity=3, expiry=9).send("work", HELLO)


async def test_a_reader_with_other_settings_is_told_and_does_not_wait_for_ever(make: Make) -> None:
    await make(capacity=3).send("work", HELLO)
    other = make(capacity=4)
    for _ in range(2):
        with pytest.raises(errors.InvalidArgument, match="another capacity or channel_capacity"):
            await asyncio.wait_for(other.receive("work"), 60)


async def test_leaving_while_joining_leaves_the_group_as_it_should_be(layer: ChannelLayer) -> None:
    for number in range(20):
        group = f"g{number}"
        hasty, stays = await layer.new_channel(), await layer.new_channel()
        joining = asyncio.create_task(layer.group_add(group, hasty))
        await asyncio.sleep(0.0003 * (number % 8))
        joining.cancel()
        await asyncio.gather(joining, return_exceptions=True)
        await layer.group_discard(group, hasty)  # what a consumer does whose client left at once
        await layer.group_add(group, stays)
        await layer.group_send(group, {"type": "x", "n": number})
        assert (await layer.receive(stays))["n"] == number
        assert layer.runtime.members.of(group) == (stays,)
    assert await layer.group_channels(group, seconds=2) == [stays]


async def test_a_call_that_is_refused_disturbs_no_other(layer: ChannelLayer) -> None:
    channel = await layer.new_channel()
    await layer.group_add("g", channel)
    runtime = layer.runtime

    async def refused() -> None:
        link = await runtime.connection.ready()
        with pytest.raises(errors.NotFound):
            await link.ask([bind_exchange("no.such.exchange", "none")])

    async def declared() -> None:
        await runtime.connection.declare("w")

    async def together() -> list[object]:
        work = (
            refused(),
            runtime.groups.discard("g", channel),
            runtime.groups.add("h", channel),
            declared(),
        )
        return [*await asyncio.gather(*work, return_exceptions=True)]

    assert await runtime.call(together) == [None] * 4
    assert (runtime.members.of("g"), runtime.members.of("h")) == ((), (channel,))


@pytest.mark.parametrize("steps", range(6))
@pytest.mark.parametrize("company", [False, True])
async def test_a_cancelled_request_ends_nothing_that_was_asked_for_later(
    layer: ChannelLayer, steps: int, company: bool
) -> None:
    channel = await layer.new_channel()
    await layer.group_add("g", channel)
    if company:  # the queue stays bound without the channel
        await layer.group_add("g", await layer.new_channel())
    runtime = layer.runtime
    with runtime.thread.loop.lock:  # what is asked for now comes later
        for request in (layer.group_discard, layer.group_add, layer.group_discard):
            cancelled = asyncio.create_task(request("g", channel))
            for _ in range(steps):
                await asyncio.sleep(0)
            cancelled.cancel()
            await asyncio.wait([cancelled])
        adding = asyncio.create_task(layer.group_add("g", channel))
        for _ in range(steps):
            await asyncio.sleep(0)
    await adding
    await layer.group_add("g", channel)
    await runtime.call(runtime.connection.ready)
    assert runtime.members.contains("g", channel)
    await layer.group_send("g", HELLO)
    assert await layer.receive(channel) == HELLO
    await layer.group_discard("g", channel)
    assert not runtime.members.contains("g", channel)
    await layer.group_add("g", channel)
    assert runtime.members.refresh("g", channel, non_local(channel), math.inf)  # nothing is left of the requests


async def test_layers_that_start_together_share_the_embedded_broker(prefix: str) -> None:
    layers = [ChannelLayer("embedded://", prefix=prefix) for _ in range(3)]
    await asyncio.gather(*(layer.send("work", HELLO) for layer in layers))
    assert [await layers[0].receive("work") for _ in layers] == [HELLO] * 3
    for layer in layers:
        await layer.close()


@pytest.mark.parametrize("channel", ["work", None])
async def test_who_waits_is_told_that_the_layer_is_closed(layer: ChannelLayer, channel: str | None) -> None:
    waiting = [asyncio.ensure_future(layer.receive(channel or await layer.new_channel())) for _ in range(2)]
    await layer.send("other", HELLO)
    assert await layer.receive("other") == HELLO
    await layer.close()
    for receive in waiting:
        with pytest.raises(errors.ChannelClosed, match="layer was closed"):
            async with asyncio.timeout(60):
                await receive


async def test_a_layer_that_is_dropped_leaves_no_connection(broker_url: str, prefix: str) -> None:  # noqa: F811
    layer = ChannelLayer(broker_url, prefix=prefix)
    channel = await layer.new_channel()
    await layer.group_add("g", channel)
    runtime = layer.runtime
    link = runtime.connection.link
    assert link is not None
    del layer
    gc.collect()
    await until(lambda: runtime.call(lambda: _ended(link)))


async def _ended(link: Link) -> bool:
    return not link.is_open


async def test_a_closed_layer_opens_again(layer: ChannelLayer) -> None:
    await layer.send("work", HELLO)
    await layer.close()
    assert await layer.receive("work") == HELLO


@pytest.mark.parametrize(
    "settings",
    [{"prefix": "amq.x"}, {"prefix": "a:b"}, {"expiry": 0}, {"expiry": "1"}, {"capacity": -1}, {"serializer": "pickle"},
     {"hosts": ["amqp://x/"]}, {"symmetric_encryption_keys": "one"}],
)  # fmt: skip
def test_settings_that_cannot_be(settings: dict[str, Any]) -> None:
    with pytest.raises(errors.InvalidArgument):
        ChannelLayer("amqp://localhost/", **settings)


@pytest.mark.parametrize(
    "name, hint",
    [("timout", "did you mean 'timeout'?"), ("capcity", "did you mean 'capacity'?"), ("nonsense", "see BaseLayer")],
)
def test_a_setting_that_there_is_not(name: str, hint: str) -> None:
    settings: dict[str, Any] = {name: 1}
    with pytest.raises(errors.InvalidArgument, match=re.escape(hint)):
        ChannelLayer("amqp://localhost/", **settings)


async def test_nobody_there() -> None:
    layer = ChannelLayer("amqp://guest:secret@127.0.0.1:9/", timeout=0.5)
    with pytest.raises(errors.DeadlineExceeded, match=r"no broker at amqp://127.0.0.1:9/ within 0.5 s"):
        await layer.send("work", HELLO)
    await layer.close()
