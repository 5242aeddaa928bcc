"""The public test kit: what a test of AMQP software needs beside the software itself.

`EmbeddedBroker` runs Warren in a thread of the test's own process, `RabbitMQ` a real RabbitMQ node, `FaultProxy` breaks
a TCP connection on demand, `connection.test()` and `channel.test()` give a harness that cuts a connection of the
client's, holds it down and counts. `AmqpCase` puts this together for unittest, `warren.testing.plugin` for pytest.
Nothing here but the plugin needs a package outside the standard library.
"""

from __future__ import annotations

from warren.client.harness import ChannelHarness, ConnectionHarness, ReconnectSignal
from warren.testing.embedded import EmbeddedBroker
from warren.testing.proxy import Direction, FaultProxy
from warren.testing.rabbitmq import RabbitMQ
from warren.testing.suite import AmqpCase, AmqpSuite

__all__ = [
    "AmqpCase",
    "AmqpSuite",
    "ChannelHarness",
    "ConnectionHarness",
    "Direction",
    "EmbeddedBroker",
    "FaultProxy",
    "RabbitMQ",
    "ReconnectSignal",
]
