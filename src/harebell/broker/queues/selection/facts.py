"""What a consumer's selector may ask of a message (`routing.selectors.Facts`): in a queue, and in a stream."""

from __future__ import annotations

import time

from harebell.broker.message import STORED_CHANNEL, Address, Held
from harebell.broker.store.stream_log.records import Record
from harebell.broker.timers import Timers
from harebell.protocol.v091 import Properties
from harebell.protocol.v091.content import stored_content

__all__ = ["HeldFacts", "RecordFacts"]


class HeldFacts:
    """A message in a queue. Its properties are decoded at the first use."""

    __slots__ = ("_held", "_properties", "_timers")

    def __init__(self, held: Held, timers: Timers) -> None:
        self._held = held
        self._timers = timers
        self._properties: Properties | None = None

    @property
    def properties(self) -> Properties:
        if self._properties is None:
            self._properties = self._held.message.content.decode_properties()
        return self._properties

    @property
    def exchange(self) -> str:
        return self._held.message.address.exchange

    @property
    def routing_key(self) -> str:
        return self._held.message.address.routing_key

    @property
    def deliveries(self) -> int:
        return self._held.count

    @property
    def expires(self) -> int:
        deadline = self._held.deadline
        return time.time_ns() // 1_000_000 + deadline - self._timers.now() if deadline else 0


class RecordFacts:
    """A message in a stream: nobody takes it, and it has no deadline of its own."""

    __slots__ = ("_address", "properties")

    deliveries = 0
    expires = 0

    def __init__(self, record: Record) -> None:
        self._address = record.address
        self.properties = stored_content(STORED_CHANNEL, record.frames).decode_properties()

    @property
    def exchange(self) -> str:
        return Address.read(self._address).exchange

    @property
    def routing_key(self) -> str:
        return Address.read(self._address).routing_key
