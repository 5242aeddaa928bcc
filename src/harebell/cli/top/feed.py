"""What `harebell top` shows: lists of a broker by its HTTP API, filtered and in order. Draws nothing.

Rules: requests run in a thread of the feed, one at a time and in order, also when a coroutine that waits for one is
cancelled. The thread does not delay the end of the process: a request may last as long as the broker is silent. A list
that is long is cut after it was sorted, to what a table draws in a few milliseconds.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeVar

from harebell.cli.http_api.client import HttpApi
from harebell.cli.http_api.failures import Missing
from harebell.cli.listing import cell, value_at

__all__ = ["KINDS", "Feed", "Kind", "Listing", "Order"]

ROWS: Final = 200  # of a table: more than anybody reads on a terminal
MESSAGES: Final = 50  # of a queue that is browsed
BODY_BYTES: Final = 2000  # of each of them

Row = Mapping[str, Any]
T = TypeVar("T")


class Column(NamedTuple):
    """A column: where its value is in the API's objects, its title, and its width at most (None: what is left)."""

    path: str
    title: str
    width: int | None = None


class Kind(NamedTuple):
    """A kind of objects: its name, the path of its list, its columns; the first sort is by the column `first`."""

    name: str
    path: str
    columns: tuple[Column, ...]
    first: int


QUEUES: Final = Kind(
    "queues",
    "queues",
    (
        Column("name", "name"), Column("vhost", "vhost", 10), Column("type", "type", 7),
        Column("messages_ready", "ready", 8), Column("messages_unacknowledged", "unacked", 8),
        Column("consumers", "cons", 5), Column("message_stats.publish_details.rate", "in/s", 7),
        Column("message_stats.deliver_get_details.rate", "out/s", 7),
    ),
    3,
)  # fmt: skip
CONNECTIONS: Final = Kind(
    "connections",
    "connections",
    (
        Column("name", "name"), Column("user", "user", 12), Column("vhost", "vhost", 10),
        Column("state", "state", 8), Column("channels", "chan", 5), Column("recv_oct_details.rate", "in B/s", 9),
        Column("send_oct_details.rate", "out B/s", 9),
    ),
    5,
)  # fmt: skip
KINDS: Final = (QUEUES, CONNECTIONS)


@dataclass
class Order:
    """Which rows of a kind, and in which order."""

    column: int
    reverse: bool = True
    filter: str = ""

    def applied(self, kind: Kind, rows: Sequence[Row]) -> list[Row]:
        """The rows whose name or virtual host has the text of the filter, in order."""
        wanted = self.filter.lower()
        found = [row for row in rows if wanted in f"{row.get('vhost', '')}/{row.get('name', '')}".lower()]
        path = kind.columns[self.column].path
        found.sort(key=lambda row: (str(row.get("vhost", "")), str(row.get("name", ""))))
        found.sort(key=lambda row: _order(value_at(row, path)), reverse=self.reverse)
        return found


def _order(value: object) -> tuple[int, float, str]:
    if isinstance(value, int | float):
        return 1, float(value), ""
    return (0, 0.0, "") if value is None else (2, 0.0, str(value).lower())


@dataclass
class Listing:
    """A list at one moment: the first `ROWS` rows in order, how many there are, and the totals of the broker."""

    kind: Kind
    rows: list[Row]
    count: int
    totals: str = field(default="")


class Feed:
    """Asks one broker. Its coroutines raise RequestFailed. Close it, or use it in a `with`."""

    def __init__(self, api: HttpApi) -> None:
        self._api = api
        self._requests: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        threading.Thread(target=self._run, name="harebell top requests", daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Take no more requests. Does not wait for the one that runs."""
        self._requests.put(None)

    def _run(self) -> None:
        while (request := self._requests.get()) is not None:
            request()

    @property
    def peer(self) -> str:
        return self._api.address.peer

    async def listing(self, kind: Kind, order: Order) -> Listing:
        """The list of that kind, and the totals."""
        return await self._ask(lambda: self._listing(kind, order))

    def _listing(self, kind: Kind, order: Order) -> Listing:
        overview = self._api.get("overview")
        columns = ",".join(each.path for each in kind.columns)
        rows = order.applied(kind, self._api.get(kind.path, columns=columns))
        return Listing(kind, rows[:ROWS], len(rows), totals_of(overview))

    async def queue(self, vhost: str, name: str) -> Row | None:
        """A queue with its consumers; None when it does not exist."""
        return await self._ask(lambda: _or_none(lambda: self._api.get("queues", vhost, name)))

    async def messages(self, vhost: str, name: str) -> list[Row] | None:
        """The first ready messages of a queue, which stay as they are; None where the server is RabbitMQ."""

        def ask() -> list[Row] | None:
            if self._api.product() != "Harebell":
                return None
            query = {"limit": MESSAGES, "truncate": BODY_BYTES}
            page = _or_none(lambda: self._api.get("queues", vhost, name, "browse", **query))
            return [] if page is None else list(page["items"])

        return await self._ask(ask)

    async def _ask(self, work: Callable[[], T]) -> T:
        answer = Future[T]()

        def request() -> None:
            if not answer.set_running_or_notify_cancel():
                return
            try:
                answer.set_result(work())
            except BaseException as error:  # raised where the answer is awaited
                answer.set_exception(error)

        self._requests.put(request)
        return await asyncio.wrap_future(answer)


def _or_none(work: Callable[[], T]) -> T | None:
    try:
        return work()
    except Missing:
        return None


def totals_of(overview: Row) -> str:
    """Messages, rates and connections of a broker in one line."""
    parts = (
        ("ready", "queue_totals.messages_ready"),
        ("unacked", "queue_totals.messages_unacknowledged"),
        ("in/s", "message_stats.publish_details.rate"),
        ("out/s", "message_stats.deliver_get_details.rate"),
        ("connections", "object_totals.connections"),
        ("queues", "object_totals.queues"),
    )
    return "  ".join(f"{title} {cell(value_at(overview, path) or 0)}" for title, path in parts)
