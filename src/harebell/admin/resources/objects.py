"""What handlers have in common: the objects that a path names, and the user as the owner of what it makes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

from harebell.admin.answers import Answer, bad_request, not_found, to_json
from harebell.admin.http.requests import Request
from harebell.admin.listing import columns_of, only
from harebell.broker.node import Node
from harebell.broker.queues.base import Queue
from harebell.errors import NotFound
from harebell.routing import Exchange
from harebell.routing.naming import MAX_NAME_BYTES, without_line_ends
from harebell.routing.steps import Steps
from harebell.routing.wire_limits import check_name

__all__ = [
    "CREATED", "DEFAULT_EXCHANGE", "NO_CONTENT", "Operator", "alone", "created", "exchange_name", "exchange_of",
    "gathered", "listed", "nameable", "new_name", "number", "queue_of", "wait_for", "wait_safe",
]  # fmt: skip

T = TypeVar("T")

DEFAULT_EXCHANGE: Final = "amq.default"  # in paths; its name is ""
NO_CONTENT: Final = Answer(204)
CREATED: Final = Answer(201)


class Operator:
    """A user of the API as the maker of queues: it owns none exclusively."""

    def __init__(self, user: str) -> None:
        self.pid = ""
        self.user = user
        self.exclusive_queues: list[Queue] = []


def created(new: bool) -> Answer:
    """The answer to a PUT: 201 for a new object, 204 for one that was there."""
    return CREATED if new else NO_CONTENT


def queue_of(request: Request, name: str = "queue") -> Queue:
    """The queue in the path. Raises Refused."""
    queue = request.vhost().queues.get(request.names[name])
    if queue is None or queue.deleted:
        raise not_found()
    return queue


def exchange_name(name: str) -> str:
    """An exchange's name in the path as its name: the default exchange is amq.default there."""
    return "" if name == DEFAULT_EXCHANGE else name


def new_name(kind: str, name: str) -> str:
    """The name that a declaration gives a queue or an exchange: line ends are taken out, as over AMQP.

    Raises InvalidArgument for one that AMQP could not carry, but for an exchange's empty name, which is refused as over
    AMQP.
    """
    name = without_line_ends(name)
    check_name(name, f"{kind} name", empty=kind == "exchange")
    return name


def nameable(kind: str, name: str, vhost: str) -> str:
    """The name of a queue or an exchange that AMQP would act on, without line ends.

    Raises NotFound for one that is too long for anything to have it.
    """
    name = without_line_ends(name)
    if len(name.encode()) > MAX_NAME_BYTES:
        raise NotFound(f"no {kind} '{name[:MAX_NAME_BYTES]}...' in vhost '{vhost}'")
    return name


def exchange_of(request: Request, name: str = "exchange") -> Exchange:
    """The exchange in the path. Raises Refused."""
    router, wanted = request.vhost().router, exchange_name(request.names[name])
    if not router.has_exchange(wanted):
        raise not_found()
    return router.exchange(wanted)


def alone(request: Request, value: Mapping[str, Any]) -> Answer:
    """One object, with the columns that the request asks for."""
    columns = columns_of(request.query)
    return to_json(only(value, columns) if columns else value)


def listed(request: Request, values: Iterable[Mapping[str, Any]]) -> Answer:
    """A short list in its order and without pages, with the columns that the request asks for."""
    columns = columns_of(request.query)
    return to_json([only(each, columns) if columns else each for each in values])


def gathered(items: Iterable[T]) -> Steps[list[T]]:
    """The items as a list, in steps."""
    found = list[T]()
    for number, each in enumerate(items):
        found.append(each)
        if not number % 512:
            yield
    return found


def number(body: Mapping[str, Any], name: str, *, least: int) -> int:
    """A whole number in the body, also one in a text. Raises Refused."""
    value = body.get(name)
    if value is None:
        raise bad_request(f"[{{key_missing,{name}}}]")
    if isinstance(value, str) and value.isascii() and value.removeprefix("-").isdecimal() and len(value) < 19:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise bad_request(f"{name} must be a whole number from {least} on")
    return value


def wait_for(node: Node, future: asyncio.Future[T]) -> Steps[T]:
    """Wait for a future of the broker's loop. Returns its result."""
    while not future.done():
        node.batch.slices.wait(lambda resume: future.add_done_callback(lambda _: resume()))
        yield
    return future.result()


def wait_safe(node: Node) -> Steps[None]:
    """Wait until what was written so far is on the disk."""
    safe: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    node.batch.when_safe(lambda: None if safe.done() else safe.set_result(None))
    yield from wait_for(node, safe)
