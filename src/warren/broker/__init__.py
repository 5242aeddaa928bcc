"""The broker: vhosts, exchanges, queues, consumers, and the store, in one process."""

from warren.broker.net import Broker

__all__ = ["Broker"]
