"""`harebell spark archive`: queues and streams into Parquet, Delta or Iceberg, counted; compacted; verified."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter
from rich.table import Table

from harebell.cli.spark.checks import asked_queue, check_broker, timed
from harebell.cli.spark.spark_job import DEFAULT_URL, Cluster, Url, run_job
from harebell.cli.terminal.consoles import add_row, new_console
from harebell.cli.terminal.display import Display
from harebell.cli.validators import Number
from harebell.errors import ArchiveIncomplete, DataLoss, InvalidArgument, PreconditionFailed

if TYPE_CHECKING:
    from harebell.spark.jobs.archive import Archived
    from harebell.spark.runtime.session import SparkSession

__all__ = ["archive"]

MEBI: Final = 1 << 20
TAP_SECONDS: Final = 30.0
MANY_SMALL: Final = 50  # files that --compact would merge, from which on it is recommended


def archive(
    folder: Annotated[Path, Parameter(help="The archive's folder; created if missing.")],
    /,
    *queues: Annotated[str, Parameter(help="What to archive: streams stay as they are, other queues are drained.")],
    url: Url = DEFAULT_URL,
    delta: Annotated[bool, Parameter(negative=(), help="A Delta table instead of plain Parquet files.")] = False,
    iceberg: Annotated[bool, Parameter(negative=(), help="An Iceberg table instead of plain Parquet files.")] = False,
    catalog_table: Annotated[
        str | None,
        Parameter(help="With --iceberg: catalog.namespace.table, the catalog one of pyiceberg's configuration."),
    ] = None,
    every: Annotated[
        timedelta | None,
        Parameter(
            help="Run until Ctrl-C, with a batch every 30s, 5m, ...; left out: archive what the queues have now.",
            converter=timed,
            allow_leading_hyphen=True,
        ),
    ] = None,
    key_words: Annotated[
        int, Parameter(help="Words of the routing key that name a folder.", validator=Number(gte=0))
    ] = 1,
    batch: Annotated[int, Parameter(help="Messages of a batch.", validator=Number(gte=1))] = 200_000,
    skip_lost: Annotated[
        bool, Parameter(negative=(), help="Continue if a stream has dropped messages before they were archived.")
    ] = False,
    tap: Annotated[
        bool,
        Parameter(
            negative=(),
            help="Drain nothing: archive stream queues beside the queues, with their bindings; declared if missing.",
        ),
    ] = False,
    management_url: Annotated[
        str | None, Parameter(help="With --tap: a RabbitMQ's management plugin, which knows its bindings.")
    ] = None,
    compact: Annotated[
        bool, Parameter(negative=(), help="Then merge small files of past days into large ones.")
    ] = False,
    file_size: Annotated[
        int, Parameter(help="Size of the files that --compact writes, in MiB.", validator=Number(gte=1))
    ] = 128,
    verify: Annotated[bool, Parameter(negative=(), help="Then count every row of the archive.")] = False,
    cluster: Cluster = Cluster(),  # noqa: B008  # frozen
) -> int:
    """Write the messages of queues into an archive, every one exactly once.

    The next run continues where the last one ended. Without queues, --compact and --verify use the archive as it is.
    """
    if not (queues or compact or verify):
        raise InvalidArgument("name the queues to archive, or say --compact or --verify")
    if delta and iceberg:
        raise InvalidArgument("an archive is one table: --delta or --iceberg, not both")
    if catalog_table is not None and not iceberg:
        raise InvalidArgument("--catalog-table is for --iceberg: give --iceberg too")
    if tap and not queues:
        raise InvalidArgument("--tap is for queues: name them")
    if management_url is not None and not tap:
        raise InvalidArgument("--management-url is for --tap: give --tap too")
    from harebell.spark.runtime.session import SMALL_HEAP, check_packages

    check_packages()
    from harebell.spark.jobs.archive import Archived, prepare
    from harebell.spark.jobs.archive.table import find_table, find_writable_table

    if not queues:
        (find_writable_table if compact else find_table)(folder)
    stop = threading.Event()
    results = Display(new_console())
    prepared = None
    cluster.settings()
    if queues:
        check_broker(url)
        if tap:
            queues = tuple(_tapped(results, url, queue, management_url) for queue in queues)
        prepared = prepare(
            url,
            queues,
            folder,
            table="delta" if delta else "iceberg" if iceberg else "parquet",
            catalog_table=catalog_table,
            key_words=key_words,
            every=None if every is None else every.total_seconds(),
            options={"maxMessagesPerTrigger": str(batch), **({"failOnDataLoss": "false"} if skip_lost else {})},
        )

    def work(spark: SparkSession, display: Display) -> int:
        if prepared is not None:
            tally = _Tally()
            try:
                with display.bars(("archive", lambda: None, tally.now)):
                    done = prepared.run(spark, stop, tally.set, display.say)
            except ArchiveIncomplete as error:
                if isinstance(error.archived, Archived):
                    _print(results, error.archived)
                raise
            _print(results, done)
        if not compact:
            _warn_of_small_files(results, folder, file_size * MEBI)
        if compact:
            _compact(spark, display, results, folder, file_size * MEBI)
        if verify:
            _verify(spark, display, results, folder)
        return 0

    heap = None if compact or verify else SMALL_HEAP
    with _gentle_end(stop, wanted=every is not None):
        return run_job("archive", cluster, work, local=heap)


def _tapped(results: Display, url: str, queue: str, management_url: str | None) -> str:
    """The stream queue to archive instead of `queue`: its tap, or the queue itself if it is a stream queue."""
    from harebell.spark.streams.tap import tap

    if asked_queue(url, queue) == "stream":
        return queue
    try:
        made = tap(url, queue, management_url=management_url, timeout=TAP_SECONDS)
    except PreconditionFailed as error:
        raise InvalidArgument(
            f"the stream queue '{queue}.tap' is there, with other settings than --tap gives it: archive it by its own "
            "name, without --tap"
        ) from error
    results.say(f"'{queue}' keeps its messages: archiving '{made.stream}', which gets copies of what is published")
    return made.stream


class _Tally:
    """A number that one thread sets and another shows."""

    def __init__(self) -> None:
        self._number = 0

    def set(self, number: int) -> None:
        self._number = number

    def now(self) -> int:
        return self._number


def _print(results: Display, done: Archived) -> None:
    table = Table(show_edge=False, pad_edge=False)
    for name in ("queue", "kind"):
        table.add_column(name, overflow="fold")
    for name in ("batches", "messages"):
        table.add_column(name, justify="right", no_wrap=True)
    for each in done.queues:
        add_row(table, each.queue, each.kind, f"{each.batches:,}", f"{each.rows:,}")
    results.console.print(table)
    files = "1 file" if done.files == 1 else f"{done.files:,} files"
    results.say(f"{done.added:,} messages archived; the archive has {done.rows:,} in {files}")


def _warn_of_small_files(results: Display, folder: Path, target: int) -> None:
    """Say that --compact would help, where reading the archive takes much longer than it need to."""
    from harebell.spark.jobs.archive.compaction import small_files
    from harebell.spark.jobs.archive.table import find_table

    files = find_table(folder).files()
    if (small := small_files(files, target)) >= MANY_SMALL:
        results.say(
            f"{small:,} of the archive's {len(files):,} files are small and of past days: reading them takes long, and "
            f"`harebell spark archive {folder} --compact` merges them"
        )


def _compact(spark: SparkSession, display: Display, results: Display, folder: Path, target: int) -> None:
    from harebell.spark.jobs.archive import compact

    tally = _Tally()
    with display.bars(("compact", lambda: None, tally.now)):
        made = compact(spark, folder, target=target, progress=tally.set)
    if not made.files_before:
        results.say(f"no small files of past days; {made.deleted:,} old files deleted")
        return
    results.say(
        f"{made.files_before:,} small files of past days are {made.files_after:,} now ({made.rows:,} rows, "
        f"{made.bytes_before / MEBI:,.1f} MiB to {made.bytes_after / MEBI:,.1f}); {made.deleted:,} old files deleted"
    )


def _verify(spark: SparkSession, display: Display, results: Display, folder: Path) -> None:
    from harebell.spark.jobs.archive import verify

    with display.stage("count every row"):
        found = verify(spark, folder)
    results.say(f"{found.rows:,} rows in the files, {found.logged:,} in the archive's log")
    if found.repeated_ids:
        results.say(f"{found.repeated_ids:,} rows have a message_id that another row of their queue has")
    if found.far_timestamps:
        results.say(
            f"{found.far_timestamps:,} rows have a timestamp that no date holds (milliseconds?): it is in the column "
            "timestamp_number, and a replay gives it back"
        )
    if not found.sound:
        raise DataLoss(
            f"the archive is not sound: {found.logged - found.rows:,} rows are missing, "
            f"{found.repeated_offsets:,} are there twice"
        )


@contextmanager
def _gentle_end(stop: threading.Event, *, wanted: bool) -> Iterator[None]:
    """If `wanted`, the first SIGINT or SIGTERM sets `stop`, and a second one has its usual effect."""
    if not wanted:
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def handle(number: int, frame: FrameType | None) -> None:
        stop.set()
        restore()

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    for number in before:
        signal.signal(number, handle)
    try:
        yield
    finally:
        restore()
