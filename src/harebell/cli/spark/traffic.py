"""`harebell spark traffic`: reports the traffic of a broker as tables, a page, JSON or CSV."""

from __future__ import annotations

import csv
import json
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from harebell.cli.files import write_file
from harebell.cli.spark.checks import (
    asked_queue,
    check_broker,
    check_output,
    check_period,
    duration,
    temporary_folder,
)
from harebell.cli.spark.deadletters import table
from harebell.cli.spark.spark_job import DEFAULT_URL, Cluster, JsonFile, ReportFile, Url, run_job
from harebell.cli.terminal.output import say_lines
from harebell.cli.validators import Number, file_name, maybe_empty
from harebell.errors import InvalidArgument

if TYPE_CHECKING:
    from harebell.cli.terminal.display import Display
    from harebell.spark.jobs.sources import DataFrame, Origin
    from harebell.spark.jobs.traffic import Questions, Survey
    from harebell.spark.runtime.session import SparkSession

__all__ = ["traffic"]


def traffic(
    queue: Annotated[
        str | None, Parameter(help="A stream queue, or one that is bound to the firehose (amq.rabbitmq.trace).")
    ] = None,
    /,
    *,
    url: Url = DEFAULT_URL,
    archive: Annotated[str | None, Parameter(help="A folder of archived messages, instead of a queue.")] = None,
    watch: Annotated[str | None, Parameter(help="Record the broker's firehose for so long: 60s, 10m.")] = None,
    take: Annotated[
        bool, Parameter(negative=(), help="Drain a classic or quorum queue instead of only reading it.")
    ] = False,
    ticket: Annotated[
        str | None, Parameter(help="The name of what --take drains; one that exists is read again.")
    ] = None,
    spool: Annotated[str | None, Parameter(validator=file_name, help="The folder that --take drains into.")] = None,
    by: Annotated[
        Literal["exchange", "pattern", "queue"],
        Parameter(help="What windows, silences and unusual hours are grouped by."),
    ] = "exchange",
    window: Annotated[
        str | None, Parameter(help="Length of a window: 1s, 1m, 1h; left out: one that suits the data.")
    ] = None,
    pattern: Annotated[
        tuple[str, ...],
        Parameter(
            validator=maybe_empty, help="An AMQP topic pattern of routing keys; may be repeated, the first counts."
        ),
    ] = (),
    words: Annotated[
        int, Parameter(help="Without --pattern: the first words of the key.", validator=Number(gte=1))
    ] = 1,
    since: Annotated[datetime | None, Parameter(help="Only from this time on; UTC.")] = None,
    until: Annotated[datetime | None, Parameter(help="Only before this time; UTC.")] = None,
    where: Annotated[
        str | None, Parameter(help="Only events for which this SQL condition is true: \"queue = 'work'\"")
    ] = None,
    gap: Annotated[str | None, Parameter(help="List silences longer than this: 30s, 5m.")] = None,
    top: Annotated[int, Parameter(help="How many names.", validator=Number(gte=1))] = 20,
    capacity: Annotated[bool, Parameter(negative=(), help="Arrivals a second, and bytes a day.")] = False,
    consumer_rate: Annotated[
        float | None,
        Parameter(
            help="With --capacity: the backlog of consumers that take so many a second.",
            validator=Number(gt=0),
        ),
    ] = None,
    report: ReportFile = None,
    json_file: JsonFile = None,
    csv_folder: Annotated[
        Path | None, Parameter(name="--csv", help="Write each table as a CSV file into this folder.")
    ] = None,
    folder: Annotated[
        Path | None,
        Parameter(help="The folder of temporary files for Spark; on a cluster, one that all machines share."),
    ] = None,
    cluster: Cluster = Cluster(),  # noqa: B008  frozen
) -> int:
    """Report the traffic of a broker: rates, sizes, latency, top talkers, silences, unusual hours, needed capacity.

    Reads a stream queue, an archive, or the firehose, live or collected in a queue. Rows of the exchange
    amq.rabbitmq.trace are firehose copies; the report counts the messages that they are copies of.
    """
    from harebell.spark.jobs.sources import Origin, check_folder
    from harebell.spark.jobs.traffic import Questions

    origin, seconds = Origin(url, queue, archive, take, ticket, spool), None
    if watch is None:
        origin.check()
        if archive is not None:
            check_folder(archive)
    else:
        if queue is not None or archive is not None:
            raise InvalidArgument("--watch is instead of a queue or an archive")
        seconds = length("watch", watch)
    if consumer_rate is not None and not capacity:
        raise InvalidArgument("--consumer-rate is for --capacity: give --capacity too")
    asked = Questions(
        by, None if window is None else whole("window", window), pattern, words, where, aware(since), aware(until),
        None if gap is None else length("gap", gap), top, capacity, consumer_rate,
    )  # fmt: skip
    check_period(since, until)
    check_output("--report", report)
    check_output("--json", json_file)
    check_output("--spool", spool, folder=True)
    check_output("--csv", csv_folder, folder=True)
    cluster.settings()
    if queue is not None:
        origin = origin.of(asked_queue(url, queue))
    elif archive is None:
        check_broker(url)
    with temporary_folder(folder) as peeked:
        work = _Work(origin, seconds, peeked, asked)
        found = run_job("traffic", cluster, work.run)
    if report is not None:
        from harebell.cli.spark.traffic_page import page

        report.parent.mkdir(parents=True, exist_ok=True)
        write_file(report, page(found, work.what, f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"))
    if csv_folder is not None:
        write_csv(csv_folder, found)
    if json_file is not None:
        text = json.dumps({"source": work.what, **found.as_dict()}, indent=2, default=str, ensure_ascii=False)
        if json_file == "-":
            say_lines(text)
        else:
            write_file(json_file, text + "\n")
    if json_file != "-":
        show(work.display, found, work.what)
        if report is not None:
            work.display.say(f"report: {report.absolute()}")
    return 0


def length(name: str, text: str) -> float:
    """The seconds in a text such as "90", "90s", "1.5m", "2h" or "1d". Raises InvalidArgument."""
    return duration(name, text, plain="s")


def whole(name: str, text: str) -> int:
    """A length of time in whole seconds. Raises InvalidArgument."""
    seconds = length(name, text)
    if seconds != int(seconds):
        raise InvalidArgument(f"--{name} is {text!r}; it takes whole seconds")
    return int(seconds)


def aware(time: datetime | None) -> datetime | None:
    return time if time is None or time.tzinfo is not None else time.replace(tzinfo=UTC)


class _Work:
    """The job, which runs in Spark's thread. `what` then describes the source of the messages."""

    display: Display
    what = ""

    def __init__(self, origin: Origin, watch: float | None, folder: Path, asked: Questions) -> None:
        self._origin = origin
        self._watch = watch
        self._folder = folder
        self._asked = asked

    def run(self, spark: SparkSession, display: Display) -> Survey:
        from harebell.spark.jobs.traffic import events, survey

        self.display = display
        rows = self._rows(spark, display)
        with display.stage("survey"):
            return survey(events(rows), self._asked)

    def _rows(self, spark: SparkSession, display: Display) -> DataFrame:
        from harebell.spark.jobs.literal_paths import literal_paths
        from harebell.spark.jobs.sources import messages
        from harebell.spark.jobs.traffic import firehose_schema, watch

        count = 0

        def report(number: int) -> None:
            nonlocal count
            count = number

        if self._watch is None:
            if self._origin.archive is not None:
                found = messages(spark, self._origin, self._folder)
            else:
                with display.bars((f"read {self._origin.queue}", lambda: None, lambda: count)):
                    found = messages(spark, self._origin, self._folder, progress=report)
            self.what = found.what
            return found.frame
        with display.bars((f"watch for {self._watch:g} s", lambda: None, lambda: count)):
            seen = watch(self._origin.url, self._watch, self._folder, progress=report)
        if not seen:
            display.say("the firehose said nothing: is it on? (RabbitMQ: rabbitmqctl trace_on)")
        self.what = f"the firehose, watched for {self._watch:g} s"
        return literal_paths(spark).schema(firehose_schema()).parquet(str(self._folder))


def show(display: Display, found: Survey, what: str) -> None:
    """Print the tables on the terminal."""
    display.say(f"{found.events:,} events ({what})")
    if found.untimed:
        display.say(f"{found.untimed:,} of them have no time; they count for the talkers only")
    if found.archived:
        display.say(f"{found.archived:,} of them have no time of their own: theirs is when the archive got them")
    late = ("p95_latency",) if found.latency["messages"] else ()
    tables: list[tuple[tuple[str, ...], list[dict[str, Any]]]] = [
        ((by, "messages", "share", "bytes", "p95_bytes", *late), [{by: row["name"], **row} for row in rows])
        for by, rows in found.talkers.items()
    ]
    tables += [
        (("hour", "name", "messages", "usual", "score"), found.anomalies),
        (("name", "from", "to", "seconds"), found.gaps),
        (("day", "messages", "bytes"), found.daily),
    ]
    if found.arrivals is not None:
        tables.append((("mean", "median", "p95", "p99", "most"), [found.arrivals]))
    for columns, rows in tables:
        if rows:
            display.console.print()
            display.console.print(table(columns, rows))
    if found.backlog:
        deepest = max(row["depth"] for row in found.backlog)
        display.say(f"\nat {found.rate:g} messages a second up to {deepest:,.0f} wait")


def write_csv(folder: Path, found: Survey) -> None:
    """Write a file for each table that has rows."""
    tables = {
        "windows": found.windows, "gaps": found.gaps, "anomalies": found.anomalies, "daily": found.daily,
        "backlog": found.backlog, "latency": [found.latency],
        **{f"talkers-{by}": rows for by, rows in found.talkers.items()},
        **({} if found.arrivals is None else {"arrivals": [found.arrivals]}),
    }  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in tables.items():
        if rows:
            text = StringIO()
            writer = csv.DictWriter(text, rows[0].keys())
            writer.writeheader()
            writer.writerows(rows)
            write_file(folder / f"{name}.csv", text.getvalue())
