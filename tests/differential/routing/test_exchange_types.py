"""The plugins' exchanges, here and on RabbitMQ: the same declarations and bindings refused with the same text."""

from __future__ import annotations

from collections.abc import Iterator

import pika
import pytest
from pika.exceptions import ChannelClosedByBroker

from harebell.errors import AmqpError
from harebell.routing import Router, to_queue
from harebell.routing.exchanges.exchange_types import EXCHANGE_TYPES, KEEPING_TYPES
from tests.fixtures.rabbitmq import NEWER, Nodes

PLUGINS = ["rabbitmq_consistent_hash_exchange", "rabbitmq_random_exchange", "rabbitmq_recent_history_exchange"]
QUEUE = "kinds-differential"


@pytest.fixture(scope="module")
def connection(version: str, rabbitmq_nodes: Nodes) -> Iterator[pika.BlockingConnection]:
    """To a node with the plugins."""
    with (
        rabbitmq_nodes.fresh(version, plugins=PLUGINS) as server,
        pika.BlockingConnection(pika.URLParameters(server.url)) as connection,
    ):
        yield connection


@pytest.mark.parametrize(
    "kind, arguments",
    [
        ("x-consistent-hash", {}),
        ("x-consistent-hash", {"hash-header": ""}),
        ("x-consistent-hash", {"hash-header": "h"}),
        ("x-consistent-hash", {"hash-property": "message_id"}),
        ("x-consistent-hash", {"hash-property": "correlation_id"}),
        ("x-consistent-hash", {"hash-property": "timestamp"}),
        ("x-consistent-hash", {"hash-property": "zz"}),
        ("x-consistent-hash", {"hash-property": "zz", "hash-header": "h"}),
        ("x-random", {}),
        ("x-recent-history", {}),
        *(("x-recent-history", {"x-recent-history-length": value}) for value in (1, 2**40, 0, -5, "5", "", True, [1])),
    ],
)
def test_declarations_and_bindings(
    connection: pika.BlockingConnection, version: str, kind: str, arguments: dict[str, object]
) -> None:
    router = Router(types=EXCHANGE_TYPES | KEEPING_TYPES)
    router.add_queue(QUEUE)
    ours = ""
    try:
        router.declare_exchange("x", kind, arguments=arguments)
    except AmqpError as error:
        ours = error.reply_text
    assert declared(connection, kind, arguments) == ours
    if ours:
        return
    for key in ("1", "0", "-1", "a", "", "1.5", " 1", "1 ", "+1", "01", "1_0", "１", "-", "+", "1e3", "300"):
        try:
            router.bind("x", to_queue(QUEUE), key)
            ours = ""
        except AmqpError as error:
            ours = error.reply_text
        theirs = bound(connection, key)
        if version == NEWER:
            theirs = theirs.replace('<<"１"/utf8>>', "<<239,188,145>>")  # 3.10 and Harebell write the bytes
        assert theirs == ours


def declared(connection: pika.BlockingConnection, kind: str, arguments: dict[str, object]) -> str:
    channel = connection.channel()
    channel.exchange_delete("x")
    try:
        channel.exchange_declare("x", kind, arguments=arguments)
    except ChannelClosedByBroker as error:
        return str(error.reply_text)
    channel.queue_declare(QUEUE)
    channel.close()
    return ""


def bound(connection: pika.BlockingConnection, key: str) -> str:
    channel = connection.channel()
    try:
        channel.queue_bind(QUEUE, "x", key)
    except ChannelClosedByBroker as error:
        return str(error.reply_text)
    channel.close()
    return ""
