"""Counts where messages go: Arrow batches of messages in, sums per queue, binding and key out. No Spark in it.

Rules:

- A row stands for `messages` messages with `bytes` bytes together that share exchange, key, and whatever else routing
  looks at; `at` is the number of its window of time, null when it has none.
- Messages of exchanges from which keys alone decide the route are routed by the batch (`key_routing`, `batch_walk`,
  `patterns`). Others (headers, hashes, chance, a delay, copies by CC and BCC, an exchange that is not there) are routed
  one by one, every distinct one once a worker: rows are summed by what decides their route first, and routes are
  remembered.
- The sums are exact. Where chance decides (x-random), up to DRAWS messages of a row are routed one by one, each for its
  share of the row.
- With two topologies, every message is routed through both, and keys whose route differs are listed.
- What a broker would refuse to take (no such exchange, an internal one, a CC header that is no array) is counted as
  refused, with the reason.

The results are a table of sums (`totals.RESULT`); the caller adds up the sums of several workers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from harebell.errors import AccessRefused, NotFound, PreconditionFailed
from harebell.routing.copies import cc_bcc
from harebell.routing.exchanges.exchange import Dependence
from harebell.routing.exchanges.hashing import HASH_PROPERTIES
from harebell.routing.router import Router
from harebell.routing.table_values import Table
from harebell.routing.trace import Trace, Tracer
from harebell.spark.jobs.simulate.batch_walk import Walker
from harebell.spark.jobs.simulate.key_routing import KeySums
from harebell.spark.jobs.simulate.totals import RESULT, encoded, result_rows, slices, summed
from harebell.spark.runtime.garbage_collector import no_collection

__all__ = ["DRAWS", "RESULT", "Counting", "needed"]

BUFFER_ROWS: Final = 500_000  # summed at once: the more, the fewer keys come again in another buffer
BUFFER_BYTES: Final = 64 * 2**20  # or so many bytes of columns
REMEMBERED: Final = 500_000  # routes a worker remembers, some 100 MB at most
DRAWS: Final = 1_000  # routes tried for one row where chance decides

_CHANCE: Final = -1
_ABSENT: Table = {}


class _Route:
    """The queues and bindings of one message on each side; `refused` is why the broker would refuse it, or None."""

    __slots__ = ("refused", "traces")

    def __init__(self, traces: tuple[Trace | None, ...], refused: tuple[str | None, ...]) -> None:
        self.traces = traces
        self.refused = refused


class _Worker:
    """What a worker process reuses from task to task: tracers with their automata, and the routes that it found."""

    def __init__(self, routers: Sequence[Router], columns: tuple[str, ...]) -> None:
        self.tracers = [Tracer(router) for router in routers]
        self.columns = columns
        self.known: dict[tuple[Any, ...], int] = {}
        self.routes: list[_Route] = []
        self._numbers: dict[tuple[Any, ...], int] = {}
        self.queues: dict[str, int] = {}
        self.walkers = [Walker(tracer, self.queues) for tracer in self.tracers]
        self._headers = columns.index("headers") if "headers" in columns else None
        self._properties: list[tuple[str, int]] = [
            (name, columns.index(name)) for name in HASH_PROPERTIES if name in columns
        ]

    def route(self, facts: tuple[Any, ...]) -> int:
        """The number of the route of messages with these facts, _CHANCE when it is another one every time."""
        if len(self.known) >= REMEMBERED:
            self.known.clear()
        number, chance = self.routed(facts)
        if chance:
            number = _CHANCE
        self.known[facts] = number
        return number

    def routed(self, facts: tuple[Any, ...]) -> tuple[int, bool]:
        """The number of a route that such a message takes, and whether chance had a say."""
        exchange, key = facts[0], facts[1]
        text = facts[self._headers] if self._headers is not None else None
        headers: Table = _ABSENT
        keys = [key]
        refused: str | None = None
        if text is not None:
            from harebell.spark.headers import headers_from_json

            headers = headers_from_json(text)
            try:
                keys += cc_bcc(headers)
            except PreconditionFailed as error:
                refused = error.detail
        properties: Table = {name: facts[at] for name, at in self._properties}
        traces: list[Trace | None] = []
        reasons: list[str | None] = []
        for tracer in self.tracers:
            trace, reason = None, refused
            if reason is None:
                try:
                    trace = tracer.trace(exchange, keys, headers, properties)
                except (NotFound, AccessRefused) as error:
                    reason = error.detail
            traces.append(trace)
            reasons.append(reason)
        chance = any(trace is not None and trace.chance for trace in traces)
        identity = tuple(
            reason if trace is None else (trace.queues, trace.bindings)
            for trace, reason in zip(traces, reasons, strict=True)
        )
        number = self._numbers.get(identity)
        if number is None:
            number = self._numbers[identity] = len(self.routes)
            self.routes.append(_Route(tuple(traces), tuple(reasons)))
        return number, chance


_workers: dict[str, _Worker] = {}  # the last one of this process alone: another job's would never be asked for again


class Counting:
    """One job's counting, sent to every worker: called with a task's batches, it gives the task's sums.

    `routers` are one or two; `columns` the facts that decide a route, exchange and routing_key first, and then any of
    headers (JSON text), message_id, correlation_id and timestamp (seconds). `name` tells jobs apart.
    """

    def __init__(self, name: str, routers: Sequence[Router], columns: tuple[str, ...]) -> None:
        self.name = name
        self.routers = tuple(routers)
        self.columns = columns

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        worker = _workers.get(self.name)
        if worker is None:
            _workers.clear()
            worker = _workers[self.name] = _Worker(self.routers, self.columns)
        with no_collection():  # what routing makes stays: looking for garbage among it costs a third of the time
            yield from self._counted(_Sums(worker), batches)

    def _counted(self, sums: _Sums, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        waiting: list[pa.RecordBatch] = []
        rows = size = 0
        for batch in batches:
            waiting.append(batch)
            rows += batch.num_rows
            size += batch.nbytes
            if rows >= BUFFER_ROWS or size >= BUFFER_BYTES:
                sums.add(pa.Table.from_batches(waiting))
                waiting, rows, size = [], 0, 0
        if rows:
            sums.add(pa.Table.from_batches(waiting))
        yield from sums.results()


def needed(routers: Sequence[Router]) -> tuple[str, ...]:
    """The columns beside exchange and routing_key that decide where messages go: headers, and hashed properties.

    Headers always have a say when they name copies (CC, BCC); here they are needed for more than that.
    """
    names: list[str] = []
    for router in routers:
        depends_on = Tracer(router).depends_on
        if Dependence.HEADERS in depends_on:
            names.append("headers")
        if Dependence.PROPERTIES in depends_on:
            bound = (exchange for exchange in router.exchanges if exchange.is_bound)
            names += [name for exchange in bound if (name := _hashed(exchange.arguments)) is not None]
    return tuple(dict.fromkeys(names))


def _hashed(arguments: Mapping[str, object]) -> str | None:
    name = arguments.get("hash-property")
    return name if isinstance(name, str) else None


class _Sums:
    """The sums of one task."""

    def __init__(self, worker: _Worker) -> None:
        self._worker = worker
        self._by_route: list[pa.Table] = []  # route, at -> messages, bytes
        self._by_exchange: list[pa.Table] = []
        self._by_key: list[pa.Table] = []  # exchange, routing_key, route, for routes that are listed by key
        self._listed: dict[int, bool] = {}
        self._keyed = KeySums(worker.walkers, tuple(worker.queues))

    def add(self, rows: pa.Table) -> None:
        """Route these rows, and add them up."""
        names, exchange_of = encoded(rows.column("exchange"))
        keyed = np.array([self._keyed.takes(name) for name in names.to_pylist()], bool)[exchange_of]
        if "headers" in rows.column_names:
            copied = pc.match_substring(rows.column("headers"), 'CC"')  # of CC and of BCC
            keyed &= ~pc.fill_null(copied, False).to_numpy()
        if not keyed.all():
            self._add_others(rows.filter(pa.array(~keyed)))
            rows, exchange_of = rows.filter(pa.array(keyed)), exchange_of[keyed]
        if not rows.num_rows:
            return
        rows = rows.select(["routing_key", "at", "messages", "bytes"])
        used = np.unique(exchange_of)
        if len(used) == 1:
            self._keyed.add(names[int(used[0])].as_py(), rows)
            return
        order = np.argsort(exchange_of, kind="stable")
        rows = rows.take(pa.array(order))
        first = np.searchsorted(exchange_of[order], used)
        for number, start, stop in zip(used.tolist(), first, [*first[1:], rows.num_rows], strict=True):
            self._keyed.add(names[number].as_py(), rows.slice(start, stop - start))

    def _add_others(self, rows: pa.Table) -> None:
        """Route rows one by one, as far as they are not alike."""
        worker = self._worker
        groups = summed(rows, [*worker.columns, "at"])
        known, route = worker.known, worker.route
        facts = zip(*(groups.column(name).to_pylist() for name in worker.columns), strict=True)
        numbers = [number if (number := known.get(fact)) is not None else route(fact) for fact in facts]
        groups = groups.append_column("route", pa.array(numbers, pa.int64()))
        if _CHANCE in numbers:
            groups = self._drawn(groups)
        self._by_exchange.append(summed(groups, ["exchange", "at"]))
        by_route = summed(groups, ["route", "at"])
        self._by_route.append(by_route)
        listed = [number for number in by_route.column("route").unique().to_pylist() if self._is_listed_by_key(number)]
        if listed:
            chosen = groups.filter(pa.array(np.isin(groups.column("route").to_numpy(), listed)))
            self._by_key.append(summed(chosen, ["exchange", "routing_key", "route"]))

    def _is_listed_by_key(self, number: int) -> bool:
        listed = self._listed.get(number)
        if listed is None:
            route = self._worker.routes[number]
            listed = any(trace is not None and not trace.queues for trace in route.traces) or _differs(route)
            self._listed[number] = listed
        return listed

    def _drawn(self, groups: pa.Table) -> pa.Table:
        """The rows whose route chance decides, cut into the routes that so many draws gave."""
        columns = self._worker.columns
        chance = pa.array(np.asarray(groups.column("route")) == _CHANCE)
        made: list[dict[str, Any]] = []
        for row in groups.filter(chance).to_pylist():
            facts = tuple(row[name] for name in columns)
            messages, size = row["messages"], row["bytes"]
            draws = min(messages, DRAWS)
            for draw in range(draws):
                number, _ = self._worker.routed(facts)
                shares = {"messages": _share(messages, draw, draws), "bytes": _share(size, draw, draws)}
                made.append({**row, "route": number, **shares})
        drawn = pa.Table.from_pylist(made, schema=groups.schema)
        return pa.concat_tables([groups.filter(pc.invert(chance)), drawn])

    def results(self) -> Iterator[pa.RecordBatch]:
        """The sums as RESULT has them."""
        yield from self._keyed.results()
        if not self._by_route:
            return
        by_route = summed(pa.concat_tables(self._by_route), ["route", "at"])
        exchanges = summed(pa.concat_tables(self._by_exchange), ["exchange", "at"])
        yield from result_rows("exchange", 0, exchanges, name="exchange", at="at")
        for side in range(len(self._worker.tracers)):
            yield from self._side(side, by_route)
        if self._by_key:
            keys = summed(pa.concat_tables(self._by_key), ["exchange", "routing_key", "route"])
            yield from self._keys(keys)

    def _side(self, side: int, by_route: pa.Table) -> Iterator[pa.RecordBatch]:
        routes = self._worker.routes
        used = by_route.column("route").to_numpy()
        traces = {int(number): routes[number].traces[side] for number in np.unique(used)}
        queues = {number: trace.queues if trace is not None else () for number, trace in traces.items()}
        copies = _spread(by_route, queues, pa.string(), ["item", "at"])
        yield from result_rows("queue", side, copies, name="item", at="at")
        bindings = {number: trace.bindings if trace is not None else () for number, trace in traces.items()}
        whole = summed(by_route, ["route"])
        yield from result_rows("binding", side, _spread(whole, bindings, pa.int64(), ["item"]), name="item")
        reasons = {number: (reason,) for number in traces if (reason := routes[number].refused[side]) is not None}
        yield from result_rows("refused", side, _spread(whole, reasons, pa.string(), ["item"]), name="item")

    def _keys(self, keys: pa.Table) -> Iterator[pa.RecordBatch]:
        routes, used = self._worker.routes, keys.column("route").to_numpy()
        numbers = [int(number) for number in np.unique(used)]
        chosen: list[tuple[str, int, list[int]]] = []
        for side in range(len(self._worker.tracers)):
            without = [n for n in numbers if (trace := routes[n].traces[side]) is not None and not trace.queues]
            chosen.append(("unroutable", side, without))
        if len(self._worker.tracers) == 2:
            changes = ("lost", "gained", "moved")
            chosen += [(kind, 1, [n for n in numbers if _change(routes[n]) == kind]) for kind in changes]
        for kind, side, listed in chosen:
            if listed:
                rows = keys.filter(pa.array(np.isin(used, listed)))
                yield from result_rows(kind, side, summed(rows, ["exchange", "routing_key"]), "exchange", "routing_key")


def _change(route: _Route) -> str | None:
    """What becomes of a message from the first topology to the second."""
    before, after = (frozenset(trace.queues) if trace is not None else frozenset() for trace in route.traces)
    if before == after:
        return None
    return "moved" if before and after else "lost" if before else "gained"


def _differs(route: _Route) -> bool:
    return len(route.traces) == 2 and _change(route) is not None


def _share(whole: int, number: int, of: int) -> int:
    """The part of a whole number that falls to one of so many; all parts together are the whole."""
    return int(whole * (number + 1) // of - whole * number // of)


def _spread(sums: pa.Table, items: Mapping[int, Sequence[Any]], kind: pa.DataType, by: list[str]) -> pa.Table:
    """The sums of routes, each once for every item of the route, added up by item."""
    routes = sums.column("route").to_numpy()
    distinct, place = np.unique(routes, return_inverse=True)
    lists = [items.get(int(number), ()) for number in distinct]
    codes: dict[Any, int] = {}
    flat = np.array([codes.setdefault(item, len(codes)) for each in lists for item in each], np.int64)
    lengths = np.array([len(each) for each in lists], np.int64)
    starts = np.cumsum(lengths) - lengths
    parts = []
    for rows in slices(lengths[place]):
        per_row = lengths[place[rows]]
        repeated = np.repeat(np.arange(rows.start, rows.stop), per_row)
        within = np.arange(len(repeated)) - np.repeat(np.cumsum(per_row) - per_row, per_row)
        taken = flat[np.repeat(starts[place[rows]], per_row) + within]
        part = sums.drop_columns("route").take(pa.array(repeated)).append_column("item", pa.array(taken))
        parts.append(summed(part, by))
    whole = parts[0] if len(parts) == 1 else summed(pa.concat_tables(parts), by)
    names = pa.array(list(codes), kind).take(whole.column("item").combine_chunks())
    return whole.set_column(whole.schema.get_field_index("item"), "item", names)
