"""One queue in `harebell top`: its figures and consumers, and its messages, which are only looked at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widgets import DataTable, Footer, Static

from harebell.cli.http_api.failures import RequestFailed
from harebell.cli.listing import cell, value_at
from harebell.cli.top.feed import Feed

__all__ = ["QueueScreen"]

FIGURES: Final = (
    ("type", "type"), ("arguments", "arguments"), ("policy", "policy"), ("ready", "messages_ready"),
    ("unacked", "messages_unacknowledged"), ("bytes", "message_bytes"), ("consumers", "consumers"),
    ("in/s", "message_stats.publish_details.rate"), ("out/s", "message_stats.deliver_get_details.rate"),
    ("ack/s", "message_stats.ack_details.rate"),
)  # fmt: skip


class QueueScreen(Screen[None]):
    """A queue; `b` shows its messages, Enter one of them whole."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape", "back", "Back"),
        ("b", "browse", "Messages"),
    ]

    def __init__(self, feed: Feed, vhost: str, queue: str) -> None:
        super().__init__()
        self._feed, self._vhost, self._queue = feed, vhost, queue
        self._messages: list[Mapping[str, Any]] = []

    def compose(self) -> ComposeResult:
        yield Static(Text(f"queue {cell(self._queue)} in vhost {cell(self._vhost)}"), id="title")
        with VerticalScroll(id="about"):
            yield Static(id="figures")
        yield DataTable(id="messages", cursor_type="row")
        yield Static(id="message")
        yield Footer()

    def on_mount(self) -> None:
        table = self.query_one("#messages", DataTable)
        table.add_columns("position", "exchange", "routing key", "bytes", "body")
        table.display = False
        self.query_one("#message").display = False
        self.run_worker(self.reload())

    async def reload(self) -> None:
        """Read the queue's figures again; a broker that is away leaves those that are shown."""
        try:
            it = await self._feed.queue(self._vhost, self._queue)
        except RequestFailed:
            return  # the list says it
        if not self.is_attached:
            return
        self.query_one("#figures", Static).update(Text("the queue is deleted") if it is None else _figures(it))

    def action_browse(self) -> None:
        """Read the first messages of the queue."""
        self.run_worker(self._browse(), group="browse", exclusive=True)

    async def _browse(self) -> None:
        try:
            found = await self._feed.messages(self._vhost, self._queue)
        except RequestFailed as error:
            self.notify(str(error), severity="error", markup=False)
            return
        if found is None:
            self.notify("RabbitMQ cannot show messages without marking them as redelivered", severity="warning")
            return
        self._messages = found
        table = self.query_one("#messages", DataTable)
        table.clear()
        for each in found:
            paths = ("position", "exchange", "routing_key", "payload_bytes", "payload")
            table.add_row(*(Text(cell(each[path])[:80]) for path in paths))
        self.query_one("#about").display = False
        self.query_one("#message").display = False
        table.display = True
        table.focus()
        if not found:
            self.notify("the queue has no ready messages")

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        if event.cursor_row < len(self._messages):
            shown = self.query_one("#message", Static)
            shown.update(_message(self._messages[event.cursor_row]))
            shown.display = True

    def action_back(self) -> None:
        """From a message to the messages, from these to the figures, from these to the list."""
        message, table, about = (self.query_one(each) for each in ("#message", "#messages", "#about"))
        if message.display:
            message.display = False
        elif table.display:
            table.display, about.display = False, True
        else:
            self.dismiss()


def _figures(it: Mapping[str, Any]) -> Text:
    lines = [f"{title:<10} {cell(value_at(it, path))}" for title, path in FIGURES]
    for each in it.get("consumer_details") or ():
        channel = value_at(each, "channel_details.name")
        lines.append(
            f"{'consumer':<10} {cell(each['consumer_tag'])} on {cell(channel)}, prefetch {each['prefetch_count']}"
        )
    return Text("\n".join(lines))


def _message(it: Mapping[str, Any]) -> Text:
    properties = it["properties"] if isinstance(it["properties"], dict) else {}
    lines = [f"{name:<16} {cell(value)}" for name, value in properties.items()]
    encoding = "" if it["payload_encoding"] == "string" else f" in {it['payload_encoding']}"
    return Text("\n".join([*lines, f"body{encoding}:", *map(cell, str(it["payload"]).split("\n"))]))
