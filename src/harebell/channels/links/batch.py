"""Requests and publications that are written together on one AMQP channel: one round trip for all. In the I/O thread.

A broker handles what comes on one channel in its order, so a queue may be declared, bound and published to in one
batch. When one part is refused, the broker ignores those after it, and the whole batch fails with its error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from harebell import errors
from harebell.client.channel import Channel
from harebell.client.core.slots import Reply, Slot, copy_of
from harebell.client.messages import Message, Returned, encoded
from harebell.client.transport.deadlines import EXPIRED
from harebell.protocol.v091 import methods as m

__all__ = ["Part", "Publish", "run_batch"]


class Publish:
    """A publication as part of a batch; its answer is True (it is in a queue), or False (refused, or returned)."""

    __slots__ = ("exchange", "mandatory", "message", "routing_key")

    def __init__(self, message: Message, exchange: str, routing_key: str, *, mandatory: bool = False) -> None:
        self.message = message
        self.exchange = exchange
        self.routing_key = routing_key
        self.mandatory = mandatory


Part = m.Method | Publish


class _Asked(Slot):
    __slots__ = ("batch",)

    def __init__(self, request: m.Method, batch: _Batch) -> None:
        super().__init__(request)
        self.batch = batch

    def resolve(self, reply: Reply) -> None:
        super().resolve(reply)
        self.batch.one_answered()

    def fail(self, error: errors.HarebellError) -> None:
        super().fail(error)
        self.batch.failed(error)


class _Published:
    """Waits for the confirm of one publication (`PublishWaiter`)."""

    __slots__ = ("batch", "reply", "was_returned")

    def __init__(self, batch: _Batch) -> None:
        self.batch = batch
        self.reply = False
        self.was_returned = False

    def settle(self, publish_tag: int, acked: bool) -> None:
        self.reply = acked and not self.was_returned
        self.batch.one_answered()

    def returned(self, publish_tag: int, returned: Returned) -> None:
        self.was_returned = True

    def refused(self, publish_tag: int, error: errors.HarebellError) -> None:
        self.batch.failed(error)

    def orphaned(self, publish_tag: int, reason: errors.HarebellError) -> None:
        self.batch.failed(reason)


class _Batch:
    def __init__(self, future: asyncio.Future[object]) -> None:
        self.future = future
        self.left = 0

    def one_answered(self) -> None:
        self.left -= 1
        if not self.left and not self.future.done():
            self.future.set_result(None)

    def failed(self, error: errors.HarebellError) -> None:
        if not self.future.done():
            self.future.set_result(error)


async def run_batch(channel: Channel, parts: Sequence[Part], seconds: float) -> list[Reply | bool]:
    """The answers to the parts, in their order. The channel is used by nobody else meanwhile, and is in confirm mode.

    After an error, or a cancellation, answers may still be on their way: the channel must not be used again.
    DeadlineExceeded after `seconds`, the broker's refusal, or why the connection ended.
    """
    core, transport = channel.core, channel.transport
    core.check_open()
    batch = _Batch(transport.loop.create_future())
    batch.left = len(parts)
    waiting: list[_Asked | _Published] = []
    for part in parts:
        if isinstance(part, Publish):
            published = _Published(batch)
            raw, body = encoded(part.message)
            core.publish(raw, body, part.exchange, part.routing_key, part.mandatory, published)
            waiting.append(published)
        else:
            asked = _Asked(part, batch)
            transport.engine.send_method(core.number, part)
            core.slots.append(asked)
            waiting.append(asked)
    transport.ask()
    key = transport.deadlines.add(batch.future, transport.loop.time() + seconds)
    try:
        result = await batch.future
    finally:
        transport.deadlines.remove(key, batch.future)
    if result is EXPIRED:
        raise errors.DeadlineExceeded(transport.late(_named(parts[0]), seconds))
    if isinstance(result, errors.HarebellError):
        raise copy_of(result)
    answers: list[Reply | bool] = []
    for each in waiting:
        assert each.reply is not None
        answers.append(each.reply)
    return answers


def _named(part: Part) -> str:
    return "basic.publish" if isinstance(part, Publish) else part.NAME
