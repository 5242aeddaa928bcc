"""The public test kit: what a test of AMQP software needs beside the software itself.

`RabbitMQ` runs a real RabbitMQ node of its own, `FaultProxy` breaks a TCP connection on demand, `connection.test()` and
`channel.test()` give a harness that cuts a connection of the client's, holds it down and counts.
Nothing here needs a package outside the standard library.
"""

from __future__ import annotations

from warren.client.harness import ChannelHarness, ConnectionHarness, ReconnectSignal
from warren.testing.proxy import Direction, FaultProxy
from warren.testing.rabbitmq import RabbitMQ

__all__ = ["ChannelHarness", "ConnectionHarness", "Direction", "FaultProxy", "RabbitMQ", "ReconnectSignal"]
