"""The screen of `harebell top`: a table of queues or connections that is read again every few seconds.

Rules: no key waits for the broker. One that does not answer leaves its last figures on the screen, and a line says
since when; it is asked again until it is back. Names are shown whole, and as text: none of them is markup, or steers
the terminal.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import ClassVar, Final

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import DataTable, Footer, Input, Static

from harebell.cli.http_api.failures import RequestFailed
from harebell.cli.listing import cell, value_at
from harebell.cli.top.feed import KINDS, Feed, Kind, Listing, Order
from harebell.cli.top.queue_screen import QueueScreen

__all__ = ["Top"]

LEAST_NAME: Final = 12  # columns of a name, and ...
SCROLL_BAR: Final = 2  # ... of a bar beside the table


class Top(App[bool]):
    """Queues and connections of one broker, read `every` so many seconds. The result: whether Ctrl-C ended it."""

    TITLE = "harebell top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #title, #totals, #status { height: 1; }
    #title { text-style: bold; }
    #totals { color: $text-muted; }
    #status { display: none; color: $text-error; }
    #list, #messages, #about { height: 1fr; }
    #message { height: 50%; border-top: solid $primary; }
    #filter { display: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        ("q", "quit", "Quit"),
        ("1", "kind(0)", "Queues"),
        ("2", "kind(1)", "Connections"),
        ("s", "sort", "Sort"),
        ("r", "reverse", "Reverse"),
        ("slash", "filter", "Filter"),
        ("p", "pause", "Pause"),
        Binding("ctrl+c", "interrupt", show=False, priority=True),  # where a text is typed too
    ]

    def __init__(self, feed: Feed, *, every: float = 2.0) -> None:
        super().__init__()
        self._feed, self._every = feed, every
        self._kind = KINDS[0]
        self._orders = {kind.name: Order(kind.first) for kind in KINDS}
        self._listing: Listing | None = None
        self._away: float | None = None  # when the broker's silence began, in seconds since 1970
        self._paused = False
        self._reading = self._stale = False  # a reading is under way; another one is to follow it

    def compose(self) -> ComposeResult:
        yield Static(id="title")
        yield Static(id="totals")
        yield Static(id="status")
        yield DataTable(id="list", cursor_type="row")
        yield Input(placeholder="a part of a name or virtual host; Enter keeps it, Escape clears it", id="filter")
        yield Footer()

    def on_mount(self) -> None:
        self.query_one("#list").focus()
        self._read()
        self.set_interval(self._every, self._tick)

    def _tick(self) -> None:
        if not self._paused:
            self._read()

    def _read(self) -> None:
        """Read again in the background; after the reading that is under way, if there is one."""
        self._stale = True
        if not self._reading:
            self._reading = True
            self.run_worker(self._read_until_current())

    async def _read_until_current(self) -> None:
        try:
            while self._stale:
                self._stale = False
                await self.reload()
        finally:
            self._reading = False

    async def reload(self) -> None:
        """Read the list, and the queue that is shown, again."""
        kind = self._kind
        try:
            listing = await self._feed.listing(kind, self._orders[kind.name])
        except RequestFailed as error:
            self._say_away(error)
            return
        if kind is not self._kind:
            return  # another kind was chosen meanwhile, which has asked itself
        self._say_back()
        self._listing = listing
        self._draw()
        if isinstance(self.screen, QueueScreen):
            await self.screen.reload()

    def _say_away(self, error: RequestFailed) -> None:
        begins = self._away is None
        if self._away is None:
            self._away = time.time()
        since = time.strftime("%H:%M:%S", time.localtime(self._away))
        status = self._base.query_one("#status", Static)
        status.update(Text(f"no figures since {since}, trying again: {error}"))
        status.display = True
        if begins and self.screen is not self._base:
            self.notify(f"no figures since {since}", severity="warning")

    def _say_back(self) -> None:
        if self._away is not None:
            self.notify(f"{self._feed.peer} answers again, after {time.time() - self._away:.0f} s")
            self._away = None
            self._base.query_one("#status").display = False

    @property
    def _base(self) -> Screen[object]:
        return self.screen_stack[0]

    def _draw(self) -> None:
        listing = self._listing
        if listing is None:
            return
        base, order = self._base, self._orders[listing.kind.name]
        shown = f"{len(listing.rows)} of {listing.count} " if listing.count > len(listing.rows) else f"{listing.count} "
        by = listing.kind.columns[order.column].title
        wanted = f", filter '{cell(order.filter)}'" if order.filter else ""
        paused = ", paused" if self._paused else ""
        arrow = "largest first" if order.reverse else "smallest first"
        base.query_one("#title", Static).update(
            Text(f"{self._feed.peer}  {shown}{listing.kind.name} by {by}, {arrow}{wanted}{paused}")
        )
        base.query_one("#totals", Static).update(Text(listing.totals))
        table = base.query_one("#list", DataTable)
        cursor, key = table.cursor_row, self._cursor_key()
        table.clear(columns=True)
        cells = [[cell(value_at(row, each.path)) for each in listing.kind.columns] for row in listing.rows]
        for column, width in zip(listing.kind.columns, self._widths(listing.kind, cells), strict=True):
            table.add_column(column.title, width=width)
        for row in cells:
            table.add_row(*(Text(text, overflow="fold") for text in row), height=None)  # long names take several lines
        same = [number for number, row in enumerate(listing.rows) if (row.get("vhost"), row.get("name")) == key]
        if listing.rows:
            table.move_cursor(row=same[0] if same else min(cursor, len(listing.rows) - 1))
        self._keys = [(row.get("vhost"), row.get("name")) for row in listing.rows]

    _keys: list[tuple[object, object]] = []  # noqa: RUF012  replaced, never changed

    def _cursor_key(self) -> tuple[object, object] | None:
        row = self._base.query_one("#list", DataTable).cursor_row
        return self._keys[row] if 0 <= row < len(self._keys) else None

    def _widths(self, kind: Kind, cells: Sequence[Sequence[str]]) -> list[int]:
        """The widths of the columns: the name has what the others leave, each with a space on both sides."""
        widths = []
        for number, column in enumerate(kind.columns):
            needed = max(map(len, (column.title, *(row[number] for row in cells))))
            widths.append(0 if column.width is None else min(column.width, needed))
        rest = self.size.width - sum(widths) - 2 * len(widths) - SCROLL_BAR
        return [width or max(LEAST_NAME, rest) for width in widths]

    def action_interrupt(self) -> None:
        self.exit(result=True)

    def action_kind(self, number: int) -> None:
        self._kind, self._keys = KINDS[number], []
        self._read()

    def action_sort(self) -> None:
        order = self._orders[self._kind.name]
        order.column = (order.column + 1) % len(self._kind.columns)
        self._read()

    def action_reverse(self) -> None:
        order = self._orders[self._kind.name]
        order.reverse = not order.reverse
        self._read()

    def action_pause(self) -> None:
        self._paused = not self._paused
        self._draw()

    def action_filter(self) -> None:
        field = self._base.query_one("#filter", Input)
        field.value = self._orders[self._kind.name].filter
        field.display = True
        field.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        if event.input.display:
            self._orders[self._kind.name].filter = event.value
            self._read()

    def on_input_submitted(self) -> None:
        self._end_filter()

    def key_escape(self) -> None:
        field = self._base.query_one("#filter", Input)
        if field.display:
            self._end_filter()
            self._orders[self._kind.name].filter = ""
            self._read()

    def _end_filter(self) -> None:
        self._base.query_one("#filter").display = False
        self._base.query_one("#list").focus()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        key = self._cursor_key()
        drawn = self._listing.kind.name if self._listing is not None else ""
        if event.data_table.id == "list" and drawn == "queues" and key is not None:
            self.push_screen(QueueScreen(self._feed, str(key[0]), str(key[1])))
