"""The types of headers on the wire, the publisher's and the broker's own, on both brokers."""

from __future__ import annotations

import pytest

from harebell.protocol.v091 import Properties, Table, methods as m
from harebell.protocol.v091.fields import read_table
from harebell.testing.rabbitmq import RabbitMQ
from tests.fixtures.rabbitmq import NEWER
from tests.headers import EVERY_TYPE, raw_table
from tests.wire import Received, Wire

QUEUES = "types", "types dead", "types quorum", "types stream"
OF_NEWER_ONES = "x-last-death-"  # since RabbitMQ 3.13
UNKNOWN = "int64L"  # a type that RabbitMQ refuses
IN_A_STREAM = "bool", "int8", "uint8", "int16", "int32", "int64", "wide", "float", "double", "text", "binary", "time"


def types(value: object) -> object:
    if isinstance(value, dict):
        return {name: types(inner) for name, inner in value.items() if not name.startswith(OF_NEWER_ONES)}
    if isinstance(value, list):
        return [types(inner) for inner in value]
    return type(value)


def rewritten(port: int) -> dict[str, object]:
    """The types of the headers after a dead letter, a redelivery and a journey through a stream."""
    headers, _ = read_table(raw_table({name: raw for name, raw in EVERY_TYPE.items() if name != UNKNOWN}), 0)
    copies: Table = {"CC": ["nowhere"], "BCC": ["elsewhere"]}
    all_types = Properties(headers={**headers, **copies}, expiration="60000")
    some_types = Properties(headers={**{name: headers[name] for name in IN_A_STREAM}, **copies})
    with Wire(port).log_in() as wire:
        wire.channel()

        def declare(queue: str, **arguments: object) -> None:
            table = {name.replace("_", "-"): value for name, value in arguments.items()}
            wire.call(1, m.QueueDelete(queue), m.QueueDeleteOk)
            wire.call(1, m.QueueDeclare(queue, durable=True, arguments=table), m.QueueDeclareOk)

        def first(queue: str) -> Received:
            wire.call(1, m.BasicQos(0, 1), m.BasicQosOk)
            wire.send(
                1, m.BasicConsume(queue, queue, arguments={"x-stream-offset": "first"} if "stream" in queue else {})
            )
            return wire.expect(m.BasicDeliver)

        declare("types", x_dead_letter_exchange="", x_dead_letter_routing_key="types dead", x_message_ttl=1)
        declare("types dead")
        declare("types quorum", x_queue_type="quorum")
        declare("types stream", x_queue_type="stream")
        wire.publish("", "types", b"", all_types)
        wire.publish("", "types quorum", b"", all_types)
        wire.publish("", "types stream", b"", some_types)
        dead = first("types dead")
        once = first("types quorum")
        assert isinstance(once.method, m.BasicDeliver)
        wire.send(1, m.BasicReject(once.method.delivery_tag, True))
        again = wire.expect(m.BasicDeliver)
        streamed = first("types stream")
        found = {"dead": types(dead.headers), "again": types(again.headers), "streamed": types(streamed.headers)}
        for queue in QUEUES:
            wire.call(1, m.QueueDelete(queue), m.QueueDeleteOk)
        return found


@pytest.mark.parametrize("which", ["dead", "again", "streamed"])
def test_types_are_those_of_rabbitmq(harebell_port: int, rabbitmq: RabbitMQ, version: str, which: str) -> None:
    ours, theirs = rewritten(harebell_port)[which], rewritten(rabbitmq.port)[which]
    assert isinstance(ours, dict)
    assert isinstance(theirs, dict)
    if (which, version) == ("streamed", NEWER):
        assert theirs["binary"] is str  # a byte array becomes a string in a stream of RabbitMQ 4
        theirs["binary"] = bytes
    assert {name: ours.get(name) for name in theirs} == theirs
    assert set(ours) - set(theirs) <= {"CC"}  # a stream of RabbitMQ 3.10 drops what is nested
