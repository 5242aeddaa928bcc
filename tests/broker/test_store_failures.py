"""Confirms of streams wait for the disk; when the disk refuses, nothing is confirmed and everybody is told."""

from __future__ import annotations

import errno
import os

import pytest

from harebell.broker.queues.stream import StreamQueue
from harebell.protocol.v091 import methods as m
from tests.broker.kit import Client, NodeKit
from tests.broker.store.held_syncs import PATIENCE, HeldSyncs

STREAM = {"x-queue-type": "stream"}


def declare(client: Client) -> None:
    client.call(m.QueueDeclare("s", durable=True, arguments=STREAM), m.QueueDeclareOk)
    client.call(m.QueueDeclare("c"), m.QueueDeclareOk)
    client.call(m.ConfirmSelect(), m.ConfirmSelectOk)


def test_a_confirm_waits_for_the_sync(kit: NodeKit, disk: HeldSyncs) -> None:
    client = kit.client()
    declare(client)
    client.publish("s", b"1")
    disk.begun.get(timeout=PATIENCE)
    client.publish("s", b"2")
    client.publish("s", b"3")
    assert client.take(m.BasicAck) == []
    disk.go.put(None)
    kit.run_sync()  # it covers the first: the others came while it ran
    client.receive()
    assert client.take(m.BasicAck) == [m.BasicAck(1)]
    disk.go.put(None)
    kit.run_sync()
    client.receive()
    assert client.take(m.BasicAck) == [m.BasicAck(3, multiple=True)]


def test_a_confirm_of_a_classic_queue_waits_behind_one_of_a_stream(kit: NodeKit, disk: HeldSyncs) -> None:
    client = kit.client()
    declare(client)
    client.publish("c", b"1")
    assert client.take(m.BasicAck) == [m.BasicAck(1)]
    client.publish("s", b"2")
    client.publish("c", b"3")
    assert client.take(m.BasicAck) == []
    disk.go.put(None)
    kit.run_sync()
    client.receive()
    assert client.take(m.BasicAck) == [m.BasicAck(3, multiple=True)]


def test_others_are_confirmed_meanwhile(kit: NodeKit, disk: HeldSyncs) -> None:
    slow, quick = kit.client(), kit.client()
    declare(slow)
    quick.call(m.ConfirmSelect(), m.ConfirmSelectOk)
    slow.publish("s", b"1")
    quick.publish("c", b"2")
    assert (slow.take(m.BasicAck), quick.take(m.BasicAck)) == ([], [m.BasicAck(1)])
    disk.go.put(None)
    kit.run_sync()


def test_readers_get_a_message_when_it_is_synced(kit: NodeKit, disk: HeldSyncs) -> None:
    client = kit.client()
    declare(client)
    client.call(m.BasicQos(0, 10), m.BasicQosOk)
    client.call(m.BasicConsume("s", "c", arguments={"x-stream-offset": "first"}), m.BasicConsumeOk)
    client.publish("s", b"1")
    assert client.deliveries() == []
    disk.go.put(None)
    kit.run_sync()
    client.receive()
    assert client.deliveries() == [(1, False, b"1")]


def test_a_closed_channel_gets_no_confirm(kit: NodeKit, disk: HeldSyncs) -> None:
    client = kit.client()
    declare(client)
    client.publish("s", b"1")
    client.call(m.ChannelClose(200, ""), m.ChannelCloseOk)
    client.open()
    client.events.clear()
    disk.go.put(None)
    kit.run_sync()
    client.receive()
    assert client.events == []


def test_a_deleted_stream_does_not_hold_up_confirms(kit: NodeKit, disk: HeldSyncs) -> None:
    client = kit.client()
    declare(client)
    client.publish("s", b"1")
    disk.go.put(None)
    disk.go.put(None)
    client.call(m.QueueDelete("s"), m.QueueDeleteOk)
    kit.run_sync()
    client.receive()
    assert client.take(m.BasicAck) == [m.BasicAck(1)]


def test_a_sync_that_fails_ends_all_connections(kit: NodeKit, disk: HeldSyncs) -> None:
    client, other = kit.client(), kit.client()
    declare(client)
    client.publish("s", b"1")
    disk.go.put(OSError(errno.EIO, os.strerror(errno.EIO)))
    kit.run_sync()
    kit.node.batch.end()
    for each in (client, other):
        each.receive()
        (close,) = each.take(m.ConnectionClose)
        assert (close.reply_code, "Input/output error" in close.reply_text) == (541, True)
        assert each.take(m.BasicAck) == []


def test_a_write_that_fails_ends_all_connections(kit: NodeKit, monkeypatch: pytest.MonkeyPatch) -> None:
    client = kit.client()
    declare(client)

    def write(fd: int, data: bytes, offset: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", write)
    client.publish("s", b"1")
    monkeypatch.undo()
    (close,) = client.take(m.ConnectionClose)
    assert (close.reply_code, "No space left on device" in close.reply_text) == (541, True)
    assert client.take(m.BasicAck) == []
    assert kit.node.batch.failed is not None


def test_after_a_failure_nobody_comes_in(kit: NodeKit, monkeypatch: pytest.MonkeyPatch) -> None:
    client = kit.client()
    declare(client)
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
    client.publish("s", b"1")
    monkeypatch.undo()
    (close,) = kit.client().take(m.ConnectionClose)
    assert close.reply_code == 541


def test_a_segment_that_cannot_be_rolled_ends_all_connections(kit: NodeKit, monkeypatch: pytest.MonkeyPatch) -> None:
    client = kit.client()
    declare(client)
    (stream,) = (queue for queue in kit.node.vhosts["/"].queues.values() if isinstance(queue, StreamQueue))
    monkeypatch.setattr(stream.log, "segment_bytes", 100)
    monkeypatch.setattr(stream.log, "_roll", lambda: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
    client.publish("s", b"1" * 200)
    client.publish("s", b"2")
    (close,) = client.take(m.ConnectionClose)
    assert close.reply_code == 541
    assert kit.node.batch.failed is not None


def test_a_log_that_cannot_be_read_ends_all_connections(kit: NodeKit, monkeypatch: pytest.MonkeyPatch) -> None:
    client = kit.client()
    declare(client)
    client.publish("s", b"1")
    kit.run_sync()
    client.call(m.BasicQos(0, 10), m.BasicQosOk)
    monkeypatch.setattr(os, "pread", lambda *_: (_ for _ in ()).throw(OSError(errno.EIO, "bad sector")))
    client.send(1, m.BasicConsume("s", "c", arguments={"x-stream-offset": "first"}))
    monkeypatch.undo()
    (close,) = client.take(m.ConnectionClose)
    assert (close.reply_code, "bad sector" in close.reply_text) == (541, True)


def test_a_stream_that_cannot_be_made_is_refused(kit: NodeKit, monkeypatch: pytest.MonkeyPatch) -> None:
    client = kit.client()

    def fsync(fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fsync)
    client.send(1, m.QueueDeclare("s", durable=True, arguments=STREAM))
    monkeypatch.undo()
    (close,) = client.take(m.ConnectionClose)
    assert close.reply_code == 541
