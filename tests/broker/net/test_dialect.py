"""One port for both dialects: the first eight bytes decide, however they come, with and without TLS."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest

import harebell
from harebell.broker import Broker, Tls
from harebell.broker.net.dialect import FirstBytes
from harebell.protocol.v010 import (
    Command,
    Content,
    Control,
    DeliveryProperties,
    Engine,
    Role,
    commands as c,
    controls as k,
)
from harebell.protocol.v010.frames import PROTOCOL_HEADER
from harebell.protocol.v010.session import Session
from harebell.protocol.v091.codec import PROTOCOL_HEADER as OLD_HEADER

END = 60.0


@pytest.mark.parametrize(
    ("data", "foreign"),
    [
        (PROTOCOL_HEADER + b"more", True),
        (OLD_HEADER, False),
        (b"AMQP\x01\x01\x08\x00", False),
        (b"AMQP\x01\x01\x00\x09", False),
        (b"GET / HTTP/1.1\r\n", False),
    ],
)
def test_first_bytes(data: bytes, foreign: bool) -> None:
    assert FirstBytes().add(data) == (data, foreign)
    bytewise, found = FirstBytes(), None
    for at in range(len(data)):
        found = bytewise.add(data[at : at + 1])
        if found is not None:
            break
    assert found is not None
    assert found[1] is foreign
    assert data.startswith(found[0])


class Client:
    """A client of AMQP 0-10 on a socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.engine = Engine(Role.CLIENT)
        self.state: Session[object] = Session(b"s")
        self.body = b""

    async def until(self, kind: type[object]) -> object:
        """Answer what comes, until an event of that kind."""
        while True:
            self.writer.write(self.engine.data_to_send())
            async with asyncio.timeout(END):
                data = await self.reader.read(65_536)
            assert data, "the broker has closed the socket"
            self.engine.receive_data(data)
            found = None
            for channel, event in self.engine.events():
                if isinstance(event, kind):
                    found = event
                if isinstance(event, k.SessionAttached):
                    for control in self.state.attached():
                        self.engine.send_control(channel, control)
                elif channel and isinstance(event, Control) and not isinstance(event, k.SessionDetached):
                    for said in self.state.receive_control(event).to_send:
                        assert isinstance(said, Control)
                        self.engine.send_control(channel, said)
                elif isinstance(event, Content):
                    self.body = event.body
            if found is not None:
                return found

    async def log_in(self, header: list[bytes]) -> None:
        self.engine.send_header()
        self.engine.data_to_send()
        for piece in header:
            self.writer.write(piece)
            await asyncio.sleep(0)
        await self.until(k.ConnectionStart)
        self.engine.send_control(0, k.ConnectionStartOk({}, "PLAIN", b"\0guest\0guest", "en_US"))
        await self.until(k.ConnectionTune)
        self.engine.send_control(0, k.ConnectionTuneOk(10, 65_535, 1))
        self.engine.send_control(0, k.ConnectionOpen("/"))
        await self.until(k.ConnectionOpenOk)
        self.engine.send_control(1, k.SessionAttach(b"s"))
        await self.until(k.SessionExpected)

    def send(self, command: Command) -> None:
        self.state.sending.send(command, 100)
        self.engine.send_command(1, command)

    def publish(self, key: str, body: bytes) -> None:
        command = c.MessageTransfer("", sync=True)
        self.state.sending.send(command, 100)
        self.engine.send_content(1, command, [DeliveryProperties(routing_key=key)], body)


@pytest.mark.parametrize("header", [[PROTOCOL_HEADER], [PROTOCOL_HEADER[:3], PROTOCOL_HEADER[3:]]])
async def test_both_dialects_on_one_port(header: list[bytes]) -> None:
    async with Broker() as broker:
        client = Client(*await asyncio.open_connection("127.0.0.1", broker.port))
        await client.log_in(header)
        client.send(c.QueueDeclare("q"))
        client.send(c.MessageSubscribe("q", "t"))
        client.send(c.MessageFlow("t", 0, None))
        client.send(c.MessageFlow("t", 1, None, sync=True))
        await client.until(k.SessionCompleted)
        async with harebell.connect(broker.url) as connection:
            channel = await connection.channel()
            await channel.publish(b"from 0-9-1", routing_key="q")
            await client.until(Content)
            assert client.body == b"from 0-9-1"
            await channel.queue_declare("r")
            client.publish("r", b"from 0-10")
            await client.until(k.SessionCompleted)
            got = await channel.get("r")
            assert got is not None
            assert got.body == b"from 0-10"
        shown = broker.statistics()["connections"]
        assert [len(each["channels"]) for each in shown if each["state"] == "running"] == [1]
        client.writer.close()


async def test_tls() -> None:
    own = Path(__file__).parents[2] / "client" / "tls"
    async with Broker(tls=Tls(own / "certificate.pem", own / "key.pem")) as broker:
        context = ssl.create_default_context(cafile=own / "certificate.pem")
        streams = await asyncio.open_connection("localhost", broker.tls_port, ssl=context)
        client = Client(*streams)
        await client.log_in([PROTOCOL_HEADER])
        client.send(c.QueueDeclare("q", sync=True))
        await client.until(k.SessionCompleted)
        client.writer.close()
        await client.writer.wait_closed()


async def test_heartbeats() -> None:
    async with Broker() as broker:
        client = Client(*await asyncio.open_connection("127.0.0.1", broker.port))
        await client.log_in([PROTOCOL_HEADER])
        async with asyncio.timeout(END):
            data = await client.reader.read(100)
        client.engine.receive_data(data)  # a heartbeat is no event
        assert client.engine.events() == []
        async with asyncio.timeout(END):  # and a silent client is cut off
            while await client.reader.read(100):
                pass
        client.writer.close()


async def test_a_client_that_leaves_early() -> None:
    async with Broker() as broker:
        for header in (b"", b"AMQ", PROTOCOL_HEADER[:7]):
            _, writer = await asyncio.open_connection("127.0.0.1", broker.port)
            writer.write(header)
            writer.close()
            await writer.wait_closed()
        async with harebell.connect(broker.url):
            pass


async def test_a_lasting_session_ends_with_the_broker() -> None:
    broker = Broker()
    await broker.start()
    client = Client(*await asyncio.open_connection("127.0.0.1", broker.port))
    await client.log_in([PROTOCOL_HEADER])
    client.engine.send_control(1, k.SessionRequestTimeout(60))
    await client.until(k.SessionTimeout)
    client.engine.send_control(1, k.SessionDetach(b"s"))
    await client.until(k.SessionDetached)
    assert len(broker.node.sessions) == 1
    await broker.stop()
    client.writer.close()
