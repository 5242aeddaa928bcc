"""The reports of `harebell spark simulate` and `harebell spark diff`, as one HTML file each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING, Final

from harebell.cli.html import charts, page as frame
from harebell.cli.spark.tables import binding_text, bytes_text, count_text, time_text

if TYPE_CHECKING:
    from harebell.spark.jobs.diff import Difference, KeyChange
    from harebell.spark.jobs.simulate.capacity import Limits
    from harebell.spark.jobs.simulate.planning import Consumers, Plan, QueuePlan
    from harebell.spark.jobs.simulate.profiles import Profile
    from harebell.spark.jobs.simulate.simulation import BindingLoad, KeyLoad, QueueLoad, Simulation

__all__ = ["diff_page", "page"]

POINTS: Final = 40  # of a line, at most: windows are put together
BARS: Final = 12
LINES: Final = 4
SHOWN: Final = 6  # keys that stand on the page, the others behind a fold
ROUTED: Final = "Routed by the broker's own exchanges and bindings."


def page(
    what: str,
    result: Simulation,
    plan: Plan | None,
    consumers: Consumers,
    limits: Limits,
    profile: Profile | None,
    top: int,
) -> str:
    """The report of a simulation. `what` describes the messages."""
    parts = [
        f"<h1>Traffic through a topology</h1><p class='lead'>{escape(what)}, routed through virtual host "
        f"{escape(result.vhost)}. Nothing was published: this is a simulation.</p>",
        frame.tiles(_numbers(result, plan)),
        _queues(result, plan, consumers, top),
    ]
    if plan is not None:
        parts.append(_over_time(result))
        if consumers.given:
            parts.append(_backlog(result, plan, top))
        parts.append(_nodes(plan, limits, profile, consumers))
    parts += [_unroutable(result), _bindings(result, top)]
    return frame.document("Traffic through a topology", parts, ROUTED)


def _numbers(result: Simulation, plan: Plan | None) -> list[tuple[str, str]]:
    numbers = [(_short(result.messages), "messages published")]
    if result.seconds:
        numbers.append((f"{count_text(sum(result.published) / result.seconds)}/s", "on average"))
    numbers += [
        (_short(result.copies), "copies in queues"),
        (f"{result.fan_out:.2f}", "copies for each message"),
        (f"{result.unroutable_share:.2%}", "reach no queue"),
    ]
    if plan is not None:
        numbers.append((str(plan.cluster.nodes), "nodes of RabbitMQ"))
    return numbers


def _round(number: float) -> float:
    return round(number) if number >= 100 else round(number, 1)


def _short(number: int) -> str:
    for size, unit in ((10**9, "G"), (10**6, "M")):
        if number >= 10 * size:
            return f"{number / size:,.1f} {unit}"
    return f"{number:,}"


def _queues(result: Simulation, plan: Plan | None, consumers: Consumers, top: int) -> str:
    rates = plan is not None
    seconds = result.seconds
    unit = "messages a second" if rates else "messages"

    def rate(queue: QueueLoad) -> float:
        return sum(queue.arrivals) / seconds if rates else float(queue.messages)

    values = [(queue.name, _round(rate(queue))) for queue in result.queues[:BARS] if queue.messages]
    drawn = charts.ranking("The busiest queues", f"{unit.capitalize()}.", values, unit) if values else ""
    headings = ["queue", "type", "messages", "bytes"]
    if rates:
        headings += ["a second", "at most"]
        if consumers.given:
            headings += ["consumed a second", "waits at most", "drained after", "dropped", "expired"]
    rows: list[list[object]] = []
    for number, queue in enumerate(result.queues[:top]):
        row: list[object] = [queue.name, queue.queue_type, queue.messages, bytes_text(queue.bytes)]
        if plan is not None:
            its = plan.queues[number]
            row += [rate(queue), its.peak_rate]
            if consumers.given:
                waits = its.backlog
                row += [waits.rate, round(waits.peak), time_text(waits.drain_seconds)]
                row += [round(waits.dropped), round(waits.expired)]
        rows.append(row)
    text = (
        f"{unit.capitalize()}. {len(result.queues):,} queues; "
        f"{sum(not queue.messages for queue in result.queues):,} of them get nothing."
    )
    return frame.section("Queues", text, drawn, frame.table(f"The first {len(rows)}", headings, rows))


def _over_time(result: Simulation) -> str:
    at, published = _joined(result.published, result)
    series = {"published": published}
    series["copies"] = _joined(
        [sum(window) for window in zip(*(queue.arrivals for queue in result.queues), strict=True)]
        or [0] * len(result.published),
        result,
    )[1]
    drawn = _lines("Messages over time", "Published, and copied into queues.", at, series, "messages a second")
    rows = zip(_times(result), *series.values(), strict=True)
    table = frame.table("Messages a second", ("from", "published", "copies"), rows)
    return frame.section("Over time", f"In windows of {time_text(result.window)}.", drawn, table)


def _backlog(result: Simulation, plan: Plan, top: int) -> str:
    deepest = sorted(plan.queues, key=lambda each: -each.backlog.peak)
    waiting = [each for each in deepest if each.backlog.peak >= 1]
    late = [each for each in waiting if each.backlog.drain_seconds is None]
    at, _ = _joined(result.published, result)
    series = {frame.clip(each.name, 24): _ends(each.backlog.depth) for each in waiting[:LINES]}
    drawn = _lines("What waits", "At the end of each window.", at, series, "messages") if series else ""
    text = f"{len(waiting):,} queues have messages waiting at some time" + (
        f"; {len(late):,} of them would never be drained." if late else "." if waiting else ": consumers keep up."
    )
    headings = ("queue", "waits at most", "at", "bytes", "waits at the end", "drained after", "consumers busy")
    table = frame.table("The deepest queues", headings, [_deep(each, result) for each in waiting[:top]])
    return frame.section("Backlog", text, drawn, table)


def _deep(each: QueuePlan, result: Simulation) -> list[object]:
    waits = each.backlog
    busy = "–" if waits.utilisation is None else f"{min(waits.utilisation, 99):.0%}"
    when = _time(result, (waits.peak_window + 1) * result.window)
    end = round(waits.depth[-1])
    return [each.name, round(waits.peak), when, bytes_text(each.peak_bytes), end, time_text(waits.drain_seconds), busy]


def _nodes(plan: Plan, limits: Limits, profile: Profile | None, consumers: Consumers) -> str:
    its = plan.cluster
    rows: list[tuple[object, ...]] = [(name, needed) for name, needed in its.needs.items()]
    table = frame.table("Nodes that each needs", ("", "nodes"), rows)
    assumed = frame.table(
        "What is assumed of a node",
        ("", "value"),
        [(name.replace("_", " "), str(getattr(limits, name))) for name in limits.__slots__],
    )
    text = (
        f"{its.nodes} of the nodes described below carry the busiest window: {its.cores:.1f} cores, "
        f"{bytes_text(its.memory_bytes)} of memory, {bytes_text(its.disk_bytes)} of messages. Decided by "
        f"{its.decided_by}."
    )
    if not consumers.given:
        text += " Consumers are taken to keep up."
    if profile is not None:
        text += f" AMQP’s table of scales gives this profile {profile.servers} servers."
    busy = ""
    if its.too_busy:
        names = ", ".join(f"{name} ({rate:,.0f} a second)" for name, rate in its.too_busy[:BARS])
        busy = f'<p class="verdict not">More than one queue can take: {escape(names)}</p>'
    return frame.section("Nodes of a RabbitMQ cluster", text, busy + table, assumed, "What is assumed of a node")


def _unroutable(result: Simulation) -> str:
    text = (
        f"{result.unroutable:,} messages of {result.unroutable_key_count:,} keys reach no queue."
        if result.unroutable
        else "Every message that was taken reaches a queue."
    )
    shown = _keys("The heaviest keys", result.unroutable_keys[:SHOWN]) if result.unroutable_keys else ""
    if result.refused:
        shown += frame.table("Refused by the broker", ("reason", "messages"), result.refused.items())
    more = _keys("The heaviest keys", result.unroutable_keys) if len(result.unroutable_keys) > SHOWN else ""
    return frame.section("Unroutable", text, shown, more, "More keys")


def _keys(caption: str, keys: Sequence[KeyLoad]) -> str:
    rows = [(key.routing_key, key.exchange or "(default)", key.messages, bytes_text(key.bytes)) for key in keys]
    return frame.table(caption, ("routing key", "exchange", "messages", "bytes"), rows)


def _bindings(result: Simulation, top: int) -> str:
    used = [binding for binding in result.bindings if binding.messages]
    idle = result.idle_bindings
    hot = frame.table("Hot bindings", ("binding key", "from", "to", "messages"), map(_binding, used[:top]))
    headings = ("binding key", "from", "to", "messages")
    cold = frame.table("Bindings without a message", headings, map(_binding, idle[:top])) if idle else ""
    text = f"{len(used):,} of {len(result.bindings):,} bindings took messages on, {len(idle):,} none."
    return frame.section("Bindings", text, hot, cold, "Bindings without a message")


def _binding(each: BindingLoad) -> tuple[object, ...]:
    key = binding_text(each.binding_key, each.arguments) or "(empty)"
    return key, each.source, f"{each.destination_type} {each.destination}", each.messages


# The difference of two topologies


def diff_page(what: str, before: str, after: str, found: Difference, failed: Sequence[str], top: int) -> str:
    """The report of a comparison; `failed` has the conditions of --fail-on that hold."""
    verdict = "Every message goes where it went." if found.same else "; ".join(failed)
    numbers = [
        (_short(found.before.messages), "messages"),
        (f"{found.before.fan_out:.2f} → {found.after.fan_out:.2f}", "copies for each"),
        (_short(found.lost.messages), "reach no queue any more"),
        (_short(found.gained.messages), "reach a queue now"),
        (_short(found.moved.messages), "reach other queues"),
    ]
    changed = [change for change in found.queues if change.state != "same"]
    values = [(each.name, each.after - each.before) for each in changed[:BARS]]
    drawn = charts.ranking("Queues that differ", "Messages more or fewer.", values, "messages") if values else ""
    rows = [(each.name, each.state, each.before, each.after, each.after - each.before) for each in changed[:top]]
    text = f"Messages more or fewer. {len(changed):,} of {len(found.queues):,} queues differ."
    table = frame.table("Messages before and after", ("queue", "", "before", "after", "change"), rows)
    parts = [
        f"<h1>Two topologies, the same traffic</h1><p class='lead'>{escape(what)}, through {escape(before)} and "
        f"{escape(after)}.</p>",
        frame.tiles(numbers),
        f'<p class="verdict{" not" if failed else ""}">{escape(verdict)}</p>' if verdict else "",
        frame.section("Queues", text, drawn, table),
    ]
    for heading, change in (
        ("Messages that reach no queue any more", found.lost),
        ("Messages that reach a queue now", found.gained),
        ("Messages that reach other queues", found.moved),
    ):
        parts.append(_change(heading, change))
    return frame.document("Two topologies, the same traffic", filter(None, parts), ROUTED)


def _change(heading: str, change: KeyChange) -> str:
    if not change.messages:
        return ""
    text = f"{change.messages:,} messages of {change.key_count:,} keys."
    shown = _keys("The heaviest keys", change.keys[:SHOWN])
    more = _keys("The heaviest keys", change.keys) if len(change.keys) > SHOWN else ""
    return frame.section(heading, text, shown, more, "More keys")


# Windows on a chart


def _lines(title: str, text: str, at: Sequence[str], series: Mapping[str, Sequence[float]], unit: str) -> str:
    """A chart of lines, in thousands or millions where the numbers are too long for the axis."""
    most = max((max(values, default=0.0) for values in series.values()), default=0.0)
    for size, name in ((1e6, "million "), (1e3, "thousand ")):
        if most >= 10 * size:
            scaled = {label: [value / size for value in values] for label, values in series.items()}
            return charts.lines(title, text, at, scaled, name + unit)
    return charts.lines(title, text, at, series, unit)


def _step(result: Simulation) -> int:
    """How many windows one point of a line stands for."""
    return max(1, math.ceil(len(result.published) / POINTS))


def _joined(counts: Sequence[int], result: Simulation) -> tuple[list[str], list[float]]:
    """Labels and messages a second of merged windows; some labels are empty, so that labels do not touch."""
    step = _step(result)
    groups = [counts[first : first + step] for first in range(0, len(counts), step)]
    every = max(1, math.ceil(len(groups) / 10))
    labels = [label if number % every == 0 else "" for number, label in enumerate(_times(result))]
    return labels, [sum(group) / (len(group) * result.window) for group in groups]


def _ends(depth: Sequence[float], points: int = POINTS) -> list[float]:
    """The depth at the end of merged windows."""
    step = max(1, math.ceil(len(depth) / points))
    return [depth[min(first + step, len(depth)) - 1] for first in range(0, len(depth), step)]


def _times(result: Simulation) -> list[str]:
    step = _step(result)
    return [_time(result, first * result.window) for first in range(0, len(result.published), step)]


def _time(result: Simulation, after: float) -> str:
    """The moment `after` seconds after the first window began, as text."""
    if result.start is None:
        return f"+{time_text(after)}"
    shape = "%H:%M:%S" if result.window < 60 else "%H:%M" if result.seconds <= 86_400 else "%m-%d %H:%M"
    return datetime.fromtimestamp(result.start + after, UTC).strftime(shape)
