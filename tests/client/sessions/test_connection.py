"""Connections of AMQP 0-10: logging in, coming back, takeover, the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import harebell
from harebell import errors
from harebell.broker import Broker
from harebell.client.recovery.policy import Backoff
from harebell.client.sessions import Connection, Session, connect
from harebell.config import Limits
from harebell.protocol.v010.domains import DetachCode
from harebell.testing import EmbeddedBroker, FaultProxy
from tests.client.sessions.kit import FAST, drained, until


async def test_what_it_is(connection: Connection, proxy: FaultProxy) -> None:
    assert (connection.state, connection.is_closed, connection.closed_reason) == ("open", False, None)
    assert connection.server_properties["harebell"] == harebell.__version__
    assert connection.parameters.port == proxy.port
    assert harebell.sessions.connect is connect
    await connection.close()
    await connection.close()
    assert (connection.state, connection.is_closed) == ("closed", True)
    assert isinstance(await connection.wait_closed(), errors.ChannelClosed)
    with pytest.raises(errors.ChannelClosed):
        await connection.session()


async def test_refusals(broker: Broker) -> None:
    url = broker.url.removeprefix("amqp://").rpartition("@")[2].rstrip("/")
    with pytest.raises(errors.AccessRefused) as caught:
        await connect(f"amqp://guest:wrong@{url}/")
    assert "logging in" in caught.value.__notes__[0]
    with pytest.raises(errors.InvalidPath):
        await connect(f"amqp://{url}/missing")
    with pytest.raises(errors.AccessRefused, match="no common login mechanism"):
        await connect(f"amqp://{url}/?auth_mechanism=ANONYMOUS")
    with pytest.raises(errors.InvalidArgument, match="no URL"):
        await connect([])
    with pytest.raises(errors.InvalidArgument, match="give_up_after"):
        await connect(broker.url, backoff=None, give_up_after=5)


async def test_anonymous() -> None:
    async with Broker(mechanisms=("ANONYMOUS",)) as broker:
        async with connect(broker.url + "?auth_mechanism=ANONYMOUS") as connection, connection.session() as session:
            await session.sync()


async def test_credentials_are_asked_for_at_each_dial(proxy: FaultProxy) -> None:
    asked = 0

    async def credentials() -> tuple[str, str]:
        nonlocal asked
        asked += 1
        if asked == 2:
            raise OSError("the vault is sealed")
        return "guest", "guest"

    url = f"amqp://{proxy.host}:{proxy.port}"
    async with connect(url, credentials=credentials, backoff=FAST, timeout=60) as connection:
        async with connection.session() as session:
            proxy.cut()
            await until(lambda: not session.is_attached)
            await session.sync()
    assert asked == 3


@asynccontextmanager
async def answering(answer: bytes) -> AsyncIterator[str]:
    """The URL of a server that answers so to the protocol header, and hangs up."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(8)
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"amqp://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_a_server_of_another_protocol() -> None:
    async with answering(b"AMQP\0\0\x09\x01") as url:
        with pytest.raises(errors.NotImplemented, match="does not speak AMQP 0-10"):
            await connect(url)
    async with answering(b"\x15\x03\x03\x00\x02\x02\x0a") as url:
        with pytest.raises(errors.NotImplemented, match="it wants TLS, use amqps://"):
            await connect(url)
    async with answering(b"220 mail") as url:
        with pytest.raises(errors.NotImplemented, match="it answered b'220 mai'"):
            await connect(url)
    async with answering(b"") as url:
        with pytest.raises(errors.ConnectionLost, match=r"waiting for connection\.start: no AMQP broker"):
            await connect(url)


async def test_without_a_backoff_it_ends_with_its_transport(proxy: FaultProxy) -> None:
    async with connect(f"amqp://{proxy.host}:{proxy.port}", backoff=None) as connection:
        async with connection.session() as session:
            proxy.cut(reset=True)
            with pytest.raises((errors.ConnectionLost, errors.ChannelClosed)):
                await session.publish(b"m", "", "q")
        assert isinstance(connection.closed_reason, errors.ConnectionLost)
        assert isinstance(session.closed_reason, errors.ConnectionLost)


async def test_it_gives_up(proxy: FaultProxy) -> None:
    async with connect(f"amqp://{proxy.host}:{proxy.port}", backoff=FAST, give_up_after=0) as connection:
        async with connection.session() as session:
            proxy.refuse()
            proxy.cut(reset=True)
            reason = await connection.wait_closed()
            assert isinstance(reason, errors.RecoveryGaveUp)
            assert isinstance(session.closed_reason, errors.RecoveryGaveUp)


async def test_it_tries_until_a_broker_is_there(connection: Connection, session: Session, proxy: FaultProxy) -> None:
    proxy.refuse()
    proxy.cut(reset=True)
    await until(lambda: proxy.accepted > 3)
    states = [connection.state]
    proxy.accept()
    await session.sync()
    assert [*states, connection.state] == ["reconnecting", "open"]


async def test_a_broker_that_is_restarted(proxy: FaultProxy) -> None:
    with EmbeddedBroker() as server:
        async with connect(server.url, backoff=FAST, timeout=60) as connection:
            await asyncio.to_thread(server.restart)
            async with connection.session() as session:
                await session.sync()
                assert not session.resumed


async def test_closing_while_it_comes_back(connection: Connection, proxy: FaultProxy) -> None:
    session = await connection.session()
    waiting = asyncio.ensure_future(session.sync())
    proxy.refuse()
    proxy.cut(reset=True)
    await until(lambda: connection.state == "reconnecting")
    call = asyncio.ensure_future(session.sync())
    await asyncio.sleep(0)
    await connection.close()
    for each in (waiting, call):
        with pytest.raises(errors.ChannelClosed):
            await each
    assert session.is_closed


async def test_heartbeats(proxy: FaultProxy) -> None:
    async with connect(f"amqp://{proxy.host}:{proxy.port}", heartbeat=1, backoff=FAST, timeout=60) as connection:
        async with connection.session() as session:
            proxy.stall("to_client")
            call = asyncio.ensure_future(session.sync())
            await until(lambda: connection.state == "reconnecting" or proxy.accepted > 1)
            proxy.resume()
            await call


# -- sessions -----------------------------------------------------------------------------------------------------


async def test_several_sessions_on_one_connection(connection: Connection, proxy: FaultProxy) -> None:
    async with connection.session("a") as first, connection.session("b") as second:
        await first.queue_declare("q")
        with pytest.raises(errors.InvalidArgument, match="already"):
            await connection.session("a")
        proxy.cut(reset=True)
        await asyncio.gather(*[each.publish(b"m", "", "q") for each in (first, second) for _ in range(20)])
        assert await first.message_count("q") == 40
    async with connection.session("a") as again:
        assert not again.resumed


async def test_names_and_timeouts(connection: Connection) -> None:
    for timeout in (-1, 1 << 32, 0.5):
        with pytest.raises(errors.InvalidArgument, match="timeout"):
            connection.session(timeout=timeout)  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidArgument, match="name"):
        connection.session("")
    async with connection.session(timeout=100_000) as session:
        await session.sync()
        assert session.timeout == 3600  # what the broker grants at most
    with pytest.raises(errors.ResourceError):
        await connection.session("s" * 2000)


async def test_a_broker_that_keeps_no_session_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    async with Broker(limits=Limits(max_sessions=0)) as broker, connect(broker.url) as connection:
        async with connection.session("frail") as session:
            await session.sync()
            assert session.timeout == 0
        assert "does not keep session 'frail'" in caplog.text
        caplog.clear()
        async with connection.session("modest", timeout=0) as session:
            await session.sync()
        assert "modest" not in caplog.text


async def test_the_log_names_a_lost_peer_once(
    connection: Connection, session: Session, proxy: FaultProxy, caplog: pytest.LogCaptureFixture
) -> None:
    proxy.cut()
    await session.sync()
    lines = [record.getMessage() for record in caplog.records if "connection lost" in record.getMessage()]
    assert [line.count(connection.parameters.peer) for line in lines] == [1]


async def test_a_connection_has_so_many_channels(broker: Broker) -> None:
    async with connect(broker.url + "?channel_max=2") as connection:
        async with connection.session(), connection.session():
            with pytest.raises(errors.ResourceError, match="2 sessions"):
                await connection.session()
        async with connection.session() as session:
            await session.sync()


async def test_takeover(connection: Connection, broker: Broker) -> None:
    async with connect(broker.url) as second:
        async with connection.session("s") as session:
            await session.queue_declare("q")
            await session.publish(b"m", "", "q")
            held = await session.get("q")
            assert held is not None
            with pytest.raises(errors.SessionDetached, match="another connection") as caught:
                await second.session("s")
            assert caught.value.code == DetachCode.SESSION_BUSY
            async with second.session("s", force=True) as taken:
                assert taken.resumed
                with pytest.raises(errors.HarebellError) as ended:
                    await session.sync()
                assert isinstance(session.closed_reason, errors.SessionDetached)
                assert isinstance(ended.value, errors.SessionDetached | errors.ChannelClosed)
                assert await drained(taken, "q") == [b"m"]  # what the other held has returned


async def test_another_program_has_gone_on(connection: Connection, broker: Broker, proxy: FaultProxy) -> None:
    async with connect(broker.url) as second:
        session = await connection.session("s")
        await session.queue_declare("q")
        proxy.refuse()
        proxy.cut(reset=True)
        async with second.session("s", force=True) as taken:
            await taken.publish(b"m", "", "q")
            proxy.accept()
            with pytest.raises(errors.HarebellError) as lost:
                while True:
                    await session.sync()
            assert isinstance(lost.value, errors.SessionStateLost)
            assert isinstance(session.closed_reason, errors.SessionStateLost)
            assert "another program" in str(lost.value)
            await until(lambda: taken.is_closed)  # the first one took the session by force, to go on with it
            assert isinstance(taken.closed_reason, errors.SessionDetached)


async def test_a_session_is_kept_for_the_next(connection: Connection, broker: Broker) -> None:
    async with connection.session("s", keep=True) as session:
        await session.queue_declare("q")
        await session.publish(b"m", "", "q")
    assert session.is_closed
    async with connect(broker.url) as second, second.session("s") as next_one:
        assert next_one.resumed
        await next_one.publish(b"n", "", "q")
        assert await drained(next_one, "q") == [b"m", b"n"]
    async with connection.session("s") as third:
        assert not third.resumed


async def test_leaving_by_an_error_ends_the_session(connection: Connection) -> None:
    with pytest.raises(KeyError):
        async with connection.session("s"):
            raise KeyError
    async with connection.session("s") as session:
        assert not session.resumed


async def test_leaving_by_an_error_without_a_connection(proxy: FaultProxy) -> None:
    async with connect(f"amqp://{proxy.host}:{proxy.port}", timeout=0.2, backoff=Backoff(0, 0)) as connection:
        with pytest.raises(KeyError):
            async with connection.session() as session:
                proxy.refuse()
                proxy.cut(reset=True)
                await until(lambda: not session.is_attached)
                raise KeyError
        assert session.is_closed


async def test_closing_without_a_connection(connection: Connection, proxy: FaultProxy) -> None:
    session = await connection.session()
    proxy.refuse()
    proxy.cut(reset=True)
    await until(lambda: not session.is_attached)
    with pytest.raises(errors.DeadlineExceeded):
        await session.close(timeout=0.05)
    assert session.is_closed
    await session.close()
    proxy.accept()


async def test_a_cancelled_block_waits_for_nothing(connection: Connection, proxy: FaultProxy) -> None:
    begun = asyncio.Event()

    async def work() -> None:
        async with connection.session("s") as session:
            await session.sync()
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.ensure_future(work())
    await begun.wait()
    with proxy.stalled():
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    async with connection.session("s") as session:
        assert not session.resumed


async def test_a_cancelled_connection_waits_for_nothing(proxy: FaultProxy) -> None:
    begun = asyncio.Event()

    async def work() -> None:
        async with connect(f"amqp://{proxy.host}:{proxy.port}"):
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.ensure_future(work())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await proxy.wait_connections(0)


@pytest.mark.parametrize("direction", ["to_server", "to_client"])
async def test_an_attach_that_is_cut(broker: Broker, direction: str) -> None:
    """The lost connection may have the session, though its client never heard of it."""
    assert broker.port is not None
    async with FaultProxy("127.0.0.1", broker.port) as proxy:
        async with connect(f"amqp://{proxy.host}:{proxy.port}", timeout=60, backoff=FAST) as connection:
            if direction == "to_client":
                proxy.cut_after(3, "to_client")
            else:
                proxy.cut_after(3, "to_server")
            async with connection.session("s") as session:
                await session.sync()
            assert proxy.accepted == 2
