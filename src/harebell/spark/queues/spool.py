"""The durable spool: the folders of drained messages, and their guarantees.

A classic or quorum queue does not store the messages that it has delivered; the spool stores them. A drain is named
by a ticket and a part (the task's number). Its messages are written in segments, Arrow files:

    <spool>/<vhost>/<queue>/<ticket>/<part>-<n>.arrow     segment n, 0, 1, ...; the last one is empty: the end mark
                                                 .acked   exists once the broker has surely taken the acknowledgement
                            <ticket>/<part>.lock          held by the one attempt of a machine that drains the part
                            <ticket>/plan                 what the parts of a batch read take at most
                            <ticket>/broker               whose messages these are
                    <queue>/lock                          held for the moment in which a segment gets its name

For every segment this order holds (`drain`, `segments`), because any step may be the last one before a crash:

    receive -> write and fsync a temporary file -> a round trip: the channel lives, so the messages are still ours
            -> os.link to the segment's name -> fsync the folder -> ack multiple -> hand the rows to Spark
            -> the next round trip, which proves that the broker has handled the ack -> the .acked mark

- Nothing is acknowledged before it is on disk under its final name.
- os.link fails when the name exists, so of two attempts at one segment the first wins. The other closes its
  connection, which gives its messages back, and reads the winner's file.
- A later drain of the same ticket and part reads the segments first and continues after the last; once the end mark
  is there, it reads files only and needs no broker. So rows may be handed out before the broker has the ack.
- A drain is of one broker, the first that it was connected to, whatever its address is then; another one is refused.
  Drains of older versions do not say theirs, and are everybody's.
- What the broker delivers again is recognised in the segments and dropped (`redelivery`). Round trip, look and link
  are done under the queue's lock: no two drains can both give a file to one message, though the connection of one
  of them was lost and it does not know it yet.

The folder must be on a file system with atomic link (any POSIX one, NFS too; not an object store), shared by all
executors. It is not a cache: an acknowledged message is nowhere else.

This module knows files only: no broker, no Spark.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Final

from harebell.client.servers import BrokerIdentity
from harebell.errors import InvalidArgument
from harebell.spark.file_locks import held_if_free, held_when_free
from harebell.spark.file_names import file_name
from harebell.spark.options.source import LOCK_NAME
from harebell.spark.queues.segments import writing
from harebell.synced_files import make_file, make_folder

__all__ = ["Spool", "Step", "Ticket", "broker_of", "no_step", "remove_drain", "strange_entry"]

BROKER: Final = "broker"  # in a drain's folder
LONGEST_NAME: Final = 200  # a queue name has up to 255 bytes and quoting may triple them; a file name has 255
# The files of a drain; those that are being written have a process and a time behind their name.
_DRAIN_FILE: Final = re.compile(
    r"([0-9]{5,}-[0-9]{6,}\.(arrow|acked)|[0-9]{5,}\.lock|plan|broker)(\.[0-9]+\.[0-9]+\.tmp)?"
)

# A test's place to crash or look: called with the name of each step, with the segment number.
Step = Callable[[str, int], None]


def no_step(name: str, number: int) -> None:
    """Do nothing; the default of a test's step."""


class Spool:
    """The spool folder of one queue."""

    def __init__(self, folder: Path, vhost: str, queue: str) -> None:
        self.root = folder
        self.folder = folder / file_name(vhost) / file_name(queue)
        self.queue = queue

    def ticket(self, name: str) -> Ticket:
        """The drain of that name, there or not."""
        return Ticket(self, name)

    def segments(self, broker: BrokerIdentity) -> list[Path]:
        """Every segment that may have messages of this queue of that broker, of all tickets."""
        found: list[Path] = []
        for folder in {path.parent for path in self.folder.glob("*/*.arrow")}:
            ticket = self.ticket(folder.name)
            owner = broker_of(folder)
            if owner is None or owner.is_same(broker):
                found += ticket.segments()
        return sorted(found)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """One holder at a time among all drains of this queue; waits. The kernel frees a dead one's."""
        with held_when_free(_made(self.folder / LOCK_NAME)):
            yield


class Ticket:
    """One drain's folder: segments by part and number."""

    def __init__(self, spool: Spool, name: str) -> None:
        self.spool = spool
        self.name = name
        self.folder = spool.folder / name

    @property
    def plan(self) -> Path:
        """The file that says what the parts of a batch read take at most, there or not."""
        return self.folder / "plan"

    def agreed(self, path: Path, text: Callable[[], str]) -> str:
        """What is in a file of this folder; `text` is written into it if it is not there, by the first that comes.

        Raises SpoolError when the folder cannot be written.
        """
        if not path.exists():
            content = text()
            with writing(self.folder):
                make_folder(self.folder)
                make_file(path, [content])
        return path.read_text(encoding="utf-8")

    def claim(self, broker: BrokerIdentity) -> None:
        """Makes it this broker's. Raises InvalidArgument when it is another's, SpoolError as `agreed` does."""
        path = self.folder / BROKER
        owner = BrokerIdentity(**json.loads(self.agreed(path, lambda: json.dumps(asdict(broker)))))
        if not owner.is_same(broker):
            raise InvalidArgument(
                f"drain '{self.name}' of queue '{self.spool.queue}' in the spool {self.spool.root} has messages of the "
                f"broker {owner}, and this one is {broker}: take another ticket, or another folder (option 'spool', "
                f"--spool). Is it the same broker under a new name? Then delete {path}"
            )

    def segment(self, part: int, number: int) -> Path:
        """The file of one segment, there or not."""
        return self.folder / f"{part:05d}-{number:06d}.arrow"

    def segments(self) -> list[Path]:
        """Its segments, those of one part after each other."""
        return sorted(self.folder.glob("*.arrow"))

    @contextlib.contextmanager
    def lock(self, part: int) -> Iterator[bool]:
        """True for one attempt of this machine at a time; a dead one's lock is free. Does not wait.

        Makes the folder. Raises SpoolError when that is refused. Without locks, as on Windows, attempts at once both
        consume, and os.link decides.
        """
        with writing(self.folder):
            make_folder(self.folder)
        with held_if_free(_made(self.folder / f"{part:05d}.lock")) as free:
            yield free

    def remove(self) -> None:
        """Deletes the drain's files, as far as the disk lets it."""
        with contextlib.suppress(OSError):
            remove_drain(self.folder)


def broker_of(folder: Path) -> BrokerIdentity | None:
    """Whose messages a drain's folder has; None when it does not say."""
    try:
        return BrokerIdentity(**json.loads((folder / BROKER).read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None


def strange_entry(folder: Path) -> Path | None:
    """What is in this folder though no drain writes it, or the folder itself where it is a link; None for a drain's."""
    if folder.is_symlink():
        return folder
    strange = (path for path in folder.iterdir() if not _DRAIN_FILE.fullmatch(path.name) or path.is_dir())
    return min(strange, default=None)


def remove_drain(folder: Path) -> None:
    """Deletes a drain's files, and its folder when nothing else is in it. OSError when something is, or is refused."""
    files = [path for path in folder.iterdir() if _DRAIN_FILE.fullmatch(path.name)]
    for path in sorted(files, reverse=True):  # the mark of an acknowledged segment after the segment
        path.unlink(missing_ok=True)
    folder.rmdir()


def _made(path: Path) -> Path:
    """The file, made if missing. Raises SpoolError when that is refused."""
    with writing(path.parent):
        path.touch()
    return path
