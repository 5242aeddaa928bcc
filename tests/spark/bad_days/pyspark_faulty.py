"""Where Spark looks for format("faulty_amqp")."""

from faults import FaultyAmqp as DefaultSource

__all__ = ["DefaultSource"]
