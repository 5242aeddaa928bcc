"""The check of basic.consume's arguments; those of queues are in `harebell.routing.settings`.

An argument that RabbitMQ knows either works here or is refused. The texts are RabbitMQ's. A selector has three names:
ours, that of Qpid's C++ broker and that of its Java broker.
"""

from __future__ import annotations

from typing import Final

from harebell.broker.queues.browse import BROWSE
from harebell.broker.queues.stream import QUEUE_ID
from harebell.broker.queues.stream_filter import FILTER, MATCH_UNFILTERED
from harebell.errors import AmqpError, NotImplemented as NotImplemented540, PreconditionFailed
from harebell.protocol.v091 import Table
from harebell.protocol.v091.splice import STREAM_OFFSET
from harebell.routing.selectors import BadSelector, Selector, parse_selector
from harebell.routing.table_values import type_name

__all__ = ["SELECTORS", "check_consume_arguments", "refuse_selector", "selector_of"]

SELECTORS: Final = ("x-selector", "x-apache-selector", "x-filter-jms-selector")
"""The names of a selector."""

_OF_STREAMS: Final = (STREAM_OFFSET.name, FILTER, MATCH_UNFILTERED, QUEUE_ID)


def check_consume_arguments(arguments: Table, kind: str, where: str, *, exclusive: bool = False) -> None:
    """Raise for arguments that the broker cannot serve. `where` is "queue 'q' in vhost '/'"."""
    if "x-priority" in arguments:
        priority = arguments["x-priority"]
        if isinstance(priority, bool) or not isinstance(priority, int):
            raise PreconditionFailed(
                f"invalid arg 'x-priority' for {where}: \"expected integer, got {type_name(priority)}\""
            )
        if kind == "stream":
            raise PreconditionFailed(f"invalid arg 'x-priority' for {where} of queue type rabbit_stream_queue")
    for name in _OF_STREAMS:
        if name in arguments and kind != "stream":
            raise PreconditionFailed(f"invalid arg '{name}' for {where} of queue type rabbit_{kind}_queue")
    browse = arguments.get(BROWSE, False)
    if not isinstance(browse, bool) and (browse != "once" or kind == "stream"):
        raise PreconditionFailed(f"invalid arg '{BROWSE}' for {where}: expected a boolean" + (
            "" if kind == "stream" else " or 'once'"
        ))  # fmt: skip
    if browse and kind != "stream":  # a stream's consumer removes no messages anyway
        if exclusive:
            raise PreconditionFailed(f"a consumer that browses {where} cannot be exclusive: it takes nothing")
        if "x-priority" in arguments:
            raise PreconditionFailed(f"a consumer that browses {where} cannot have an 'x-priority': it takes nothing")


def selector_of(arguments: Table, where: str, error: type[AmqpError] = PreconditionFailed) -> Selector | None:
    """The selector in the arguments; None where there is none. Raises `error` for one that cannot be read."""
    found: dict[str, Selector | None] = {}
    for name in SELECTORS:
        if name not in arguments:
            continue
        value = arguments[name]
        try:
            text = value.decode() if isinstance(value, bytes) else value
        except UnicodeDecodeError:
            raise error(f"invalid arg '{name}' for {where}: no UTF-8") from None
        if not isinstance(text, str):
            raise error(f"invalid arg '{name}' for {where}: \"expected string, got {type_name(value)}\"")
        try:
            found[name] = parse_selector(text)
        except BadSelector as problem:
            raise error(f"invalid arg '{name}' for {where}: {problem}") from None
    if len({None if selector is None else selector.text for selector in found.values()}) > 1:
        raise error(f"invalid arg '{list(found)[1]}' for {where}: '{next(iter(found))}' is another selector")
    return next(iter(found.values()), None)


def refuse_selector(arguments: Table, where: str) -> None:
    """Raise 540 for a selector by Qpid's names in arguments that are not a consumer's: it would have no effect."""
    for name in SELECTORS[1:]:
        if name in arguments:
            raise NotImplemented540(f"arg '{name}' for {where}: only a consumer can have a selector")
