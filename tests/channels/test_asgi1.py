"""The contract of ASGI 1, on both brokers, and a process on this face beside one on the other."""

from __future__ import annotations

import asyncio
import threading

import pytest
from channels.exceptions import ChannelFull

from tests.channels.conftest import Make, MakeSync

HELLO = {"type": "hello"}


def test_send_and_receive(make_sync: MakeSync) -> None:
    layer = make_sync()
    layer.send("sr", {"value": "blue"})
    layer.send("sr", {"value": "green"})
    layer.send("sr2", {"value": "red"})
    got = [layer.receive(["sr"]), layer.receive(["sr"]), layer.receive(["sr2", "sr"])]
    assert got == [("sr", {"value": "blue"}), ("sr", {"value": "green"}), ("sr2", {"value": "red"})]
    assert layer.receive(["sr", "sr2"]) == (None, None)
    assert layer.receive([], block=True) == (None, None)


def test_a_blocking_receive_over_several_channels(make_sync: MakeSync) -> None:
    layer, sender = make_sync(), make_sync()
    got: list[object] = []
    reader = threading.Thread(target=lambda: got.append(layer.receive(["a", "b", "c"], block=True)))
    reader.start()
    sender.send("b", HELLO)
    reader.join(10)
    assert got == [("b", HELLO)]
    sender.send("a", HELLO)  # nothing of the first reader's is left to take it
    assert sender.receive(["a"], block=True) == ("a", HELLO)


def test_a_blocking_receive_gives_up(make_sync: MakeSync) -> None:
    assert make_sync(block_seconds=0.1).receive(["a"], block=True) == (None, None)


def test_process_local_channels(make_sync: MakeSync) -> None:
    layer, sender = make_sync(), make_sync()
    sender.send("foo!", {"n": 0})
    sender.send("foo!one", {"n": 1})
    sender.send("foo!two", {"n": 2})
    got = [layer.receive(["foo!"]) for _ in range(3)]
    assert got == [("foo!", {"n": 0}), ("foo!one", {"n": 1}), ("foo!two", {"n": 2})]
    with pytest.raises(TypeError, match="up to its !"):
        layer.receive(["foo!one"])
    for pattern in ("foo!", "foo"):
        with pytest.raises(TypeError, match="ends in"):
            layer.new_channel(pattern)


def test_single_reader_channels(make_sync: MakeSync) -> None:
    layer = make_sync()
    one, two = layer.new_channel("http.request.body?"), layer.new_channel("http.request.body?")
    assert one != two
    layer.send(one, HELLO)
    assert layer.receive([two]) == (None, None)
    assert layer.receive([one]) == (one, HELLO)


def test_the_capacity(make_sync: MakeSync) -> None:
    layer = make_sync(capacity=2)
    layer.send("cap", HELLO)
    layer.send("cap", HELLO)
    with pytest.raises(ChannelFull):
        layer.send("cap", HELLO)
    assert layer.global_statistics() == {"messages_count": 2, "channel_full_count": 1}
    assert layer.channel_statistics("cap") == {"messages_pending": 2}


def test_groups_of_every_kind_of_channel(make_sync: MakeSync) -> None:
    layer = make_sync()
    single = layer.new_channel("body?")
    channels = ["normal", single, "foo!one", "foo!two"]
    for channel in channels:
        layer.group_add("g", channel)
        layer.group_add("g", channel)
    layer.send_group("g", HELLO)
    got = [layer.receive(["normal", single, "foo!"], block=True)[0] for _ in channels]
    assert sorted(map(str, got)) == sorted(channels)
    for channel in channels:
        layer.group_discard("g", channel)
    layer.send_group("g", HELLO)
    assert layer.receive(["normal", single, "foo!"]) == (None, None)


def test_flush(make_sync: MakeSync) -> None:
    layer = make_sync()
    layer.send("work", HELLO)
    layer.group_add("g", "work")
    layer.flush()
    layer.send_group("g", HELLO)
    assert layer.receive(["work"]) == (None, None)


async def test_both_faces_in_one_system(make: Make, make_sync: MakeSync) -> None:
    new, old = make(), make_sync()
    await asyncio.to_thread(old.send, "work", {"type": "from 1"})
    assert await new.receive("work") == {"type": "from 1"}
    channel = await new.new_channel()
    await asyncio.to_thread(old.group_add, "g", channel)
    await asyncio.to_thread(old.group_add, "g", "server!x")
    await new.group_add("g", "queue")
    await asyncio.to_thread(old.send_group, "g", {"type": "all"})
    assert await new.receive(channel) == {"type": "all"}
    assert await asyncio.to_thread(old.receive, ["server!"], True) == ("server!x", {"type": "all"})
    assert await asyncio.to_thread(old.receive, ["queue"], True) == ("queue", {"type": "all"})
    await new.send("server!y", {"type": "from 4"})
    assert await asyncio.to_thread(old.receive, ["server!"], True) == ("server!y", {"type": "from 4"})
    await asyncio.to_thread(old.group_discard, "g", channel)
