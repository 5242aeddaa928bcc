"""Before anybody is logged in, on both brokers: protocol headers, what is no AMQP, and refusals without a word."""

from __future__ import annotations

import socket
from contextlib import ExitStack

import pytest

from harebell.protocol.v091 import Table, methods as m
from harebell.protocol.v091.codec import PROTOCOL_HEADER
from harebell.testing.rabbitmq import RabbitMQ
from tests.fixtures.rabbitmq import OLDER
from tests.wire import PATIENCE, Wire

SASL_HEADER = b"AMQP\3\1\0\0"
HEADER_0_10 = b"AMQP\1\1\0\x0a"

OTHERS: dict[str, bytes] = {
    "AMQP 1.0": b"AMQP\0\1\0\0",
    "AMQP 1.0 with SASL": b"AMQP\3\1\0\0",
    "AMQP 0-9-2": b"AMQP\0\0\x09\2",
    "AMQP over TLS": b"AMQP\2\1\0\0",
    "a browser": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
    "small letters": b"amqp\0\0\x09\1",
    "zeros": bytes(8),
}


@pytest.fixture
def ports(harebell_port: int, rabbitmq: RabbitMQ) -> tuple[int, int]:
    return harebell_port, rabbitmq.port


def last_words(port: int, said: bytes) -> bytes:
    """What the server answers until it closes the socket."""
    with Wire(port) as wire:
        wire.socket.settimeout(PATIENCE)
        wire.socket.sendall(said)
        answer = b""
        try:
            while more := wire.socket.recv(4096):
                answer += more
        except ConnectionResetError:
            pass  # it did not read all that was said
        return answer


@pytest.mark.parametrize("name", OTHERS)
def test_another_protocol_is_answered_with_the_header(ports: tuple[int, int], version: str, name: str) -> None:
    """RabbitMQ 4 speaks AMQP 1.0 too, and names that one."""
    assert last_words(ports[0], OTHERS[name]) == PROTOCOL_HEADER
    if version == OLDER:
        assert last_words(ports[1], OTHERS[name]) == PROTOCOL_HEADER
    elif not name.startswith("AMQP 1.0"):
        assert last_words(ports[1], OTHERS[name]) in (PROTOCOL_HEADER, SASL_HEADER)


def test_the_second_dialect_is_spoken_here_and_not_there(ports: tuple[int, int]) -> None:
    with Wire(ports[0]) as wire:
        wire.socket.sendall(HEADER_0_10)
        wire.socket.settimeout(PATIENCE)
        assert wire.socket.recv(8, socket.MSG_WAITALL) == HEADER_0_10
    assert last_words(ports[1], HEADER_0_10) in (PROTOCOL_HEADER, SASL_HEADER)


@pytest.mark.parametrize("header", [PROTOCOL_HEADER, b"AMQP\1\1\0\x09"], ids=("0-9-1", "0-9"))
def test_a_header_is_answered_with_start(ports: tuple[int, int], header: bytes) -> None:
    for port in ports:
        with Wire(port) as wire:
            wire.raw(header)
            start = wire.expect(m.ConnectionStart).method
            assert isinstance(start, m.ConnectionStart)
            assert (start.version_major, start.version_minor) == (0, 9)


def test_the_oldest_protocol_is_not_spoken(ports: tuple[int, int], version: str) -> None:
    """RabbitMQ 3.10 still takes the header of AMQP 0-8 and answers with 0-9-1's start."""
    assert last_words(ports[0], b"AMQP\1\1\x08\0") == PROTOCOL_HEADER
    if version != OLDER:
        assert last_words(ports[1], b"AMQP\1\1\x08\0") == SASL_HEADER
        return
    with Wire(ports[1]) as wire:
        wire.raw(b"AMQP\1\1\x08\0")
        wire.expect(m.ConnectionStart)


@pytest.mark.parametrize("capabilities", [{}, {"authentication_failure_close": False}], ids=("none", "not this one"))
def test_a_refused_login_ends_in_silence_for_who_knows_no_better(ports: tuple[int, int], capabilities: Table) -> None:
    with ExitStack() as stack:
        wires = [stack.enter_context(Wire(port)) for port in ports]
        for wire in wires:
            wire.raw(PROTOCOL_HEADER)
            wire.expect(m.ConnectionStart)
            wire.send(0, m.ConnectionStartOk({"capabilities": capabilities}, "PLAIN", b"\0guest\0wrong", "en_US"))
        for wire in wires:  # each takes seconds
            wire.wait_end()
        assert [wire.received for wire in wires] == [[], []]


def test_what_the_server_says_of_itself(ports: tuple[int, int]) -> None:
    """The capabilities that clients look for, and the numbers of tune."""
    said = []
    for port in ports:
        with Wire(port) as wire:
            wire.raw(PROTOCOL_HEADER)
            start = wire.expect(m.ConnectionStart).method
            assert isinstance(start, m.ConnectionStart)
            wire.send(0, m.ConnectionStartOk({}, "PLAIN", b"\0guest\0guest", "en_US"))
            tune = wire.expect(m.ConnectionTune).method
            assert isinstance(tune, m.ConnectionTune)
            names = set(start.server_properties) - {"information", "copyright", "platform"}
            assert {"product", "version", "capabilities", "cluster_name"} <= names
            said.append((start.server_properties["capabilities"], start.locales, repr(tune)))
    assert said[0] == said[1]
