"""Compares two topologies: routes the same messages through both and reports the differences.

    difference = diff(spark.read.parquet("archive"), before, after)
    if difference.lost: ...

Rules: every message is routed through both, in one pass over the traffic. A queue is the same queue when it has the
same name. "Lost" is about whole messages (they reached a queue, and reach none), "fewer" about queues (one gets less
than it did): a message may go on to one queue and miss in another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from harebell.routing.topology import Topology
from harebell.spark.jobs.simulate.simulation import TOP, KeyLoad, Simulation, key_loads, simulation_from, sums

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["KINDS", "Difference", "KeyChange", "QueueChange", "diff"]

KINDS: Final = ("lost", "gained", "moved")


@dataclass(frozen=True, slots=True)
class QueueChange:
    """One queue's messages and bytes before and after. `state`: "appears" or "vanishes" when only one topology has it,
    else "more", "fewer" or "same" by its messages."""

    name: str
    state: str
    before: int
    after: int
    before_bytes: int
    after_bytes: int


@dataclass(frozen=True, slots=True)
class KeyChange:
    """Messages whose route differs: how many, of how many exchanges and keys, and the heaviest of these."""

    messages: int
    key_count: int
    keys: tuple[KeyLoad, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """The differences. `lost`: messages that reached a queue and reach none; `gained`: the reverse; `moved`: they reach
    other queues than before. `queues` has those that differ first."""

    before: Simulation
    after: Simulation
    queues: tuple[QueueChange, ...]
    lost: KeyChange
    gained: KeyChange
    moved: KeyChange

    @property
    def same(self) -> bool:
        """True when every message reaches the same queues, and both topologies have the same queues."""
        nothing = not (self.lost.messages or self.gained.messages or self.moved.messages)
        return nothing and all(change.state == "same" for change in self.queues)

    @property
    def losing(self) -> tuple[QueueChange, ...]:
        """The queues that get fewer messages than before, and missing queues that got some."""
        return tuple(change for change in self.queues if change.after < change.before)


def diff(
    frame: DataFrame,
    before: Topology,
    after: Topology,
    *,
    exchange: str | None = None,
    window: float = 60.0,
    duration: float | None = None,
    top: int = TOP,
) -> Difference:
    """Route the messages of `frame` through both topologies. The arguments are those of `simulate`."""
    rows = sums(frame, [before, after], exchange=exchange, window=window, top=top)
    one = simulation_from(rows, before, window=window, duration=duration, side=0)
    other = simulation_from(rows, after, window=window, duration=duration, side=1)
    changes: Mapping[str, KeyChange] = {
        kind: KeyChange(its[0]["all"] if its else 0, its[0]["keys"] if its else 0, key_loads(its))
        for kind in KINDS
        for its in [[row for row in rows if row["kind"] == kind]]
    }
    return Difference(one, other, _queues(one, other), changes["lost"], changes["gained"], changes["moved"])


def _queues(before: Simulation, after: Simulation) -> tuple[QueueChange, ...]:
    old = {queue.name: queue for queue in before.queues}
    new = {queue.name: queue for queue in after.queues}
    changes = []
    for name in {**old, **new}:
        one, other = old.get(name), new.get(name)
        counts = (one.messages if one else 0, other.messages if other else 0)
        if one is None:
            state = "appears"
        elif other is None:
            state = "vanishes"
        else:
            state = "more" if counts[1] > counts[0] else "fewer" if counts[1] < counts[0] else "same"
        changes.append(QueueChange(name, state, *counts, one.bytes if one else 0, other.bytes if other else 0))
    return tuple(sorted(changes, key=lambda each: (each.state == "same", -abs(each.after - each.before), each.name)))
