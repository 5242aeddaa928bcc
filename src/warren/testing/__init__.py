"""The public test kit: what a test of AMQP software needs beside the software itself.

`RabbitMQ` runs a real RabbitMQ node of its own, `FaultProxy` breaks a TCP connection on demand.
Nothing here needs a package outside the standard library.
"""

from __future__ import annotations

from warren.testing.proxy import Direction, FaultProxy
from warren.testing.rabbitmq import RabbitMQ

__all__ = ["Direction", "FaultProxy", "RabbitMQ"]
