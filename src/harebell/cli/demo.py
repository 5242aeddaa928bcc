"""`harebell demo flights`: its options, its table of counts, its exit status."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.table import Table
from rich.text import Text

from harebell.cli.files import write_file
from harebell.cli.flights import topology
from harebell.cli.flights.counts import Group, agree
from harebell.cli.flights.report import write
from harebell.cli.flights.run import Outcome, run
from harebell.cli.server.memory import tune_collector
from harebell.cli.server.serve import loop_factory
from harebell.cli.terminal.consoles import new_console
from harebell.cli.terminal.display import Display
from harebell.cli.terminal.output import say
from harebell.cli.validators import Number

__all__ = ["flights"]


def flights(
    *,
    url: Annotated[
        str | None,
        Parameter(
            help="Use the broker at this URL, RabbitMQ for example: amqp://guest:guest@localhost:5672/. "
            "Left out: start one."
        ),
    ] = None,
    report: Annotated[Path, Parameter(help="The HTML page to write.")] = Path("flights-report.html"),
    limit: Annotated[
        int | None,
        Parameter(help="Only the first so many flights of the data set.", validator=Number(gte=1)),
    ] = None,
    archive: Annotated[
        Path | None,
        Parameter(help="A new folder for the archive, which stays there: the jobs of `harebell spark` can read it."),
    ] = None,
    definitions: Annotated[
        Path | None,
        Parameter(help="A definitions file (JSON) to write, with its exchanges, queues and bindings, to simulate."),
    ] = None,
    keep: Annotated[
        bool,
        Parameter(negative=(), help="Keep the broker at the end, and show it in the web console, until Ctrl-C."),
    ] = False,
) -> int:
    """Send every flight scheduled to depart from New York in 2013 through the broker, the client and Spark.

    Publishes 336,776 flights, consumes them, dead-letters the 8,255 cancelled ones, archives and analyses all with
    Spark, publishes alerts, and compares the counts of all parts. Ends with status 1 when the counts disagree.

    On a broker given by --url the demonstration uses the exchanges and queues flights, flights.*, alerts and
    alerts.desk, and removes them at its end. It refuses to start when they exist and no earlier run left them.
    """
    tune_collector()
    display = Display(new_console())
    report.parent.mkdir(parents=True, exist_ok=True)
    if definitions is not None:
        definitions.parent.mkdir(parents=True, exist_ok=True)
        write_file(definitions, json.dumps(asyncio.run(topology.definitions()), indent=1) + "\n")

    def finish(outcome: Outcome) -> int:
        return conclude(display, outcome, report, archive)

    if not keep:
        return finish(run(display, url, limit, loop_factory(), archive))
    status = 1

    def show_console(outcome: Outcome, console: str) -> None:
        nonlocal status
        status = finish(outcome)
        display.say(f"web console: {console} (user guest, password guest). Ctrl-C ends it and the broker.")
        with suppress(KeyboardInterrupt):
            wait()

    run(display, url, limit, loop_factory(), archive, show_console)
    return status


def wait() -> None:
    """Wait for Ctrl-C or SIGTERM, which raise KeyboardInterrupt."""
    Event().wait()


def conclude(display: Display, outcome: Outcome, report: Path, archive: Path | None) -> int:
    """Write the report, print the counts, and return the exit status: 1 when they disagree."""
    write(report, outcome)
    show(display.console, outcome.groups, outcome.rates, outcome.seconds)
    display.say(f"\nreport: {report.absolute()}")
    if archive is not None:
        display.say(f"archive: {archive.absolute()}")
    if agree(outcome.groups):
        display.say("all counts agree")
        return 0
    for group in outcome.groups:
        if not group.agrees:
            say(f"harebell: counts of {group.what} DISAGREE: {group.difference}", sys.stderr)
    return 1


def show(console: Console, groups: tuple[Group, ...], rates: dict[str, float], seconds: dict[str, float]) -> None:
    """Print the table of counts, then rates and times."""
    table = Table(show_edge=False, pad_edge=False)
    for heading in ("", "counted", "number", "agrees"):
        table.add_column(heading, justify="right" if heading == "number" else "left")
    for group in groups:
        for index, (label, number) in enumerate(group.counted):
            same = number == group.counted[0][1]
            table.add_row(
                group.what if index == 0 else "",
                label,
                f"{number:,}",
                "" if index == 0 else Text("yes", "green") if same else Text("NO", "bold red"),
                end_section=index == len(group.counted) - 1,
            )
    console.print()
    console.print(table)
    console.print()
    for what, rate in rates.items():
        console.print(f"{what:<40} {rate:>10,.0f} messages/s")
    console.print("; ".join(f"{stage} {time:.1f} s" for stage, time in seconds.items()))
