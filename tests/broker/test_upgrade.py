"""A data folder that an earlier version wrote is read by this one, and goes on from there.

`store/first_durable` was written by the first version that kept durable queues: a catalog of schema 1, queue logs and
settlements of format 1, a stream, a delayed exchange. `store/before_catalog` is older: see test_catalog_wiring.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from harebell.broker.auth.passwords import verify
from harebell.protocol.v091 import Content, Properties, methods as m
from harebell.routing.definitions import Permission
from tests.broker.kit import Client, NodeKit

FIRST_DURABLE = Path(__file__).parent / "store" / "first_durable"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return shutil.copytree(FIRST_DURABLE, tmp_path / "data")


@pytest.fixture
def kit(data: Path) -> Iterator[NodeKit]:
    kit = NodeKit(data)
    yield kit
    kit.stop()


def taken(client: Client, queue: str) -> list[tuple[str, bool]]:
    """(body, redelivered) of all that is in the queue; they stay unacknowledged."""
    found = []
    while (message := client.get(queue, no_ack=False)) is not None:
        method = message.decode_method()
        assert isinstance(method, m.BasicGetOk)
        found.append((message.body.decode(), method.redelivered))
    return found


def test_what_was_declared_and_set(kit: NodeKit) -> None:
    node = kit.node
    assert node.vhosts["shop"].definition.description == "A shop"
    user = node.users.users["orders"]
    assert user.tags == ("monitoring",)
    assert verify(b"secret", user.password_hash or "", user.hashing_algorithm or "")
    assert node.users.permissions["shop", "orders"] == Permission("shop", "orders", "^$", ".*", "^orders$")
    assert node.vhosts["/"].policies.policies["limit"].definition == {"max-length": 100}
    kinds = {name: queue.type for name, queue in node.vhosts["/"].queues.items()}
    assert kinds == {"plain": "classic", "levels": "classic", "quorum": "quorum", "log": "stream"}


def test_messages(kit: NodeKit) -> None:
    client = kit.client()
    assert taken(client, "plain") == [
        ("plain 1", True), ("plain 2", True), ("plain 3", False), ("plain 4", False), ("plain 5", False),
    ]  # fmt: skip
    assert [body for body, _ in taken(client, "levels")] == ["levels 1", "levels 3", "levels 0", "levels 2"]
    client.call(m.BasicQos(0, 10), m.BasicQosOk)
    client.send(1, m.BasicConsume("log", "c", arguments={"x-stream-offset": "first"}))
    assert [body for *_, body in client.deliveries()] == [b"log 0", b"log 1", b"log 2"]


def test_what_was_held_back(kit: NodeKit) -> None:
    """Until January 2027 in the exchange, from then on in the queue."""
    held = len(kit.node.vhosts["/"].delays["late"])
    came = [body for body, _ in taken(kit.client(), "quorum")]
    assert came == ["quorum 0", "quorum 1", "quorum 2", "held back"][: 4 - held]


def test_it_goes_on_from_there(data: Path) -> None:
    kit = NodeKit(data)
    client = kit.client()
    client.publish("a.c", b"new", "news", delivery_mode=2)
    client.engine.send_content(1, m.BasicPublish("", "log"), Properties(delivery_mode=2), b"log 3")
    message = client.get("plain", no_ack=False)
    assert isinstance(message, Content)
    client.send(1, m.BasicAck(1))
    kit.stop()
    again = NodeKit(data)
    client = again.client()
    assert [body for body, _ in taken(client, "plain")] == ["plain 2", "plain 3", "plain 4", "plain 5", "new"]
    assert client.count("log") == 4
    again.stop()
