"""Leases: more time than the consumer timeout, for single deliveries of a consumer.

The request is a message to the service `amq.lease` of the system exchange, published on the channel that has the
delivery, so that any client of AMQP 0-9-1 can make it. Its headers are the arguments of basic.ack and a time:

    delivery_tag  of the delivery
    multiple      true: of all deliveries up to that one; with the tag 0, of all there are
    timeout       milliseconds from now, at most a day

Until then the consumer timeout does not apply to these deliveries, and afterwards they are returned as after that
timeout. Each request replaces the one before. A delivery that is not outstanding closes the channel with 406, as for
basic.ack.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from harebell.errors import PreconditionFailed
from harebell.protocol.v091 import Table
from harebell.routing.table_values import type_name

__all__ = ["MAX_LEASE", "LeaseRequest", "Leases", "lease_request"]

MAX_LEASE: Final = 86_400_000  # milliseconds: a consumer that needs more asks again, which shows that it is alive


class LeaseRequest(NamedTuple):
    delivery_tag: int
    multiple: bool
    timeout: int


def lease_request(headers: Table) -> LeaseRequest:
    """The lease that the headers ask for. PreconditionFailed for malformed ones."""
    multiple = headers.get("multiple", False)
    if not isinstance(multiple, bool):
        raise PreconditionFailed(f"amq.lease: header 'multiple' has to be a boolean, not {type_name(multiple)}")
    tag = _integer(headers, "delivery_tag", 0)
    return LeaseRequest(tag, multiple, _integer(headers, "timeout", 1, MAX_LEASE))


def _integer(headers: Table, name: str, least: int, most: int | None = None) -> int:
    value = headers.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or value < least or (most is not None and value > most):
        raise PreconditionFailed(
            f"amq.lease: header '{name}' has to be an integer from {least}" + (f" to {most}" if most else "")
        )
    return value


class Leases:
    """The leases of one channel: delivery tag -> the end of its lease, and its length."""

    def __init__(self) -> None:
        self._ends: dict[int, tuple[int, int]] = {}

    def __contains__(self, tag: int) -> bool:
        return tag in self._ends

    def grant(self, tag: int, now: int, timeout: int) -> None:
        self._ends[tag] = now + timeout, timeout

    def overdue(self, now: int, outstanding: Mapping[int, object]) -> dict[int, int]:
        """The deliveries whose lease has ended, with its length; leases of settled deliveries are dropped."""
        if not self._ends:
            return {}
        self._ends = {tag: lease for tag, lease in self._ends.items() if tag in outstanding}
        return {tag: timeout for tag, (end, timeout) in self._ends.items() if end <= now}
