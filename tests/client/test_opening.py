"""Who forgets the `await` is told so, in words."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest

import harebell
from harebell import errors
from harebell.client.patterns.pools import Lease


async def test_a_forgotten_await_is_told(harebell_url: str) -> None:
    connection = harebell.connect(harebell_url)
    with pytest.raises(AttributeError, match=r"harebell\.connect\(\.\.\.\) is not awaited, and has no 'channel' yet"):
        connection.channel()  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="async with"), connection:  # type: ignore[attr-defined]
        pass
    async with connection as opened:
        channel = opened.channel()
        with pytest.raises(AttributeError, match=r"write `await connection\.channel\(\)`"):
            await channel.queue_declare("q")  # type: ignore[attr-defined]
        assert not (await channel).is_closed
        pool = opened.channel_pool()
        lease: Lease[harebell.Channel] = pool.acquire()
        with pytest.raises(AttributeError, match=r"pool\.acquire\(\) is not awaited"):
            await lease.publish(b"", "q")  # type: ignore[attr-defined]
        async with pool, lease as borrowed:
            assert borrowed.is_open
    assert not hasattr(connection, "__len__")
    assert not hasattr(lease, "__len__")


async def test_what_is_never_awaited_warns(harebell_url: str) -> None:
    for connect in (harebell.connect, harebell.sessions.connect):
        with pytest.warns(RuntimeWarning, match=r"connect\(\.\.\.\) was never awaited"):
            _forgotten(connect, harebell_url)


def _forgotten(connect: Callable[[str], object], url: str) -> None:
    connect(url)
    gc.collect()


@pytest.mark.parametrize(
    "url, text",
    [
        (None, r"the URL is None \(is a setting or an environment variable missing\?\): give text such as amqp://"),
        (["amqp://localhost/", None], "the URL is None"),
        (5672, "the URL is 5672: give text"),
        (b"amqp://localhost/", "the URL is 97: give text"),
        ([], "at least one host"),
    ],
)
async def test_what_is_no_url_is_refused(url: object, text: str) -> None:
    for connect in (harebell.connect, harebell.sessions.connect):
        with pytest.raises(errors.InvalidArgument, match=text):
            await connect(url)  # type: ignore[arg-type]
