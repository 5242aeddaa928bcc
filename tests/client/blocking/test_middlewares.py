"""Middlewares and callbacks in the blocking API: the same hooks, whichever thread calls."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

import harebell
from harebell.client import blocking
from harebell.client.middleware.registry import Middlewares
from tests.client.outages import FAST


@pytest.fixture
def seen() -> list[str]:
    return []


@pytest.fixture
def channel(harebell_url: str, seen: list[str]) -> Iterator[blocking.Channel]:
    def noting(hook: str) -> Callable[..., Any]:
        def plain(call_next: Callable[[Any], object], args: Any) -> object:
            seen.append(hook)
            return call_next(args)

        return plain

    middlewares = Middlewares()
    for hook in ("publish", "send", "publish_nowait", "publish_many", "ack", "get", "queue_declare", "consume"):
        middlewares.add(hook, noting(hook))
    with blocking.connect(harebell_url, recovery=FAST, middleware=middlewares) as connection:
        yield connection.channel()


def test_every_call_passes_its_hook(channel: blocking.Channel, seen: list[str], name: str) -> None:
    channel.queue_declare(name, exclusive=True)
    channel.publish(b"1", "", name)
    channel.confirm_select()
    channel.confirmations()
    channel.send(b"2", "", name)
    channel.publish_nowait(b"3", "", name)
    channel.publish_many([harebell.Publication(b"4", "", name)])
    delivery = channel.get(name)
    assert delivery is not None
    delivery.ack()
    with channel.consume(name) as consumer:
        next(consumer).ack()
    channel.ack(0, multiple=True)
    assert seen == [
        "queue_declare", "publish", "send", "publish_nowait", "publish_many", "get", "ack", "consume", "ack", "ack",
    ]  # fmt: skip


def test_being_told(channel: blocking.Channel, name: str) -> None:
    heard: queue.SimpleQueue[object] = queue.SimpleQueue()
    channel.queue_declare(name, exclusive=True)
    channel.confirm_select()
    stop = channel.notify_publish(lambda confirmation: heard.put(confirmation.publish_tag))
    channel.publish(b"m", "", name)
    assert heard.get(timeout=60) == 1
    stop()
    channel.publish(b"m", "", name)
    channel.notify_flow(lambda event: heard.put(event.active))
    channel.test().force_reconnect()
    assert [heard.get(timeout=60), heard.get(timeout=60)] == [False, True]
    counted = channel.statistics()
    assert (counted.published, counted.confirmed, counted.reopened) == (2, 2, 1)
    assert channel.queue_inspect(name).message_count == 2


def test_on_one_channel(harebell_url: str, name: str) -> None:
    async def other(call_next: Callable[[Any], Any], args: Any) -> Any:
        return await call_next(replace(args, name=f"{args.name}.other"))

    with blocking.connect(harebell_url) as connection:
        with connection.channel(middleware=Middlewares().add("queue_declare", other)) as channel:
            assert channel.queue_declare(name, exclusive=True).name == f"{name}.other"
            assert channel.test().provider("topology") is connection.test().provider("topology")
