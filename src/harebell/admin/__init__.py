"""The HTTP API in the shapes of RabbitMQ's management plug-in, and metrics.

`Management(broker)` serves it. It knows the broker's node and operations, and nothing of AMQP's sockets. It needs the
extra `admin`.
"""

import harebell.logs  # noqa: F401  log records are one line each
from harebell.admin.management import Management

__all__ = ["Management"]
