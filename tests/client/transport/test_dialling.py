"""Dials: in which order, for how long, and by whom; what is cancelled on the way leaves nothing."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import pytest

import harebell
from harebell import blocking, errors
from harebell.broker import Broker
from harebell.client import events as e
from harebell.client.middleware.registry import Middlewares
from harebell.client.recovery.policy import Backoff, Recovery
from harebell.testing import FaultProxy
from tests.client.outages import FAST, next_of
from tests.client.scripted import Peer, scripted
from tests.client.test_retries import served


def url_of(proxy: FaultProxy) -> str:
    return f"amqp://guest:guest@{proxy.host}:{proxy.port}/"


async def test_after_a_loss_the_other_hosts_are_tried_first(harebell_url: str) -> None:
    at = urlsplit(harebell_url)
    host, port = at.hostname or "", at.port or 0
    async with FaultProxy(host, port) as one, FaultProxy(host, port) as two, FaultProxy(host, port) as three:
        proxies = (one, two, three)
        async with harebell.connect([*map(url_of, proxies)], timeout=60, recovery=FAST) as connection:
            for lost, present in ((one, two), (two, three), (three, one)):
                signal = connection.test().signal_on_reconnect()
                lost.cut()
                await signal.wait()
                assert connection.parameters.port == present.port
            two.refuse()
            three.refuse()
            signal = connection.test().signal_on_reconnect()
            one.cut()
            await signal.wait()
            assert connection.parameters.port == one.port  # it comes last, and it comes


async def test_a_silent_host_holds_up_the_next_one_for_its_own_time_only(harebell_url: str) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        await reader.read()

    async with served(silent) as quiet:
        loop = asyncio.get_running_loop()
        began = loop.time()
        for seconds in (0.1, 1.0, 10.0):  # a busy machine logs in more slowly
            with contextlib.suppress(errors.DeadlineExceeded):
                async with harebell.connect([quiet, harebell_url], timeout=600, dial_timeout=seconds) as connection:
                    assert connection.parameters.port == urlsplit(harebell_url).port
                    break
        else:
            raise AssertionError("the second host was never reached")
        assert loop.time() - began < 300
        with pytest.raises(errors.DeadlineExceeded, match=r"no connection within 0\.1 s"):
            await harebell.connect(quiet, timeout=600, dial_timeout=0.1)
    with pytest.raises(errors.InvalidArgument, match="dial_timeout is 0"):
        await harebell.connect(harebell_url, dial_timeout=0)


class Tunnel:
    """A program's own way to the broker."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []

    def __call__(self, host: str, port: int) -> socket.socket:
        self.asked.append((host, port))
        return socket.create_connection((host, port))

    async def slowly(self, host: str, port: int) -> socket.socket:
        await asyncio.sleep(0)
        return self(host, port)


@pytest.mark.parametrize("kind", ["plain", "coroutine"])
async def test_a_dial_of_the_programs_survives_reconnects(harebell_url: str, kind: str) -> None:
    tunnel = Tunnel()
    dial: Callable[[str, int], socket.socket | Awaitable[socket.socket]]
    dial = tunnel if kind == "plain" else tunnel.slowly
    async with harebell.connect(harebell_url, dial=dial, recovery=FAST) as connection, connection.channel() as channel:
        await connection.test().force_reconnect()
        await channel.exchange_declare("amq.direct", passive=True)
        assert tunnel.asked == [(connection.parameters.host, connection.parameters.port)] * 2


@pytest.mark.parametrize("kind", ["plain", "coroutine"])
async def test_so_it_is_for_threads(harebell_url: str, kind: str) -> None:
    tunnel = Tunnel()

    def work() -> None:
        dial = tunnel if kind == "plain" else tunnel.slowly
        with blocking.connect(harebell_url, dial=dial, recovery=FAST) as connection:
            connection.test().force_reconnect()
            connection.channel().exchange_declare("amq.direct", passive=True)

    await asyncio.to_thread(work)
    assert len(tunnel.asked) == 2


async def test_amqps_to_a_port_without_tls(harebell_url: str) -> None:
    with pytest.raises(errors.ConnectionLost, match=r"cannot be reached: .*: no TLS on this port\? use amqp://"):
        await harebell.connect(harebell_url.replace("amqp://", "amqps://"), recovery=None)


async def test_credentials_that_fail_are_asked_for_again(harebell_url: str) -> None:
    """At the first dial as after a loss: for the next host, and in the next round."""
    asked = 0

    def credentials() -> tuple[str, str]:
        nonlocal asked
        asked += 1
        if asked < 3:
            raise ConnectionRefusedError("the vault is not up")
        return "guest", "guest"

    with pytest.raises(errors.ConnectionLost, match=r"credentials\(\) failed: .*the vault is not up") as caught:
        await harebell.connect([harebell_url, harebell_url], credentials=credentials)
    assert (asked, type(caught.value.__cause__)) == (2, ConnectionRefusedError)
    for hosts, recovery in (([harebell_url] * 3, Recovery()), ([harebell_url], replace(FAST, first="retry"))):
        asked = 0
        async with harebell.connect(hosts, credentials=credentials, recovery=recovery):
            assert asked == 3


@pytest.mark.parametrize("connect", [harebell.connect, harebell.sessions.connect])
async def test_credentials_that_never_come_are_waited_for_within_the_timeout(harebell_url: str, connect: Any) -> None:
    async def credentials() -> tuple[str, str]:
        await asyncio.Event().wait()
        raise AssertionError

    async with asyncio.timeout(60):
        with pytest.raises(errors.DeadlineExceeded, match=r"credentials\(\) gave nothing within 0\.05 s"):
            await connect(harebell_url, credentials=credentials, timeout=0.05)


@pytest.mark.parametrize("what", ["credentials", "dial", "connection_reconnect", "sessions"])
async def test_recovery_gives_up_on_time_whatever_it_waits_for(what: str) -> None:
    calls = 0

    async def hang() -> None:
        nonlocal calls
        calls += 1
        if calls > 1 or what == "connection_reconnect":
            await asyncio.Event().wait()

    async def credentials() -> tuple[str, str]:
        await hang()
        return "guest", "guest"

    async def dial(host: str, port: int) -> socket.socket:
        await hang()
        return socket.create_connection((host, port))

    async def reconnect(call_next: Callable[[Any], Awaitable[object]], args: Any) -> object:
        await hang()
        return await call_next(args)

    backoff = Backoff(0.01, 0.02)
    async with Broker() as broker, asyncio.timeout(60):
        if what == "sessions":
            sessions = await harebell.sessions.connect(
                broker.url, credentials=credentials, backoff=backoff, give_up_after=0.2
            )
            sessions.test().disconnect_transport()
            with pytest.raises(errors.RecoveryGaveUp, match=r"for 0\.2 s"):
                raise await sessions.wait_closed()
            return
        given = {"credentials": credentials, "dial": dial}.get(what)
        options: dict[str, Any] = {what: given} if given else {"middleware": Middlewares().add(what, reconnect)}
        recovery = Recovery(backoff=backoff, give_up_after=0.2)
        connection = await harebell.connect(broker.url, recovery=recovery, **options)
        connection.test().disconnect_transport()
        with pytest.raises(errors.RecoveryGaveUp, match=r"for 0\.2 s"):
            raise await connection.wait_closed()


async def test_a_dial_that_fails_is_tried_again(harebell_url: str) -> None:
    tunnel, failures = Tunnel(), [KeyError("mine"), OSError("no route"), None]

    def dial(host: str, port: int) -> socket.socket:
        if (error := failures.pop(0)) is not None:
            raise error
        return tunnel(host, port)

    with pytest.raises(errors.ConnectionLost, match=r"dial\(\) failed: KeyError"):
        await harebell.connect(harebell_url, dial=dial)
    with pytest.raises(errors.ConnectionLost, match="cannot be reached: no route"):
        await harebell.connect(harebell_url, dial=dial)
    failures += [KeyError("mine"), None]
    async with harebell.connect(harebell_url, dial=dial, recovery=FAST) as connection:
        events = connection.events()
        connection.test().disconnect_transport()
        await next_of(events, e.Recovered)
    with pytest.raises(errors.InvalidArgument, match=r"dial\(\) gave 'text'"):
        await harebell.connect(harebell_url, dial=lambda host, port: "text")  # type: ignore[arg-type, return-value]
    with socket.socket() as sock, pytest.raises(errors.InvalidArgument, match="sock and dial"):
        await harebell.connect(harebell_url, dial=dial, sock=sock)


async def test_what_the_client_says_about_itself() -> None:
    said: list[Peer] = []

    async def script(peer: Peer) -> None:
        said.append(peer)
        await peer.handshake()
        await peer.goodbye()

    properties = {"product": "Mine", "team": "orders", "capabilities": {"consumer_priorities": True}}
    for _ in range(2):
        async with (
            scripted(script) as url,
            harebell.connect(f"{url}?connection_name=n", client_properties=properties, locale="en_US"),
        ):
            pass
    told = said[0].start_ok.client_properties
    assert (told["product"], told["team"], told["connection_name"]) == ("Mine", "orders", "n")
    assert "version" in told
    capabilities = told["capabilities"]
    assert isinstance(capabilities, dict)
    assert capabilities["consumer_priorities"] is capabilities["publisher_confirms"] is True
    assert said[0].start_ok.locale == "en_US"


async def test_what_it_cannot_say_is_refused(harebell_url: str) -> None:
    with pytest.raises(errors.LocalProtocolError, match="no locale 'de_DE': it offers en_US"):
        await harebell.connect(harebell_url, locale="de_DE")
    with pytest.raises(errors.InvalidArgument, match="client_properties do not fit the wire"):
        await harebell.connect(harebell_url, client_properties={"set": {1}})
    with pytest.raises(errors.InvalidArgument, match="a dictionary by name is needed"):
        await harebell.connect(harebell_url, client_properties="team")  # type: ignore[arg-type]
    with pytest.raises(errors.LocalProtocolError, match="no locale 'de_DE': it offers en_US"):
        await harebell.sessions.connect(harebell_url, locale="de_DE")
    with pytest.raises(errors.InvalidArgument, match="client_properties do not fit the wire"):
        await harebell.sessions.connect(harebell_url, client_properties={"set": {1}})


async def test_a_connection_of_sessions_has_the_same_options() -> None:
    dialled = []

    def dial(host: str, port: int) -> socket.socket:
        dialled.append(host)
        return socket.create_connection(("127.0.0.1", port))

    async with Broker() as broker:
        url = broker.url.replace("127.0.0.1", "nowhere.invalid")
        async with harebell.sessions.connect(url, dial=dial, dial_timeout=20, locale="en_US") as connection:
            assert connection.is_open
    assert dialled == ["nowhere.invalid"]


@pytest.mark.parametrize("runs_on", ["asyncio", "uvloop"])
def test_a_dial_that_is_cancelled_leaves_nothing_unhandled(harebell_url: str, runs_on: str) -> None:
    """At each turn of the loop: uvloop closes a transport whose opening is cancelled without a word."""
    unhandled: list[object] = []

    async def program() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: unhandled.append(context))
        for turns in range(1, 30):
            dialling = asyncio.ensure_future(harebell.connect(harebell_url, recovery=Recovery()).__aenter__())
            for _ in range(turns):
                await asyncio.sleep(0)
            dialling.cancel()
            (result,) = await asyncio.gather(dialling, return_exceptions=True)
            if isinstance(result, harebell.Connection):
                await result.close()
        await asyncio.sleep(0.01)

    if runs_on == "uvloop":
        pytest.importorskip("uvloop").run(program())
    else:
        asyncio.run(program())
    assert unhandled == []
