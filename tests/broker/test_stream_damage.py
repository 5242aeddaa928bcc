"""A stream whose files are damaged: consumers get what is left, each message with its offset, and the log says so."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from harebell.protocol.v091 import Content, FieldValue, Table, methods as m
from tests.broker.kit import Client, NodeKit


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


def fill(client: Client, count: int) -> None:
    arguments: Table = {"x-queue-type": "stream", "x-stream-max-segment-size-bytes": 1000}
    client.call(m.QueueDeclare("q", durable=True, arguments=arguments), m.QueueDeclareOk)
    for number in range(count):
        client.publish("q", b"number %d." % number + b"x" * 100)


def spoil(data: Path, number: int) -> None:
    (file,) = (file for file in data.glob("streams/*/*.log") if b"number %d." % number in file.read_bytes())
    content = file.read_bytes()
    at = content.index(b"number %d." % number)
    with file.open("r+b") as opened:
        opened.seek(at)
        opened.write(b"N")


def read(kit: NodeKit, start: FieldValue) -> list[tuple[int, int]]:
    """(offset, number) of what a consumer that starts there gets."""
    client = kit.client()
    client.call(m.BasicQos(prefetch_count=200), m.BasicQosOk)
    client.send(1, m.BasicConsume("q", "c", arguments={"x-stream-offset": start}))
    contents = [event for _, event in client.events if isinstance(event, Content)]
    client.send(1, m.BasicCancel("c"))
    offsets = [cast("int", (each.decode_properties().headers or {})["x-stream-offset"]) for each in contents]
    return list(zip(offsets, [int(each.body.split(b".")[0][7:]) for each in contents], strict=True))


def pairs(*ranges: range) -> list[tuple[int, int]]:
    return [(number, number) for numbers in ranges for number in numbers]


def test_damage_that_a_start_finds(data: Path, caplog: pytest.LogCaptureFixture) -> None:
    kit = NodeKit(data, sync=False)
    fill(kit.client(), 30)
    kit.stop()
    spoil(data, 11)
    kit = NodeKit(data, sync=False)
    client = kit.client()
    (said,) = (record.getMessage() for record in caplog.records if "damaged" in record.getMessage())
    assert said.startswith("stream 'q' in vhost '/': ")
    assert said.endswith("with at most 1 messages (offsets 11 to before 12)")
    assert client.count() == 30
    assert read(kit, "first") == pairs(range(11), range(12, 30))
    assert read(kit, 11) == pairs(range(12, 30))
    kit.stop()


def test_damage_that_a_consumer_meets(data: Path, caplog: pytest.LogCaptureFixture) -> None:
    kit = NodeKit(data, sync=False)
    client = kit.client()
    fill(client, 30)
    for number in (11, 29):
        spoil(data, number)
    for _ in range(2):
        assert read(kit, "first") == pairs(range(11), range(12, 29))
        assert read(kit, 29) == []
    said = [record.getMessage() for record in caplog.records if "damaged" in record.getMessage()]
    assert [text[-len("(offsets 11 to before 12)") :] for text in said] == [
        "(offsets 11 to before 12)", "(offsets 29 to before 30)",
    ]  # fmt: skip
    client.publish("q", b"number 30.")
    assert read(kit, "first")[-2:] == [(28, 28), (30, 30)]
    kit.stop()
