"""What a `harebell spark` command finds out before Spark starts, which takes seconds: wrong names, places and values.

Each function raises a HarebellError, whose text names the option and what it takes. A broker that does not answer is
not waited for: a job that has begun is more patient.
"""

from __future__ import annotations

import os
import re
import tempfile
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from harebell.errors import InvalidArgument, NotFound

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = [
    "asked_queue", "check_broker", "check_exchange", "check_output", "check_period", "duration", "temporary_folder",
    "timed",
]  # fmt: skip

ANSWER_SECONDS: Final = 10.0
UNITS: Final = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}
LONGEST: Final = 100 * 366 * 86_400  # seconds; a timedelta and Spark's milliseconds have more, a datetime not much more
_TIME: Final = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([a-zA-Z]*)\s*")


def check_broker(url: str) -> None:
    """Connect to the broker and log in. Raises ConnectionLost, AccessRefused, ... when that fails."""
    from harebell.spark.connection import Link
    from harebell.spark.options.address import Address

    Link(Address(url), ANSWER_SECONDS).close()


def asked_queue(url: str, queue: str) -> Literal["stream", "spool"]:
    """Whether the queue is a stream queue, or one that would be drained. Raises NotFound, and as `check_broker`."""
    from harebell.spark.connection import probe_family
    from harebell.spark.options.address import Address

    return probe_family(Address(url), queue, ANSWER_SECONDS)


def check_exchange(url: str, exchange: str | None, option: str) -> None:
    """Raises NotFound when there is no such exchange; None and the default exchange are always there."""
    from harebell.spark.connection import Link
    from harebell.spark.options.address import Address

    if not exchange:
        return
    with Link(Address(url), ANSWER_SECONDS) as link:
        try:
            link.channel.exchange_declare(exchange, passive=True)
        except NotFound as error:
            raise NotFound(f"{error.detail}: declare it, or give {option} another one") from error


def check_output(option: str, *places: Path | str | None, folder: bool = False) -> None:
    """Raises InvalidArgument when a file (with `folder`: a folder) cannot be written there. "-" is standard output."""
    for place in places:
        if place is None or place == "-":
            continue
        path = Path(place)
        if path.exists() and path.is_dir() != folder:
            kind, wanted = ("a folder", "a file") if path.is_dir() else ("a file", "a folder")
            raise InvalidArgument(f"{option}: {path} is {kind}; it takes the name of {wanted}")
        above = path if folder else path.parent
        while not above.exists() and above != above.parent:
            above = above.parent
        if not above.is_dir():
            raise InvalidArgument(f"{option}: {path} cannot be written: {above} is not a folder")
        if not os.access(above, os.W_OK | os.X_OK) or (path.is_file() and not os.access(path, os.W_OK)):
            raise InvalidArgument(f"{option}: {path} cannot be written: permission denied")


@contextmanager
def temporary_folder(folder: Path | None) -> Iterator[Path]:
    """A new folder for Spark's temporary files, in the one of the option --folder, deleted at the end.

    Raises InvalidArgument when it cannot be made there.
    """
    if folder is not None:
        if not folder.is_dir():
            raise InvalidArgument(f"--folder: there is no folder {folder}: make it, or name another one")
        check_output("--folder", folder, folder=True)
    with tempfile.TemporaryDirectory(prefix="harebell-", dir=folder, ignore_cleanup_errors=True) as made:
        yield Path(made)


def check_period(since: datetime | None, until: datetime | None) -> None:
    """Raises InvalidArgument when no time is from `since` to before `until`."""
    if since is not None and until is not None and _utc(since) >= _utc(until):
        raise InvalidArgument(f"--since {since:%F %T} is not before --until {until:%F %T}: nothing would be left")


def _utc(time: datetime) -> datetime:
    """With a zone: a time without one is in UTC."""
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time


def duration(option: str, text: str, plain: str = "") -> float:
    """The seconds in a text such as "90s", "1.5m", "2h" or "1d"; `plain` is the unit of a number without one.

    Raises InvalidArgument.
    """
    found = _TIME.fullmatch(text)
    unit = "" if found is None else found[2].lower() or plain
    seconds = 0.0 if found is None else float(found[1]) * UNITS.get(unit, 0)
    if not 0 < seconds <= LONGEST:
        hint = (
            f"a number and its unit: {found[1]}s, {found[1]}m" if found and not unit else "a time such as 30s, 5m, 1h"
        )
        raise InvalidArgument(f"--{option} is {text!r}; it takes {hint}")
    return seconds


def timed(kind: object, tokens: Sequence[object]) -> timedelta:
    """For the parameter --every: `duration`, as a timedelta."""
    return timedelta(seconds=duration("every", str(getattr(tokens[0], "value", tokens[0]))))
