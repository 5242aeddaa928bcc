"""`harebell spark replay`: publishes the messages of an archive again."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter
from rich.table import Table

from harebell.cli.spark.checks import check_broker, check_exchange, check_period
from harebell.cli.spark.spark_job import DEFAULT_URL, Cluster, Url, run_job
from harebell.cli.terminal.consoles import add_row, new_console
from harebell.cli.terminal.display import Display
from harebell.cli.validators import Number, maybe_empty
from harebell.errors import InvalidArgument

if TYPE_CHECKING:
    from harebell.spark.jobs.archive.layout import Table as Archive
    from harebell.spark.jobs.replay import Pace, Preview, Selection, Target
    from harebell.spark.runtime.session import SparkSession

__all__ = ["replay"]

SHOWN: Final = 20  # routes of a dry run
POSITIVE: Final = Number(gt=0)
AT_LEAST_ONE: Final = Number(gte=1)


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Chosen:
    """The options that select messages."""

    since: Annotated[datetime | None, Parameter(help="From this time on (UTC): 2026-01-05, 2026-01-05T12:00:00.")] = (
        None
    )
    until: Annotated[datetime | None, Parameter(help="Up to this time, not included.")] = None
    queue: Annotated[tuple[str, ...], Parameter(negative=(), help="From this queue; may be repeated.")] = ()
    key: Annotated[
        str | None, Parameter(validator=maybe_empty, help="A topic pattern for the routing key: orders.*.eu, orders.#")
    ] = None
    header: Annotated[tuple[str, ...], Parameter(negative=(), help="A header, as NAME=VALUE; may be repeated.")] = ()
    where: Annotated[str | None, Parameter(help="A SQL condition: \"priority > 3 AND type = 'order'\".")] = None
    limit: Annotated[int | None, Parameter(help="The first so many.", validator=AT_LEAST_ONE)] = None

    def selection(self) -> Selection:
        """The selection that the options describe. Raises InvalidArgument for a header that is not NAME=VALUE."""
        from harebell.spark.jobs.replay import Selection

        headers = []
        for text in self.header:
            name, equals, value = text.partition("=")
            if not (name and equals):
                raise InvalidArgument(f"--header takes NAME=VALUE, not {text!r}")
            headers.append((name, value))
        return Selection(self.since, self.until, self.queue, self.key, tuple(headers), self.where, self.limit)


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class How:
    """The options that say where to publish, and how fast."""

    to_exchange: Annotated[
        str | None, Parameter(validator=maybe_empty, help='To this exchange; "" is the default one.')
    ] = None
    to_key: Annotated[str | None, Parameter(validator=maybe_empty, help="With this routing key.")] = None
    mandatory: Annotated[bool, Parameter(help="Fail when a message reaches no queue.")] = True
    rate: Annotated[float | None, Parameter(help="At most so many messages a second.", validator=POSITIVE)] = None
    speed: Annotated[str | None, Parameter(help="So many times the original speed: 1x, 10x.")] = None
    connections: Annotated[
        int,
        Parameter(
            help="Share the queues among so many connections; order holds within a queue.", validator=AT_LEAST_ONE
        ),
    ] = 1
    name: Annotated[str | None, Parameter(help="The replay's name, for --resume; made up unless given.")] = None

    def target(self) -> Target:
        from harebell.spark.jobs.replay import Target

        return Target(self.to_exchange, self.to_key, self.mandatory)

    def pace(self) -> Pace:
        """The pace that the options describe. Raises InvalidArgument for a faulty speed, or a speed with a rate."""
        from harebell.spark.jobs.replay import Pace

        speed = None
        if self.speed is not None:
            try:
                speed = float(self.speed.removesuffix("x"))
            except ValueError:
                raise InvalidArgument(f"--speed takes a number such as 10x, not {self.speed!r}") from None
        return Pace(self.rate, speed)


def replay(
    folder: Annotated[Path, Parameter(help="The archive's folder.")],
    /,
    *,
    url: Url = DEFAULT_URL,
    chosen: Chosen = Chosen(),  # frozen, as the others
    how: How = How(),
    dry_run: Annotated[
        bool, Parameter(negative=(), help="Only count the messages, and print where they would go.")
    ] = False,
    resume: Annotated[
        str | None, Parameter(help="Continue the replay of that name after the last confirmed message.")
    ] = None,
    cluster: Cluster = Cluster(),  # noqa: B008
) -> int:
    """Publish messages of an archive again, to their original exchanges or elsewhere.

    The messages are as they were, with one more header, x-replayed-from. Each is confirmed. After a crash, --resume
    publishes at most a thousand messages of each connection twice.
    """
    from harebell.spark.jobs.archive.table import find_table, find_writable_table
    from harebell.spark.jobs.replay.state import State

    selection, target, pace = chosen.selection(), how.target(), how.pace()
    if resume is not None and (chosen != Chosen() or how != How() or dry_run):
        raise InvalidArgument("--resume goes on with what was asked for at first: leave the other options out")

    check_period(chosen.since, chosen.until)
    cluster.settings()
    table = find_table(folder) if dry_run else find_writable_table(folder)
    check(table, selection)
    if resume is not None:
        state = State(table.root, resume)
        state.plan()
        with state.held():
            pass  # it is held when it goes on; here a running one is refused before Spark starts
    elif how.name is not None:
        State(table.root, how.name)
    if not dry_run:
        check_broker(url)
        check_exchange(url, how.to_exchange, "--to-exchange")
    results = Display(new_console())

    def work(spark: SparkSession, display: Display) -> int:
        from harebell.spark.jobs import replay as replay_job

        if dry_run:
            with display.stage("count"):
                found = replay_job.preview(spark, folder, selection, target)
            _print(results, found)
            return 0
        shown = _Shown(display)
        with display.bars(("replay", shown.total, shown.confirmed)):
            if resume is not None:
                done = replay_job.resume(spark, url, folder, resume, planned=shown.plan, progress=shown.progress)
            else:
                done = replay_job.replay(
                    spark, url, folder, selection=selection, target=target, pace=pace, connections=how.connections,
                    name=how.name, planned=shown.plan, progress=shown.progress,
                )  # fmt: skip
        results.say(f"{done.published:,} messages published and confirmed, {done.selected:,} in all")
        if done.repeated:
            display.say(
                f"{done.repeated:,} of them may be there twice: a connection was lost before they were confirmed"
            )
        return 0

    return run_job("replay", cluster, work)


def check(table: Archive, selection: Selection) -> None:
    """Raises InvalidArgument for a queue that the archive has no messages of."""
    from harebell.spark.jobs.archive.layout import folder_name

    there = {file.queue for file in table.files()}
    for queue in selection.queues:
        if folder_name(queue) not in there:
            known = ", ".join(sorted(there)) or "none"
            raise InvalidArgument(f"the archive {table.root} has no messages of queue '{queue}'; it has: {known}")


class _Shown:
    """The progress of a replay for the bar, and the line that says how to continue it."""

    def __init__(self, display: Display) -> None:
        self._display = display
        self._total: int | None = None
        self._confirmed = 0

    def plan(self, name: str, rows: int) -> None:
        self._total = rows
        self._display.say(f"replay {name}: {rows:,} messages; should it be interrupted, go on with --resume {name}")

    def progress(self, confirmed: int) -> None:
        self._confirmed = confirmed

    def total(self) -> int | None:
        return self._total

    def confirmed(self) -> int:
        return self._confirmed


def _print(results: Display, found: Preview) -> None:
    if found.first is not None and found.last is not None:
        results.say(
            f"{found.messages:,} messages, {found.bytes:,} bytes, {found.first:%F %T} to {found.last:%F %T} UTC"
        )
    else:
        results.say("no messages")
        return
    table = Table(show_edge=False, pad_edge=False)
    table.add_column("exchange", overflow="fold")
    table.add_column("routing key", overflow="fold")
    table.add_column("messages", justify="right", no_wrap=True)
    for route in found.routes[:SHOWN]:
        add_row(table, route.exchange or "(default)", route.routing_key, f"{route.messages:,}")
    results.console.print(table)
    more = len(found.routes) - SHOWN + found.other_routes
    if more > 0:
        results.say(f"and {more:,} more")
