"""A session against brokers that do what ours does not: they detach, release, ask, and break the protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from harebell import errors
from harebell.client.sessions import connect
from harebell.protocol.v010 import Command, Content, Control, commands as c, controls as k
from harebell.protocol.v010.domains import DetachCode
from harebell.protocol.v010.frames import control_frames
from tests.client.sessions.kit import FAST, until
from tests.client.sessions.scripted import Peer, scripted


def nothing(peer: Peer, event: object) -> bool:
    return False


def upon(kind: type[object], do: Callable[[Peer], object]) -> Callable[[Peer, object], bool]:
    """Do that at the first event of the kind."""
    done = False

    def on(peer: Peer, event: object) -> bool:
        nonlocal done
        if isinstance(event, kind) and not done:
            done = True
            do(peer)
        return False

    return on


async def test_against_a_plain_peer() -> None:
    async with scripted(nothing) as (url, peers), connect(url, backoff=None) as connection:
        async with connection.session("s") as session:
            await session.publish(b"m", "x", "key", mandatory=True)
            await session.publish(b"n", "x", "key")
            contents = [event for event in peers[0].seen if isinstance(event, Content)]
            command = contents[0].decode_command()
            assert command == c.MessageTransfer("x", 0, 0, sync=True)
            assert not contents[0].delivery_properties.discard_unroutable
            assert contents[1].delivery_properties.discard_unroutable
            assert contents[0].delivery_properties.routing_key == "key"
        kinds = [type(event) for event in peers[0].seen if isinstance(event, Control)]
        assert kinds[-2:] == [k.SessionRequestTimeout, k.SessionDetach]


async def test_the_broker_detaches() -> None:
    on = upon(c.ExecutionSync, lambda peer: peer.control(k.SessionDetach(b"s")))
    async with scripted(on) as (url, _), connect(url, backoff=None) as connection:
        async with connection.session("s") as session:
            with pytest.raises(errors.SessionDetached):
                await session.sync()


@pytest.mark.parametrize("code", [DetachCode.NOT_ATTACHED, DetachCode.UNKNOWN_IDS, 77])
async def test_codes_of_detached(code: int) -> None:
    on = upon(c.ExecutionSync, lambda peer: peer.control(k.SessionDetached(b"s", code)))
    async with scripted(on) as (url, _), connect(url, backoff=None) as connection:
        async with connection.session("s") as session:
            with pytest.raises(errors.SessionDetached) as caught:
                await session.sync()
            assert caught.value.code == code


async def test_an_exception_without_a_command() -> None:
    on = upon(c.ExecutionSync, lambda peer: peer.command(c.ExecutionException(541)))
    async with scripted(on) as (url, _), connect(url, backoff=None) as connection:
        async with connection.session("s") as session:
            with pytest.raises(errors.PluginFailed) as caught:
                await session.sync()
            assert caught.value.__notes__ == ["a command of session 's'"]


async def test_a_release_of_a_transfer_is_a_refusal() -> None:
    on = upon(Content, lambda peer: peer.command(c.MessageRelease(((0, 0),))))
    async with scripted(on) as (url, _), connect(url, backoff=None) as connection:
        async with connection.session("s") as session:
            with pytest.raises(errors.Nacked, match="released"):
                await session.publish(b"m", "", "q")


async def test_commands_of_the_broker_are_completed() -> None:
    def say(peer: Peer) -> None:
        peer.command(c.MessageAccept(((0, 0),)))
        peer.command(c.ExecutionSync(sync=True))
        peer.command(c.MessageReject(((90, 99),), 1, "of what was never sent"))
        peer.control(k.SessionRequestTimeout(5))

    on = upon(c.ExecutionSync, say)
    async with scripted(on) as (url, peers), connect(url, backoff=None) as connection:
        async with connection.session("s") as session:
            await session.sync()
            await until(lambda: peers[0].state.sending.incomplete == 0)
            assert k.SessionTimeout(0) in peers[0].seen


BROKEN: dict[str, tuple[Command, int]] = {
    "a command that clients do not know": (c.MessageFlow("x", 0, 1), 540),
    "a set that runs backwards": (c.MessageReject(((9, 3),)), 542),
    "a result of a wrong type": (c.ExecutionResult(0, None), 0),
}


@pytest.mark.parametrize("what", BROKEN)
async def test_what_a_broker_should_not_send(what: str) -> None:
    command, code = BROKEN[what]
    on = upon(c.ExecutionSync, lambda peer: peer.command(command))
    async with scripted(on) as (url, peers), connect(url, backoff=None) as connection:
        async with connection.session("s") as session:
            if not code:
                await session.sync()
                return
            with pytest.raises(errors.RemoteProtocolError) as caught:
                await session.sync()
            assert caught.value.reply_code == code
            await until(lambda: any(isinstance(event, k.SessionDetach) for event in peers[0].seen))
            said = [event for event in peers[0].seen if isinstance(event, c.ExecutionException)]
            assert [event.error_code for event in said] == [code]


async def test_a_malformed_command_ends_the_session() -> None:
    malformed = b"\x0f\x01\x00\x10\x00\x01\x00\x00\x00\x00\x00\x00\x04\x0a\x01\x00"
    on = upon(c.ExecutionSync, lambda peer: peer.bytes(malformed))
    async with scripted(on) as (url, _), connect(url, backoff=None) as connection:
        async with connection.session("s") as session:
            with pytest.raises(errors.RemoteProtocolError):
                await session.sync()
        assert not connection.is_closed


async def test_broken_framing_ends_the_connection() -> None:
    on = upon(c.ExecutionSync, lambda peer: peer.bytes(b"\xff" * 12))
    async with scripted(on) as (url, peers), connect(url, backoff=None) as connection:
        async with connection.session("s") as session:
            with pytest.raises(errors.RemoteProtocolError):
                await session.sync()
        assert isinstance(connection.closed_reason, errors.RemoteProtocolError)
        await until(lambda: any(isinstance(event, k.ConnectionClose) for event in peers[0].seen))


async def test_a_control_that_is_malformed() -> None:
    frames = control_frames(0, b"\x02\x77\0\0", 65_535)
    on = upon(c.ExecutionSync, lambda peer: peer.bytes(frames))
    async with scripted(on) as (url, _), connect(url, backoff=None) as connection:
        async with connection.session("s") as session:
            with pytest.raises(errors.RemoteProtocolError, match="unknown control"):
                await session.sync()


async def test_completions_of_what_was_never_sent() -> None:
    on = upon(c.ExecutionSync, lambda peer: peer.control(k.SessionCompleted(((5, 9),), False)))
    async with scripted(on) as (url, _), connect(url, backoff=None) as connection:
        async with connection.session("s") as session:
            with pytest.raises(errors.RemoteProtocolError, match="the next to be sent"):
                await session.sync()


async def test_the_broker_closes_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    on = upon(c.ExecutionSync, lambda peer: peer.control(k.ConnectionClose(320, "CONNECTION_FORCED - maintenance")))
    async with scripted(on) as (url, peers), connect(url, backoff=FAST, timeout=60) as connection:
        async with connection.session("s") as session:
            with pytest.raises(errors.SessionStateLost):  # this broker's sessions are always new
                await session.sync()
            await session.start_over()
            await session.sync()
        assert len(peers) == 2
        assert k.ConnectionCloseOk() in peers[0].seen
        told = (
            f"connection lost: 320 CONNECTION_FORCED - maintenance; {connection.parameters.peer} closed the connection"
        )
        assert told in caplog.text


async def test_a_first_attach_that_was_cut_waits_for_the_lost_connection() -> None:
    """The broker has attached the session to a connection that is lost, and does not know of the loss yet."""
    attaches = 0

    def on(peer: Peer, event: object) -> bool:
        nonlocal attaches
        if not isinstance(event, k.SessionAttach):
            return False
        attaches += 1
        if attaches == 1:
            peer.bytes(b"")
            peer.hang_up()
        elif attaches < 4:
            assert not event.force
            peer.control(k.SessionDetached(event.name, DetachCode.SESSION_BUSY))
        return attaches < 4

    async with scripted(on) as (url, _), connect(url, backoff=FAST, timeout=60) as connection:
        async with connection.session("s") as session:
            await session.sync()
        assert attaches == 4
        waiting = asyncio.ensure_future(connection.session("t").__aenter__())
        attaches = 0
        await until(lambda: attaches == 2)
        await connection.close()
        with pytest.raises(errors.ChannelClosed):
            await waiting


async def test_starting_over_waits_for_a_connection() -> None:
    def end(peer: Peer) -> None:
        peer.hang_up()

    async with scripted(upon(Content, end)) as (url, peers), connect(url, backoff=FAST, timeout=60) as connection:
        async with connection.session("s") as session:
            with pytest.raises(errors.SessionStateLost):
                await session.publish(b"m", "", "q")
            peers[-1].hang_up()
            await until(lambda: connection.state == "reconnecting")
            await session.start_over()
            await session.sync()


async def test_a_message_that_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    def send(peer: Peer) -> None:
        peer.state.sending.send(c.ExecutionSync(), 1)
        peer.engine.send_content(0, c.MessageTransfer("consumer-1"), b"", bytes(200))

    on = upon(c.MessageFlow, send)
    async with scripted(on) as (url, _), connect(url, backoff=None) as connection:
        session = await connection.session("s")
        monkeypatch.setattr(connection.recovery.transport.engine, "max_message_size", 100)
        with pytest.raises(errors.RemoteProtocolError, match="more than 100 bytes"):
            async with session.consume("q") as consumer:
                await anext(consumer)


async def test_a_transfer_for_nobody_is_released() -> None:
    def send(peer: Peer) -> None:
        peer.state.sending.send(c.ExecutionSync(), 1)
        peer.engine.send_content(0, c.MessageTransfer("unknown"), b"", b"m")

    on = upon(c.ExecutionSync, send)
    async with scripted(on) as (url, peers), connect(url, backoff=None) as connection:
        async with connection.session("s") as session:
            await session.sync()
            await until(lambda: any(isinstance(event, c.MessageRelease) for event in peers[0].seen))


async def test_settlements_and_completions_of_a_turn_are_few() -> None:
    def send(peer: Peer) -> None:
        for _ in range(100):
            peer.state.sending.send(c.ExecutionSync(), 1)
            peer.engine.send_content(0, c.MessageTransfer("consumer-1"), b"", b"m")

    async with scripted(upon(c.MessageFlow, send)) as (url, peers), connect(url, backoff=None) as connection:
        async with connection.session("s") as session:
            async with session.consume("q", window=100) as consumer:
                await until(lambda: consumer.buffered == 100)
                peers[0].seen.clear()
                for _ in range(100):
                    (await anext(consumer)).accept()
                await session.sync()
            accepts = [event for event in peers[0].seen if isinstance(event, c.MessageAccept)]
            assert [each.transfers for each in accepts] == [((0, 99),)]
            reports = [event.commands for event in peers[0].seen if isinstance(event, k.SessionCompleted)]
            assert reports == [((0, 99),)]


async def test_a_query_without_a_result() -> None:
    async with scripted(nothing) as (url, _), connect(url, backoff=None) as connection:
        async with connection.session("s") as session:
            with pytest.raises(errors.RemoteProtocolError, match="without its result"):
                await session.queue_query("q")


async def test_calls_wait_for_completions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that completes nothing holds its callers back, in their order."""
    monkeypatch.setattr("harebell.client.sessions.core.session.ENOUGH_COMMANDS", 3)
    held: list[tuple[Peer, Content]] = []

    def on(peer: Peer, event: object) -> bool:
        if isinstance(event, Content):
            held.append((peer, event))
        return isinstance(event, Content)

    async with scripted(on) as (url, _), connect(url, backoff=None, timeout=60) as connection:
        async with connection.session("s") as session:
            tasks = [asyncio.ensure_future(session.publish(b"%d" % number, "", "q")) for number in range(9)]
            await until(lambda: len(held) == 3)
            tasks[4].cancel()
            assert session.incomplete == 3
            found: list[bytes] = []
            while len(found) < 8:
                await until(lambda: held)
                peer, content = held.pop(0)
                found.append(content.body)
                peer.complete(content)
                peer.write()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert found == [b"0", b"1", b"2", b"3", b"5", b"6", b"7", b"8"]
