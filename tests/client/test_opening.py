"""Who forgets the `await` is told so, in words."""

from __future__ import annotations

import asyncio
import gc
import math
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

import harebell
from harebell import Backoff, Recovery, blocking, errors
from harebell.client import events as e
from harebell.client.connection import Connection
from harebell.client.patterns.pools import Lease
from tests.client.outages import FAST, next_of


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


NOWHERE = "amqp://guest:guest@127.0.0.1:9/"  # what is wrong is told before a host is asked
SECONDS = "a number of seconds is needed"
WHOLE = "a whole number of seconds from 0 to 65535"
FUNCTION = r"give a function without arguments that returns \(user name, password or token\)"

# Of both dialects.
WRONG: list[tuple[dict[str, Any], str]] = [
    *[({"heartbeat": given}, WHOLE) for given in ("5", -1, 1.5, 70_000, True, math.nan, b"5", timedelta(seconds=5))],
    *[
        ({name: given}, f"{name} is .*{SECONDS}")
        for name in ("timeout", "dial_timeout")
        for given in ("5", -1, math.nan, Decimal(5), True, timedelta(seconds=5), [5])
    ],
    ({"timeout": 0}, "above 0"),
    ({"dial_timeout": 0}, "above 0"),
    *[({"credentials": given}, FUNCTION) for given in (("u", "p"), "u:p", 5, True, ["u", "p"])],
    ({"credentials": lambda user: ("u", "p")}, r"credentials .* cannot be called with \(\)"),
    ({"dial": "127.0.0.1"}, "dial '127.0.0.1' cannot be called"),
    ({"dial": lambda host: None}, r"cannot be called with \(host, port\)"),
    ({"sock": "x"}, "sock is 'x': a connected socket is needed"),
    ({"context": "x"}, "context is 'x': a TLS context is needed"),
    ({"locale": 5}, "locale is 5: text is needed"),
    ({"client_properties": "x"}, "a dictionary by name"),
]
# Of AMQP 0-9-1.
RECOVERY: list[tuple[Callable[[], dict[str, Any]], str]] = [
    *[
        (lambda given=given: {"recovery": given}, "give a Recovery")
        for given in (Recovery, True, False, "all", Backoff())
    ],
    *[
        (lambda given=given: {"recovery": Recovery(backoff=given)}, "backoff is .*give a Backoff")
        for given in (5, None, Backoff, "slow", (0.2, 5))
    ],
    *[
        (lambda given=given: {"recovery": Recovery(give_up_after=given)}, f"give_up_after is .*{SECONDS}")
        for given in ("5", -1, math.nan, Decimal(5), timedelta(seconds=1))
    ],
    (lambda: {"recovery": Recovery(reopen_channels="no")}, "reopen_channels='no': True or False"),  # type: ignore[arg-type]
    (lambda: {"recovery": Recovery(first=True)}, "first=True: one of once, retry"),  # type: ignore[arg-type]
    *[
        (
            lambda name=name, given=given: {"recovery": Recovery(backoff=Backoff(**{name: given}))},
            f"{name} of a Backoff is",
        )
        for name in ("base", "most", "factor")
        for given in ("1", -1, math.nan, Decimal(1), timedelta(seconds=1), None)
    ],
    (lambda: {"recovery": Recovery(backoff=Backoff(10, 1))}, "base <= most"),
    (lambda: {"recovery": Recovery(backoff=Backoff(most=math.inf))}, "an end of both"),
]


@pytest.mark.parametrize("options, text", WRONG)
async def test_a_wrong_option_is_told_at_the_call(options: dict[str, Any], text: str) -> None:
    for connect in (harebell.connect, harebell.sessions.connect):
        with pytest.raises(errors.InvalidArgument, match=text):
            await connect(NOWHERE, **options)
    of_threads: list[Callable[..., object]] = [blocking.connect, blocking.sessions.connect]
    for blocking_connect in of_threads:
        with pytest.raises(errors.InvalidArgument, match=text):
            await asyncio.to_thread(blocking_connect, NOWHERE, **options)


@pytest.mark.parametrize("options, text", RECOVERY)
async def test_a_wrong_recovery_is_told_at_the_call(options: Callable[[], dict[str, Any]], text: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=text):
        await harebell.connect(NOWHERE, **options())
    with pytest.raises(errors.InvalidArgument, match=text):
        await asyncio.to_thread(lambda: blocking.connect(NOWHERE, **options()))


@pytest.mark.parametrize("given", [5, Backoff, "slow", True])
async def test_a_wrong_backoff_of_sessions_is_told_at_the_call(given: Any) -> None:
    with pytest.raises(errors.InvalidArgument, match="give a Backoff"):
        await harebell.sessions.connect(NOWHERE, backoff=given)
    with pytest.raises(errors.InvalidArgument, match="needs a backoff"):
        await harebell.sessions.connect(NOWHERE, backoff=None, give_up_after=5)
    with pytest.raises(errors.InvalidArgument, match=f"give_up_after is '5': {SECONDS}"):
        await harebell.sessions.connect(NOWHERE, give_up_after="5")  # type: ignore[arg-type]


def test_delays_of_a_large_factor_have_an_end() -> None:
    assert [Backoff(1, 30, 1e300).longest(attempt) for attempt in (1, 2, 3, 2000)] == [1, 30, 30, 30]


LOGINS = [
    ("guest", "gave a str: "),
    (None, "gave a NoneType: "),
    (("guest",), "gave a tuple of 1: "),
    (("guest", "guest", "guest"), "gave a tuple of 3: "),
    (("guest", b"guest"), "gave a password of type bytes: text is needed"),
    ((b"guest", "guest"), "gave a user name of type bytes: text is needed"),
    (("guest", 5), "gave a password of type int"),
]


@pytest.mark.parametrize("login, text", LOGINS)
async def test_what_credentials_give_is_checked(harebell_url: str, login: Any, text: str) -> None:
    async def later() -> Any:
        return login

    for credentials in (lambda: login, later):
        for connect in (harebell.connect, harebell.sessions.connect):
            with pytest.raises(errors.InvalidArgument) as caught:
                await connect(harebell_url, credentials=credentials)
            assert text in str(caught.value)


async def test_a_login_that_is_wrong_at_a_redial_is_asked_for_again(harebell_url: str) -> None:
    given: list[Any] = [("guest", "guest"), *(login for login, _ in LOGINS), ("guest", "guest")]
    connection: Connection
    async with harebell.connect(harebell_url, credentials=lambda: given.pop(0), recovery=FAST) as connection:
        events = connection.events()
        connection.test().disconnect_transport()
        await next_of(events, e.Recovered)
    assert given == []
