"""`harebell spark diff`: the same traffic through two topologies, and what would change."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter
from rich.console import Console

from harebell.cli.spark.checks import check_output
from harebell.cli.spark.simulate_input import Messages, topology_from
from harebell.cli.spark.spark_job import DEFAULT_URL, Cluster, Url, run_job
from harebell.cli.spark.tables import file_text, listing, right, wide_console
from harebell.cli.terminal.consoles import add_row
from harebell.cli.terminal.display import Display
from harebell.cli.terminal.output import say, say_json
from harebell.errors import InvalidArgument

if TYPE_CHECKING:
    from harebell.spark.jobs.diff import Difference, KeyChange
    from harebell.spark.runtime.session import SparkSession

__all__ = ["diff"]

FAILED = 2  # 1 is a HarebellError

FailOn = Literal["unroutable", "loss", "change"]


def diff(
    before: Annotated[Path, Parameter(help="The definitions file as it is.")],
    after: Annotated[Path, Parameter(help="The definitions file as it is to be.")],
    *,
    messages: Messages = Messages(),  # noqa: B008  # frozen, as the others
    vhost: Annotated[str | None, Parameter(help="The virtual host, when the files have several.")] = None,
    fail_on: Annotated[
        tuple[FailOn, ...],
        Parameter(
            help="Exit with status 2 when messages reach no queue any more (unroutable), when a queue gets fewer "
            "messages or is gone (loss), or when anything differs (change); may be repeated."
        ),
    ] = (),
    top: Annotated[int, Parameter(help="How many queues and keys are listed.")] = 20,
    html: Annotated[Path | None, Parameter(help="Write a report into this file.")] = None,
    json: Annotated[bool, Parameter(negative=(), help="Print everything as JSON.")] = False,
    url: Url = DEFAULT_URL,
    cluster: Cluster = Cluster(),  # noqa: B008
) -> int:
    """Show what a change of the topology would do to existing traffic. Nothing is published."""
    messages.check()
    if top < 1:
        raise InvalidArgument(f"--top is 1 or more, not {top}")
    old, new = topology_from(before, vhost), topology_from(after, vhost)

    check_output("--html", html)
    cluster.settings()
    messages.ask(url)

    def work(spark: SparkSession, display: Display) -> Difference:
        from harebell.spark.jobs.diff import diff as differing

        frame = messages.frame(spark, url)
        with display.stage("route the messages twice"):
            return differing(
                frame, old, new, exchange=messages.exchange, window=messages.width(frame),
                duration=messages.duration, top=top,
            )  # fmt: skip

    found = run_job("diff", cluster, work)
    failed = failures(found, fail_on)
    if html is not None:
        from harebell.cli.spark.simulate_page import diff_page

        file_text(html, diff_page(messages.what, str(before), str(after), found, failed, top))
    if json:
        say_json({**asdict(found), "same": found.same, "failed": failed}, indent=2)
    else:
        show(wide_console(), found, top)
        for text in failed:
            say(f"failed: {text}")
    return FAILED if failed else 0


def failures(found: Difference, fail_on: tuple[FailOn, ...]) -> list[str]:
    """The conditions of --fail-on that hold, in words."""
    failed = []
    if "unroutable" in fail_on and found.lost.messages:
        failed.append(f"{found.lost.messages:,} messages of {found.lost.key_count:,} keys reach no queue any more")
    if "loss" in fail_on and found.losing:
        names = ", ".join(change.name for change in found.losing[:5])
        more = f" and {len(found.losing) - 5} more" if len(found.losing) > 5 else ""
        failed.append(f"queues get fewer messages than before: {names}{more}")
    if "change" in fail_on and not found.same:
        failed.append("the topologies differ for these messages")
    return failed


def show(console: Console, found: Difference, top: int) -> None:
    """Print the tables on the terminal."""
    one, other = found.before, found.after
    summary = listing("", right("before"), right("after"))
    summary.add_row("copies in queues", f"{one.copies:,}", f"{other.copies:,}")
    summary.add_row("for each message", f"{one.fan_out:.2f}", f"{other.fan_out:.2f}")
    summary.add_row("unroutable", f"{one.unroutable:,}", f"{other.unroutable:,}")
    refused = [sum(each.refused.values()) for each in (one, other)]
    summary.add_row("refused", f"{refused[0]:,}", f"{refused[1]:,}")
    console.print(f"{one.messages:,} messages through both topologies", highlight=False)
    console.print(summary)
    if found.same:
        console.print("every message goes where it went")
        return
    changed = [change for change in found.queues if change.state != "same"]
    if changed:
        table = listing("queue", "", *map(right, ("before", "after", "change")))
        for change in changed[:top]:
            difference = f"{change.after - change.before:+,}"
            add_row(table, change.name, change.state, f"{change.before:,}", f"{change.after:,}", difference)
        console.print(table)
        if len(changed) > top:
            console.print(f"{len(changed) - top:,} more queues differ", highlight=False)
    _keys(console, "reach no queue any more", found.lost)
    _keys(console, "reach a queue now", found.gained)
    _keys(console, "reach other queues", found.moved)


def _keys(console: Console, what: str, change: KeyChange) -> None:
    if not change.messages:
        return
    console.print(f"{change.messages:,} messages of {change.key_count:,} keys {what}:", highlight=False)
    table = listing("exchange", "routing key", right("messages"))
    for key in change.keys:
        add_row(table, key.exchange, key.routing_key, f"{key.messages:,}")
    console.print(table)
