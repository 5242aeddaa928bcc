"""A definitions file declared on a broker over AMQP."""

from __future__ import annotations

import pytest

import harebell
from harebell.bridge import declare_topology
from harebell.bridge.topology import durable_queues
from harebell.errors import ChannelError
from harebell.routing.definitions import parse_definitions
from tests.bridge.conftest import Make
from tests.fixtures.rabbitmq import EACH

FILE = {
    "exchanges": [
        {"vhost": "/", "name": "topo.a", "type": "topic", "durable": True, "auto_delete": False, "arguments": {}},
        {"vhost": "/", "name": "topo.b", "type": "fanout", "durable": True, "internal": True, "arguments": {}},
        {"vhost": "/", "name": "amq.direct", "type": "direct"},
        {"vhost": "v", "name": "topo.elsewhere", "type": "direct"},
    ],
    "queues": [
        {"vhost": "/", "name": "topo.q", "durable": True, "arguments": {"x-max-length": 3}},
        {"vhost": "/", "name": "topo.s", "durable": True, "arguments": {}, "type": "stream"},
        {"vhost": "/", "name": "topo.t", "durable": False, "auto_delete": False, "arguments": {}},
        {"vhost": "/", "name": "amq.gen-x", "durable": True},
        {"vhost": "v", "name": "topo.elsewhere", "durable": True},
    ],
    "bindings": [
        {"vhost": "/", "source": "topo.a", "destination": "topo.b", "destination_type": "exchange", "routing_key": "#"},
        {"vhost": "/", "source": "topo.b", "destination": "topo.q", "destination_type": "queue", "routing_key": ""},
        {"vhost": "/", "source": "topo.a", "destination": "amq.gen-x", "destination_type": "queue"},
        {"vhost": "/", "source": "", "destination": "topo.q", "destination_type": "queue", "routing_key": "topo.q"},
    ],
}


def test_durable_queues_of_a_vhost() -> None:
    assert [queue.name for queue in durable_queues(parse_definitions(FILE), "/")] == ["topo.q", "topo.s"]
    assert [queue.name for queue in durable_queues(parse_definitions(FILE), "v")] == ["topo.elsewhere"]


@pytest.mark.parametrize("kind", ["harebell", *EACH])
async def test_declared_twice(kind: str, end: Make) -> None:
    """The second time everything is there, and one queue is not as the file has it."""
    url = (await end(kind)).url
    definitions = parse_definitions(FILE)
    async with harebell.connect(url) as connection, connection.channel() as channel:
        remarks = await declare_topology(connection, definitions, "/")
        assert len(remarks) == 1
        assert remarks[0].startswith("binding from 'topo.a' to 'amq.gen-x' left out: no queue 'amq.gen-x'")
        await channel.publish(b"1", "topo.a", "any.key")
        while (delivery := await channel.get("topo.q", no_ack=True)) is None:
            pass
        assert delivery.body == b"1"
        with pytest.raises(ChannelError):
            async with connection.channel() as other:
                await other.queue_declare("topo.elsewhere", passive=True)
        await channel.queue_delete("topo.t")
        await channel.queue_declare("topo.t", durable=True)
        remarks = await declare_topology(connection, definitions, "/")
        assert [remark.split(":")[0] for remark in remarks] == [
            "queue 'topo.t' stays as it is",
            "binding from 'topo.a' to 'amq.gen-x' left out",
        ]
        for queue in ("topo.q", "topo.s", "topo.t"):
            await channel.queue_delete(queue)
        for exchange in ("topo.a", "topo.b"):
            await channel.exchange_delete(exchange)
