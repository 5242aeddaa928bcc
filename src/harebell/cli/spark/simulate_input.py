"""The input of `harebell spark simulate` and `diff`: messages chosen by options, a topology from its file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter

from harebell.cli.spark.checks import asked_queue
from harebell.cli.validators import maybe_empty
from harebell.errors import InvalidArgument

if TYPE_CHECKING:
    from harebell.routing.topology import Topology
    from harebell.spark.jobs.simulate import Profile
    from harebell.spark.jobs.simulate.simulation import DataFrame
    from harebell.spark.runtime.session import SparkSession

__all__ = ["Messages", "topology_from"]

MINUTE: Final = 60.0
SHORT: Final = 600.0  # seconds of an archive whose windows have one second each


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Messages:
    """The options that choose the messages to route: one of archive, queue and profile."""

    archive: Annotated[Path | None, Parameter(help="A folder of Parquet files, as `harebell spark archive` makes.")] = (
        None
    )
    queue: Annotated[str | None, Parameter(help="A stream queue at --url; it keeps its messages.")] = None
    profile: Annotated[
        str | None,
        Parameter(help="Generated: developer, production, departmental, regional, global or market-data."),
    ] = None
    hours: Annotated[float, Parameter(help="How long a profile's traffic lasts.")] = 1.0
    scale: Annotated[float, Parameter(help="Multiplies the messages of a profile.")] = 1.0
    where: Annotated[str | None, Parameter(help="Only messages for which this SQL condition holds.")] = None
    exchange: Annotated[
        str | None, Parameter(validator=maybe_empty, help="The exchange of messages that do not name one.")
    ] = None
    window: Annotated[
        float | None,
        Parameter(
            help="Seconds of the windows in which messages are counted. Left out: 60, and 1 for an archive of ten "
            "minutes or less."
        ),
    ] = None
    duration: Annotated[
        float | None, Parameter(help="Seconds from the first to the last message, for messages without timestamps.")
    ] = None

    def check(self) -> None:
        """Raises InvalidArgument for options that exclude each other."""
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
        """A description of the messages, for the report."""
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
            from harebell.spark.options import queue_option

            assert self.queue is not None
            reader = spark.read.format("amqp").option("url", url).option("queue", queue_option(self.queue))
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

    def ask(self, url: str) -> None:
        """Ask the broker, where the messages are in a queue. Raises NotFound, InvalidArgument when it is no stream."""
        if self.queue is not None and asked_queue(url, self.queue) != "stream":
            raise InvalidArgument(
                f"queue '{self.queue}' is no stream queue, which reading leaves as it is: tap it first (harebell spark "
                "tap), or give an archive"
            )


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
