"""The last messages of groups, on both brokers: what is kept, and what is declared again."""

from __future__ import annotations

import pytest

from harebell import errors
from harebell.channels import ChannelLayer
from harebell.channels.memberships import group_history
from harebell.channels.names import Names
from harebell.client.channel import Channel
from harebell.testing import FaultProxy
from tests.channels.conftest import Make, until


async def test_the_last_messages_of_a_group(make: Make) -> None:
    layer, late = (make(group_history={"chat.*": 3}) for _ in range(2))
    channel = await layer.new_channel()
    await layer.group_add("chat.1", channel)
    for number in range(5):
        await layer.group_send("chat.1", {"type": "x", "n": number})
        assert (await layer.receive(channel))["n"] == number
    await layer.group_discard("chat.1", channel)
    await layer.group_send("chat.1", {"type": "x", "n": 5})
    for _ in range(2):  # reading takes nothing away
        assert [message["n"] for message in await late.group_history("chat.1")] == [3, 4, 5]
    assert await late.group_history("chat.2") == []
    with pytest.raises(errors.InvalidArgument, match="no history is kept"):
        await late.group_history("other")


async def history(layer: ChannelLayer, group: str) -> list[object]:
    return [message["n"] for message in await layer.group_history(group)]


async def test_a_broker_that_has_lost_its_streams(
    proxied_url: str, prefix: str, names: Names, proxy: FaultProxy, amqp: Channel
) -> None:
    layer = ChannelLayer(proxied_url, prefix=prefix, timeout=60, group_history={"*": 10})
    connection = layer.runtime.connection
    await layer.group_send("g", {"type": "x", "n": 0})
    assert await history(layer, "g") == [0]
    for number in range(1, 3):  # one loss, and another one
        await amqp.queue_delete(names.history("g"))
        before = connection.links
        proxy.cut()

        async def back(before: int = before) -> bool:
            return connection.links > before

        await until(back)
        await layer.group_send("g", {"type": "x", "n": number})
        assert await history(layer, "g") == [number]
    await layer.close()


async def test_a_stream_that_somebody_has_deleted(make: Make, names: Names, amqp: Channel) -> None:
    layer = make(group_history={"*": 10})
    await layer.group_send("g", {"type": "x", "n": 0})
    await amqp.queue_delete(names.history("g"))
    assert await history(layer, "g") == []
    await layer.group_send("g", {"type": "x", "n": 1})
    assert await history(layer, "g") == [1]


@pytest.mark.pure
async def test_many_groups_are_not_all_remembered(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_history, "KNOWN", 3)
    layer = make(group_history={"*": 10})
    kept = layer.runtime.history
    for number in range(5):
        await layer.group_send(f"g{number}", {"type": "x", "n": number})
    assert [number for number in range(5) if kept.is_declared(f"g{number}")] == [2, 3, 4]
    assert await history(layer, "g0") == [0]
    assert [number for number in range(5) if kept.is_declared(f"g{number}")] == [0, 3, 4]
