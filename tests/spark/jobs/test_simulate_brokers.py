"""Simulated counts are the counts of real queues: random topologies and messages, on Harebell and on RabbitMQ."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from harebell.client.blocking import connect
from harebell.client.messages import Message, Publication
from harebell.spark.jobs.simulate.counting import Counting
from harebell.spark.jobs.simulate.simulation import topology_of
from tests.fixtures.profiles import scaled
from tests.routing.topologies import EXCHANGES, QUEUES, definitions, messages
from tests.spark.conftest import Broker

Sent = tuple[str, str, dict[str, Any], str | None]
FACTS = ("exchange", "routing_key", "headers", "message_id")


def simulated(file: dict[str, Any], sent: list[Sent]) -> dict[str, int]:
    rows = [
        {
            "exchange": exchange, "routing_key": key, "headers": json.dumps(headers) if headers else None,
            "message_id": message_id, "at": 0, "messages": 1, "bytes": 1,
        }
        for exchange, key, headers, message_id in sent
    ]  # fmt: skip
    fields = [pa.field(name, pa.string()) for name in FACTS]
    numbers = [pa.field(name, pa.int64()) for name in ("at", "messages", "bytes")]
    table = pa.Table.from_pylist(rows, schema=pa.schema([*fields, *numbers]))
    counts = Counter(dict.fromkeys(QUEUES, 0))
    for batch in Counting(repr((file, sent)), [topology_of(json.dumps(file)).router], FACTS)(table.to_batches()):
        for row in batch.to_pylist():
            assert row["kind"] != "refused"
            if row["kind"] == "queue":
                counts[row["name"]] += row["messages"]
    return dict(counts)


def delivered(url: str, file: dict[str, Any], sent: list[Sent]) -> dict[str, int]:
    """What the queues of a broker have, after these declarations and messages."""
    with connect(url, timeout=30.0) as connection:
        channel = connection.channel()
        channel.confirm_select()
        try:
            for exchange in file["exchanges"]:
                channel.exchange_declare(exchange["name"], exchange["type"], arguments=exchange["arguments"])
            for queue in QUEUES:
                channel.queue_declare(queue)
            for each in file["bindings"]:
                bind = channel.queue_bind if each["destination_type"] == "queue" else channel.exchange_bind
                bind(each["destination"], each["source"], each["routing_key"], arguments=each["arguments"])
            channel.publish_many(
                Publication(Message(b".", headers=headers, message_id=message_id), exchange, key)
                for exchange, key, headers, message_id in sent
            )
            return {queue: channel.queue_declare(queue, passive=True).message_count for queue in QUEUES}
        finally:
            for exchange in EXCHANGES:
                channel.exchange_delete(exchange)
            for queue in QUEUES:
                channel.queue_delete(queue)


@settings(max_examples=scaled(15), derandomize=True)
@given(file=definitions(plain=True), sent=st.lists(messages(plain=True), min_size=5, max_size=25))
def test_the_queues_get_what_was_foretold(broker: Broker, file: dict[str, Any], sent: list[Sent]) -> None:
    assert simulated(file, sent) == delivered(broker.url, file, sent)


@pytest.mark.parametrize("broker", ["harebell_server"], indirect=True)
def test_hashes_fall_as_in_the_broker(broker: Broker) -> None:
    file: dict[str, Any] = {
        "exchanges": [
            {"vhost": "/", "name": name, "type": kind, "arguments": arguments}
            for name, kind, arguments in (
                (EXCHANGES[0], "x-consistent-hash", {}),
                (EXCHANGES[1], "x-consistent-hash", {"hash-property": "message_id"}),
                (EXCHANGES[2], "x-modulus-hash", {}),
                (EXCHANGES[3], "x-consistent-hash", {"hash-header": "h"}),
            )
        ],
        "queues": [{"vhost": "/", "name": name} for name in QUEUES],
        "bindings": [
            {"vhost": "/", "source": source, "destination_type": "queue", "destination": queue,
             "routing_key": str(weight), "arguments": {}}
            for source in EXCHANGES
            for weight, queue in enumerate(QUEUES, 1)
        ],
    }  # fmt: skip
    sent: list[Sent] = [(EXCHANGES[n % 4], f"k{n}", {"h": n % 11}, f"m{n}") for n in range(200)]
    counts = simulated(file, sent)
    assert sum(counts.values()) == 200
    assert counts == delivered(broker.url, file, sent)
