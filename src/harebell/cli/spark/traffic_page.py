"""The HTML page about traffic: see harebell.cli.html.page for its rules."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from html import escape
from typing import Any, Final

from harebell.cli.html import charts, page as html
from harebell.spark.jobs.natural_order import natural
from harebell.spark.jobs.traffic.report import Survey

__all__ = ["page"]

Row = dict[str, Any]
SERIES: Final = 4  # names that have a line of their own
POINTS: Final = 240  # points of a line; neighbouring windows are merged where there are more
BARS: Final = 12
HEADINGS: Final = {"exchange": "Exchanges", "pattern": "Routing keys", "queue": "Queues"}


def page(found: Survey, what: str, when: str) -> str:
    """The page as text. `what` says where the messages came from, `when` the time of the report as it is shown."""
    parts = (
        _head(found, what, when), _rates(found), _latency(found),
        *(_talkers(by, rows) for by, rows in found.talkers.items() if rows),
        _anomalies(found), _gaps(found), _capacity(found),
    )  # fmt: skip
    return html.document("Traffic", parts, "Times are UTC. Sizes are those of message bodies.")


def _head(found: Survey, what: str, when: str) -> str:
    totals = _by_window(found, found.windows)
    messages = sum(row["messages"] for row in found.windows)
    span = 0.0 if found.first is None or found.last is None else (found.last - found.first).total_seconds()
    busiest = max((row["messages"] for row in totals), default=0) / found.window
    tiles = [
        (f"{messages:,}", "messages"),
        (_span(span), "from the first to the last"),
        (f"{_count(messages / span)}/s" if span else "–", "on average"),
        (f"{_count(busiest)}/s", f"in the busiest {_span(found.window)}"),
        (_bytes(sum(row["bytes"] for row in found.windows)), "of bodies"),
    ]
    if found.latency["p95"] is not None:
        tiles.append((_ms(found.latency["p95"]), "latency, 95th percentile"))
    if found.untimed:
        tiles.append((f"{found.untimed:,}", "messages without a time, left out"))
    lead = f'<h1>Traffic</h1><p class="lead">{escape(what)}. {escape(when)}.</p>'
    if found.archived:
        lead += f"<p>{found.archived:,} messages have no time of their own: theirs is when the archive got them.</p>"
    return lead + html.tiles(tiles)


def _rates(found: Survey) -> str:
    if not found.windows:
        return "<section><h2>Messages a second</h2><p>There is no message with a time.</p></section>"
    totals: dict[str, int] = {}
    for row in found.windows:
        totals[row["name"]] = totals.get(row["name"], 0) + row["messages"]
    names = sorted(totals, key=lambda name: (-totals[name], natural(name)))[:SERIES]
    starts, each = _starts(found)
    series = {}
    for name in names:
        counts = dict.fromkeys(starts, 0)
        for row in found.windows:
            if row["name"] == name:
                counts[_start(row["start"], starts[0], each)] += row["messages"]
        series[_name(found.by, name)] = [count / each for count in counts.values()]
    chart = charts.lines(
        "Messages a second", f"The busiest by {found.by}.", _labels(starts, each), series, "messages/s"
    )
    rows = sorted(_by_window(found, found.windows), key=lambda row: (-row["messages"], row["start"]))[:BARS]
    table = html.table(
        f"The busiest windows of {_span(found.window)}", ("start", "messages", "per second", "bytes"),
        ((_time(row["start"]), row["messages"], row["messages"] / found.window, row["bytes"]) for row in rows),
    )  # fmt: skip
    more = f" The busiest {SERIES} of {len(totals)} are drawn." if len(totals) > SERIES else ""
    return html.section("Messages a second", f"By {found.by}, in steps of {_span(each)}.{more}", chart, table)


def _latency(found: Survey) -> str:
    known = found.latency
    if not known["messages"]:
        return ""
    rows = [row for row in found.windows if row["p95_latency"] is not None]
    worst = sorted(rows, key=lambda row: (-row["p95_latency"], row["start"], natural(row["name"])))[:BARS]
    values = [(f"{_name(found.by, row['name'])}, {_time(row['start'])}", round(row["p95_latency"], 1)) for row in worst]
    return html.section(
        "Latency",
        f"From the message’s timestamp to its delivery, {known['messages']:,} deliveries: median "
        f"{_ms(known['median'])}, 95th percentile {_ms(known['p95'])}, 99th {_ms(known['p99'])}, longest "
        f"{_ms(known['largest'])}. A timestamp without the header timestamp_in_ms has whole seconds, so up to a second "
        "of it is rounding.",
        charts.ranking("The slowest windows", "By 95th percentile.", values, "ms"),
        html.table(
            "The slowest windows, ms", (found.by, "start", "median", "95th percentile", "99th percentile"),
            (
                (_name(found.by, row["name"]), _time(row["start"]), row["median_latency"], row["p95_latency"],
                 row["p99_latency"])
                for row in worst
            ),
        ),
    )  # fmt: skip


def _talkers(by: str, rows: Sequence[Row]) -> str:
    values = [(_name(by, row["name"]), row["messages"]) for row in rows[:BARS]]
    return html.section(
        HEADINGS[by],
        f"The busiest one has {rows[0]['share']:.0%} of all messages.",
        charts.ranking(HEADINGS[by], "By messages.", values, "messages"),
        html.table(
            HEADINGS[by],
            (by, "messages", "share, %", "bytes", "95 % up to, bytes", "95 % delivered within, ms", "first", "last"),
            (
                (_name(by, row["name"]), row["messages"], 100 * row["share"], row["bytes"], row["p95_bytes"],
                 row["p95_latency"], _time(row["first"]), _time(row["last"]))
                for row in rows
            ),
        ),
    )  # fmt: skip


def _anomalies(found: Survey) -> str:
    if not found.anomalies:
        return (
            "<section><h2>Unusual hours</h2><p>None. An hour is compared with the same hour of at least three earlier "
            "days.</p></section>"
        )
    return (
        "<section><h2>Unusual hours</h2><p>Hours that are far from the median of the same hour on earlier days. The "
        "score counts in units of the usual spread; below 0 there was too little.</p>"
        + html.table(
            "Unusual hours", ("hour", found.by, "messages", "usual", "earlier days", "score"),
            (
                (f"{row['hour']:%Y-%m-%d %H}h", _name(found.by, row["name"]), row["messages"], row["usual"],
                 row["days"], row["score"])
                for row in found.anomalies[:100]
            ),
        )
        + "</section>"
    )  # fmt: skip


def _gaps(found: Survey) -> str:
    if not found.gaps:
        return ""
    return (
        "<section><h2>Silences</h2>"
        + html.table(
            "The longest silences", (found.by, "from", "to", "how long"),
            ((_name(found.by, row["name"]), _time(row["from"]), _time(row["to"]), _span(row["seconds"]))
             for row in found.gaps),
        )
        + "</section>"
    )  # fmt: skip


def _capacity(found: Survey) -> str:
    arrived = found.arrivals
    if arrived is None or not arrived["seconds"]:
        return ""
    numbers = html.table(
        "Arrivals a second", ("mean", "median", "95th percentile", "99th percentile", "most"),
        [(float(arrived["mean"]), float(arrived["median"]), float(arrived["p95"]), float(arrived["p99"]),
          arrived["most"])],
    )  # fmt: skip
    days = html.table("Messages of a day", ("day", "messages", "bytes", ""), (
        (str(row["day"]), row["messages"], row["bytes"], _bytes(row["bytes"])) for row in found.daily
    ))  # fmt: skip
    chart = ""
    if found.backlog and found.rate is not None:
        deepest = max(row["depth"] for row in found.backlog)
        starts = [row["time"] for row in found.backlog]
        step = max(1, -(-len(starts) // POINTS))
        picked = [max(found.backlog[i : i + step], key=lambda row: row["depth"]) for i in range(0, len(starts), step)]
        span = (starts[-1] - starts[0]).total_seconds()
        labels = _labels([row["time"] for row in picked], int(span / max(len(picked), 1)))
        chart = (
            f"<p>Consumers that take {found.rate:,g} messages a second would have up to {deepest:,.0f} waiting; the "
            f"last of them are gone {_span(found.drained or 0)} after the last arrival.</p>"
            + charts.lines(
                f"Backlog at {found.rate:,g} messages a second", "Messages that wait.", labels,
                {"waiting": [row["depth"] for row in picked]}, "messages",
            )
        )  # fmt: skip
    return f"<section><h2>Capacity</h2>{numbers}{chart}{days}</section>"


def _by_window(found: Survey, rows: Sequence[Row]) -> list[Row]:
    sums: dict[datetime, Row] = {}
    for row in rows:
        one = sums.setdefault(row["start"], {"start": row["start"], "messages": 0, "bytes": 0})
        one["messages"] += row["messages"]
        one["bytes"] += row["bytes"]
    return [sums[start] for start in sorted(sums)]


def _starts(found: Survey) -> tuple[list[datetime], int]:
    """The times of a line's points, and the seconds of each: whole windows, at most POINTS of them."""
    first, last = found.windows[0]["start"], found.windows[-1]["start"]
    count = int((last - first).total_seconds()) // found.window + 1
    each = found.window * -(-count // POINTS)
    return [first + timedelta(seconds=each * i) for i in range(-(-count * found.window // each))], each


def _start(time: datetime, first: datetime, each: int) -> datetime:
    return first + timedelta(seconds=int((time - first).total_seconds()) // each * each)


def _labels(times: Sequence[datetime], each: int) -> list[str]:
    if not times:
        return []
    span = (times[-1] - times[0]).total_seconds()
    form = "%H:%M:%S" if each < 60 else "%H:%M" if span <= 86_400 else "%d %b %Hh" if each < 86_400 else "%d %b"
    return [time.strftime(form) for time in times]


def _name(by: str, name: str) -> str:
    if by == "pattern" and name.startswith("."):  # the first word of the key is empty
        return f"(empty word){name}"
    return name or {"exchange": "(default exchange)", "queue": "(queue not known)"}.get(by, "(empty key)")


def _time(time: Any) -> str:
    return "–" if time is None else f"{time:%Y-%m-%d %H:%M:%S}"


def _count(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:,.1f}"


def _ms(value: float) -> str:
    return f"{value:,.1f} ms" if value < 1000 else f"{value / 1000:,.1f} s"


def _span(seconds: float) -> str:
    for unit, name in ((86_400, "days"), (3600, "h"), (60, "min")):
        if seconds >= unit:
            return f"{seconds / unit:,.1f}".removesuffix(".0") + f" {name}"
    return f"{seconds:,.1f}".removesuffix(".0") + " s"


def _bytes(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1024
    return f"{count:,.1f} GiB"
