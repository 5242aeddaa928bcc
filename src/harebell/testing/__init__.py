"""The public test kit for AMQP software: brokers to start, a proxy that breaks connections, fixtures.

`EmbeddedBroker` runs Harebell in a thread of the test's own process, `RabbitMQ` a real RabbitMQ node, `RabbitMQCluster`
several, `FaultProxy` breaks a TCP connection on demand, `connection.test()` and `channel.test()` return a harness that
cuts a connection of the client, blocks its reconnection and counts. `AmqpCase` combines all of this for unittest,
`harebell.testing.plugin` for pytest. Only the plugin needs a package outside the standard library.
"""

from __future__ import annotations

import harebell.logs  # noqa: F401  log records are one line each
from harebell.client.harness import ChannelHarness, ConnectionHarness, ReconnectSignal
from harebell.testing.cluster import RabbitMQCluster
from harebell.testing.embedded import EmbeddedBroker
from harebell.testing.proxy import Direction, FaultProxy
from harebell.testing.rabbitmq import RabbitMQ
from harebell.testing.suite import AmqpCase, AmqpSuite

__all__ = [
    "AmqpCase",
    "AmqpSuite",
    "ChannelHarness",
    "ConnectionHarness",
    "Direction",
    "EmbeddedBroker",
    "FaultProxy",
    "RabbitMQ",
    "RabbitMQCluster",
    "ReconnectSignal",
]
