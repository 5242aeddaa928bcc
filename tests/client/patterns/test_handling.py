"""Handlers: which are refused when they are given, and what stands around them; the second against both brokers."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest

import harebell
from harebell import errors
from harebell.client.callbacks import check_callable
from harebell.client.channel import Channel
from harebell.client.connection import Connection
from harebell.client.messages import Delivery, Message
from harebell.client.middleware import HandleArgs
from harebell.client.patterns.handling import OneHandling, own_error
from tests.client.outages import FAST


def of_nothing() -> None: ...
def of_one(delivery: object) -> None: ...
async def of_two(value: object, delivery: object) -> None: ...
def of_any(*arguments: object) -> None: ...
def generator(delivery: object) -> Iterator[None]:
    yield


async def async_generator(delivery: object) -> AsyncIterator[None]:
    yield


class Service:
    async def handle(self, delivery: object) -> None: ...
    async def __call__(self, value: object, delivery: object) -> None: ...


class Lazy:
    async def __call__(self, delivery: object) -> AsyncIterator[None]:
        yield


ONE = [of_one, of_any, Service().handle, functools.partial(of_two, 1), lambda delivery: None, print, dict]
TWO = [of_two, of_any, Service(), lambda value, delivery: None, functools.partial(of_two), isinstance]


@pytest.mark.parametrize("handler", ONE)
def test_handlers_of_a_delivery(handler: Any) -> None:
    OneHandling(handler, None, None)


@pytest.mark.parametrize("handler", TWO)
def test_handlers_of_a_value_and_a_delivery(handler: Any) -> None:
    OneHandling(handler, harebell.JSON(), None)


@pytest.mark.parametrize(
    "handler, codec, text",
    [
        (of_nothing, False, r"handler of_nothing\(\) cannot be called with \(delivery\): too many"),
        (of_two, False, r"cannot be called with \(delivery\): missing a required argument: 'delivery'"),
        (Service(), False, "missing a required argument: 'delivery'"),
        (Service.handle, False, "missing a required argument: 'delivery'"),
        (of_one, True, r"cannot be called with \(value, delivery\): too many"),
        (generator, False, "generator is a generator: calling it runs nothing"),
        (async_generator, False, "is a generator"),
        (Lazy(), False, "is a generator"),
        (functools.partial(generator), False, "is a generator"),
        (None, False, "None cannot be called: give a function"),
        ("handle", False, "'handle' cannot be called"),
    ],
)
def test_a_handler_of_the_wrong_shape_is_refused(handler: Any, codec: bool, text: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=text):
        OneHandling(handler, harebell.JSON() if codec else None, None)


def test_what_does_not_say_how_it_is_called_is_taken() -> None:
    check_callable("the handler", max, "delivery")


async def test_every_function_of_a_consumer_is_checked(connection: Connection, queue: str) -> None:
    for name in ("on_orphan", "setup", "cleanup", "on_error"):
        with pytest.raises(errors.InvalidArgument, match=f"{name} of_nothing"):
            connection.consume(queue, of_one, **{name: of_nothing})  # type: ignore[call-overload]
    serve: Any = connection.serve
    with pytest.raises(errors.InvalidArgument, match="on_error of_one"):
        serve(queue, of_one, on_error=of_one)
    with pytest.raises(errors.InvalidArgument, match="max_failures is 0"):
        connection.consume(queue, of_one, max_failures=0)
    with pytest.raises(errors.InvalidArgument, match="the handler of_two"):
        serve(queue, of_two)


class Around:
    """A middleware around handlers."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int, bytes, object]] = []

    async def handle(self, call_next: Callable[[HandleArgs], Awaitable[object]], args: HandleArgs) -> object:
        result: object = None
        try:
            result = await call_next(args)
            return result
        except Exception as error:
            result = type(error)
            raise
        finally:
            self.seen.append((args.queue, args.attempt, args.delivery.body, result))


async def test_a_middleware_stands_around_a_handler(broker_url: str, channel: Channel, queue: str) -> None:
    around, done = Around(), asyncio.Event()
    middlewares = harebell.middleware.Middlewares().add_shared(around)

    async def handle(delivery: Delivery) -> str:
        if len(around.seen) < 2:
            raise ValueError("not yet")
        done.set()
        return "worked"

    async with harebell.connect(broker_url, middleware=middlewares, recovery=FAST) as connection:
        retry = harebell.Retry(delays=(0.01, 0.02))
        async with connection.consume(queue, handle, workers=1, retry=retry):
            await channel.publish(b"m", "", queue)
            async with asyncio.timeout(60):
                await done.wait()
    assert around.seen == [
        (queue, 1, b"m", ValueError),
        (queue, 2, b"m", ValueError),
        (queue, 3, b"m", "worked"),
    ]
    for each in (f"{queue}.dead", f"{queue}.retry.10", f"{queue}.retry.20"):
        await channel.queue_delete(each)


async def test_a_middleware_stands_around_the_handler_of_calls_and_codecs(
    broker_url: str, channel: Channel, queue: str
) -> None:
    around = Around()
    middlewares = harebell.middleware.Middlewares().add_shared(around)
    async with harebell.connect(broker_url, middleware=middlewares) as connection:
        codec = harebell.JSON()

        async def double(value: Any, delivery: Delivery) -> object:
            return 2 * value

        async with connection.serve(queue, double, codec=codec), connection.rpc(codec=codec) as rpc:
            assert await rpc.call(21, queue, timeout=60) == 42
            with pytest.raises(errors.RemoteError, match="UndecodableBody"):
                await rpc.call(Message(b"no json"), queue, timeout=60)
    assert [(attempt, result) for _, attempt, _, result in around.seen] == [(1, 42), (1, errors.UndecodableBody)]


REFUSED, AGAIN, LOST, WRONG = harebell.Reject(), harebell.Requeue(), ConnectionError("lost"), ValueError("wrong")
GROUPS: list[tuple[BaseException, BaseException | None]] = [  # with what it counts as; None: the group
    (LOST, LOST),
    (ExceptionGroup("", [LOST]), LOST),
    (ExceptionGroup("", [ExceptionGroup("", [REFUSED])]), REFUSED),
    (ExceptionGroup("", [AGAIN, ExceptionGroup("", [harebell.Requeue()])]), AGAIN),
    (ExceptionGroup("", [REFUSED, AGAIN]), None),
    (ExceptionGroup("", [REFUSED, LOST]), None),
    (ExceptionGroup("", [LOST, ConnectionError("too")]), None),
    (BaseExceptionGroup("", [KeyboardInterrupt(), LOST]), None),
]


@pytest.mark.parametrize("raised, counts_as", GROUPS, ids=repr)
async def test_a_group_counts_as_what_its_errors_agree_on(
    raised: BaseException, counts_as: BaseException | None
) -> None:
    assert own_error(raised) is (raised if counts_as is None else counts_as)
