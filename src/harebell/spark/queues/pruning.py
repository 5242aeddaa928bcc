"""Lists and deletes the drains of a spool folder: `tickets` and `prune`, behind `harebell spark spool`.

A drain's files are needed until its rows are safe elsewhere, which the spool does not learn: Spark does not say when
the result of a batch read is safe, or that a checkpoint was deleted. A streaming query deletes what its checkpoint has
behind it; the rest is deleted by age, here. What is still needed is kept unless the caller says otherwise. A folder
that holds what no drain writes is no spool, and nothing in it is deleted.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from harebell.errors import InvalidArgument, SpoolError
from harebell.spark.queues.segments import is_acked, read_segment, writing
from harebell.spark.queues.spool import broker_of, remove_drain, strange_entry

__all__ = ["TicketState", "prune", "tickets"]

# The drains of a streaming query: its own id, and the number of the batch.
_STREAMED: Final = re.compile(r"([0-9a-f]{32})-(\d{8,})")


@dataclass(frozen=True, slots=True)
class TicketState:
    """One drain as its files are.

    rows, size      messages in it, bytes of its files
    unacked         rows whose acknowledgement is not known to have arrived: the broker may deliver them again
    changed         when its last file came, seconds since 1970
    complete        it has its end: no run takes more messages for it
    last            the newest drain of a streaming query, which may still run its batch again
    damaged         files that cannot be read
    broker          whose messages they are; None when the drain does not say
    """

    folder: Path
    vhost: str
    queue: str
    ticket: str
    rows: int
    size: int
    unacked: int
    changed: float
    complete: bool
    last: bool
    damaged: tuple[Path, ...]
    broker: str | None = None


def tickets(folder: Path) -> list[TicketState]:
    """Every drain in a spool folder, by virtual host and queue, the oldest first.

    A drain that is written or deleted meanwhile is shown as it was found; one without a file is not shown. Raises
    InvalidArgument when there is no such folder, or what is in it was not written by drains.
    """
    if not folder.is_dir():
        raise InvalidArgument(f"there is no spool folder {folder}: name the one that the reads' option 'spool' names")
    found = []
    for queue in sorted(path for path in folder.glob("*/*") if path.is_dir()):
        names = [path.name for path in queue.iterdir() if path.is_dir()]
        newest: dict[str, int] = {}
        for streamed in filter(None, map(_STREAMED.fullmatch, names)):
            newest[streamed[1]] = max(newest.get(streamed[1], 0), int(streamed[2]))
        lasts = {f"{drain}-{number:08d}" for drain, number in newest.items()}
        states = [state for name in names for state in _state(queue / name, name in lasts)]
        found += sorted(states, key=lambda state: (state.changed, state.ticket))
    return found


def _state(folder: Path, last: bool) -> Iterator[TicketState]:
    try:
        strange = strange_entry(folder)
        if strange is not None:
            raise InvalidArgument(
                f"{folder.parents[2]} is no spool folder: {strange} is nothing that a drain writes; name the folder "
                "that the reads' option 'spool' names"
            )
        stats = {path: path.stat() for path in folder.iterdir()}
    except FileNotFoundError:  # deleted meanwhile
        return
    if not stats:
        return
    owner = broker_of(folder)
    rows = unacked = 0
    damaged = []
    ended: dict[str, bool] = {}  # by part: whether its last segment is the end mark
    for path in sorted(path for path in stats if path.suffix == ".arrow"):
        try:
            count = read_segment(path).num_rows
        except FileNotFoundError:
            continue
        except SpoolError:
            damaged.append(path)
            continue
        rows += count
        unacked += 0 if is_acked(path) else count
        ended[path.name.partition("-")[0]] = count == 0
    yield TicketState(
        folder=folder,
        vhost=unquote(folder.parent.parent.name),
        queue=unquote(folder.parent.name),
        ticket=folder.name,
        rows=rows,
        size=sum(stat.st_size for stat in stats.values()),
        unacked=unacked,
        changed=max(stat.st_mtime for stat in stats.values()),
        complete=bool(ended) and all(ended.values()),
        last=last,
        damaged=tuple(damaged),
        broker=None if owner is None else owner.name,
    )


def prune(
    folder: Path,
    older_than: timedelta,
    *,
    unacked: bool = False,
    last: bool = False,
    dry_run: bool = False,
) -> list[TicketState]:
    """Deletes the drains whose last file is older than that, and returns them.

    unacked  also those with messages that the broker may still deliver again: these are then read a second time
    last     also the newest drain of each streaming query: a query that was stopped in the middle of its batch then
             loses that batch. For checkpoints that are gone
    dry_run  delete nothing

    Call it when the results of batch reads are safe. A damaged drain counts as unacked. Raises InvalidArgument as
    `tickets` does, and then nothing is deleted; SpoolError when a file cannot be deleted.
    """
    limit = time.time() - older_than.total_seconds()
    old = [
        state
        for state in tickets(folder)
        if state.changed < limit
        and (unacked or not (state.unacked or state.damaged))
        and (last or not state.last)
    ]  # fmt: skip
    if not dry_run:
        for state in old:
            with writing(state.folder):
                remove_drain(state.folder)
    return old
