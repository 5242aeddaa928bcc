"""`harebell spark spool list` and `prune`: the files of drained messages, by drain. They do not start Spark."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Final

from cyclopts import Parameter
from rich.table import Table

from harebell.cli.terminal.consoles import add_row, new_console
from harebell.cli.terminal.output import say, say_json
from harebell.errors import InvalidArgument

__all__ = ["listed", "prune"]

SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_AGE: Final = re.compile(rf"([0-9]{{1,5}})([{''.join(SECONDS)}])")

Folder = Annotated[
    Path | None,
    Parameter(help="The spool folder; by default that of reads without the option: $XDG_STATE_HOME/harebell/spool."),
]
AsJson = Annotated[bool, Parameter(negative=(), help="As JSON.")]


def listed(folder: Folder = None, *, queue: str | None = None, json: AsJson = False) -> int:
    """List the drains in a spool folder: messages, size, age, unacknowledged messages.

    A drain is one batch read or one micro-batch of a streaming query. The states are: done (it is complete), open (a
    run continues it), damaged (a file cannot be read).

    Parameters
    ----------
    queue
        Only the drains of this queue.
    """
    from harebell.spark.queues.pruning import tickets

    states = [state for state in tickets(_folder(folder)) if queue is None or state.queue == queue]
    if json:
        say_json([_as_json(state) for state in states], indent=2)
        return 0
    table = _table(states, "drain" if len(states) == 1 else "drains")
    new_console(highlight=True).print(table)
    for state in states:
        for path in state.damaged:
            say(f"damaged: {path}")
    return 0


def prune(
    folder: Folder = None,
    *,
    older_than: Annotated[str, Parameter(help="Age of a drain's last file: 90s, 30m, 12h, 7d, 2w.")],
    unacked: Annotated[
        bool,
        Parameter(
            negative=(), help="Also drains with messages that the broker may deliver again: those are then read twice."
        ),
    ] = False,
    last: Annotated[
        bool,
        Parameter(negative=(), help="Also the last drain of each streaming query, for checkpoints that are gone."),
    ] = False,
    dry_run: Annotated[bool, Parameter(negative=(), help="Show what would be deleted, and delete nothing.")] = False,
    json: AsJson = False,
) -> int:
    """Delete old drains from a spool folder, once their rows are stored elsewhere.

    An acknowledged message exists only in its drain and in Spark's output. Streaming queries delete their drains
    themselves; this command deletes those of batch reads.
    """
    from harebell.spark.queues import pruning as keeping

    age = _age(older_than)
    gone = keeping.prune(_folder(folder), age, unacked=unacked, last=last, dry_run=dry_run)
    if json:
        say_json([_as_json(state) for state in gone], indent=2)
        return 0
    if gone:
        new_console(highlight=True).print(_table(gone, "would be deleted" if dry_run else "deleted"))
    else:
        say(f"nothing to delete that is older than {older_than}")
    return 0


def _folder(folder: Path | None) -> Path:
    from harebell.spark.options import default_spool

    return folder or default_spool()


def _age(text: str) -> timedelta:
    found = _AGE.fullmatch(text)
    if found is None:
        raise InvalidArgument(f"--older-than is {text!r}; it takes a number and a unit, {', '.join(SECONDS)}: 7d")
    return timedelta(seconds=int(found[1]) * SECONDS[found[2]])


def _table(states: Sequence[Any], title: str) -> Table:
    rows, size = sum(state.rows for state in states), sum(state.size for state in states)
    table = Table(
        title=f"{len(states)} {title}: {rows:,} messages, {_size(size)}", title_justify="left", show_edge=False,
        pad_edge=False,
    )  # fmt: skip
    for heading in ("broker", "vhost", "queue", "drain"):
        table.add_column(heading, overflow="fold")  # shortened names would look alike
    for heading in ("messages", "unacked", "size", "age"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("state")
    now = time.time()
    for state in states:
        add_row(
            table,
            state.broker or "", state.vhost, state.queue, state.ticket, f"{state.rows:,}", f"{state.unacked:,}",
            _size(state.size), _ago(now - state.changed), _state(state),
        )  # fmt: skip
    return table


def _state(state: Any) -> str:
    name = "damaged" if state.damaged else "done" if state.complete else "open"
    return f"{name}, last" if state.last else name


def _as_json(state: Any) -> dict[str, Any]:
    return {
        "broker": state.broker,
        "vhost": state.vhost,
        "queue": state.queue,
        "drain": state.ticket,
        "messages": state.rows,
        "unacked": state.unacked,
        "bytes": state.size,
        "changed": int(state.changed),
        "complete": state.complete,
        "last": state.last,
        "damaged": [str(path) for path in state.damaged],
        "folder": str(state.folder),
    }


def _size(size: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:,.0f} {unit}" if unit == "B" else f"{size:,.1f} {unit}"
        size /= 1000
    return f"{size:,.1f} TB"


def _ago(seconds: float) -> str:
    for unit in ("w", "d", "h", "m"):
        if seconds >= 2 * SECONDS[unit]:
            return f"{seconds // SECONDS[unit]:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"
