"""Routes traffic through a topology: the messages of each queue and binding, and the unroutable ones.

    with open("definitions.json", "rb") as file:
        topology = topology_of(file.read())
    result = simulate(spark.read.parquet("archive"), topology, window=60)
    for queue in result.queues: ...

Rules:

- Messages are routed by `harebell.routing`, the code of the broker itself: alternate exchanges, exchanges bound to
  exchanges, headers, CC and BCC, hashes; where keys alone decide, by arrays of keys over the same bindings and the same
  trie of patterns. The sums are exact; `harebell.spark.jobs.simulate.counting` has the one exception.
- Where the first messages say that many are equal in what routing looks at, Spark adds them up, and Python sees each
  once. Others, and what is counted already (a column `messages`), go to Python as they are.
- Time is the messages' own `timestamp`. Messages without one count, but in no window.

Traffic is any DataFrame with a routing_key; `traffic` lists the other columns that are used.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from harebell.errors import InvalidArgument
from harebell.routing.definitions import parse_definitions
from harebell.routing.router import Router
from harebell.routing.topology import Topology, exchange_types, topology
from harebell.routing.trace import Tracer
from harebell.spark.jobs.natural_order import natural

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame as DataFrame

__all__ = ["BindingLoad", "KeyLoad", "QueueLoad", "Simulation", "simulate", "span", "sums", "topology_of", "traffic"]

MAX_WINDOWS: Final = 100_000  # more than a report can show; a year has 105,000 of five minutes
TOP: Final = 20
SAMPLE: Final = 10_000
SEED: Final = 7  # of what x-random picks: the same traffic gives the same result


@dataclass(frozen=True, slots=True)
class KeyLoad:
    """Messages of one exchange and routing key."""

    exchange: str
    routing_key: str
    messages: int
    bytes: int


@dataclass(frozen=True, slots=True)
class QueueLoad:
    """What one queue gets. `arrivals` are its messages in each window."""

    name: str
    queue_type: str
    messages: int
    bytes: int
    arrivals: tuple[int, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class BindingLoad:
    """How many messages a binding took on."""

    source: str
    destination_type: str
    destination: str
    binding_key: str
    arguments: Mapping[str, object]
    messages: int


@dataclass(frozen=True, slots=True)
class Simulation:
    """The result of a simulation. Windows are `window` seconds long, the first begins at `start` (seconds since 1970;
    None when no message has a time), `published` is what was published in each.

    `messages` are all that were published, `undated` those in no window, `refused` those that the broker would not
    take, by reason; `unroutable` reach no queue; `copies` are what the queues get together. `queues` and `bindings`
    have the busiest first, those that get nothing too; `unroutable_keys` are the heaviest of `unroutable_key_count`.
    """

    vhost: str
    window: float
    start: float | None
    messages: int
    bytes: int
    undated: int
    published: tuple[int, ...]
    copies: int
    copied_bytes: int
    unroutable: int
    refused: Mapping[str, int]
    exchanges: Mapping[str, int]
    queues: tuple[QueueLoad, ...]
    bindings: tuple[BindingLoad, ...]
    unroutable_keys: tuple[KeyLoad, ...]
    unroutable_key_count: int
    remarks: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        """How long the windows are together."""
        return self.window * len(self.published)

    @property
    def fan_out(self) -> float:
        """Copies for each message published."""
        return self.copies / self.messages if self.messages else 0.0

    @property
    def unroutable_share(self) -> float:
        return self.unroutable / self.messages if self.messages else 0.0

    @property
    def idle_bindings(self) -> tuple[BindingLoad, ...]:
        """Bindings that no message matched."""
        return tuple(binding for binding in self.bindings if not binding.messages)


def topology_of(text: str | bytes, vhost: str | None = None) -> Topology:
    """A definitions file's virtual host, to simulate with: x-random picks alike in every run.

    Raises InvalidArgument as `parse_definitions` and `topology` do.
    """
    types = exchange_types(random.Random(SEED).randrange)
    return topology(parse_definitions(text, vhost=vhost), vhost, types=types)


def traffic(
    frame: DataFrame, routers: Sequence[Router], *, exchange: str | None = None, window: float = 60.0
) -> DataFrame:
    """The rows that counting takes, from messages: routing_key, and as far as they are there: exchange, headers (JSON
    text, or a map), timestamp, body or bytes, messages (how many a row stands for; then bytes are theirs together).

    `exchange` is for rows without one. Raises InvalidArgument when a column is missing that these routers look at.
    """
    from pyspark.sql import functions as F

    from harebell.spark.jobs.simulate.counting import needed

    wanted = needed(routers)
    there = dict(frame.dtypes)
    missing = [name for name in ("routing_key", *wanted) if name not in there]
    if "exchange" not in there and exchange is None:
        missing.append("exchange (or name one for all messages)")
    if missing:
        raise InvalidArgument(f"the messages have no column {', '.join(missing)}, which routing looks at")
    if window <= 0:
        raise InvalidArgument(f"a window is longer than 0 s, not {window:g} s")
    named = F.col("exchange") if "exchange" in there else F.lit(None).cast("string")
    seconds = F.col("timestamp").cast("double") if "timestamp" in there else F.lit(None).cast("double")
    columns = {
        "exchange": F.coalesce(named, F.lit(exchange or "")),
        "routing_key": F.coalesce(F.col("routing_key"), F.lit("")),
        "at": F.floor(seconds / F.lit(float(window))).cast("bigint"),
        "messages": F.col("messages").cast("bigint") if "messages" in there else F.lit(1).cast("bigint"),
        "bytes": F.coalesce(_bytes(there), F.lit(0)).cast("bigint"),
    }
    if "headers" in there:
        text = F.col("headers") if there["headers"] == "string" else F.to_json(F.col("headers"))
        copies = text.contains('CC"')  # of CC and of BCC
        columns["headers"] = text if "headers" in wanted else F.when(copies, text)
    for name in wanted:
        if name not in columns:
            kind = "string" if name != "timestamp" else "bigint"
            columns[name] = F.col(name).cast(kind)
    return frame.select(*(column.alias(name) for name, column in columns.items()))


def span(frame: DataFrame) -> float | None:
    """Seconds from the first to the last timestamp of the messages; None when they have none."""
    if "timestamp" not in frame.columns:
        return None
    seconds = "max(cast(timestamp AS double)) - min(cast(timestamp AS double)) AS seconds"
    (row,) = frame.selectExpr(seconds).collect()
    found: float | None = row["seconds"]
    return found


def _bytes(there: Mapping[str, str]) -> Column:
    from pyspark.sql import functions as F

    if "bytes" in there:
        return F.col("bytes")
    return F.octet_length(F.col("body")) if "body" in there else F.lit(0)


def sums(
    frame: DataFrame,
    topologies: Sequence[Topology],
    *,
    exchange: str | None = None,
    window: float = 60.0,
    top: int = TOP,
) -> list[dict[str, Any]]:
    """The traffic's sums, as `totals.RESULT` has them, added up over all tasks. One topology or two. Of keys the `top`
    heaviest of each kind and side, with `keys` and `all`: how many keys there were, and messages of them together."""
    from harebell.spark.jobs.simulate.counting import Counting
    from harebell.spark.jobs.simulate.merging import MERGED_DDL, PACKED_DDL, Merging, Packing, heaviest

    routers = [each.router for each in topologies]
    rows = traffic(frame, routers, exchange=exchange, window=window)
    facts = tuple(name for name in rows.columns if name not in ("at", "messages", "bytes"))
    if "messages" not in frame.columns and _alike(rows, [*facts, "at"]):
        rows = _added_up(rows, [*facts, "at"])
    columns = (*facts, "at", "messages", "bytes")
    counting = Counting(_name(routers, facts), routers, facts)
    packed = rows.select(*columns).mapInArrow(Packing(counting), PACKED_DDL)
    parts = packed.repartition("part").sortWithinPartitions("part")
    return heaviest(parts.mapInArrow(Merging(top), MERGED_DDL).collect(), top)


def _alike(rows: DataFrame, by: list[str]) -> bool:
    """True when a look at the first messages says that many are equal: then Spark's sums cost less than handing each
    message to Python, and else more."""
    from harebell.spark.jobs.simulate.totals import grouped

    first = rows.select(*by).limit(SAMPLE).toArrow()
    _, distinct = grouped(first, by)
    return 2 * len(distinct) <= len(first)


def _name(routers: Sequence[Router], facts: tuple[str, ...]) -> str:
    """A name that is the same for the same work, so that workers reuse the routes of an earlier job."""
    return hashlib.blake2b(pickle.dumps((routers, facts)), digest_size=16).hexdigest()


def _added_up(rows: DataFrame, by: list[str]) -> DataFrame:
    from pyspark.sql import functions as F

    return rows.groupBy(*by).agg(F.sum("messages").alias("messages"), F.sum("bytes").alias("bytes"))


def simulate(
    frame: DataFrame,
    topology: Topology,
    *,
    exchange: str | None = None,
    window: float = 60.0,
    duration: float | None = None,
    top: int = TOP,
) -> Simulation:
    """Route the messages of `frame` (see `traffic`) through the topology.

    `window` is in seconds; `duration`, too, is how long the traffic took when its messages have no timestamp: then it
    is one window. `top` keys are listed of those that reach no queue. Raises InvalidArgument for messages that lack a
    column, and when there are too many windows.
    """
    rows = sums(frame, [topology], exchange=exchange, window=window, top=top)
    return simulation_from(rows, topology, window=window, duration=duration)


def simulation_from(
    rows: Sequence[Any], topology: Topology, *, window: float, duration: float | None = None, side: int = 0
) -> Simulation:
    """The simulation that collected sums describe, of the topology of that side."""
    by_kind: dict[str, list[Any]] = {}
    for row in rows:
        if row["side"] == side or row["kind"] == "exchange":
            by_kind.setdefault(row["kind"], []).append(row)
    published = by_kind.get("exchange", [])
    undated = sum(row["messages"] for row in published if row["at"] is None)
    dated = [row["at"] for row in published if row["at"] is not None]
    if dated:
        first, count = min(dated), max(dated) - min(dated) + 1
        if count > MAX_WINDOWS:
            raise InvalidArgument(f"{count:,} windows of {window:g} s are too many to be told; ask for longer ones")
    elif duration is not None:
        if duration <= 0:
            raise InvalidArgument(f"a duration is longer than 0 s, not {duration:g} s")
        first, count, window, undated = None, 1, duration, 0
    else:
        first, count = None, 0

    def windows(chosen: Sequence[Any]) -> tuple[int, ...]:
        counts = [0] * count
        for row in chosen:
            if first is None and count:
                counts[0] += row["messages"]
            elif row["at"] is not None:
                counts[row["at"] - (first or 0)] += row["messages"]
        return tuple(counts)

    queues = _queues(by_kind.get("queue", []), topology, windows)
    keys = by_kind.get("unroutable", [])
    exchanges: dict[str, int] = {}
    for row in published:
        exchanges[row["name"]] = exchanges.get(row["name"], 0) + row["messages"]
    return Simulation(
        vhost=topology.vhost,
        window=window,
        start=None if first is None else first * window,
        messages=sum(exchanges.values()),
        bytes=sum(row["bytes"] for row in published),
        undated=undated,
        published=windows(published),
        copies=sum(queue.messages for queue in queues),
        copied_bytes=sum(queue.bytes for queue in queues),
        unroutable=keys[0]["all"] if keys else 0,
        refused={row["name"]: row["messages"] for row in by_kind.get("refused", [])},
        exchanges=dict(sorted(exchanges.items(), key=lambda each: (-each[1], natural(each[0])))),
        queues=queues,
        bindings=_bindings(by_kind.get("binding", []), topology),
        unroutable_keys=key_loads(keys),
        unroutable_key_count=keys[0]["keys"] if keys else 0,
        remarks=topology.remarks,
    )


def key_loads(rows: Sequence[Any]) -> tuple[KeyLoad, ...]:
    """Rows about keys as records, the heaviest first."""
    loads = [KeyLoad(row["name"], row["key"], row["messages"], row["bytes"]) for row in rows]
    return tuple(sorted(loads, key=lambda load: (-load.messages, natural(load.exchange), natural(load.routing_key))))


def _queues(rows: Sequence[Any], topology: Topology, windows: Any) -> tuple[QueueLoad, ...]:
    by_queue: dict[str, list[Any]] = {name: [] for name in topology.queues}
    for row in rows:
        by_queue[row["name"]].append(row)
    loads = [
        QueueLoad(
            name,
            topology.queues[name].settings.queue_type,
            sum(row["messages"] for row in its),
            sum(row["bytes"] for row in its),
            windows(its),
        )
        for name, its in by_queue.items()
    ]
    return tuple(sorted(loads, key=lambda load: (-load.messages, natural(load.name))))


def _bindings(rows: Sequence[Any], topology: Topology) -> tuple[BindingLoad, ...]:
    hits = {int(row["name"]): row["messages"] for row in rows}
    loads = [
        BindingLoad(binding.source, *binding.destination, binding.binding_key, binding.arguments, hits.get(number, 0))
        for number, binding in enumerate(Tracer(topology.router).bindings)
    ]
    return tuple(
        sorted(loads, key=lambda load: (-load.messages, natural(load.source), natural(load.destination),
                                        natural(load.binding_key),
                                        json.dumps(load.arguments, sort_keys=True, default=str)))
    )  # fmt: skip
