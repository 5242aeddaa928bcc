"""Listeners and sockets: the only part of the broker that knows asyncio."""

from warren.broker.net.server import Broker

__all__ = ["Broker"]
