"""`harebell spark deadletters`: why messages died, as tables, a page or JSON; and sending a selection of them back."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter
from rich.table import Table

from harebell.cli.files import write_file
from harebell.cli.html.page import clip
from harebell.cli.spark.checks import asked_queue, check_exchange, check_output, temporary_folder
from harebell.cli.spark.spark_job import DEFAULT_URL, Cluster, JsonFile, ReportFile, Url, run_job
from harebell.cli.terminal.consoles import add_row
from harebell.cli.terminal.output import say, say_lines
from harebell.cli.validators import Number, file_name, maybe_empty
from harebell.errors import InvalidArgument

if TYPE_CHECKING:
    from harebell.cli.terminal.display import Display
    from harebell.spark.jobs.deadletters import Plan, Redriven, Triage
    from harebell.spark.jobs.sources import Messages, Origin
    from harebell.spark.runtime.session import SparkSession

__all__ = ["deadletters"]

LONGEST = 400  # letters of a cell
SHOWN = 10  # rows of a table on the terminal
OPTIONS_OF_REDRIVE = (
    "where", "reason", "queue", "limit", "dry-run", "to", "to-exchange", "to-key", "max-redrives", "state",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Asked:
    """The options of a redrive."""

    where: str | None
    reason: str | None
    queue: str | None
    limit: int | None
    dry_run: bool
    to: Literal["exchange", "queue"]
    to_exchange: str | None
    to_key: str | None
    max_redrives: int
    state: Path | None


def deadletters(
    dead_letter_queue: Annotated[str | None, Parameter(help="The dead-letter queue to read.")] = None,
    /,
    *,
    url: Url = DEFAULT_URL,
    archive: Annotated[
        str | None, Parameter(help="A folder of Parquet files with archived dead letters, instead of a queue.")
    ] = None,
    take: Annotated[
        bool, Parameter(negative=(), help="Drain the queue into the spool instead of only reading it.")
    ] = False,
    ticket: Annotated[
        str | None, Parameter(help="The name of what --take drains; one that exists is read again.")
    ] = None,
    spool: Annotated[str | None, Parameter(validator=file_name, help="The folder that --take drains into.")] = None,
    top: Annotated[int, Parameter(help="How many origins and payload patterns.", validator=Number(gte=1))] = 20,
    report: ReportFile = None,
    json_file: JsonFile = None,
    redrive: Annotated[
        bool, Parameter(negative=(), help="Send messages back to where they came from; see the options that follow.")
    ] = False,
    where: Annotated[
        str | None, Parameter(help="Only those for which this SQL condition is true: \"text like '%timeout%'\"")
    ] = None,
    reason: Annotated[
        str | None, Parameter(help="Only those that died for this reason: rejected, expired, maxlen, ...")
    ] = None,
    queue: Annotated[str | None, Parameter(help="Only those that died in this queue.")] = None,
    limit: Annotated[
        int | None, Parameter(help="Only so many, the oldest in the queue first.", validator=Number(gte=1))
    ] = None,
    dry_run: Annotated[bool, Parameter(negative=(), help="Say what would be sent where, and send nothing.")] = False,
    to: Annotated[
        Literal["exchange", "queue"],
        Parameter(help="Back to the exchange, so to all queues bound to it again; or only to the queue they died in."),
    ] = "exchange",
    to_exchange: Annotated[str | None, Parameter(validator=maybe_empty, help="To this exchange instead.")] = None,
    to_key: Annotated[str | None, Parameter(validator=maybe_empty, help="With this routing key instead.")] = None,
    max_redrives: Annotated[
        int,
        Parameter(help="Leave out messages that were sent back so often already.", validator=Number(gte=1)),
    ] = 3,
    state: Annotated[
        Path | None, Parameter(help="The file that records what was sent, for a run after a crash.")
    ] = None,
    folder: Annotated[
        Path | None,
        Parameter(help="The folder of temporary files for Spark; on a cluster, one that all machines share."),
    ] = None,
    cluster: Cluster = Cluster(),  # noqa: B008  frozen
) -> int:
    """Show why the messages of a dead-letter queue died, and send back a selection of them.

    The messages stay in the queue: on Harebell's broker they are browsed; on others they are held and requeued, which
    marks them as redelivered. --redrive publishes with confirms before it removes a message, so that nothing is lost,
    and a run after a killed one does not publish confirmed messages again.

    Ends with 0 when done, 1 when some messages could not be sent back.
    """
    from harebell.spark.jobs.sources import Origin, check_folder

    origin = Origin(url, dead_letter_queue, archive, take, ticket, spool)
    origin.check()
    asked = Asked(where, reason, queue, limit, dry_run, to, to_exchange, to_key, max_redrives, state)
    check(asked, redrive, origin)
    if archive is not None:
        check_folder(archive)
    check_output("--report", report)
    check_output("--json", json_file)
    check_output("--spool", spool, folder=True)
    cluster.settings()
    if dead_letter_queue is not None:
        kind = asked_queue(url, dead_letter_queue)
        if redrive and kind == "stream":
            raise InvalidArgument("--redrive takes from a classic or quorum queue; a stream keeps what it has")
        origin = origin.of(kind)
        if redrive and not dry_run:
            check_exchange(url, to_exchange, "--to-exchange")
    with temporary_folder(folder) as peeked:
        work = _Work(origin, peeked, top, asked if redrive else None)
        found = run_job("deadletters", cluster, work.run)
    if report is not None:
        from harebell.cli.spark.deadletters_page import page

        report.parent.mkdir(parents=True, exist_ok=True)
        write_file(report, page(found.triage, found.what, f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"))
    if json_file is not None:
        write_json(json_file, found)
    if json_file != "-":
        show(work.display, found)
        if report is not None:
            work.display.say(f"report: {report.absolute()}")
    return 1 if found.done is not None and found.done.refused else 0


def check(asked: Asked, redrive: bool, origin: Origin) -> None:
    """Raises InvalidArgument for options that exclude each other."""
    if redrive:
        if origin.archive is not None:
            raise InvalidArgument(
                "--redrive takes from a queue; from an archive, publish them again with: "
                f"harebell spark replay {origin.archive} --queue DEAD_LETTER_QUEUE --to-exchange NAME"
            )
        if origin.take:
            raise InvalidArgument("--redrive needs the messages in their queue: leave out --take")
        return
    for name in OPTIONS_OF_REDRIVE:
        value = getattr(asked, name.replace("-", "_"))
        if value not in (None, False, "exchange", 3):
            raise InvalidArgument(f"--{name} is for --redrive: give --redrive too")


@dataclass(slots=True)
class Found:
    """The result of the job; plan and done are None without --redrive."""

    what: str
    triage: Triage
    plan: Plan | None = None
    done: Redriven | None = None


class _Work:
    """The job, which runs in Spark's thread."""

    display: Display

    def __init__(self, origin: Origin, folder: Path, top: int, asked: Asked | None) -> None:
        self._origin = origin
        self._folder = folder
        self._top = top
        self._asked = asked

    def run(self, spark: SparkSession, display: Display) -> Found:
        from harebell.spark.jobs.deadletters import triage
        from harebell.spark.jobs.sources import messages

        self.display, seen = display, _Number()
        if self._origin.archive is not None:
            rows = self._archived(messages(spark, self._origin, self._folder), display)
        else:
            with display.bars((f"look into {self._origin.queue}", lambda: None, lambda: seen.value)):
                rows = messages(spark, self._origin, self._folder, progress=seen.set)
        with display.stage("triage"):
            found = Found(rows.what, triage(rows.frame, datetime.now(UTC), self._top))
        if self._asked is not None:
            self._redrive(rows, self._asked, found, display)
        return found

    def _archived(self, rows: Messages, display: Display) -> Messages:
        """The messages that died; an archive may have others, of other queues."""
        from harebell.spark.jobs.deadletters import with_a_death

        with display.stage("look for dead letters"):
            everything, dead = rows.frame.count(), with_a_death(rows.frame)
            left_out = everything - dead.count()
        if everything and left_out == everything:
            raise InvalidArgument(
                f"none of the {everything:,} messages in {self._origin.archive} has died (none has the header "
                "x-death): name an archive of a dead-letter queue"
            )
        if left_out:
            display.say(f"{left_out:,} other messages of the archive have not died, and are left out")
        return replace(rows, frame=dead)

    def _redrive(self, rows: Messages, asked: Asked, found: Found, display: Display) -> None:
        from harebell.spark.jobs.deadletters import (
            Ledger,
            Target,
            dead_letters,
            default_ledger,
            plan_of,
            redrive,
            selection,
        )

        if rows.peeked is None:
            raise InvalidArgument("--redrive takes from a classic or quorum queue; a stream keeps what it has")
        with display.stage("choose"):
            chosen = selection(dead_letters(rows.frame), where=asked.where, reason=asked.reason, queue=asked.queue)
            target = Target(asked.to, asked.to_exchange, asked.to_key)
            found.plan = plan_of(chosen, target, limit=asked.limit, max_redrives=asked.max_redrives)
        if asked.dry_run:
            return
        url, queue, sent = self._origin.url, rows.peeked.queue, _Number()
        with (
            Ledger(asked.state or default_ledger(url, queue)) as ledger,
            display.bars(("redrive", found.plan.messages, lambda: sent.value)),
        ):
            found.done = redrive(url, queue, found.plan, ledger, progress=sent.set)


class _Number:
    """A number that one thread sets and another reads."""

    def __init__(self) -> None:
        self.value = 0

    def set(self, value: int) -> None:
        self.value = value


def show(display: Display, found: Found) -> None:
    """Print the tables on the terminal."""
    total = found.triage.summary
    display.say(f"{total['messages']:,} dead letters ({found.what})")
    tables = (
        (("reason", "queue", "messages", "deaths", "first", "last"), found.triage.reasons),
        (("first_exchange", "first_key", "messages", "bytes"), found.triage.origins),
        (("messages", "pattern"), found.triage.patterns),
        (("queue", "messages", "most", "deaths"), found.triage.cycles),
    )
    for columns, rows in tables:
        if rows:
            display.console.print()
            display.console.print(table(columns, rows))
    if found.plan is not None:
        display.console.print()
        verb = "to be sent back" if found.done is None else "chosen"
        display.say(f"{found.plan.messages:,} messages {verb}")
        for (exchange, key), count in list(found.plan.places().items())[:SHOWN]:
            display.say(f"  {count:,} to exchange '{exchange}' with key '{key}'")
        if (more := len(found.plan.places()) - SHOWN) > 0:
            display.say(f"  and to {more:,} more places")
        if found.plan.spent:
            display.say(f"{found.plan.spent:,} left alone: they were sent back too often already (--max-redrives)")
        if found.plan.homeless:
            text = "left alone: nothing says where they came from (--to-exchange, --to-key)"
            display.say(f"{found.plan.homeless:,} {text}")
    if found.done is not None:
        show_done(display, found.done)


def show_done(display: Display, done: Redriven) -> None:
    display.say(f"{done.confirmed:,} sent back and confirmed")
    if done.repeated:
        display.say(f"  {done.repeated:,} of them perhaps for the second time, marked x-redriven-again")
    if done.already:
        display.say(f"{done.already:,} had been sent by an interrupted run; removed")
    if done.missing:
        display.say(f"{done.missing:,} were not in the queue any more")
    for text, count in done.refused.items():
        say(f"harebell: {count:,} messages stayed: {text}", sys.stderr)


def table(columns: tuple[str, ...], rows: list[dict[str, Any]]) -> Table:
    """The first rows as a table for the terminal."""
    made = Table(show_edge=False, pad_edge=False)
    for name in columns:
        number = any(isinstance(row[name], int | float) for row in rows)
        heading = name.replace("first_", "").replace("_", " ")
        made.add_column(heading, justify="right" if number else "left", overflow="fold", no_wrap=number)
    for row in rows[:SHOWN]:
        add_row(made, *(text(row[name]) for name in columns))
    return made


def text(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, int) else clip(str(value), LONGEST)


def write_json(place: str, found: Found) -> None:
    content: dict[str, Any] = {"source": found.what, **found.triage.as_dict()}
    if found.plan is not None:
        content["redrive"] = {
            "chosen": found.plan.messages, "spent": found.plan.spent, "homeless": found.plan.homeless,
            "places": [{"exchange": e, "routing_key": k, "messages": n} for (e, k), n in found.plan.places().items()],
        }  # fmt: skip
        if found.done is not None:
            done = found.done
            content["redrive"] |= {
                "confirmed": done.confirmed, "repeated": done.repeated, "already": done.already,
                "missing": done.missing, "refused": done.refused,
            }  # fmt: skip
    text = json.dumps(content, indent=2, default=str, ensure_ascii=False)
    if place == "-":
        say_lines(text)
    else:
        write_file(place, text + "\n")
