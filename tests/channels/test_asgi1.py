"""The contract of ASGI 1, on both brokers, and a process on this face beside one on the other."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from typing import Any

import pytest
from channels.exceptions import ChannelFull

from harebell.channels import AsgiChannelLayer
from harebell.channels.links.io_thread import SyncAnswer
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
    reader.join(60)
    assert got == [("b", HELLO)]
    sender.send("a", HELLO)  # nothing of the first reader's is left to take it
    assert sender.receive(["a"], block=True) == ("a", HELLO)


def test_a_blocking_receive_gives_up(make_sync: MakeSync) -> None:
    assert make_sync(block_seconds=0.1).receive(["a"], block=True) == (None, None)


@pytest.mark.pure
@pytest.mark.parametrize("begun", [False, True])
def test_an_interrupt_costs_no_message_that_was_waited_for(
    make_sync: MakeSync, monkeypatch: pytest.MonkeyPatch, begun: bool
) -> None:
    layer = make_sync()
    for number in range(3):
        layer.send("work", {"n": number})
    runtime = layer.runtime

    def interrupted(work: Any) -> None:
        if begun:
            runtime.thread.run(work, SyncAnswer())
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(runtime, "call_blocking", interrupted)
        with pytest.raises(KeyboardInterrupt):
            layer._receive_blocking(runtime, ["work"])
    assert [layer.receive(["work"], block=True) for _ in range(3)] == [("work", {"n": number}) for number in range(3)]


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


def test_flush_clears_what_other_processes_made(make_sync: MakeSync) -> None:
    one, two = make_sync(), make_sync()
    for number in range(20):
        one.send("work", {"n": number})
    assert one.receive(["work"], block=True)[1] == {"n": 0}  # and holds some more for its next reader
    one.group_add("g", "member")
    one.group_add("g", "foo!bar")
    two.flush()
    one.send_group("g", HELLO)
    for layer in (one, two):
        assert layer.receive(["work", "member", "foo!"]) == (None, None)
    assert two.group_channels("g") == []


async def test_flush_clears_the_other_layers_too(make: Make, make_sync: MakeSync) -> None:
    one, two, old = make(), make(), make_sync()
    mine, yours = await one.new_channel(), await two.new_channel()
    for layer, channel in ((one, mine), (two, yours)):
        await layer.group_add("g", channel)
        await layer.send(channel, HELLO)
    await two.group_add("g", "work")
    await asyncio.to_thread(old.flush)
    await old_send(old, "g")
    assert await one.group_channels("g") == []
    for layer, channel in ((one, mine), (two, yours)):
        await layer.send(channel, {"type": "after"})
        assert await layer.receive(channel) == {"type": "after"}
    assert await asyncio.to_thread(old.receive, ["work"]) == (None, None)


async def old_send(layer: AsgiChannelLayer, group: str) -> None:
    await asyncio.to_thread(layer.send_group, group, HELLO)


def test_who_is_in_a_group(make_sync: MakeSync) -> None:
    one, two = make_sync(), make_sync()
    for layer, channel in ((one, "normal"), (two, "foo!bar"), (one, "left"), (two, "left"), (two, "body?x")):
        layer.group_add("g", channel)
    two.group_add("h", "other")
    one.group_discard("g", "left")
    assert two.group_channels("g") == ["body?x", "foo!bar", "normal"]
    two.group_add("g", "left")
    assert one.group_channels("g") == ["body?x", "foo!bar", "left", "normal"]


async def test_statistics_over_all_processes(make: Make, make_sync: MakeSync) -> None:
    old, new = make_sync(capacity=3), make(capacity=3)
    assert set(await asyncio.to_thread(old.global_statistics)) == {
        "messages_count", "messages_count_per_second", "messages_pending", "messages_max_age", "channel_full_count",
        "channel_full_count_per_second",
    }  # fmt: skip
    local = await new.new_channel()
    await new.send(local, HELLO)
    for layer_send in (new.send, lambda channel, message: asyncio.to_thread(old.send, channel, message)):
        await layer_send("work", HELLO)
    await new.send("work", HELLO)
    with pytest.raises(ChannelFull):
        await asyncio.to_thread(old.send, "work", HELLO)
    await asyncio.to_thread(old.send_group, "nobody", HELLO)

    counts = await asyncio.to_thread(old.global_statistics)
    assert (counts["messages_count"], counts["channel_full_count"], counts["messages_pending"]) == (6, 1, 4)
    assert counts["messages_count_per_second"] > 0
    assert 0 < counts["messages_max_age"] < 60
    counts = await asyncio.to_thread(old.channel_statistics, "work")
    assert (counts["messages_count"], counts["channel_full_count"], counts["messages_pending"]) == (4, 1, 3)
    counts = await asyncio.to_thread(old.channel_statistics, local)
    assert (counts["messages_count"], counts["messages_pending"]) == (1, 1)
    counts = await asyncio.to_thread(old.channel_statistics, "nobody")
    assert set(counts.values()) == {0}
    assert await new.receive("work") == HELLO  # looking at it has taken nothing


def test_the_first_name_of_receive(make_sync: MakeSync) -> None:
    layer = make_sync()
    layer.send("work", HELLO)
    with pytest.warns(DeprecationWarning, match="use receive"):
        assert layer.receive_many(["work"]) == ("work", HELLO)


async def test_receive_as_a_coroutine(make_sync: MakeSync) -> None:
    layer = make_sync(block_seconds=0.2)
    assert await layer.receive_async([]) == (None, None)
    assert await layer.receive_async({"a": 1, "foo!": 2}.keys()) == (None, None)
    with pytest.raises(TypeError, match="up to its !"):
        await layer.receive_async(["foo!bar"])
    layer.block_seconds = 20
    for number in range(20):  # cancelled at any moment it has taken nothing
        waiting = asyncio.create_task(layer.receive_async(["a", "foo!"]))
        await asyncio.sleep(0)
        await asyncio.to_thread(layer.send, "foo!bar", {"n": number})
        await asyncio.sleep(0.0005 * (number % 5))
        waiting.cancel()
        (result,) = await asyncio.gather(waiting, return_exceptions=True)
        if isinstance(result, BaseException):
            result = await asyncio.wait_for(layer.receive_async(["a", "foo!"]), 60)
        assert result == ("foo!bar", {"n": number})


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


ALONE = """
import sys
for name in ("channels", "django", "asgiref", "twisted"):
    sys.modules[name] = None  # as if it were not installed
import harebell.channels
layer = harebell.channels.AsgiChannelLayer(sys.argv[1], prefix=sys.argv[2])
layer.send("x", {"n": 1})
assert layer.receive(["x"], block=True) == ("x", {"n": 1})
layer.close()
try:
    harebell.channels.ChannelLayer
except ImportError as error:
    print(error)
"""


def test_without_channels_and_django(harebell_url: str) -> None:
    command = [sys.executable, "-c", ALONE, harebell_url, f"alone{os.getpid()}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "pip install 'harebell[channels]'" in done.stdout
