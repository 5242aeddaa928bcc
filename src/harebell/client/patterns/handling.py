"""Calling a program's handler with a delivery: checked when the consumer is made, decoded, in time, behind its hook.

A handler is called with a Delivery, with a codec: with the value and the Delivery. One that cannot be called that way
is refused here, before it has cost a message.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, cast

from harebell import errors
from harebell.client.messages import Delivery
from harebell.client.middleware.chain import Chains
from harebell.client.middleware.hooks import HandleArgs, HookedChannel
from harebell.client.patterns.codec import Codec
from harebell.client.patterns.retry import attempt_of

__all__ = ["Handler", "Handling", "check_callable"]

Handler = Callable[..., object]


def check_callable(what: str, function: object, *arguments: str) -> None:
    """InvalidArgument when the function cannot be called with these arguments, or calling it would run nothing.

    what       its role, for the text: "the handler"
    arguments  what it is called with, for the text: "delivery"
    """
    shown = f"{what} {getattr(function, '__qualname__', None) or repr(function)}"
    if not callable(function):
        raise errors.InvalidArgument(f"{shown} cannot be called: give a function of ({', '.join(arguments)})")
    bodies = (function, getattr(type(function), "__call__", None))  # noqa: B004  the method, and not whether it is there
    if any(inspect.isgeneratorfunction(body) or inspect.isasyncgenfunction(body) for body in bodies):
        raise errors.InvalidArgument(f"{shown} is a generator: calling it runs nothing; leave out `yield`")
    try:
        signature = inspect.signature(function).replace(return_annotation=inspect.Signature.empty)
    except (TypeError, ValueError):
        return  # a builtin that does not say
    try:
        signature.bind(*arguments)
    except TypeError as error:
        raise errors.InvalidArgument(
            f"{shown}{signature} cannot be called with ({', '.join(arguments)}): {error}"
        ) from None


class Handling:
    """How each delivery of one consumer gets to its handler.

    plain  the handler itself, where nothing stands around it
    """

    def __init__(self, handler: Handler, codec: Codec[Any] | None, timeout: float | None) -> None:
        if codec is None:
            check_callable("the handler", handler, "delivery")
        else:
            check_callable("the handler", handler, "value", "delivery")
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

    async def call(self, delivery: Delivery) -> object:
        """What the handler returns. Raises what it raises, UndecodableBody, TimeoutError."""
        if self._timeout is None:
            return await self._around(delivery)
        async with asyncio.timeout(self._timeout):
            return await self._around(delivery)

    async def _around(self, delivery: Delivery) -> object:
        if self._hooked is None:
            return await self._decoded(delivery)
        assert self._channel is not None  # `start` has set both
        args = HandleArgs(delivery, self._queue, attempt_of(delivery), channel=self._channel)
        return await cast(Awaitable[object], self._hooked(args))

    async def _innermost(self, args: HandleArgs) -> object:
        return await self._decoded(args.delivery)

    async def _decoded(self, delivery: Delivery) -> object:
        if self._codec is None:
            result = self._handler(delivery)
        else:
            try:
                value = self._codec.decode(delivery)
            except errors.UndecodableBody:
                raise
            except Exception as error:
                raise errors.UndecodableBody(f"the codec failed: {error!r}") from error
            result = self._handler(value, delivery)
        return await result if inspect.isawaitable(result) else result
