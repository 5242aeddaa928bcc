"""Listeners and sockets: the only part of the broker that knows asyncio."""

from warren.broker.net.server import Broker
from warren.broker.net.tls import Tls

__all__ = ["Broker", "Tls"]
