"""Calling a program's handler with a delivery: checked when the consumer is made, decoded, in time, behind its hook.

A handler is called with a Delivery, with a codec: with the value and the Delivery; one of batches with lists of these.
One that cannot be called that way is refused here, before it has cost a message.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, ClassVar, Generic, TypeVar, cast

from harebell import errors
from harebell.client.callbacks import awaited, check_callable
from harebell.client.messages import Delivery
from harebell.client.middleware.chain import Chains
from harebell.client.middleware.hooks import HandleArgs, HookedChannel
from harebell.client.patterns.codec import Codec, check_codec
from harebell.client.patterns.retry import attempt_of
from harebell.client.settling import Reject, Requeue

__all__ = [
    "BatchHandling",
    "Handler",
    "Handling",
    "NotCalled",
    "OneHandling",
    "Unreadable",
    "leaves_of",
    "own_error",
    "value_of",
    "values_of",
]

Handler = Callable[..., object]
G = TypeVar("G")


def own_error(error: BaseException) -> BaseException:
    """What a handler's failure counts as: of a group, as a TaskGroup raises it, what its errors agree on.

    A handler that cancelled itself has failed: this worker was not cancelled.
    """
    if isinstance(error, BaseExceptionGroup):
        error = _leaf(error)
    task = asyncio.current_task()
    if isinstance(error, asyncio.CancelledError) and task is not None and not task.cancelling():
        return RuntimeError(f"the handler was cancelled: {error!r}")
    return error


def _leaf(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error in the group, or its decision where all are the same one; else the group, for its errors differ."""
    first, *others = leaves_of(group)
    kind = next((decision for decision in (Reject, Requeue) if isinstance(first, decision)), None)
    agree = not others if kind is None else all(isinstance(leaf, kind) for leaf in others)
    return first if agree else group


def leaves_of(error: BaseException) -> Iterator[BaseException]:
    """The errors of a group, and of the groups in it; of another error: itself."""
    if isinstance(error, BaseExceptionGroup):
        for part in error.exceptions:
            yield from leaves_of(part)
    else:
        yield error


class NotCalled(BaseException):
    """The handler was not called, and cannot be called any more: messages go back, and the consumer ends.

    It is no Exception: a hook that goes on after any of those would have the message acknowledged.
    """


class Unreadable(errors.UndecodableBody):
    """Some bodies of a batch: the handler was not called.

    deliveries  which
    """

    def __init__(self, message: str, deliveries: Sequence[Delivery] = ()) -> None:
        super().__init__(message)
        self.deliveries = deliveries


def value_of(codec: Codec[Any], delivery: Delivery) -> Any:
    """What the codec reads. UndecodableBody, whatever it raises."""
    try:
        return codec.decode(delivery)
    except errors.UndecodableBody:
        raise
    except Exception as error:
        raise errors.UndecodableBody(f"the codec failed: {error!r}") from error


def values_of(codec: Codec[Any], deliveries: Sequence[Delivery]) -> list[Any]:
    """What the codec reads. Unreadable when there are bodies that it cannot read; UndecodableBody for a single one."""
    if len(deliveries) == 1:
        return [value_of(codec, deliveries[0])]
    values: list[Any] = []
    unreadable: list[Delivery] = []
    why = ""
    for delivery in deliveries:
        try:
            values.append(value_of(codec, delivery))
        except errors.UndecodableBody as error:
            unreadable.append(delivery)
            why = why or str(error)
    if unreadable:
        raise Unreadable(
            f"{len(unreadable)} of the {len(deliveries)} bodies of a batch, the first for this reason: {why}",
            unreadable,
        )
    return values


class Handling(ABC, Generic[G]):
    """How what a consumer's handler is called with gets there.

    plain  the handler itself, where nothing stands around it
    """

    arguments: ClassVar[tuple[str, str]]

    def __init__(self, handler: Handler, codec: Codec[Any] | None, timeout: float | None) -> None:
        check_codec(codec)
        check_callable("the handler", handler, *self.arguments[codec is None :])
        self._handler = handler
        self._codec = codec
        self._timeout = timeout
        self._hooked: Callable[[object], object] | None = None
        self._queue = ""
        self._channel: HookedChannel | None = None

    def start(self, queue: str, channel: HookedChannel, chains: Chains) -> None:
        """The consumer begins, on this channel, whose middlewares stand around the handler."""
        self._queue, self._channel = queue, channel
        if chains.has("handle"):
            self._hooked = chains.call("handle", self._innermost)

    @property
    def plain(self) -> Handler | None:
        return self._handler if self._codec is None and self._timeout is None and self._hooked is None else None

    async def call(self, given: G) -> object:
        """What the handler returns. Raises what it raises, UndecodableBody, TimeoutError."""
        if self._timeout is None:
            return await self._around(given)
        async with asyncio.timeout(self._timeout):
            return await self._around(given)

    async def _around(self, given: G) -> object:
        if self._hooked is None:
            return await self._decoded(given)
        assert self._channel is not None  # `start` has set both
        return await cast(Awaitable[object], self._hooked(self._args(given, self._queue, self._channel)))

    async def _innermost(self, args: HandleArgs) -> object:
        try:
            return await self._decoded(self._given(args))
        except BaseExceptionGroup as group:
            if (error := _leaf(group)) is group:
                raise
            raise error from None  # a middleware is told what counts, too

    async def _decoded(self, given: G) -> object:
        if self._codec is None:
            result = self._handler(given)
        else:
            result = self._handler(self._value(self._codec, given), given)
        return await awaited(result)

    @abstractmethod
    def _args(self, given: G, queue: str, channel: HookedChannel) -> HandleArgs:
        """What the hook is called with."""

    @abstractmethod
    def _given(self, args: HandleArgs) -> G:
        """What the hook goes on with."""

    @abstractmethod
    def _value(self, codec: Codec[Any], given: G) -> object:
        """What the handler is called with, before what was given."""


class OneHandling(Handling[Delivery]):
    """One delivery at a time."""

    arguments = ("value", "delivery")

    def _args(self, given: Delivery, queue: str, channel: HookedChannel) -> HandleArgs:
        return HandleArgs(given, queue, attempt_of(given), channel=channel)

    def _given(self, args: HandleArgs) -> Delivery:
        return args.delivery

    def _value(self, codec: Codec[Any], given: Delivery) -> object:
        return value_of(codec, given)


class BatchHandling(Handling[list[Delivery]]):
    """Lists of deliveries."""

    arguments = ("values", "deliveries")

    def _args(self, given: list[Delivery], queue: str, channel: HookedChannel) -> HandleArgs:
        return HandleArgs(given[0], queue, attempt_of(given[0]), batch=tuple(given), channel=channel)

    def _given(self, args: HandleArgs) -> list[Delivery]:
        return list(args.batch)

    def _value(self, codec: Codec[Any], given: list[Delivery]) -> object:
        return values_of(codec, given)
