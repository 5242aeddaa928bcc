"""What `harebell spark simulate` and `harebell spark diff` share: messages, topology, and how numbers look."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Column, Table

from harebell.errors import InvalidArgument

if TYPE_CHECKING:
    from harebell.routing.topology import Topology
    from harebell.spark.jobs.simulate import Profile
    from harebell.spark.jobs.simulate.simulation import DataFrame
    from harebell.spark.runtime.session import SparkSession

__all__ = [
    "Messages",
    "binding_text",
    "bytes_text",
    "count_text",
    "file_text",
    "listing",
    "right",
    "time_text",
    "topology_from",
    "wide_console",
]

WIDTH: Final = 140
MINUTE: Final = 60.0
SHORT: Final = 600.0  # seconds of an archive whose windows have one second each


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Messages:
    """The messages to route: one of archive, queue and profile."""

    archive: Annotated[Path | None, Parameter(help="A folder of Parquet files, as `harebell spark archive` makes.")] = (
        None
    )
    queue: Annotated[str | None, Parameter(help="A stream queue at --url; it keeps its messages.")] = None
    profile: Annotated[
        str | None,
        Parameter(help="Generated: developer, production, departmental, regional, global or market-data."),
    ] = None
    hours: Annotated[float, Parameter(help="How long a profile's traffic goes on.")] = 1.0
    scale: Annotated[float, Parameter(help="A profile with so many times its messages.")] = 1.0
    where: Annotated[str | None, Parameter(help="Only messages for which this SQL condition holds.")] = None
    exchange: Annotated[str | None, Parameter(help="For messages that do not say to which exchange they went.")] = None
    window: Annotated[
        float | None,
        Parameter(
            help="Seconds of the windows in which messages are counted. Left out: 60, and 1 for an archive of ten "
            "minutes or less."
        ),
    ] = None
    duration: Annotated[
        float | None, Parameter(help="How many seconds messages without a timestamp took, all together.")
    ] = None

    def check(self) -> None:
        """Raises InvalidArgument for what cannot be meant."""
        given = [name for name in ("archive", "queue", "profile") if getattr(self, name) is not None]
        if len(given) != 1:
            raise InvalidArgument("name the messages with one of --archive, --queue and --profile")
        if self.profile is None and (self.hours, self.scale) != (1.0, 1.0):
            raise InvalidArgument("--hours and --scale are for --profile")
        if self.profile is not None and self.duration is not None:
            raise InvalidArgument("--duration is for messages without a timestamp; a profile takes --hours")
        if self.window is not None and not self.window > 0:
            raise InvalidArgument(f"--window is above 0, not {self.window:g}")
        if not self.hours > 0:
            raise InvalidArgument(f"--hours is above 0, not {self.hours:g}")
        if self.duration is not None and not self.duration > 0:
            raise InvalidArgument(f"--duration is above 0, not {self.duration:g}")
        if self.archive is not None:
            from harebell.spark.jobs.sources import check_folder

            check_folder(str(self.archive))
        self.chosen()

    def chosen(self) -> Profile | None:
        """The profile. Raises InvalidArgument when there is none of that name."""
        if self.profile is None:
            return None
        from harebell.spark.jobs.simulate import profile

        return profile(self.profile).scaled(self.scale)

    @property
    def what(self) -> str:
        """The messages, for people."""
        if self.archive is not None:
            return f"the archive {self.archive}"
        if self.queue is not None:
            return f"the stream {self.queue}"
        return f"the profile {self.profile}, {self.hours:g} h" + (f", x {self.scale:g}" if self.scale != 1 else "")

    def frame(self, spark: SparkSession, url: str) -> DataFrame:
        """The messages as a DataFrame."""
        profile = self.chosen()
        if profile is not None:
            frame = profile.traffic(spark, self.hours * 3600, self.width())
        elif self.archive is not None:
            from harebell.spark.jobs.sources import archived

            frame = archived(spark, str(self.archive))
        else:
            reader = spark.read.format("amqp").option("url", url).option("queue", self.queue)
            frame = reader.option("queueType", "stream").load()
        if self.where is None:
            return frame
        from harebell.spark.jobs.conditions import filtered

        return filtered(frame, self.where)

    def width(self, frame: DataFrame | None = None) -> float:
        """The length of a window; `frame` are the messages."""
        if self.window is not None:
            return self.window
        if self.archive is not None and frame is not None:
            from harebell.spark.jobs.simulate import span

            seconds = span(frame)
            if seconds is not None and seconds <= SHORT:
                return 1.0
        return MINUTE

    def broker(self, url: str) -> str | None:
        """The broker that is needed: the URL, or None."""
        return None if self.queue is None else url


def topology_from(path: Path, vhost: str | None) -> Topology:
    """The topology in a definitions file. Raises InvalidArgument, with the file's name."""
    from harebell.spark.jobs.simulate import topology_of

    try:
        text = path.read_bytes()
    except OSError as error:
        raise InvalidArgument(f"{path}: {error.strerror}") from None
    try:
        return topology_of(text, vhost)
    except InvalidArgument as error:
        raise InvalidArgument(f"{path}: {error}") from None


def file_text(path: Path, text: str) -> None:
    """Write a file. Raises InvalidArgument when that cannot be."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidArgument(f"{path}: {error.strerror}") from None


def wide_console() -> Console:
    """Standard output; wide enough for the tables where it is no terminal, and so has no width."""
    console = Console()
    return console if console.is_terminal else Console(width=WIDTH)


def listing(*columns: str | Column) -> Table:
    """A table with as few lines as can be."""
    return Table(*columns, box=SIMPLE_HEAD, show_edge=False, pad_edge=False)


def right(name: str) -> Column:
    """A column of numbers."""
    return Column(name, justify="right", no_wrap=True)


def count_text(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 or number == int(number) else f"{number:,.1f}"


def binding_text(key: str, arguments: Mapping[str, object]) -> str:
    """A binding's key, and what a headers exchange looks at: "x-match=all, haul=long"."""
    return ", ".join(filter(None, (key, *(f"{name}={value}" for name, value in arguments.items()))))


def bytes_text(number: float) -> str:
    """1.5 GiB, and so on."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if number < 1024 or unit == "TiB":
            break
        number /= 1024
    return f"{number:,.0f} {unit}" if number >= 100 or unit == "B" else f"{number:,.1f} {unit}"


def time_text(seconds: float | None) -> str:
    """90 s, 12 min, 3.5 h; a dash for never."""
    if seconds is None:
        return "never"
    for most, size, unit in ((120.0, 1, "s"), (7200.0, 60, "min"), (172_800.0, 3600, "h")):
        if seconds < most:
            return f"{seconds / size:,.0f} {unit}"
    return f"{seconds / 86_400:,.1f} days"
