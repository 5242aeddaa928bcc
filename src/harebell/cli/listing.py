"""Lists of objects as a table or as JSON: which columns, in which order, once or again every few seconds.

Rules: a name is shown whole, folded over lines when it is longer than the terminal leaves room for; a terminal that has
no room for the titles gets a block of lines for each row; a row is one line where there is no terminal, so that grep
sees it whole. What a client named cannot begin a row or steer the terminal.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from time import sleep
from typing import Annotated, Any, Final, cast

from cyclopts import Parameter
from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from harebell.cli.http_api.failures import NoAnswer
from harebell.cli.terminal.consoles import new_console
from harebell.cli.terminal.output import line, say, say_json
from harebell.cli.validators import Seconds
from harebell.errors import ConnectionLost, InvalidArgument
from harebell.printable import printable

__all__ = ["View", "cell", "show_one", "show_rows", "show_table", "value_at"]

LONGEST: Final = 4096  # characters of a cell: a name has 255 bytes, arguments may have more
LEAST: Final = 8  # columns of a terminal for a text that is folded
GAP: Final = 2  # columns between two columns of a table
WIDEST: Final = 1 << 16  # columns of a table that does not go to a terminal

Row = Mapping[str, Any]

TITLES: Final[Mapping[str, str]] = {
    "messages_ready": "ready",
    "messages_unacknowledged": "unacked",
    "message_stats.publish_details.rate": "in/s",
    "message_stats.publish_in_details.rate": "in/s",
    "message_stats.publish_out_details.rate": "out/s",
    "message_stats.deliver_get_details.rate": "out/s",
    "message_stats.ack_details.rate": "ack/s",
    "recv_oct_details.rate": "in B/s",
    "send_oct_details.rate": "out B/s",
    "queue.name": "queue",
    "queue.vhost": "vhost",
    "channel_details.name": "channel",
    "client_properties.product": "client",
}
"""Paths whose titles are shorter than they are. --columns and --sort take the titles of a list's own columns too."""

STATS: Final = "message_stats"
FIGURES: Final = frozenset({
    "ack", "confirm", "deliver", "deliver_get", "deliver_no_ack", "disk_reads", "disk_writes", "drop_unroutable", "get",
    "get_empty", "get_no_ack", "publish", "publish_in", "publish_out", "redeliver", "return_unroutable",
})  # fmt: skip
"""What message_stats may have; the broker leaves out those that are still 0."""
RATES: Final = ("rate", "avg_rate", "avg", "samples")
"""What the details of a figure may have."""
FREE: Final = frozenset(
    {"arguments", "client_properties", "definition", "details", "effective_policy_definition", "limits", "properties"}
)
"""Tables whose keys are a client's or a user's: one that no object has is no mistake."""


@Parameter(name="*")
@dataclass(frozen=True)
class View:
    """How a list is shown."""

    columns: Annotated[
        str | None,
        Parameter(help="Columns with commas between them: fields, or paths such as message_stats.ack_details.rate."),
    ] = None
    sort: Annotated[str | None, Parameter(help="The column to sort by.")] = None
    reverse: Annotated[bool, Parameter(negative=(), help="The largest first.")] = False
    json: Annotated[bool, Parameter(name="--json", negative=(), help="Print JSON.")] = False
    watch: Annotated[
        float | None,
        Parameter(
            help="Show the list again every so many seconds, until Ctrl-C; at least 0.1.", validator=Seconds(0.1)
        ),
    ] = None


def show_rows(
    fetch: Callable[[], Sequence[Row]], columns: Sequence[str], view: View | None, *, without: Collection[str] = ()
) -> int:
    """Print what `fetch` returns, with these columns unless the view names others. Returns 0.

    without  columns that are shown only where the view names them
    """
    view = view or View()
    if view.reverse and view.sort is None:
        raise InvalidArgument("--reverse needs --sort COLUMN")
    if view.watch is None:
        return _print(fetch(), columns, without, view)
    shown = False
    while True:
        try:
            rows = fetch()
        except (NoAnswer, ConnectionLost) as error:  # a broker that restarts comes back
            if not shown:
                raise
            say(f"{time.strftime('%H:%M:%S')} {error}; trying again", sys.stderr)
        else:
            _begin(shown)
            _print(rows, columns, without, view)
            shown = True
        sys.stdout.flush()
        sleep(view.watch)


def _begin(again: bool) -> None:
    if sys.stdout.isatty():
        new_console().clear()
        say(time.strftime("%H:%M:%S"))
    elif again:
        say("")


def _print(rows: Sequence[Row], columns: Sequence[str], without: Collection[str], view: View) -> int:
    titles = {_title(path): path for path in columns}
    named = None if view.columns is None else {name: titles.get(name, name) for name in _split(view.columns)}
    sort = titles.get(view.sort, view.sort) if view.sort is not None else None
    for path in (*(named or {}).values(), *filter(None, (sort,))):
        _check(path, rows, columns)
    if sort is not None:
        rows = sorted(rows, key=lambda row: _order(value_at(row, sort)), reverse=view.reverse)
    if view.json:
        chosen = rows if named is None else [{name: value_at(row, named[name]) for name in named} for row in rows]
        return say_json(chosen, indent=2)
    paths = [path for path in columns if path not in without] if named is None else list(named.values())
    return show_table(list(map(_title, paths)), [[value_at(row, path) for path in paths] for row in rows])


def _title(path: str) -> str:
    return TITLES.get(path, path.replace("_", " "))


def _split(text: str) -> list[str]:
    found = [each.strip() for each in text.split(",")]
    if not all(found):
        raise InvalidArgument(f"--columns {text!r}: write names with commas between them")
    return found


def _check(path: str, rows: Sequence[Row], columns: Sequence[str]) -> None:
    """Refuse a column that no object of this list has; without objects it is not known what they would have."""
    if not rows or path in columns or any(path in row for row in rows) or _is_figure(path, columns):
        return
    there: Sequence[Row] = rows
    before = ""
    for part in path.split("."):
        names = {name for each in there for name in each} | (FIGURES if before == f"{STATS}." else set())
        known = sorted(f"{before}{name}" for name in names)
        if f"{before}{part}" not in known:
            near = get_close_matches(path, known, 1)
            remedy = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(known) or 'no parts of it'}"
            raise InvalidArgument(f"no column '{path}': {remedy}")
        values = [each[part] for each in there if part in each]
        there = [each for each in values if isinstance(each, dict)]
        if part in FREE or (not path.startswith(f"{STATS}.") and all(value in (None, [], {}) for value in values)):
            return
        before += f"{part}."


def _is_figure(path: str, columns: Sequence[str]) -> bool:
    """Whether it is a figure of messages, in a list that has them: objects have those that are not 0."""
    first, _, rest = path.partition(".")
    if first != STATS or not any(each.startswith(f"{STATS}.") for each in columns):
        return False
    figure, _, rate = rest.partition(".")
    return not rest or (
        figure.removesuffix("_details") in FIGURES and (not rate or (figure.endswith("_details") and rate in RATES))
    )


def value_at(row: Row, path: str) -> Any:
    """The value at a path, dots between its parts; None where there is none."""
    value: Any = row
    if path in row:
        return row[path]
    for part in path.split("."):
        if not isinstance(value, dict) or part not in value:
            return None
        value = value[part]
    return value


def _order(value: object) -> tuple[int, float, str]:
    """A key to sort mixed values by: nothing, numbers, text."""
    match value:
        case None:
            return 0, 0.0, ""
        case bool() | int() | float():
            return 1, float(value), ""
    return 2, 0.0, cell(value)


def show_one(row: Row, *, as_json: bool) -> int:
    """Print one object: a line for each field, or JSON. Returns 0."""
    if as_json:
        return say_json(row, indent=2)
    return show_table(["field", "value"], [[name, cell(value)] for name, value in row.items()])


def show_table(titles: Sequence[str], rows: Sequence[Sequence[object]]) -> int:
    """Print a table; on a terminal that is too narrow for it, each row as lines of titles and values. Returns 0."""
    terminal = sys.stdout.isatty()
    console = new_console() if terminal else new_console(width=WIDEST)
    shown = [list(map(line, titles)), *([cell(value) for value in row] for row in rows)]
    numbers = [bool(rows) and all(_is_number(row[number]) for row in rows) for number in range(len(titles))]
    widths = _widths(shown, numbers, console.width)
    if widths is None:
        _show_blocks(console, shown)
        return 0
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True)
    for title, width, number in zip(shown[0], widths, numbers, strict=True):
        table.add_column(Text(title), width=width, overflow="fold", justify="right" if number else "left")
    for row in shown[1:]:
        table.add_row(*map(Text, row))
    console.print(table)
    return 0


def _widths(shown: Sequence[Sequence[str]], numbers: Sequence[bool], most: int) -> list[int] | None:
    """The widths of columns that fill at most `most` columns of a terminal, so that no title and no number is folded.

    The first of `shown` are the titles. None where they need more.
    """
    wanted = [max(map(cell_len, texts)) for texts in zip(*shown, strict=True)]
    widths = [
        want if number else max(cell_len(title), min(want, LEAST))
        for title, want, number in zip(shown[0], wanted, numbers, strict=True)
    ]
    rest = most - sum(widths) - GAP * (len(widths) - 1)
    if rest < 0:
        return None
    growing = sorted(range(len(widths)), key=lambda each: wanted[each] - widths[each])  # who needs least gets it whole
    for place, each in enumerate(growing):
        more = min(wanted[each] - widths[each], rest // (len(growing) - place))
        widths[each] += more
        rest -= more
    return widths


def _show_blocks(console: Console, shown: Sequence[Sequence[str]]) -> None:
    titles, *rows = shown
    for number, row in enumerate(rows):
        block = Table(box=None, show_header=False, show_edge=False, pad_edge=False)
        block.add_column(overflow="fold", width=min(max(map(cell_len, titles)), console.width // 2))
        block.add_column(overflow="fold")
        for title, text in zip(titles, row, strict=True):
            block.add_row(Text(title), Text(text))
        console.print(*([] if number == 0 else [""]), block, sep="\n")


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def cell(value: object) -> str:
    """A value in one line."""
    match value:
        case None:
            text = ""
        case bool():
            text = "yes" if value else "no"
        case float():
            text = f"{value:,.1f}" if not value.is_integer() else f"{value:,.0f}"
        case list():
            text = ", ".join(map(cell, value))
        case dict():
            text = ", ".join(f"{name}={cell(each)}" for name, each in cast("dict[str, object]", value).items())
        case _:
            text = str(value)
    return printable(text, LONGEST)
