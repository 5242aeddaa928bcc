"""Sums of the messages whose routing depends on exchange and key alone: a batch of keys is routed at once, and added
up.

Rules: those of `counting`. Nothing is remembered from batch to batch: finding the routes of a batch of keys
(`batch_walk`) costs little more than finding them again in a memory of routes, and any number of distinct keys fits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from harebell.spark.jobs.simulate.batch_walk import Reached, Walker
from harebell.spark.jobs.simulate.patterns import TooMany, expanded
from harebell.spark.jobs.simulate.totals import Numbers, Pile, added, encoded, result_rows, slices

__all__ = ["KeySums"]

BATCH_KEYS: Final = 32_768  # of distinct keys: what a step of them takes fits the processor's cache


class KeySums:
    """The sums of one task, for one or two topologies; their walkers number queues alike, by `queues`."""

    def __init__(self, walkers: Sequence[Walker], queues: Sequence[str]) -> None:
        self._walkers = walkers
        self._queues = pa.array(queues, pa.string())
        self._by_exchange = Pile("exchange", "at")
        self._by_queue = [Pile("queue", "at") for _ in walkers]
        self._by_binding = [Pile("binding") for _ in walkers]
        self._by_key: dict[tuple[str, int], Pile] = {}  # (kind of RESULT, side)

    def takes(self, exchange: str) -> bool:
        """True when keys alone decide what becomes of the messages of this exchange, in every topology."""
        return all(walker.takes(exchange) for walker in self._walkers)

    def add(self, exchange: str, messages: pa.Table) -> None:
        """Add messages of one exchange: routing_key, at, messages and bytes."""
        keys, key_of = encoded(messages.column("routing_key"))
        times, time_of = encoded(messages.column("at"))
        numbers = [messages.column(name).to_numpy() for name in ("messages", "bytes")]
        cells, *sums = added(key_of * len(times) + time_of, len(keys) * len(times), *numbers)
        cell_key = cells // len(times)
        cell_time = cells - cell_key * len(times)
        traffic = _Traffic(keys, times, cell_key, cell_time, *sums)
        of_time, *by_time = added(cell_time, len(times), *sums)
        whole = _table(at=times.take(pa.array(of_time)), sums=by_time)
        self._by_exchange.add(whole.append_column("exchange", pa.repeat(pa.scalar(exchange), whole.num_rows)))
        for start in range(0, len(keys), BATCH_KEYS):
            self._walk(exchange, traffic, start, min(start + BATCH_KEYS, len(keys)))

    def _walk(self, exchange: str, traffic: _Traffic, start: int, stop: int) -> None:
        """Route the keys from `start` to `stop` and add up what they reach; in parts when that is too much at once."""
        keys = traffic.keys.slice(start, stop - start)
        try:
            reached = [walker.walk(exchange, keys) for walker in self._walkers]
        except TooMany:
            middle = (start + stop) // 2
            self._walk(exchange, traffic, start, middle)
            self._walk(exchange, traffic, middle, stop)
            return
        count = len(keys)
        arriving = [np.bincount(side.queue_keys, minlength=count) > 0 for side in reached]
        for number, side in enumerate(reached):
            places, *sums = added(
                side.bindings, self._walkers[number].size, *(each[side.binding_keys + start] for each in traffic.by_key)
            )
            self._by_binding[number].add(_table(binding=pa.array(places), sums=sums))
            self._add_copies(number, side.queue_keys + start, side.queues, traffic)
            self._add_keys("unroutable", number, exchange, traffic, start + np.flatnonzero(~arriving[number]))
        if len(reached) == 2:
            differ = _different(reached[0], reached[1], len(self._queues))
            before, after = (there[differ] for there in arriving)
            for kind, chosen in (("lost", ~after), ("gained", ~before), ("moved", before & after)):
                self._add_keys(kind, 1, exchange, traffic, start + differ[chosen])

    def _add_copies(self, side: int, keys: Numbers, queues: Numbers, traffic: _Traffic) -> None:
        """Every key's cells, once for each queue that the key reaches."""
        times = len(traffic.times)
        counts = traffic.first[keys + 1] - traffic.first[keys]
        for some in slices(counts):
            pairs, cells = expanded(traffic.first[keys[some]], counts[some])
            codes = queues[some][pairs] * times + traffic.cell_time[cells]
            places, *sums = added(codes, len(self._queues) * times, traffic.messages[cells], traffic.bytes[cells])
            at = traffic.times.take(pa.array(places % times))
            self._by_queue[side].add(_table(queue=pa.array(places // times), at=at, sums=sums))

    def _add_keys(self, kind: str, side: int, exchange: str, traffic: _Traffic, places: Numbers) -> None:
        if not len(places):
            return
        pile = self._by_key.setdefault((kind, side), Pile("exchange", "routing_key"))
        keys = traffic.keys.take(pa.array(places))
        named = pa.repeat(pa.scalar(exchange), len(places))
        pile.add(_table(exchange=named, routing_key=keys, sums=[each[places] for each in traffic.by_key]))

    def results(self) -> Iterator[pa.RecordBatch]:
        """The sums as RESULT has them."""
        if (exchanges := self._by_exchange.whole()) is not None:
            yield from result_rows("exchange", 0, exchanges, name="exchange", at="at")
        for side in range(len(self._walkers)):
            if (queues := self._by_queue[side].whole()) is not None:
                named = self._queues.take(queues.column("queue").combine_chunks())
                yield from result_rows("queue", side, queues.append_column("name", named), name="name", at="at")
            if (bindings := self._by_binding[side].whole()) is not None:
                yield from result_rows("binding", side, bindings, name="binding")
        for (kind, side), pile in self._by_key.items():
            if (keys := pile.whole()) is not None:
                yield from result_rows(kind, side, keys, "exchange", "routing_key")


class _Traffic:
    """Messages of one exchange, added up to cells: one key in one window of time, sorted by key."""

    __slots__ = ("by_key", "bytes", "cell_time", "first", "keys", "messages", "times")

    def __init__(
        self, keys: pa.Array, times: pa.Array, cell_key: Numbers, cell_time: Numbers, messages: Numbers, bytes: Numbers
    ) -> None:
        self.keys = keys
        self.times = times
        self.cell_time = cell_time
        self.messages = messages
        self.bytes = bytes
        self.first = np.searchsorted(cell_key, np.arange(len(keys) + 1))  # where each key's cells begin
        self.by_key = added(cell_key, len(keys), messages, bytes)[1:]


def _table(sums: Sequence[Numbers], **columns: pa.Array) -> pa.Table:
    messages, size = sums
    return pa.table({**columns, "messages": pa.array(messages), "bytes": pa.array(size)})


def _different(one: Reached, other: Reached, queues: int) -> Numbers:
    """The keys that reach other queues on one side than on the other."""
    before, after = (side.queue_keys * queues + side.queues for side in (one, other))
    return np.unique(np.setxor1d(before, after, assume_unique=True) // max(1, queues))
