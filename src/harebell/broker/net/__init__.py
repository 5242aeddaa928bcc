"""Listeners and sockets: the only part of the broker that knows asyncio."""

from harebell.broker.net.server import Broker
from harebell.broker.net.tls import Tls

__all__ = ["Broker", "Tls"]
