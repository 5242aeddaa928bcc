"""The HTML page of a triage: see harebell.cli.html.page for its rules."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from html import escape
from typing import Any

from harebell.cli.html import charts, page as html
from harebell.spark.jobs.deadletters.triage_tables import Triage

__all__ = ["page"]

Row = dict[str, Any]
FORMATS = {"MINUTE": "%H:%M", "HOUR": "%d %b %Hh", "DAY": "%d %b"}
SHOWN = 12  # bars of a ranking


def page(found: Triage, what: str, when: str) -> str:
    """The page as text. `what` says where the messages came from, `when` the time of the triage as it is shown."""
    total = found.summary
    head = f'<h1>Dead letters</h1><p class="lead">{escape(what)}. {escape(when)}.</p>' + html.tiles(
        (
            (f"{total['messages']:,}", "dead letters"),
            (_bytes(total["bytes"]), "of bodies"),
            *_ends(total["first"], total["last"]),
            (f"{total['cycled']:,}", "came into a queue more than once"),
            (f"{total['redriven']:,}", "were redriven before"),
            (f"{total['unknown']:,}", "without a known death"),
        )
    )
    parts = (
        head, _reasons(found.reasons), _timeline(found), _origins(found.origins), _patterns(found.patterns),
        _cycles(found.cycles), _histograms(found),
    )  # fmt: skip
    return html.document("Dead letters", parts, "Times are UTC.")


def _reasons(rows: Sequence[Row]) -> str:
    values = [(f"{row['reason'] or 'not known'}, in {row['queue'] or 'a queue not known'}", row["messages"])
              for row in rows]  # fmt: skip
    chart = charts.ranking("Why and where", "Messages by reason and queue.", values[:SHOWN], "messages")
    table = html.table(
        "Deaths by reason and queue",
        ("reason", "queue", "messages", "deaths", "first", "last"),
        (
            (row["reason"], row["queue"], row["messages"], row["deaths"], _time(row["first"]), _time(row["last"]))
            for row in rows
        ),
    )
    text = (
        "A message that went through several queues counts in each. Times are those of the first death of a message in "
        "a queue for a reason: the broker writes no other."
    )
    return f"<section><h2>Why and where they died</h2><p>{text}</p>{chart if rows else ''}{table}</section>"


def _timeline(found: Triage) -> str:
    times = sorted({row["time"] for row in found.timeline})
    if not times:
        return ""
    reasons = sorted({row["reason"] or "not known" for row in found.timeline})
    counts = {(row["time"], row["reason"] or "not known"): row["messages"] for row in found.timeline}
    labels = [time.strftime(FORMATS[found.unit]) for time in times]
    series = {reason: [float(counts.get((time, reason), 0)) for time in times] for reason in reasons}
    unit = found.unit.lower()
    chart = charts.stacked(f"Deaths by {unit}", "By reason.", labels, series, "messages")
    table = html.table(
        f"Last deaths by {unit}", (unit, *reasons),
        ((_time(time), *(counts.get((time, reason), 0) for reason in reasons)) for time in times),
    )  # fmt: skip
    return html.section("When", f"By the {unit} of a message’s last death; {unit}s without any are left out.", chart,
                        table)  # fmt: skip


def _origins(rows: Sequence[Row]) -> str:
    values = [(f"{_exchange(row['first_exchange'])}  {row['first_key'] or ''}", row["messages"]) for row in rows]
    chart = charts.ranking("Where they came from", "By exchange and routing key.", values[:SHOWN], "messages")
    table = html.table(
        "Exchange and routing key before the first death", ("exchange", "routing key", "messages", "bytes"),
        ((_exchange(row["first_exchange"]), row["first_key"], row["messages"], row["bytes"]) for row in rows),
    )  # fmt: skip
    return html.section(
        "Where they came from", "The exchange and routing key that they were published with.", chart if rows else "",
        table,
    )  # fmt: skip


def _patterns(rows: Sequence[Row]) -> str:
    lines = "".join(
        f'<tr><th scope="row" class="n">{row["messages"]:,}</th><td><code>{escape(row["pattern"])}</code></td>'
        f"<td>{escape(', '.join(row['reasons']))}</td><td><code>{escape(html.clip(row['example'] or '', 160))}</code>"
        "</td></tr>"
        for row in rows
    )
    return (
        "<section><h2>What is in them</h2><p>Payloads of one kind: JSON by the types of its fields, text with numbers, "
        'ids and times replaced.</p><div class="scroll"><table><caption>The commonest payload patterns</caption>'
        '<thead><tr><th scope="col" class="n">messages</th><th scope="col">pattern</th><th scope="col">reasons</th>'
        f'<th scope="col">example</th></tr></thead><tbody>{lines}</tbody></table></div></section>'
    )


def _cycles(rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    return (
        "<section><h2>Cycles</h2><p>Messages that died in the same queue more than once: retried, or going round.</p>"
        + html.table(
            "Queues that messages died in again", ("queue", "messages", "most times", "deaths"),
            ((row["queue"], row["messages"], row["most"], row["deaths"]) for row in rows),
        )
        + "</section>"
    )  # fmt: skip


def _histograms(found: Triage) -> str:
    parts = []
    both = (("Age since the last death", "age", found.ages), ("Size of the body", "size", found.sizes))
    for heading, name, rows in both:
        values = [(row[name], row["messages"]) for row in rows if row["messages"] or row[name] != "not known"]
        parts.append(
            html.section(
                heading,
                f"Median {_bytes(found.summary['median_bytes'])}, 95th percentile "
                f"{_bytes(found.summary['p95_bytes'])}, largest {_bytes(found.summary['largest_bytes'])}."
                if name == "size" else "At the time of the triage.",
                charts.ranking(heading, "As a histogram.", values, "messages"),
                html.table(heading, (name, "messages"), values),
            )
        )  # fmt: skip
    return "\n".join(parts)


def _ends(first: datetime | None, last: datetime | None) -> list[tuple[str, str]]:
    named = (("first", first), ("last", last))
    return [(f"{time:%H:%M:%S}", f"{name} death, {time:%Y-%m-%d}") for name, time in named if time is not None]


def _exchange(name: str | None) -> str:
    return "not known" if name is None else name or "(default)"


def _time(time: Any) -> str:
    return "–" if time is None else f"{time:%Y-%m-%d %H:%M:%S}"


def _bytes(count: float | None) -> str:
    if count is None:
        return "–"
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1024
    return f"{count:,.1f} GiB"
