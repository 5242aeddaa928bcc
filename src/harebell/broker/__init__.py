"""The broker: vhosts, exchanges, queues, consumers, and the store, in one process."""

from harebell.broker.net import Broker, Tls

__all__ = ["Broker", "Tls"]
