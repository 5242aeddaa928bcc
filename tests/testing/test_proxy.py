"""FaultProxy, held against a plain echo server. Nothing here waits for a time to pass: each test waits for a byte."""

from __future__ import annotations

import asyncio
import errno
import gc
import socket
import warnings
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import NamedTuple

import pytest

from harebell.errors import InvalidArgument, LocalProtocolError
from harebell.testing import FaultProxy

DEADLINE = 60.0  # seconds; reached only when something is broken
BIG = 64 * 1024 * 1024  # bytes; more than all buffers between two sockets hold


class Echo:
    """Sends back what it reads; says b"bye" when the client has finished sending."""

    def __init__(self) -> None:
        self.port = 0
        self.writers: list[asyncio.StreamWriter] = []
        self.ended = asyncio.Event()
        self.reset = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
            self.ended.set()
            writer.write(b"bye")
            await writer.drain()
        except ConnectionError:
            self.reset.set()
        finally:
            writer.close()


class Client(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def says(self, data: bytes) -> bytes:
        """What comes back for this, waiting for as many bytes as were sent."""
        self.writer.write(data)
        return await self.hears(len(data))

    async def hears(self, count: int) -> bytes:
        async with asyncio.timeout(DEADLINE):
            return await self.reader.readexactly(count)

    async def hears_rest(self) -> bytes:
        async with asyncio.timeout(DEADLINE):
            return await self.reader.read()


@pytest.fixture
async def echo() -> AsyncIterator[Echo]:
    echo = Echo()
    server = await asyncio.start_server(echo.serve, "127.0.0.1", 0)
    echo.port = server.sockets[0].getsockname()[1]
    yield echo
    server.close()
    for writer in echo.writers:
        writer.transport.abort()
    await server.wait_closed()


@pytest.fixture
async def proxy(echo: Echo) -> AsyncIterator[FaultProxy]:
    before = asyncio.all_tasks()
    async with FaultProxy("127.0.0.1", echo.port) as proxy:
        yield proxy
    left = {task for task in asyncio.all_tasks() - before if "_forward" in repr(task) or "_pump" in repr(task)}
    assert not left, "closing the proxy leaves no task"


@pytest.fixture
async def client(proxy: FaultProxy) -> AsyncIterator[Client]:
    client = await dial(proxy)
    yield client
    client.writer.transport.abort()


async def dial(proxy: FaultProxy) -> Client:
    return Client(*await asyncio.open_connection(proxy.host, proxy.port))


async def test_bytes_pass_unchanged_both_ways(proxy: FaultProxy, client: Client) -> None:
    data = bytes(range(256)) * 4000
    assert await client.says(data) == data
    assert proxy.forwarded("to_server") == proxy.forwarded("to_client") == len(data)
    assert (proxy.accepted, proxy.connections) == (1, 1)


async def test_an_end_of_stream_passes_and_the_answer_still_comes(proxy: FaultProxy, client: Client) -> None:
    client.writer.write(b"last words ")
    client.writer.write_eof()
    assert await client.hears_rest() == b"last words bye"
    async with asyncio.timeout(DEADLINE):
        await proxy.wait_connections(0)


async def test_cut_ends_both_sides_and_new_connections_work(proxy: FaultProxy, client: Client, echo: Echo) -> None:
    await client.says(b"hello")
    assert proxy.cut() == 1
    assert await client.hears_rest() == b""
    async with asyncio.timeout(DEADLINE):
        await echo.ended.wait()
    again = await dial(proxy)
    assert await again.says(b"again") == b"again"
    again.writer.transport.abort()


async def test_cut_with_reset_resets_both_sides(proxy: FaultProxy, client: Client, echo: Echo) -> None:
    await client.says(b"hello")
    assert proxy.cut(reset=True) == 1
    with pytest.raises(ConnectionResetError):
        await client.hears_rest()
    async with asyncio.timeout(DEADLINE):
        await echo.reset.wait()
    assert proxy.connections == 0


async def test_cut_after_tears_at_the_byte(proxy: FaultProxy, client: Client, echo: Echo) -> None:
    await client.says(b"before")
    proxy.cut_after(3, "to_server")
    client.writer.write(b"torn apart")
    async with asyncio.timeout(DEADLINE):
        await echo.reset.wait()
    assert proxy.forwarded("to_server") == len(b"before") + 3
    again = await dial(proxy)
    assert await again.says(b"whole again") == b"whole again"
    again.writer.transport.abort()


@pytest.mark.parametrize("direction", ["to_server", "to_client", "both"])
async def test_stall_holds_and_resume_loses_nothing(proxy: FaultProxy, client: Client, direction: str) -> None:
    await client.says(b"one")
    other = "to_client" if direction == "to_server" else "to_server"
    with proxy.stalled(direction):  # type: ignore[arg-type]
        client.writer.write(b"two")
        if direction == "to_client":  # the request gets through, its echo does not
            await until(lambda: proxy.forwarded("to_server") == 6)
        held = direction if direction != "both" else "to_server"
        assert proxy.forwarded(held) == 3  # type: ignore[arg-type]
        assert proxy.connections == 1
    assert await client.hears(3) == b"two"
    assert proxy.forwarded(other) == 6  # type: ignore[arg-type]


async def test_a_stalled_direction_pushes_back_on_the_sender(proxy: FaultProxy, client: Client) -> None:
    await client.says(b"hello")
    proxy.stall("to_server")
    client.writer.write(bytes(BIG))
    drain = asyncio.ensure_future(client.writer.drain())
    done, _ = await asyncio.wait({drain}, timeout=0.2)
    assert not done, f"{BIG} bytes cannot all be under way"
    assert proxy.forwarded("to_server") == 5
    proxy.cut(reset=True)
    with pytest.raises(ConnectionResetError):
        await drain


async def test_an_end_of_stream_does_not_overtake_a_stall(proxy: FaultProxy, client: Client, echo: Echo) -> None:
    await client.says(b"hello")
    proxy.stall("to_server")
    client.writer.write_eof()
    around = Client(*await asyncio.open_connection(*proxy.target))
    assert await around.says(b"x") == b"x"  # the loop has gone round
    around.writer.transport.abort()
    assert not echo.ended.is_set()
    proxy.resume("to_server")
    assert await client.hears_rest() == b"bye"


async def test_throttle_lets_a_little_through_and_lifting_it_the_rest(proxy: FaultProxy, client: Client) -> None:
    proxy.throttle(0.001, "to_server")  # a byte in a thousand seconds
    client.writer.write(b"slow")
    assert await client.hears(1) == b"s"
    assert proxy.forwarded("to_server") == 1
    proxy.throttle(None)
    assert await client.hears(3) == b"low"


async def test_delay_holds_bytes_back_and_lifting_it_lets_them_go(proxy: FaultProxy, client: Client) -> None:
    proxy.delay(1000, "to_server")
    client.writer.write(b"one")
    around = Client(*await asyncio.open_connection(*proxy.target))
    assert await around.says(b"x") == b"x"  # the loop has gone round
    around.writer.transport.abort()
    assert proxy.forwarded("to_server") == 0
    client.writer.write(b"two")
    proxy.delay(0)
    assert await client.hears(6) == b"onetwo"
    proxy.delay(0.001)
    assert await client.says(b"a little later") == b"a little later"


HEADER = b"AMQP\x00\x00\x09\x01"
FRAMES = [
    b"\x01\0\0\0\0\0\x04\x00\x0a\x00\x0b\xce",
    b"\x08\0\0\0\0\0\0\xce",
    b"\x03\0\x01\0\0\x01\0" + bytes(256) + b"\xce",
]


@pytest.mark.parametrize("size", [1, 5, 1000])
@pytest.mark.parametrize("count, inside", [(0, 0), (0, 3), (1, 0), (2, 7), (3, 0), (3, 100)])
async def test_cut_after_frames_tears_at_the_frame(
    proxy: FaultProxy, client: Client, echo: Echo, size: int, count: int, inside: int
) -> None:
    """However the frames are cut into reads."""
    assert await client.says(HEADER) == HEADER
    assert proxy.frames("to_server") == 1
    proxy.cut_after_frames(count, "to_server", inside=inside)
    stream = b"".join(FRAMES) * 2
    try:
        for at in range(0, len(stream), size):
            client.writer.write(stream[at : at + size])
            await client.writer.drain()
    except ConnectionError:
        pass
    async with asyncio.timeout(DEADLINE):
        await echo.reset.wait()
    expected = len(b"".join(FRAMES[:count])) + inside
    assert proxy.forwarded("to_server") == len(HEADER) + expected
    assert proxy.frames("to_server") == 1 + count + (2 if inside == 100 else 0)  # two short ones of the next round


async def test_a_cut_that_is_taken_back(proxy: FaultProxy, client: Client) -> None:
    proxy.cut_after_frames(2, "to_server", inside=3)
    assert await client.says(HEADER) == HEADER
    proxy.no_cut()
    proxy.cut_after(5, "to_client")
    proxy.no_cut("to_client")
    for frame in FRAMES * 2:
        assert await client.says(frame) == frame
    assert proxy.frames("to_client") == 7


async def test_half_close_towards_the_server(proxy: FaultProxy, client: Client, echo: Echo) -> None:
    await client.says(b"hello")
    proxy.half_close("to_server")
    async with asyncio.timeout(DEADLINE):
        await echo.ended.wait()
    client.writer.write(b"into the void")
    assert await client.hears_rest() == b"bye"
    assert proxy.forwarded("to_server") == 5


async def test_half_close_towards_the_client(proxy: FaultProxy, client: Client) -> None:
    await client.says(b"hello")
    proxy.half_close("to_client")
    assert await client.hears_rest() == b""
    client.writer.write(b"still heard")
    await until(lambda: proxy.forwarded("to_server") == len(b"hello" + b"still heard"))
    assert proxy.forwarded("to_client") == 5


async def test_an_end_of_stream_for_a_client_that_has_reset(
    proxy: FaultProxy, client: Client, echo: Echo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel knows of the reset before the transport does."""
    problems: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
    await client.says(b"hello")

    def write_eof(writer: asyncio.StreamWriter) -> None:
        raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")

    with monkeypatch.context() as patch:
        patch.setattr(asyncio.StreamWriter, "write_eof", write_eof)
        echo.writers[0].close()
        await until(lambda: not proxy._tasks)
    gc.collect()
    assert problems == []


async def test_refuse_resets_newcomers_only(proxy: FaultProxy, client: Client) -> None:
    await client.says(b"hello")
    proxy.refuse()
    newcomer = await dial(proxy)
    with pytest.raises(ConnectionResetError):
        await newcomer.hears_rest()
    assert await client.says(b"still here") == b"still here"
    proxy.accept()
    again = await dial(proxy)
    assert await again.says(b"welcome") == b"welcome"
    again.writer.transport.abort()


async def test_a_dead_target_resets_the_client_and_a_new_target_serves_the_next(echo: Echo) -> None:
    dead = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0)
    port = dead.sockets[0].getsockname()[1]
    dead.close()
    await dead.wait_closed()
    async with FaultProxy("127.0.0.1", port) as proxy:
        with pytest.raises(ConnectionResetError):
            await (await dial(proxy)).hears_rest()
        proxy.target = ("127.0.0.1", echo.port)
        client = await dial(proxy)
        assert await client.says(b"moved") == b"moved"
        client.writer.transport.abort()


async def test_closing_resets_what_is_open_and_frees_the_port(echo: Echo) -> None:
    async with FaultProxy("127.0.0.1", echo.port) as proxy:
        client = await dial(proxy)
        await client.says(b"hello")
    with pytest.raises(ConnectionResetError):
        await client.hears_rest()
    with pytest.raises(ConnectionRefusedError):
        await dial(proxy)
    await proxy.aclose()  # a second time is harmless


@pytest.mark.parametrize("turns", range(8))
@pytest.mark.parametrize("before", [0, 3])
async def test_closing_at_any_step_of_an_accept_leaves_no_socket(turns: int, before: int) -> None:
    """A client that dials while the proxy closes: what was accepted is closed too, in whatever state it is."""
    with socket.create_server(("127.0.0.1", 0)) as server, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        proxy = FaultProxy("127.0.0.1", server.getsockname()[1])
        await proxy.start()
        for _ in range(before):
            await asyncio.sleep(0)
        with socket.create_connection((proxy.host, proxy.port)) as client:  # in the backlog: the loop has not turned
            for _ in range(turns):
                await asyncio.sleep(0)
            await proxy.aclose()
            client.settimeout(30)
            with suppress(ConnectionResetError):
                assert client.recv(1) == b""
        gc.collect()
    assert [str(each.message) for each in caught] == []


async def test_misuse_is_named(proxy: FaultProxy) -> None:
    with pytest.raises(InvalidArgument, match="use stall"):
        proxy.throttle(0)
    with pytest.raises(InvalidArgument, match="zero or more"):
        proxy.cut_after(-1, "to_client")
    with pytest.raises(InvalidArgument, match="zero or more"):
        proxy.cut_after_frames(1, "to_client", inside=-1)
    with pytest.raises(InvalidArgument, match="before they came"):
        proxy.delay(-1)
    with pytest.raises(InvalidArgument, match="'sideways'"):
        proxy.stall("sideways")  # type: ignore[arg-type]
    with pytest.raises(LocalProtocolError):
        await proxy.start()


async def until(condition: object) -> None:
    """Lets the loop run until the condition holds."""
    assert callable(condition)
    async with asyncio.timeout(DEADLINE):
        while not condition():  # noqa: ASYNC110  a byte count has no event
            await asyncio.sleep(0)
