"""The feature "logging": what happens to connections and channels, in the log `harebell.client`.

- Losses, what could not be put back, a broker that blocks: warnings and errors. Connects, reconnects, channels that a
  refused call has cost, which the call raised: info.
- Calls with their arguments and results: debug, where the log takes that when the connection or channel is made; one
  that failed: info. Nothing per message, unless asked for with `Logging(messages=True)`.
- A line names its entity: "channel 3 of localhost:5672: ...". Bodies and secrets are in none.

Without it nothing of this is logged; mistakes of the program or the client still are.
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Awaitable, Callable
from dataclasses import MISSING, fields
from typing import Any, ClassVar, Final, Protocol, cast

from harebell import errors
from harebell.client import events as e
from harebell.client.core.slots import was_answer
from harebell.client.messages import Delivery, Message
from harebell.client.middleware.hooks import (
    HOOKS,
    CloseEvent,
    DialEvent,
    DisconnectEvent,
    HookedChannel,
    HookedConnection,
)

__all__ = ["Logging"]

logger = logging.getLogger("harebell.client")


class DataclassInstance(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Any]]


PER_MESSAGE: Final = frozenset({"publish", "send", "publish_nowait", "get", "ack", "nack", "reject", "delivery_event"})
OF_THE_CONNECTION: Final = (
    errors.ConnectionError, errors.ConnectionLost, errors.RecoveryGaveUp, errors.RemoteProtocolError
)  # fmt: skip  # the end of the whole connection, which has a line of its own
HIDDEN: Final = frozenset({"channel", "connection", "source"})  # where a call was made: in front of the line
MAX_SHOWN: Final = 500  # characters of one argument or result


class Logging:
    """The log of one connection or channel.

    messages  log each message too, at debug
    """

    id = "logging"

    def __init__(self, *, messages: bool = False) -> None:
        if logger.isEnabledFor(logging.DEBUG):
            for hook in HOOKS.values():
                if hook.kind != "event" and (messages or hook.name not in PER_MESSAGE):
                    logged = _awaited if hook.kind == "async" else _plain
                    setattr(self, hook.name, functools.partial(logged, hook.name))
            if messages:
                self.delivery_event = _delivered

    def dial_event(self, call_next: Callable[[DialEvent], None], event: DialEvent) -> None:
        if event.error is not None:
            logger.info("%s: an attempt to connect failed: %s", event.target, event.error)
        elif not hasattr(event.source, "number"):
            logger.info("%s: connected", event.target)  # of channels, `event` tells
        call_next(event)

    def disconnect_event(self, call_next: Callable[[DisconnectEvent], None], event: DisconnectEvent) -> None:
        if _stands_alone(event.source):
            more = "; reconnecting" if event.reconnecting else ""
            level = logging.INFO if _was_raised(event.error) else logging.WARNING
            logger.log(level, "%s: %s%s", _entity(event.source), event.error, more)
        call_next(event)

    def close_event(self, call_next: Callable[[CloseEvent], None], event: CloseEvent) -> None:
        level = logging.INFO if _was_raised(event.error) else logging.ERROR
        if isinstance(event.error, errors.ChannelClosed):
            level = logging.DEBUG
        if logger.isEnabledFor(level) and _stands_alone(event.source):
            logger.log(level, "%s: closed: %s", _entity(event.source), event.error)
        call_next(event)

    def event(self, call_next: Callable[[e.Event], None], event: e.Event) -> None:
        match event:
            case e.Recovered(skipped=skipped) | e.QueueRecovered(skipped=skipped):
                for skip in skipped:
                    logger.error("not put back after the reconnect: %s", skip)
            case e.ChannelReopened():
                logger.info("channel %d: open again after %s", event.number, event.error)
                for skip in event.skipped:
                    logger.error("not put back on channel %d: %s", event.number, skip)
            case e.Blocked():
                logger.warning("the broker takes no publishes: %s", event.reason)
            case e.Unblocked():
                logger.info("the broker takes publishes again")
            case e.ConsumerEnded():
                level = logging.WARNING if event.resubscribing else logging.ERROR
                if isinstance(event.error, OF_THE_CONNECTION):
                    level = logging.DEBUG
                logger.log(level, "consumer %r of queue %r ended: %s", event.consumer_tag, event.queue, event.error)
            case e.ConsumerWaiting():
                logger.warning("consumer %r of queue %r waits: %s", event.consumer_tag, event.queue, event.error)
            case e.StreamResumed():
                logger.info("consumer %r of stream %r continues at %s", event.consumer_tag, event.queue, event.offset)
            case e.StreamGap():
                logger.error(
                    "consumer %r of stream %r: messages %d to %d are gone", event.consumer_tag, event.queue,
                    event.expected, event.came - 1,
                )  # fmt: skip
            case e.Resubscribed():
                logger.info("consumer %r of queue %r consumes again", event.consumer_tag, event.queue)
        call_next(event)


def _was_raised(error: BaseException | None) -> bool:
    """Whether it is a channel's refusal of a call, which has raised it: the program knows."""
    return isinstance(error, errors.ChannelError) and was_answer(error)


def _stands_alone(source: HookedConnection | HookedChannel) -> bool:
    """Whether this is news: what happens to a connection happens to its channels, too."""
    return not hasattr(source, "number") or cast(HookedChannel, source).transport.reason is None


async def _awaited(name: str, call_next: Callable[[object], Awaitable[object]], args: DataclassInstance) -> object:
    try:
        result = await call_next(args)
    except Exception as error:
        _failed(name, args, error)
        raise
    _succeeded(name, args, result)
    return result


def _plain(name: str, call_next: Callable[[object], object], args: DataclassInstance) -> object:
    try:
        result = call_next(args)
    except Exception as error:
        _failed(name, args, error)
        raise
    _succeeded(name, args, result)
    return result


def _delivered(call_next: Callable[[Delivery], None], event: Delivery) -> None:
    logger.debug(
        "delivery %d to consumer %r: %d bytes, exchange=%r, routing_key=%r, redelivered=%s",
        event.delivery_tag,
        event.consumer_tag,
        event.body_size,
        event.exchange,
        event.routing_key,
        event.redelivered,
    )
    call_next(event)


def _succeeded(name: str, args: DataclassInstance, result: object) -> None:
    shown = "" if result is None or inspect.isroutine(result) else f" -> {_value(result)}"
    logger.debug("%s: %s(%s)%s", _of(args), name, _shown(args), shown)


def _failed(name: str, args: DataclassInstance, error: Exception) -> None:
    logger.info("%s: %s(%s) failed: %s: %s", _of(args), name, _shown(args), type(error).__name__, error)


def _shown(args: DataclassInstance) -> str:
    """The arguments that are not what they are by default."""
    values = ((field, getattr(args, field.name)) for field in fields(args) if field.repr and field.name not in HIDDEN)
    return ", ".join(
        f"{field.name}={_value(value)}" for field, value in values if field.default is MISSING or value != field.default
    )


def _value(value: object) -> str:
    if isinstance(value, Message):
        value = value.body
    if isinstance(value, bytes | Delivery):
        return f"<{value.body_size if isinstance(value, Delivery) else len(value)} bytes>"
    if callable(value) or hasattr(value, "__next__") or hasattr(value, "__anext__"):
        return f"<{type(value).__name__}>"
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


def _of(args: object) -> str:
    where: Any = next(getattr(args, name) for name in ("channel", "connection", "source") if hasattr(args, name))
    return _entity(where)


def _entity(source: HookedConnection | HookedChannel) -> str:
    if not hasattr(source, "number"):
        return source.parameters.peer
    channel = cast(HookedChannel, source)
    return f"channel {channel.number} of {channel.transport.parameters.peer}"
